"""The language model alone: its time, its states, what it draws, its parts, sizes and refusals."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from stringlib import LanguageModel
from stringlib.encoders.registry import BIASES, make_bias
from stringlib.models import make_language_model
from stringlib.models.blocks import MLP, SwiGLU
from stringlib.testing import properties
from tests.model_cases import CASES, COVERING, LENGTH, VOCAB, has_state, language_model, text
from tests.refusals import refused

DIM = 16
STATES = [name for name in CASES if has_state(name)]
SERVED = [name for name in STATES if name in COVERING]


def count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("name", CASES)
def test_nothing_looks_ahead(name: str) -> None:
    model, tokens = language_model(name).double(), text(2, LENGTH)
    later = tokens.clone()
    later[:, 4:] = (tokens[:, 4:] + 1 + text(2, LENGTH - 4, seed=2) % (VOCAB - 1)) % VOCAB
    assert properties.largest_difference(model(tokens)[:, :4], model(later)[:, :4]) <= 1e-12
    assert properties.largest_difference(model(tokens)[:, 4:], model(later)[:, 4:]) > 1e-3


def test_positions_are_counted_and_can_be_given() -> None:
    model, tokens = language_model("softmax-rope").double(), text(2, LENGTH)
    counted = torch.arange(LENGTH)[:, None]
    assert torch.equal(model(tokens), model(tokens, counted))
    moved = model(tokens, counted + 1000)
    assert properties.largest_difference(model(tokens), moved) <= 1e-10
    assert properties.largest_difference(model(tokens), model(tokens, counted / 2)) > 1e-4
    each = torch.stack([counted, counted / 2])
    both = torch.cat([model(tokens[:1]), model(tokens[1:], counted / 2)])
    assert properties.largest_difference(model(tokens, each), both) <= 1e-12
    absolute = language_model("softmax-sinusoidal").double()
    assert properties.largest_difference(absolute(tokens), absolute(tokens, counted + 5)) > 1e-3


@pytest.mark.parametrize("depth", [1, 3])
def test_a_state_has_the_length_of_any_depth(depth: int) -> None:
    model, tokens = LanguageModel(VOCAB, DIM, depth, 2, "rope").double(), text(2, LENGTH)
    _, state = model(tokens[:, :4], return_state=True)
    assert len(state) == depth
    rest = model(tokens[:, 4:], state=state)
    assert properties.largest_difference(rest, model(tokens)[:, 4:]) <= 1e-12


@pytest.mark.parametrize("name", [name for name in CASES if name not in STATES])
def test_layers_without_a_state_say_so(name: str) -> None:
    with pytest.raises(ValueError, match="state"):
        language_model(name)(text(2, 3), return_state=True)


@pytest.mark.parametrize("name", SERVED)
def test_generating_with_a_state_equals_reading_all_again(name: str) -> None:
    model, start = language_model(name).double(), text(2, 2)
    drawn = model.generate(start, 3, generator=torch.Generator().manual_seed(3))
    generator, expected = torch.Generator().manual_seed(3), start
    for _ in range(3):
        shares = model(expected)[:, -1].float().softmax(-1)
        expected = torch.cat([expected, shares.multinomial(1, generator=generator)], 1)
    assert torch.equal(drawn, expected)


def test_temperature() -> None:
    model, start = language_model("softmax-rope"), text(3, 2)
    cold = model.generate(start, 5, temperature=0)
    assert torch.equal(cold, model.generate(start, 5, temperature=1e-6))
    scores = model(cold)[:, 1:-1]
    assert torch.equal(scores.argmax(-1), cold[:, 2:])
    generators = [torch.Generator().manual_seed(seed) for seed in range(8)]
    hot = [model.generate(start, 5, temperature=50.0, generator=g) for g in generators]
    assert len({tuple(t.flatten().tolist()) for t in hot}) == 8
    assert torch.equal(model.generate(start, 0), start)
    assert not model.generate(start, 1).requires_grad


@pytest.mark.parametrize("name", BIASES)
def test_a_bias_by_name(name: str) -> None:
    bias = make_bias(name, 3)
    assert bias(4, 5).shape == (3, 4, 5)
    if name == "t5":  # under a causal mask all buckets are for the past
        assert (bias.bidirectional, make_bias(name, 3, causal=True).bidirectional) == (True, False)
        model = language_model("softmax-t5")
        assert not model.blocks[0].attention.encoder.bidirectional
    with pytest.raises(ValueError, match=r"name must be one of alibi, t5, .*, got 'rope'"):
        make_bias("rope", 3)


@pytest.mark.parametrize("tied", [False, True])
def test_a_tied_readout_is_the_embedding(tied: bool) -> None:
    model = language_model("softmax-rope", tied=tied)
    assert (model.readout.weight is model.embed.weight) is tied
    same = copy.deepcopy(model)
    assert (same.readout.weight is same.embed.weight) is tied
    assert count(language_model("softmax-rope", tied=False)) - count(model) == tied * VOCAB * DIM


def test_decays_keep_their_own_start() -> None:
    torch.manual_seed(0)
    model = LanguageModel(VOCAB, 64, 2, 4, attention="elu", weight="ssd")
    for block in model.blocks:
        step = nn.functional.softplus(block.attention.weight.to_step.bias)
        assert 1e-3 <= step.min() <= step.max() <= 0.1 + 1e-6


def test_a_token_and_its_sinusoid_are_of_one_length() -> None:
    torch.manual_seed(0)
    model = LanguageModel(1000, 64, 1, 2, "sinusoidal")
    seen: list[Tensor] = []
    model.blocks[0].register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    tokens = torch.arange(1000)[None]
    model(tokens)
    added = (seen[0] - model.embed(tokens)).norm(dim=-1)
    assert torch.allclose(added, torch.ones(()), atol=1e-5)
    assert model.embed(tokens).norm(dim=-1).mean().item() == pytest.approx(1, abs=0.02)


def test_two_thirds_as_wide_swiglu_has_as_many_weights() -> None:
    gated, plain = SwiGLU(256, 682), MLP(256, 1024)
    assert count(gated) == 3 * 256 * 682 == 523_776
    biases = plain.to_hidden.bias.numel() + plain.to_out.bias.numel()
    assert count(plain) - biases == 2 * 256 * 1024 == 524_288
    x = torch.randn(5, 256)
    hidden = x @ gated.to_gate.weight.mT
    expected = (
        hidden * hidden.sigmoid() * (x @ gated.to_hidden.weight.mT)
    ) @ gated.to_out.weight.mT
    assert torch.allclose(gated(x), expected, atol=1e-6)


def test_the_parameters_of_6x256() -> None:
    model = make_language_model("6x256", VOCAB, attention="favor-circulant")
    assert model.blocks[0].attention.features.projection_matrix().shape == (4, 64, 64)
    assert [block.mlp.to_out.in_features for block in model.blocks] == [682] * 6
    beside = count(model) - VOCAB * 256
    norms = 6 * 2 * 512 + 512
    assert beside == 6 * (4 * 256**2 + 523_776) + norms == 4_722_176
    for gate, more, percent in (("elementwise", 393_216, 8.33), ("headwise", 6_144, 0.13)):
        gated = make_language_model("6x256", VOCAB, attention="favor-circulant", gate=gate)
        assert count(gated) - count(model) == more
        assert 100 * more / beside == pytest.approx(percent, abs=0.005)


def test_bad_input_is_named() -> None:
    model, tokens = language_model("softmax-rope"), text(2, 4)
    learned, nprf = language_model("softmax-learned"), language_model("elu-toeplitz-None")
    _, state = model(tokens, return_state=True)
    _, seen = learned(tokens, return_state=True)

    def new(**changes: Any) -> LanguageModel:
        return LanguageModel(**{"vocab": VOCAB, "dim": DIM, "depth": 1, "heads": 2, **changes})

    length = "length, the longest sequence, must be given"
    too_long = "tokens must be at most length = 7, those before included, got 8"
    bad: list[tuple[str, Any]] = [
        ("name must be one of tiny, small, 6x256, .*, got 'huge'",
         lambda: make_language_model("huge", VOCAB)),
        ("encoder must be None or one of rope, .*, alibi, .*, learned, got 'rotary'",
         lambda: new(encoder="rotary")),
        ("mlp must be None or one of mlp, swiglu, got 'moe'", lambda: new(mlp="moe")),
        (length, lambda: new(encoder="learned")),
        (length, lambda: new(attention="elu", weight="toeplitz")),
        (too_long, lambda: learned(text(2, 8))),
        (too_long, lambda: nprf(text(2, 8))),
        (too_long, lambda: learned(tokens, state=seen)),
        (too_long, lambda: learned.generate(tokens, 5)),
        ("positions must have", lambda: model(tokens, torch.arange(3)[:, None])),
        ("state must hold one state for each of 2 blocks, got 1",
         lambda: model(tokens, state=state[:1])),
        ("tokens must hold at least one token", lambda: model.generate(text(2, 0), 1)),
    ]  # fmt: skip
    for match, call in bad:
        with refused(match):
            call()


def test_no_tokens_no_scores() -> None:
    for name in ("softmax-rope", "favor-rope", "elu-gla-None", "softmax-learned"):
        assert language_model(name)(text(2, 0)).shape == (2, 0, VOCAB)


@pytest.mark.parametrize("name", SERVED)
def test_prompts_of_different_length_are_served_in_one_batch(name: str) -> None:
    model = language_model(name).double()
    long, short, padding = text(1, 5), text(1, 3, seed=1), text(1, 2, seed=2)
    both = torch.cat([long, torch.cat([padding, short], -1)])
    mask = torch.ones(2, 5, dtype=torch.bool)
    mask[1, :2] = False
    alone = [model.generate(tokens, 3, temperature=0) for tokens in (long, short)]
    found = model.generate(both, 3, key_mask=mask, temperature=0)
    assert torch.equal(found[0], alone[0][0])
    assert torch.equal(found[1, 2:], alone[1][0])
    positions = (mask.cumsum(-1) - 1).clamp(min=0)[..., None]
    scores = model(both, positions, key_mask=mask)
    assert properties.largest_difference(scores[0], model(long)[0]) < 1e-10
    assert properties.largest_difference(scores[1, 2:], model(short)[0]) < 1e-10


@pytest.mark.parametrize(
    ("mask", "match"),
    [
        (torch.ones(2, 5), "TypeError: key_mask must be a boolean tensor.*got torch.float32"),
        (torch.ones(2, 4, dtype=torch.bool), "key_mask must have shape"),
        (torch.eye(2, 5).bool(), "key_mask must be True for the last token"),
    ],
)
def test_a_mask_that_does_not_fit_is_named(mask, match) -> None:
    model = LanguageModel(11, 12, 1, 2)
    with refused(match):
        model.generate(torch.zeros(2, 5, dtype=torch.int64), 2, key_mask=mask)
