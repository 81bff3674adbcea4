"""Data-dependent biases and positions, against their definitions written as loops."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from stringlib import ALiBi, LanguageModel, MultiHeadAttention, RoPE, SoftmaxAttention, ViT
from stringlib.attention.gated_norm import GatedNorm
from stringlib.attention.learned import RetNetDecay
from stringlib.attention.path import (
    POSITION_STEPS,
    STEPPED_ENCODERS,
    PositionSteps,
    path_positions,
)
from stringlib.attention.recurrent import RecurrentAttention
from stringlib.attention.states import PathState
from stringlib.attention.token_bias import (
    TOKEN_BIASES,
    ContextualBias,
    ForgettingBias,
    PathBias,
    TokenBias,
)
from stringlib.encoders.rope import SelectiveRoPE
from stringlib.testing import check_position_steps
from stringlib.testing.cases import position_steps_case, token_bias_case
from stringlib.testing.contract import Property
from stringlib.testing.data_dependent import DATA_DEPENDENT, DataDependent
from stringlib.testing.modes import Mode
from stringlib.testing.properties import largest_difference
from tests.draws import random
from tests.refusals import refusals
from tests.thinned import hold, products

DIM, HEADS, D, N = 12, 3, 4, 9


def drawn(module: Any, seed: int = 0) -> Any:
    """Return a module in float64 whose parameters are all random."""
    generator = torch.Generator().manual_seed(seed)
    module.double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return module


def fox(bias: Any, x: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """Return the logits of one head: each key loses the logarithms of all gates after it."""
    w, b = bias.to_gate.weight[0], bias.to_gate.bias[0]
    logits = q @ k.mT / math.sqrt(D)
    for i in range(N):
        for j in range(i + 1):
            for t in range(j + 1, i + 1):
                logits[i, j] += (1 / (1 + torch.exp(-(x[t] @ w + b)))).log()
    return logits


def path(bias: Any, x: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """Return the logits of one head: each token multiplies the keys before it by a matrix."""
    logits = q.new_zeros(N, N)
    for i in range(N):
        for j in range(i + 1):
            key = k[j]
            for t in range(j + 1, i + 1):
                w = bias.to_vector.weight[:D] @ x[t]
                w = w / w.norm()
                rate = 2 / (1 + torch.exp(-(bias.to_rate.weight[0] @ x[t] + bias.to_rate.bias[0])))
                key = key - rate * w * (w @ key)
            logits[i, j] = q[i] @ key / math.sqrt(D)
    return logits


def cope(bias: Any, x: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """Return the logits of one head: each query counts its gates from the key to itself."""
    last = len(bias.vectors) - 1
    logits = q @ k.mT / math.sqrt(D)
    gates = 1 / (1 + torch.exp(-logits))
    for i in range(N):
        for j in range(i + 1):
            place = min(float(last), gates[i, j : i + 1].sum().item())
            low = int(place)
            share = place - low
            vector = bias.vectors[low] * (1 - share)
            vector = vector + (bias.vectors[low + 1] * share if share else 0)
            logits[i, j] += q[i] @ vector / math.sqrt(D)
    return logits


BIASES: dict[str, tuple[Callable[[], TokenBias], Callable[..., Tensor]]] = {
    "fox": (lambda: ForgettingBias(DIM, 1), fox),
    "path": (lambda: PathBias(DIM, 1, D), path),
    "cope": (lambda: ContextualBias(1, D, cope_positions=3), cope),
}


@pytest.mark.parametrize("name", BIASES)
def test_a_bias_is_its_definition(name: str) -> None:
    make, definition = BIASES[name]
    bias = drawn(make())
    x, (q, k), v = random(N, DIM, seed=1), random(2, 1, N, D, seed=2), torch.eye(N)[None].double()
    found = SoftmaxAttention(position_bias=bias, causal=True)(q, k, v, tokens=x)[0][0]
    logits = definition(bias, x, q[0], k[0].clone())
    later = torch.ones(N, N, dtype=torch.bool).triu(1)
    expected = logits.masked_fill(later, -torch.inf).softmax(-1)
    assert largest_difference(found, expected) < 1e-12


CASES: dict[str, DataDependent] = {
    **{name: token_bias_case(make)[1] for name, make in TOKEN_BIASES.items()},
    "cope, few": token_bias_case(lambda: ContextualBias(HEADS, D, cope_positions=3))[1],
    **{f"steps, {name}": position_steps_case(make)[1] for name, make in POSITION_STEPS.items()},
    "steps of two coordinates": position_steps_case(lambda dim: PositionSteps(dim, 2))[1],
}


@pytest.mark.parametrize(
    ("name", "property", "modes"), products(DATA_DEPENDENT, CASES, ("fox", "steps, learned"))
)
def test_contract(name: str, property: Property, modes: list[Mode]) -> None:
    hold(property, CASES[name], modes)


def layer(seed: int = 0, **options: Any) -> Any:
    """Return a layer in float64 whose biases and steps are not at their start."""
    torch.manual_seed(seed)
    made = MultiHeadAttention(DIM, HEADS, causal=True, **options).double()
    for part in (made.position_bias, made.position_steps):
        if part is not None:
            drawn(part, seed)
    return made


LAYERS: dict[str, dict[str, Any]] = {
    "fox": {"position_bias": "fox"},
    "fox and rope": {"position_bias": "fox", "encoder": "rope"},
    "fox in a window": {"position_bias": "fox", "window": 3},
    "path": {"position_bias": "path"},
    "path in a window": {"position_bias": "path", "window": 4},
    "cope": {"position_bias": "cope", "cope_positions": 3},
    "cope in a window": {"position_bias": "cope", "cope_positions": 3, "window": 4},
    "alibi and circulant": {"position_bias": "alibi", "encoder": "circulant"},
    "steps": {"encoder": "rope", "position_steps": "learned"},
    "steps and fox": {"encoder": "rope", "position_steps": "learned", "position_bias": "fox"},
    "selective": {"encoder": "selective-rope"},
    "favor with steps": {"encoder": "rope", "attention": "favor", "position_steps": "learned"},
}


COUNTED = {name for name in LAYERS if "window" in name or "alibi" in name}
"""Layers in which padding counts, because they use distances of indices."""


@pytest.mark.parametrize("name", sorted(LAYERS.keys() - COUNTED))
def test_padding_between_tokens_changes_nothing(name: str) -> None:
    """Padding has no step, no gate and no matrix."""
    made, x = layer(**LAYERS[name]), random(2, N, DIM, seed=1)
    keep = torch.ones(N, dtype=torch.bool)
    keep[[0, 3, 4]] = False
    by_index = made.position_steps is None and made.encoder is not None
    positions = (keep.cumsum(0) - 1).clamp(min=0)[:, None] if by_index else None
    whole = made(x, positions, key_mask=keep.expand(2, -1))[:, keep]
    assert largest_difference(whole, made(x[:, keep])) < 1e-12


@pytest.mark.parametrize("name", LAYERS)
def test_documents_have_the_outputs_they_have_alone(name: str) -> None:
    made, x = layer(**LAYERS[name]), random(N, DIM, seed=1)
    ids = torch.tensor([0] * 4 + [1] * 2 + [2] * 3)
    packed = made(x, document_ids=ids)
    alone = torch.cat([made(x[ids == i]) for i in range(3)])
    assert largest_difference(packed, alone) < 1e-12


@pytest.mark.parametrize("cut", [1, 4, 8])
@pytest.mark.parametrize("name", LAYERS)
def test_a_state_continues(name: str, cut: int) -> None:
    made, x = layer(**LAYERS[name]), random(2, N, DIM, seed=1)
    mask = torch.rand(2, N, generator=torch.Generator().manual_seed(3)) < 0.7
    whole = made(x, key_mask=mask)
    first, state = made(x[:, :cut], key_mask=mask[:, :cut], return_state=True)
    second = made(x[:, cut:], key_mask=mask[:, cut:], state=state)
    assert largest_difference(torch.cat([first, second], 1), whole) < 1e-12
    assert state.length == cut


@pytest.mark.parametrize("name", [name for name in LAYERS if "favor" not in name])
def test_what_comes_before_a_window_of_tokens_has_no_effect_on_pairs_in_it(name: str) -> None:
    """Weights of keys among the last tokens keep their ratios if earlier tokens change.

    FAVOR+ is left out: its weights depend on the positions themselves.
    """
    made, x = layer(**LAYERS[name]), random(N, DIM, seed=1)
    other = torch.cat([random(N - 4, DIM, seed=7), x[-4:]])
    one, two = (made.attention_weights(y)[:, -1, -3:] for y in (x, other))
    ratios = [w / w[:, -1:] for w in (one, two)]
    assert largest_difference(*ratios) < 1e-10


def test_steps_of_one_are_rope() -> None:
    made = MultiHeadAttention(DIM, HEADS, encoder="rope", causal=True, position_steps="learned")
    plain = MultiHeadAttention(DIM, HEADS, encoder="rope", causal=True)
    plain.load_state_dict(made.state_dict(), strict=False)
    x = random(2, N, DIM, seed=1).float()
    assert largest_difference(made(x), plain(x)) < 1e-6
    assert isinstance(made(x, return_state=True)[1], PathState)
    selective = SelectiveRoPE(D, heads=HEADS)
    other: Any = MultiHeadAttention(DIM, HEADS, selective, causal=True, position_steps="learned")
    other.load_state_dict({**plain.state_dict()}, strict=False)
    assert other.position_steps.to_steps.weight.shape == (HEADS * D // 2, DIM)
    assert largest_difference(other(x), plain(x)) < 1e-6


def test_steps_with_a_name_belong_to_one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POSITION_STEPS, "own", lambda dim, coord_dim: nn.Linear(dim, coord_dim))
    sizes: Any = {"vocab": 5, "dim": DIM, "depth": 2, "heads": HEADS, "encoder": "rope"}
    for steps, count in (("own", 2), (nn.Linear(DIM, 1), 1)):
        model = LanguageModel(**sizes, position_steps=steps)
        assert len({block.attention.position_steps for block in model.blocks}) == count


def test_steps_with_a_name_know_the_sizes_of_the_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    given = []

    def own(dim: int, heads: int, head_dim: int, coord_dim: int) -> nn.Module:
        given.append((dim, heads, head_dim, coord_dim))
        return nn.Linear(dim, coord_dim)

    monkeypatch.setitem(POSITION_STEPS, "own", own)
    MultiHeadAttention(DIM, HEADS, "selective-rope", causal=True, position_steps="own")
    assert given == [(DIM, HEADS, DIM // HEADS, DIM // 2)]
    check_position_steps(own, modes=["eager"])


def test_selective_rope_by_its_name_has_learned_steps_of_its_own_in_each_block() -> None:
    torch.manual_seed(0)
    made = MultiHeadAttention(DIM, HEADS, "selective-rope", causal=True, base=100.0)
    encoder = SelectiveRoPE(D, HEADS, base=100.0)
    torch.manual_seed(0)
    same = MultiHeadAttention(DIM, HEADS, encoder, causal=True, position_steps="learned")
    x = random(2, N, DIM, seed=1).float()
    assert isinstance(made.encoder, SelectiveRoPE)
    assert torch.equal(made(x), same(x))
    own = MultiHeadAttention(
        DIM, HEADS, "selective-rope", position_steps=nn.Linear(DIM, D // 2), kv_heads=1
    )
    assert isinstance(own.position_steps, nn.Linear)
    assert own(x).shape == x.shape
    sizes: Any = {"dim": DIM, "depth": 2, "heads": HEADS}
    text = LanguageModel(5, **sizes, encoder="selective-rope")
    assert text(torch.arange(5)[None]).shape == (1, 5, 5)
    images = ViT(4, 2, 5, channels=1, **sizes, encoder="selective-rope")
    assert images(torch.randn(1, 1, 4, 4)).shape == (1, 5)
    steps: Any = "learned"
    given = ViT(4, 2, 5, channels=1, **sizes, encoder=encoder, position_steps=steps)
    for model in (text, images, given):
        modules = {block.attention.position_steps for block in model.blocks}
        assert len(modules) == 2
        assert all(isinstance(module, PositionSteps) for module in modules)


def test_an_encoder_of_steps_of_your_own_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STEPPED_ENCODERS, "own", partial(SelectiveRoPE, base=1.0))
    made = MultiHeadAttention(DIM, HEADS, "own", causal=True)
    assert torch.equal(made.encoder.frequencies().flatten(0, 1), torch.eye(6).double())


def test_a_base_of_one_makes_the_steps_angles() -> None:
    encoder = SelectiveRoPE(D, heads=2, base=1.0)
    assert torch.equal(encoder.frequencies().flatten(0, 1), torch.eye(D).double())


def test_selective_rope_is_a_product_of_the_rotations_of_tokens() -> None:
    """The key is rotated by the angles of each token after it, one after the other."""
    encoder = SelectiveRoPE(D, heads=2).double()
    omega = RoPE(D).frequencies()[0, :, 0]
    steps, (q, k) = random(N, 2 * D // 2, seed=1), random(2, 2, N, D, seed=2)
    positions, last = path_positions(steps)
    a, b = encoder(q, k, positions)
    found = a @ b.mT
    for head in range(2):
        for i, j in ((0, 0), (4, 1), (8, 2), (8, 0)):
            key = k[head, j]
            for t in range(j + 1, i + 1):
                for pair in range(D // 2):
                    angle = -omega[pair] * steps[t, head * D // 2 + pair]
                    turn = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()])
                    two = slice(2 * pair, 2 * pair + 2)
                    key = torch.cat([key[: two.start], turn.view(2, 2) @ key[two], key[two.stop :]])
            assert abs((q[head, i] @ key - found[head, i, j]).item()) < 1e-12
    assert torch.equal(last, positions[-1:])


def test_given_positions_are_not_used_with_steps() -> None:
    """A model passes its positions to a layer that a wrapper hides."""
    made, x = layer(encoder="rope", position_steps="learned"), random(2, N, DIM, seed=1)
    assert torch.equal(made(x, random(N, 1, seed=2)), made(x))


def test_gradients_reach_the_steps() -> None:
    made, x = layer(encoder="rope", position_steps="learned"), random(1, N, DIM, seed=1)
    made(x).square().sum().backward()
    assert made.position_steps.to_steps.weight.grad.abs().max() > 1e-6


def test_a_recurrence_with_angles_is_a_recurrence_of_complex_numbers() -> None:
    """Mamba-3: the state decays and rotates; here with one constant decay per head."""
    torch.manual_seed(0)
    encoder = SelectiveRoPE(D, heads=HEADS)
    made = RecurrentAttention(
        DIM,
        HEADS,
        RetNetDecay(HEADS),
        GatedNorm(DIM, HEADS, D),
        encoder=encoder,
        position_steps=nn.Linear(DIM, HEADS * D // 2),
    ).double()
    x = random(1, N, DIM, seed=1)
    weight: Any = made.core.weight
    assert made.position_steps is not None
    decay = weight.log_decay.exp()[:, None].expand(HEADS, D // 2)
    steps = made.position_steps(x)[0].view(N, HEADS, D // 2)
    angles = steps * RoPE(D).frequencies()[0, :, 0]
    q, k, v = (to(x)[0].view(N, HEADS, D) for to in (made.to_q, made.to_k, made.to_v))
    cq, ck = (torch.view_as_complex(y.reshape(N, HEADS, D // 2, 2)) for y in (q, k))
    state = torch.zeros(HEADS, D // 2, D, dtype=torch.complex128)
    outs = []
    for t in range(N):
        turn = torch.polar(decay, angles[t])
        state = turn[..., None] * state + ck[t].conj()[..., None] * v[t][:, None]
        outs.append((cq[t][..., None] * state).sum(1).real)
    heads = torch.stack(outs, 1)[None]
    expected = made.to_out(made.norm(heads, x))
    assert largest_difference(made(x), expected) < 1e-6


class Same(TokenBias):
    """A bias that is 0."""

    reads_keys = False

    def forward(self, q: Tensor, k: Tensor, marks: Tensor) -> Tensor:
        return 0 * (marks.mT + q[..., :1])


def test_a_bias_of_your_own_needs_only_forward() -> None:
    x = random(2, N, DIM, seed=1)
    plain, made = layer(encoder="rope"), layer(encoder="rope", position_bias=Same(HEADS))
    made.load_state_dict(plain.state_dict())
    assert largest_difference(plain(x), made(x)) < 1e-12
    with pytest.raises(NotImplementedError, match="TokenBias must define forward"):
        layer(position_bias=TokenBias(HEADS))(x)


@pytest.mark.parametrize("name", LAYERS)
def test_padding_may_be_no_number(name: str) -> None:
    made, x = layer(**LAYERS[name]), random(2, N, DIM, seed=1)
    keep = torch.ones(N, dtype=torch.bool)
    keep[[0, 3, 4]] = False
    broken = x.masked_fill(~keep[:, None], torch.nan)
    found, expected = (made(y, key_mask=keep.expand(2, -1))[:, keep] for y in (broken, x))
    assert largest_difference(found, expected) < 1e-12


@pytest.mark.parametrize("name", LAYERS)
def test_a_state_of_a_document_continues(name: str) -> None:
    """The first document continues a state, and the state that is returned is of the last one."""
    made, x, more = layer(**LAYERS[name]), random(2, N, DIM, seed=1), random(2, 3, DIM, seed=2)
    _, state = made(more, return_state=True)
    ids = torch.tensor([0] * 4 + [1] * 2 + [2] * 3).expand(2, -1)
    packed, last = made(x, document_ids=ids, state=state, return_state=True)
    alone = [made(torch.cat([more, x[:, :4]], 1))[:, 3:], made(x[:, 4:6]), made(x[:, 6:])]
    assert largest_difference(packed, torch.cat(alone, 1)) < 1e-12
    later = made(torch.cat([x[:, 6:], more], 1))[:, 3:]
    assert largest_difference(made(more, state=last), later) < 1e-12


def without_encoder() -> Any:
    made = layer(encoder="rope", position_steps="learned")
    made.encoder = None
    return made(X.double())


def other_heads() -> Any:
    made = layer(position_bias="fox")
    made.position_bias = ForgettingBias(DIM, 2).double()
    return made(X.double())


def wrong_steps() -> Any:
    return MultiHeadAttention(DIM, HEADS, "rope", causal=True, position_steps=nn.Linear(DIM, 2))(
        random(1, 2, DIM).float()
    )


X = torch.zeros(1, 2, DIM)
test_what_does_not_fit_is_named = refusals(
    (lambda: MultiHeadAttention(DIM, HEADS, position_bias="fox"),
     "causal must be True if position_bias is a ForgettingBias, got False"),
    (lambda: MultiHeadAttention(DIM, HEADS, "rope", position_bias="path", causal=True),
     "encoder must be None for a PathBias, got a RoPE"),
    (lambda: MultiHeadAttention(DIM, HEADS, "alibi", position_bias="alibi", causal=True),
     "position_bias must be None if encoder is a relative bias, got a ALiBi"),
    (lambda: MultiHeadAttention(DIM, HEADS, position_bias="foxx", causal=True),
     "position_bias must be one of .*fox.*, got 'foxx'"),
    (lambda: MultiHeadAttention(DIM, HEADS, position_bias=ALiBi(2), causal=True),
     "position_bias must have heads=3, got heads=2"),
    (lambda: MultiHeadAttention(DIM, HEADS, None, "elu", position_bias="fox", causal=True),
     "position_bias must be None unless attention is 'softmax', got 'fox'"),
    (lambda: MultiHeadAttention(DIM, HEADS, position_steps="learned"),
     "encoder must be a rotary encoder if position_steps is given, got NoneType"),
    (lambda: MultiHeadAttention(DIM, HEADS, "selective_rope"), "Did you mean 'selective-rope'"),
    (lambda: MultiHeadAttention(DIM, HEADS, "selective-rope", coord_dim=2),
     "coord_dim must be None unless encoder is one of rope, .*, got 2"),
    (lambda: MultiHeadAttention(DIM, HEADS, "rope", position_steps="lerned"),
     "position_steps must be one of learned, got 'lerned'"),
    (lambda: ContextualBias(2, 4, cope_positions=1), "cope_positions must be at least 2, got 1"),
    (without_encoder, "encoder must be a rotary encoder if position_steps is given, got NoneType"),
    (other_heads, r"marks of a ForgettingBias must .* \(1, 3, 2, m\), .* got \(1, 2, 2, 1\)"),
    (lambda: SelectiveRoPE(5, heads=2), r"head_dim must be even and positive .* got 5"),
    (wrong_steps, r"position_steps must return steps of shape \(1, 2, 1\) .* got \(1, 2, 2\)"),
    (lambda: MultiHeadAttention(DIM, HEADS, "rope", position_steps="learned")(X, context=X),
     "context must be None for a layer with position_steps"),
    (lambda: SoftmaxAttention(position_bias=ForgettingBias(DIM, HEADS), causal=True)(
        *torch.zeros(3, 1, HEADS, 2, D)), "tokens must be given for a ForgettingBias, got None"),
)  # fmt: skip


def test_names() -> None:
    assert set(TOKEN_BIASES) == set(BIASES)
    assert PositionSteps(DIM, 2)(X).shape == (1, 2, 2)
