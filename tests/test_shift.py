"""Keys that take in the key before: the formula, time, padding, states, folding, and recall."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from stringlib import CirculantSTRING, MultiHeadAttention, checks
from stringlib.attention.shift import KeyShift, ShiftedState

DIM, HEADS, N = 12, 3, 9
LAYERS: dict[str, dict[str, Any]] = {
    "softmax": {},
    "rope": {"encoder": "rope", "gate": "elementwise"},
    "normal": {"encoder": "rope", "normalize_qk": True},
    "relu": {"attention": "relu"},
    "favor": {"attention": "favor", "encoder": "rope", "num_features": 7},
    "cosine": {"attention": "relu", "weight": "cosine", "horizon": 20},
    "gla": {"attention": "elu", "weight": "gla"},
}


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def make(name: str, causal: bool = True, **options: Any) -> MultiHeadAttention:
    torch.manual_seed(0)
    options = {**LAYERS[name], **options}
    layer = MultiHeadAttention(DIM, HEADS, causal=causal, shift=True, **options).double()
    torch.nn.init.normal_(layer.shift.logit)
    return layer


def test_a_key_is_the_mixture_of_two() -> None:
    shift, k = KeyShift(HEADS).double(), random(2, HEADS, N, 4)
    assert shift.logit.sigmoid().tolist() == [0.5] * HEADS
    torch.nn.init.normal_(shift.logit)
    mixed, last = shift(k)
    share = shift.logit.sigmoid()
    for head, t in itertools.product(range(HEADS), range(N)):
        before = k[:, head, t - 1] if t else torch.zeros(2, 4)
        expected = (1 - share[head]) * k[:, head, t] + share[head] * before
        assert torch.allclose(mixed[:, head, t], expected, rtol=0, atol=1e-14)
    assert torch.equal(last[:, :, 0], k[:, :, -1])


def test_a_layer_scores_with_the_mixture() -> None:
    layer, x = make("softmax"), random(N, DIM)
    q, k = (p(x).unflatten(-1, (HEADS, -1)).transpose(0, 1) for p in (layer.to_q, layer.to_k))
    earlier = torch.cat([torch.zeros(HEADS, 1, 4, dtype=k.dtype), k[:, :-1]], 1)
    share = layer.shift.logit.sigmoid()[:, None, None]
    logits = q @ ((1 - share) * k + share * earlier).mT / 2
    expected = logits.masked_fill(~torch.ones(N, N).tril().bool(), -torch.inf).softmax(-1)
    assert checks.largest_difference(layer.attention_weights(x), expected) <= 1e-14


@pytest.mark.parametrize("name", LAYERS)
def test_nothing_looks_ahead(name: str) -> None:
    layer, x = make(name), random(2, N, DIM)
    later = x.clone()
    later[:, 5:] = random(2, N - 5, DIM, seed=7)
    assert checks.largest_difference(layer(x)[:, :5], layer(later)[:, :5]) <= 1e-12


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("cuts", [(0, 4, 9), (0, *range(1, 10)), (0, 5, 5, 6, 9), (0, 0, 9)])
def test_decoding_with_a_state_equals_the_whole(name: str, cuts: tuple[int, ...]) -> None:
    layer, x = make(name), random(2, N, DIM)
    state, parts = None, []
    for start, end in itertools.pairwise(cuts):
        part, state = layer(x[:, start:end], state=state, return_state=True)
        parts.append(part)
    assert isinstance(state, ShiftedState)
    assert state.length == N
    assert checks.largest_difference(torch.cat(parts, 1), layer(x)) <= 1e-11


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("heads", [False, True])
def test_padding_is_never_read(name: str, heads: bool) -> None:
    layer, x = make(name), random(2, N, DIM)
    mask = torch.ones(2, N, dtype=torch.bool)
    mask[0, [2, 3, 7]] = False
    given = mask[:, None].expand(2, HEADS, N) if heads else mask
    before = layer(x, key_mask=given)
    padded = torch.where(mask[..., None], x, torch.nan)
    after = layer(padded, key_mask=given)
    assert checks.largest_difference(before[mask], after[mask]) <= 1e-11
    first, state = layer(padded[:, :4], key_mask=given[..., :4], return_state=True)
    rest = layer(padded[:, 4:], key_mask=given[..., 4:], state=state)
    found = torch.cat([first, rest], 1)
    assert checks.largest_difference(found[mask], after[mask]) <= 1e-11


@pytest.mark.parametrize("causal", [False, True])
def test_folding_keeps_it(causal: bool) -> None:
    encoder = CirculantSTRING(4, heads=HEADS)
    torch.nn.init.normal_(encoder.coefficients)
    layer, x = make("softmax", causal, encoder=encoder), random(2, N, DIM)
    assert checks.largest_difference(layer.folded()(x), layer(x)) <= 1e-12


def test_a_state_without_the_last_key_is_refused() -> None:
    layer, x = make("rope"), random(2, N, DIM)
    plain = MultiHeadAttention(DIM, HEADS, "rope", causal=True).double()
    _, state = plain(x, return_state=True)
    with pytest.raises(TypeError, match="state must be a ShiftedState, got KeyValueCache"):
        layer(x, state=state)


def test_the_mixture_learns_and_is_saved() -> None:
    layer, x = make("rope"), random(2, N, DIM)
    layer(x).square().sum().backward()
    assert (layer.shift.logit.grad != 0).all()
    other = copy.deepcopy(layer)
    torch.nn.init.zeros_(other.shift.logit)
    assert checks.largest_difference(layer(x), other(x)) > 1e-3
    other.load_state_dict(layer.state_dict())
    assert torch.equal(layer(x), other(x))


def test_one_head_finds_a_value_by_the_key_before_it() -> None:
    """Shares set by hand: with all of the earlier key, the query's own token picks its value."""
    names = torch.eye(DIM).double()
    tokens = torch.tensor([0, 6, 1, 7, 2, 8, 1])  # 0 → 6, 1 → 7, 2 → 8; asked for 1
    layer = MultiHeadAttention(DIM, 1, causal=True, shift=True).double()
    for projection, size in ((layer.to_q, 60.0), (layer.to_k, 1.0), (layer.to_v, 1.0)):
        projection.weight.data = size * names
    layer.shift.logit.data[:] = 40.0
    assert layer.attention_weights(names[tokens])[0, -1].argmax() == 3
    layer.shift.logit.data[:] = -40.0  # no shift: a token finds itself
    assert layer.attention_weights(names[tokens])[0, -1, 3] < 1e-6
