"""The language model alone: its time, its states, what it draws, its parts, sizes and refusals."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from stringlib import LanguageModel
from stringlib.encoders.registry import make_bias
from stringlib.models import make_language_model
from stringlib.models.blocks import SwiGLU
from stringlib.testing import properties
from tests.model_cases import (
    CASES,
    COVERING,
    LENGTH,
    PUBLISHED,
    VOCAB,
    has_state,
    language_model,
    text,
)
from tests.refusals import refused

DIM = 16
STATES = [name for name in (*CASES, *PUBLISHED) if has_state(name)]
SERVED = [name for name in STATES if name in (*COVERING, *PUBLISHED)]


def count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("name", [*CASES, *PUBLISHED])
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
    assert torch.equal(cold, model.generate(start, 5, temperature=1e-30))
    for tiny in (9e-31, 1e-38, 5e-324):
        with pytest.raises(ValueError, match=r"temperature must be 0 or at least 1e-30, .* Pass 0"):
            model.generate(start, 5, temperature=tiny)
    generators = [torch.Generator().manual_seed(seed) for seed in range(8)]
    hot = [model.generate(start, 5, temperature=50.0, generator=g) for g in generators]
    assert len({tuple(t.flatten().tolist()) for t in hot}) == 8
    assert torch.equal(model.generate(start, 0), start)
    assert not model.generate(start, 1).requires_grad


def test_under_a_causal_mask_all_buckets_of_t5_are_for_the_past() -> None:
    assert make_bias("t5", 3).bidirectional
    assert not language_model("softmax-t5").blocks[0].attention.encoder.bidirectional


@pytest.mark.parametrize("tied", [False, True])
def test_a_tied_readout_is_the_embedding(tied: bool) -> None:
    model = language_model("softmax-rope", tied=tied)
    assert (model.readout.weight is model.embed.weight) is tied
    emptied = copy.deepcopy(model).to("meta").to_empty(device="cpu")
    assert (emptied.readout.weight is emptied.embed.weight) is tied
    assert count(language_model("softmax-rope", tied=False)) - count(model) == tied * VOCAB * DIM


def test_a_token_and_its_sinusoid_are_of_one_length() -> None:
    torch.manual_seed(0)
    model = LanguageModel(1000, 64, 1, 2, "sinusoidal")
    seen: list[Any] = []
    model.blocks[0].register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    tokens = torch.arange(1000)[None]
    model(tokens)
    added = (seen[0] - model.embed(tokens)).norm(dim=-1)
    assert torch.allclose(added, torch.ones(()), atol=1e-5)
    assert model.embed(tokens).norm(dim=-1).mean().item() == pytest.approx(1, abs=0.02)


def test_swiglu_is_its_formula_and_two_thirds_as_wide_has_as_many_weights() -> None:
    gated, x = SwiGLU(256, 682), torch.randn(5, 256)
    hidden = x @ gated.to_gate.weight.mT
    hidden = hidden * hidden.sigmoid() * (x @ gated.to_hidden.weight.mT)
    assert torch.allclose(gated(x), hidden @ gated.to_out.weight.mT, atol=1e-6)
    assert count(gated) == 3 * 256 * 682 == pytest.approx(2 * 256 * 1024, rel=0.01)


def test_bad_input_is_named() -> None:
    model, tokens = language_model("softmax-rope"), text(2, 4)
    learned, nprf = language_model("softmax-learned"), language_model("elu-toeplitz-None")
    (_, state), (_, seen) = (m(tokens, return_state=True) for m in (model, learned))
    long = text(2, 8)
    too_long = "tokens and state together must have at most length = 7 tokens, got 8"
    bad: list[tuple[str, Any]] = [
        ("name must be one of tiny, small, 6x256", lambda: make_language_model("huge", VOCAB)),
        ("encoder must be None or one of rope", lambda: LanguageModel(5, 4, 1, 2, "rotary")),
        ("mlp must be None or one of mlp", lambda: LanguageModel(5, 4, 1, 2, mlp="moe")),
        ("length must be given for encoder", lambda: LanguageModel(5, 4, 1, 2, "learned")),
        (too_long, lambda: learned(long)),
        (too_long, lambda: nprf(long)),
        (too_long, lambda: learned(tokens, state=seen)),
        (too_long, lambda: learned.generate(tokens, 5)),
        ("state must contain 2 states", lambda: model(tokens, state=state[:1])),
        ("tokens must have at least one token", lambda: model.generate(text(2, 0), 1)),
        ("key_mask must have shape",
         lambda: model.generate(tokens, 2, key_mask=torch.ones(2, 3).bool())),
        ("key_mask must be True for the last token",
         lambda: model.generate(tokens, 2, key_mask=torch.eye(2, 4).bool())),
    ]  # fmt: skip
    for match, call in bad:
        with refused(match):
            call()


def test_tokens_that_the_embedding_does_not_have() -> None:
    model, beyond = language_model("softmax-rope"), torch.full((1, 2), VOCAB)
    with refused(f"tokens must be from 0 to vocab - 1 = {VOCAB - 1}, got values from {VOCAB}"):
        model(beyond)
    model.embed = nn.Sequential(model.embed)  # it does not say how many tokens it has
    with pytest.raises(IndexError):
        model(beyond)


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
