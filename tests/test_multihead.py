"""A layer from its parts: every composition against its formula, its states, and its refusals."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from stringlib import (
    ALiBi,
    CayleySTRING,
    CirculantSTRING,
    CosineWeight,
    DecayWeight,
    FavorFeatures,
    KerpleLog,
    MixedRoPE,
    ReLUFeatures,
    RoPE,
    RotaryEncoder,
    T5Bias,
    ToeplitzWeight,
    reference,
)
from stringlib.attention import LinearState
from stringlib.attention.cache import KeyValueCache
from stringlib.attention.delta import DeltaWeight
from stringlib.attention.multihead import MultiHeadAttention
from stringlib.attention.registry import FEATURES, WEIGHTS
from stringlib.attention.rotated_linear import rotated_linear_attention
from stringlib.attention.states import ShiftedState
from stringlib.encoders.relative_bias import RelativeBias
from stringlib.positions import grid_positions
from stringlib.testing import properties
from tests import attention_cases
from tests.draws import generator, random
from tests.model_cases import DECAYS
from tests.model_cases import WEIGHTS as WEIGHTS_OPTIONS

DIM, HEADS, D = 12, 3, 4
LENGTH = 9
ATTENTIONS = ("softmax", *FEATURES)
GROUPED = {"heads": 6, "kv_heads": 2}

LAYERS: dict[str, dict[str, Any]] = {
    **{name: {"attention": name} for name in ATTENTIONS},
    "softmax-rope-gate": {"encoder": "rope", "gate": "elementwise"},
    "softmax-circulant": {"encoder": CirculantSTRING(D, heads=HEADS), "bias": True},
    "softmax-alibi": {"encoder": ALiBi(HEADS), "gate": "headwise"},
    "softmax-t5": {"encoder": T5Bias(HEADS)},
    "softmax-normal": {"normalize_qk": True, "temperature": 3.0},
    "relu-before": {"attention": "relu", "encoder": "rope", "rotate": "before"},
    "relu-after": {"attention": "relu", "encoder": "rope", "rotate": "after"},
    "elu-cayley": {"attention": "elu", "encoder": CayleySTRING(D), "rotate": "before"},
    "favor-rope": {"attention": "favor", "encoder": RoPE(D), "num_features": 7},
    "favor-after": {"attention": "favor", "encoder": "rope", "num_features": 6, "rotate": "after"},
    "relu-roll": {"attention": "relu", "rotate": "roll", "gate": "headwise"},
    "favor-roll": {"attention": "favor", "rotate": "roll", "num_features": 9, "cycles": (4, 5)},
    "elu-roll-kerple": {"attention": "elu", "rotate": "roll", "encoder": KerpleLog(HEADS)},
    "ssd-roll": {"attention": "relu", "weight": "ssd", "rotate": "roll", "cycles": (1, 3)},
    "shift-roll": {"attention": "identity", "rotate": "roll", "shift": True},
    "relu-kerple": {"attention": "relu", "encoder": KerpleLog(HEADS)},
    "nprf": {"attention": "favor", "weight": "toeplitz", "length": LENGTH, "normalize_qk": True},
    "cosformer": {"attention": "relu", "weight": "cosine", "horizon": LENGTH},
    "cosine-positive": {"attention": "elu", "weight": "cosine-positive", "horizon": 3},
    "ramp-squared": {"attention": "elu", "weight": "ramp-squared", "horizon": LENGTH},
    "ramp": {"attention": "favor", "weight": "ramp", "horizon": LENGTH, "num_features": 5},
    "falling": {"attention": "relu", "weight": "falling", "horizon": LENGTH, "degree": 3},
    "c-cosgate": {"attention": "favor-circulant", "weight": "cosine", "horizon": LENGTH,
                  "gate": "elementwise"},
    "given": {"attention": "relu", "weight": CosineWeight(20), "gate": "headwise"},
    "own": {"attention": ReLUFeatures()},
    "retnet": {"attention": "relu", "weight": "retnet"},
    "retnet-favor": {"attention": "favor", "weight": "retnet", "gate": "headwise"},
    "gla": {"attention": "elu", "weight": "gla"},
    "gla-favor": {"attention": "hyperbolic", "weight": "gla", "num_features": 3},
    "ssd": {"attention": "relu", "weight": "ssd"},
    "ssd-favor": {"attention": "favor-iid", "weight": "ssd"},
    "delta": {"attention": "identity", "weight": "delta"},
    "delta-rope": {"attention": "identity", "weight": "delta", "encoder": "rope"},
    "gated-delta": {"attention": "identity", "weight": "gated-delta", "gate": "elementwise"},
    "gated-delta-favor": {"attention": "favor", "weight": "gated-delta", "shift": True},
    "kda": {"attention": "identity", "weight": "kda", "rank": 2},
    "kda-elu": {"attention": "elu", "weight": "kda", "shift": True},
    "shift": {"encoder": CirculantSTRING(D, heads=HEADS), "normalize_qk": True, "shift": True},
    "shift-favor": {"attention": "favor", "encoder": "rope", "num_features": 7, "shift": True},
    "shift-cosine": {"attention": "relu", "weight": "cosine", "horizon": 20, "shift": True},
    "shift-gla": {"attention": "elu", "weight": "gla", "gate": "elementwise", "shift": True},
    "elu-t5": {"attention": "elu", "encoder": T5Bias(HEADS, num_buckets=8, max_distance=6)},
    "one-key": {"kv_heads": 1, "encoder": CirculantSTRING(D), "bias": True},
    "grouped": {**GROUPED, "gate": "headwise"},
    "grouped-circulant": {**GROUPED, "encoder": "circulant", "bias": True},
    "grouped-basis": {**GROUPED, "encoder": CirculantSTRING(D)},
    "grouped-cayley": {**GROUPED, "encoder": "cayley", "normalize_qk": True, "shift": True},
    "grouped-axial": {**GROUPED, "encoder": "axial", "coord_dim": 1},
    "grouped-kerple": {**GROUPED, "encoder": KerpleLog(6), "gate": "elementwise"},
    "grouped-favor": {**GROUPED, "encoder": "circulant", "attention": "favor", "num_features": 7,
                      "shift": True},
    "grouped-after": {**GROUPED, "encoder": "rope", "attention": "relu", "rotate": "after"},
    "grouped-nprf": {**GROUPED, "attention": "favor", "weight": "toeplitz", "length": LENGTH},
    "grouped-ssd": {**GROUPED, "attention": "relu", "weight": "ssd", "gate": "elementwise"},
    "window": {"encoder": "rope", "window": 3, "gate": "headwise", "bias": True},
    "window-alone": {"window": 1, "shift": True, "normalize_qk": True},
    "window-alibi": {"encoder": ALiBi(HEADS), "window": 4},
    "window-of-all": {"encoder": "circulant", "window": LENGTH},
    "grouped-window": {**GROUPED, "encoder": "circulant", "window": 2},
}  # fmt: skip
PLACES = [
    (name, causal)
    for name, options in LAYERS.items()
    for causal in (False, True)
    if causal or options.get("weight") not in DECAYS
]
DISTANCE = torch.arange(LENGTH)[:, None] - torch.arange(LENGTH).double()
RULES = ("delta", "gated-delta", "kda")
"""Weights that replace values, and have no matrix."""
FIXED: dict[str, Callable[[float], Tensor]] = {
    "cosine": lambda horizon: torch.cos(DISTANCE * (math.pi / 2 / horizon)),
    "cosine-positive": lambda horizon: (1 + torch.cos(DISTANCE * (math.pi / 2 / horizon))) / 2,
    "ramp": lambda horizon: 1 - DISTANCE / horizon,
    "ramp-squared": lambda horizon: (1 - DISTANCE / horizon) ** 2,
    "falling": lambda horizon: reference.falling_weight(DISTANCE.clamp(min=0) / horizon, 3),
}
"""Weight in which nothing is learned → its matrix, for the degree in ``LAYERS``."""


def make(name: str, causal: bool = True) -> MultiHeadAttention:
    torch.manual_seed(0)
    options = {"heads": HEADS, **copy.deepcopy(LAYERS[name])}
    layer = MultiHeadAttention(D * options["heads"], causal=causal, **options).double()
    with torch.no_grad():
        for parameter in layer.parameters():  # nothing symmetric, nothing near its start
            parameter.add_(0.3 * torch.randn(parameter.shape, dtype=torch.float64))
    return layer


# The formula of a layer: what was asked for decides what it does, the layer has the numbers alone.


def is_biased(name: str) -> bool:
    return isinstance(LAYERS[name].get("encoder"), RelativeBias)


def has_features(name: str) -> bool:
    return LAYERS[name].get("attention", "softmax") != "softmax"


def has_table(name: str) -> bool:
    """Return whether the layer has a number for each offset, and so no state."""
    return LAYERS[name].get("weight") == "toeplitz" or (has_features(name) and is_biased(name))


def projected(linear: nn.Linear, x: Tensor, name: str, heads: int) -> Tensor:
    y = x @ linear.weight.mT
    y = y + linear.bias if LAYERS[name].get("bias") else y
    return y.unflatten(-1, (heads, D)).transpose(-3, -2)


def turned(encoder: RotaryEncoder, y: Tensor) -> Tensor:
    matrices = encoder.matrix(torch.arange(y.shape[-2])[:, None])
    by_head = matrices.repeat_interleave(y.shape[-3] // len(matrices), 0)
    return torch.einsum("hnij,...hnj->...hni", by_head, y)


def dense_scores(layer: MultiHeadAttention, x: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """Return the scores above and below the bar, ``(..., heads, n, n)``."""
    asked, n = LAYERS[name], x.shape[-2]
    heads = asked.get("heads", HEADS)
    group = heads // asked.get("kv_heads", heads)
    q = projected(layer.to_q, x, name, heads)
    k = projected(layer.to_k, x, name, heads // group).repeat_interleave(group, -3)
    if asked.get("shift"):
        share = layer.shift.logit.sigmoid().repeat_interleave(group)[:, None, None]
        k = (1 - share) * k + share * nn.functional.pad(k, (0, 0, 1, 0))[..., :-1, :]
    if asked.get("normalize_qk"):
        tau = layer.log_temperature.exp().repeat_interleave(group)[:, None, None]
        q, k = (y / y.norm(dim=-1, keepdim=True) * tau.sqrt() * D**0.25 for y in (q, k))
    rotary = "encoder" in asked and not is_biased(name)
    rotate = asked.get("rotate", "before" if rotary else None)
    if rotate == "before":
        q, k = turned(layer.encoder, q), turned(layer.encoder, k)
    if not has_features(name):
        logits = q @ k.mT / D**0.5
        logits = logits + layer.encoder(n, n) if is_biased(name) else logits
        near = DISTANCE[:n, :n].abs() < asked.get("window", LENGTH)
        return (logits.exp() * near,) * 2
    case = attention_cases.FEATURES["relu" if name == "own" else asked["attention"]]
    if case.exponential or asked["attention"] == "taylor":
        q, k = q * D**-0.25, k * D**-0.25
    phi_q, phi_k = (case.plain(layer.features, y) for y in (q, k))
    both = 2 if asked["attention"] in ("hyperbolic", "hedgehog") else 1
    if asked["attention"] != "taylor":
        assert phi_q.shape[-1] == asked.get("num_features", D) * both
    if rotate == "roll":
        cycles = asked.get("cycles", phi_q.shape[-1:])
        phi_q, phi_k = (rolled(y, cycles) for y in (phi_q, phi_k))
    if asked.get("weight") in RULES:
        return (replaced_products(layer.weight(x), phi_q, phi_k, asked["weight"]),) * 2
    if asked.get("weight") in ("retnet", "gla", "ssd"):
        constant = torch.log1p(-(2.0 ** (-5 - torch.arange(heads).double())))[:, None, None]
        retnet = asked["weight"] == "retnet"
        a = constant.expand(-1, n, 1) if retnet else layer.weight(x).log_decay
        decays = attention_cases.decays(a)
        return (torch.einsum("...im,...jm,...ijm->...ij", phi_q, phi_k, decays),) * 2
    below = above = phi_q @ phi_k.mT
    if rotate == "after":
        above = turned(layer.encoder, phi_q) @ turned(layer.encoder, phi_k).mT
    w = dense_weight(layer, name, n)
    return w * above, w * below


def dense_weight(layer: MultiHeadAttention, name: str, n: int) -> Tensor:
    """Return w(i, j), ``(heads or 1, n, n)``."""
    asked = LAYERS[name]
    if is_biased(name):
        return layer.weight.bias(n, n).exp()
    if asked.get("weight") == "toeplitz":
        return layer.weight.bias[:, LENGTH - 1 - DISTANCE[:n, :n].long()].exp()
    if "weight" not in asked:
        return torch.ones(1, n, n).double()
    kind = "cosine" if name == "given" else asked["weight"]
    return FIXED[kind](asked.get("horizon", 20))[None, :n, :n]


def rolled(phi: Tensor, cycles: tuple[int, ...]) -> Tensor:
    """Return features moved on by their token's number, cycle by cycle."""
    tokens = [
        torch.cat([torch.roll(part, t, -1) for part in row.split(cycles, -1)], -1)
        for t, row in enumerate(phi.unbind(-2))
    ]
    return torch.stack(tokens, -2)


def replaced_products(weight: DeltaWeight, phi_q: Tensor, phi_k: Tensor, rule: str) -> Tensor:
    """Return what each query reads of each key, by the recurrence on unit vectors as values."""
    n = phi_q.shape[-2]
    alpha = torch.ones_like(weight.beta) if rule == "delta" else weight.log_decay.exp()
    alpha = alpha if rule == "kda" else alpha[..., None]
    given = (
        *(y / y.norm(dim=-1, keepdim=True) for y in (phi_q, phi_k)),
        torch.eye(n, dtype=torch.float64).expand(*phi_q.shape[:-2], n, n),
        weight.beta[..., None],
        alpha,
    )
    q, k, v, beta, alpha = (y.expand(*phi_q.shape[:-1], -1).flatten(0, -3) for y in given)
    read, _ = reference.delta_rule_recurrence(q, k, v, beta[..., 0], alpha)
    return read.unflatten(0, phi_q.shape[:-2])


def dense_weights(
    layer: MultiHeadAttention, x: Tensor, name: str, causal: bool, key_mask: Tensor | None = None
) -> Tensor:
    asked = LAYERS[name]
    above, below = dense_scores(layer, x, name)
    if key_mask is not None:
        above, below = (y.masked_fill(~key_mask[..., None, :], 0) for y in (above, below))
    if causal:
        above, below = above.tril(), below.tril()
    if asked.get("attention") == "identity" or asked.get("weight") in RULES:
        return above
    total = below.sum(-1, keepdim=True)
    return above.masked_fill(total == 0, 0) / torch.where(total == 0, 1, total)


def dense(layer: MultiHeadAttention, x: Tensor, name: str, causal: bool) -> Tensor:
    asked, weights = LAYERS[name], dense_weights(layer, x, name, causal)
    heads = weights.shape[-3]
    v = projected(layer.to_v, x, name, asked.get("kv_heads", heads))
    y = weights @ v.repeat_interleave(heads // v.shape[-3], -3)
    if "gate" in asked:
        gates = (x @ layer.gate.to_gate.weight.mT).sigmoid()
        width = D if asked["gate"] == "elementwise" else 1
        y = y * gates.unflatten(-1, (heads, width)).transpose(-3, -2)
    y = torch.cat(y.unbind(-3), -1) @ layer.to_out.weight.mT
    return y + layer.to_out.bias if asked.get("bias") else y


def close(got: Tensor, expected: Tensor, limit: float) -> bool:
    """Return whether no number is further off than a part of the largest, or of 1."""
    largest = expected.abs().max().item()
    return properties.largest_difference(got, expected) <= limit * max(1, largest)


def stream(layer: MultiHeadAttention, x: Tensor, cuts: tuple[int, ...], key_mask=None):
    """Return what the layer gives piece by piece, and the last state."""
    state, parts = None, []
    for start, end in itertools.pairwise(cuts):
        mask = None if key_mask is None else key_mask[..., start:end]
        part, state = layer(x[:, start:end], key_mask=mask, state=state, return_state=True)
        parts.append(part)
    return torch.cat(parts, 1), state


def is_streamed(name: str, causal: bool) -> bool:
    return causal and LAYERS[name].get("rotate") != "after" and not has_table(name)


@pytest.mark.proves("eq-gated-layer")
@pytest.mark.parametrize(("name", "causal"), PLACES)
def test_equals_its_formula(name: str, causal: bool) -> None:
    layer = make(name, causal)
    for empty in ((0,), (2, 0), (0, 3)):
        assert layer(random(*empty, layer.dim)).shape == (*empty, layer.dim)
    for shape in ((LENGTH,), (2, 1, LENGTH), (3, 5), (1,)):
        x = random(*shape, layer.dim)
        assert layer(x).shape == x.shape
        assert close(layer(x), dense(layer, x, name, causal), 1e-11)
        expected = dense_weights(layer, x, name, causal)
        assert close(layer.attention_weights(x), expected, 1e-11)


@pytest.mark.parametrize(("name", "causal"), PLACES)
def test_gradients_equal_those_of_the_formula(name: str, causal: bool) -> None:
    layer = make(name, causal)
    x, probe = random(LENGTH, layer.dim).requires_grad_(), random(LENGTH, layer.dim, seed=4)
    leaves = {"x": x, **dict(layer.named_parameters())}
    found = [
        torch.autograd.grad((out * probe).sum(), list(leaves.values()), allow_unused=True)
        for out in (layer(x), dense(layer, x, name, causal))
    ]
    for leaf, got, expected in zip(leaves, *found, strict=True):
        assert got is not None, leaf
        assert expected is not None, leaf
        assert close(got, expected, 1e-9), leaf


@pytest.mark.proves("eq-c-cosgate", "eq-gate")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("gate", ["headwise", "elementwise"])
@pytest.mark.parametrize(("dim", "heads", "n"), [(12, 3, 9), (10, 2, 1), (7, 1, 6)])
def test_c_cosgate_equals_its_literal_twin(
    gate: str, causal: bool, dim: int, heads: int, n: int
) -> None:
    torch.manual_seed(1)
    options = {"attention": "favor-circulant", "weight": "cosine", "horizon": 9, "gate": gate}
    layer = MultiHeadAttention(dim, heads, causal=causal, **options).double()
    w = layer.features.projection_matrix().double()
    # circ(r) diag(s) has the first column r s_0 and the first row r_{-j} s_j: so are r and s read,
    # up to a sign that both share
    r = w[:, :, 0]
    s = (w[:, 0, :] / r[:, -torch.arange(dim // heads)]).round()
    projections = (layer.to_q, layer.to_k, layer.to_v, layer.to_out, layer.gate.to_gate)
    x = random(n, dim)
    with torch.no_grad():
        expected = reference.c_cosgate(
            x, *(p.weight.mT for p in projections), r, s, horizon=9, causal=causal
        )
        assert properties.largest_difference(layer(x), expected) <= 1e-12


@pytest.mark.parametrize("name", [name for name in LAYERS if is_streamed(name, causal=True)])
@pytest.mark.parametrize("cuts", [(0, 4, 9), tuple(range(10)), (0, 5, 5, 6, 9), (0, 0, 9)])
def test_decoding_with_a_state_equals_the_whole(name: str, cuts: tuple[int, ...]) -> None:
    layer, asked = make(name), LAYERS[name]
    x = random(2, LENGTH, layer.dim)
    found, state = stream(layer, x, cuts)
    assert properties.largest_difference(found, layer(x)) <= 1e-11
    assert state.length == LENGTH
    if asked.get("shift"):
        assert isinstance(state, ShiftedState)
        state = state.rest
    assert isinstance(state, LinearState if has_features(name) else KeyValueCache)
    if isinstance(state, KeyValueCache):
        kv_heads = asked.get("kv_heads", HEADS)
        assert state.keys.shape == state.values.shape == (2, kv_heads, LENGTH, D)


@pytest.mark.parametrize("masked", [(0, 1), (1, 0)], ids=["later", "earlier"])
@pytest.mark.parametrize("name", ["softmax", "favor"])
def test_a_call_without_a_mask_hides_no_key(name: str, masked: tuple[int, int]) -> None:
    layer = make(name)
    x, mask = random(2, LENGTH, layer.dim), torch.ones(2, LENGTH, dtype=torch.bool)
    parts, state = [], None
    for start, end, has_mask in ((0, 4, masked[0]), (4, LENGTH, masked[1])):
        part = mask[:, start:end]
        part[0, 1] = not has_mask
        given = part if has_mask else None
        out, state = layer(x[:, start:end], key_mask=given, state=state, return_state=True)
        parts.append(out)
    assert properties.largest_difference(torch.cat(parts, 1), layer(x, key_mask=mask)) <= 1e-11


@pytest.mark.parametrize(("name", "causal"), PLACES)
def test_padding_is_never_read(name: str, causal: bool) -> None:
    layer = make(name, causal)
    x, mask = random(2, LENGTH, layer.dim), torch.ones(2, LENGTH, dtype=torch.bool)
    mask[0, [2, *range(6, LENGTH)]] = False
    before = layer(x, key_mask=mask)
    assert properties.largest_difference(before[1], layer(x)[1]) <= 1e-11
    masks = [mask, mask[:, None].expand(2, layer.heads, LENGTH)]
    if {"kv_heads", "shift"} <= {*LAYERS[name]}:
        del masks[1]  # one key for several heads is not mixed in several ways
    for padding in (50 * random(LENGTH, layer.dim, seed=9), torch.tensor(math.nan)):
        padded = torch.where(mask[..., None], x, padding)
        for given in masks:
            after = layer(padded, key_mask=given)
            assert properties.largest_difference(before[mask], after[mask]) <= 1e-11
            if is_streamed(name, causal):
                found, _ = stream(layer, padded, (0, 3, 9), given)
                assert properties.largest_difference(before[mask], found[mask]) <= 1e-11


@pytest.mark.parametrize("name", ["relu", "favor", "gla", "gla-favor", "ssd", "delta"])
def test_padding_without_a_place_is_as_if_it_were_not_there(name: str) -> None:
    layer, x = make(name), random(2, LENGTH, DIM)
    mask = torch.tensor([True, False, True, True, False, False, True, True, False])
    out, state = layer(x, key_mask=mask, return_state=True)
    expected, short = layer(x[:, mask], return_state=True)
    assert properties.largest_difference(out[:, mask], expected) <= 1e-12
    follows = random(2, 1, DIM, seed=2)
    next_ones = [layer(follows, state=s) for s in (state, short)]
    assert properties.largest_difference(*next_ones) <= 1e-12


@pytest.mark.parametrize("name", ["softmax", "relu", "favor", "favor-after", "nprf", "retnet",
                                  "one-key", "grouped-circulant", "grouped-kerple", "grouped-after",
                                  "grouped-nprf"])  # fmt: skip
@pytest.mark.parametrize("causal", [False, True])
def test_a_mask_for_each_head(name: str, causal: bool) -> None:
    if (name, causal) not in PLACES:
        return
    layer = make(name, causal)
    x, mask = random(2, LENGTH, layer.dim), random(2, layer.heads, LENGTH, seed=3) > -0.5
    expected = dense_weights(layer, x, name, causal, mask)
    assert close(layer.attention_weights(x, key_mask=mask), expected, 1e-11)
    if is_streamed(name, causal):
        found, _ = stream(layer, x, (0, 4, 9), mask)
        assert properties.largest_difference(found, layer(x, key_mask=mask)) <= 1e-11


@pytest.mark.parametrize("weight", [None, "cosine", "toeplitz", "retnet", "ssd", "gla"])
def test_long_inputs_of_favor_have_finite_gradients(weight: str | None) -> None:
    options = {"cosine": {"horizon": 50.0}, "toeplitz": {"length": 41}}.get(str(weight), {})
    for seed in range(4):
        torch.manual_seed(seed)
        layer = MultiHeadAttention(96, 1, None, "favor", weight=weight, causal=True, **options)
        x = (20 * random(2, 41, 96, seed=seed).float()).requires_grad_()
        out = layer(x)
        assert out.isfinite().all()
        found = torch.autograd.grad(out.square().sum(), [x, *layer.parameters()])
        assert all(gradient.isfinite().all() for gradient in found)


def test_features_rotate_in_full_precision() -> None:
    """Products of ReLU features may be far below the features: nothing may be rounded before."""
    torch.manual_seed(0)
    phi_q, phi_k, v = torch.rand(3, 2, 64, 8).relu().bfloat16()
    r = torch.arange(64)[:, None]
    for only in (False, True):
        options = {"causal": True, "numerator_only": only}
        low = rotated_linear_attention(phi_q, phi_k, v, RoPE(8), r, **options)
        exact = rotated_linear_attention(
            phi_q.double(), phi_k.double(), v.double(), RoPE(8), r, **options
        )
        assert low.dtype == torch.bfloat16
        torch.testing.assert_close(low, exact.bfloat16(), rtol=2**-7, atol=1e-6)


@pytest.mark.parametrize(("name", "causal"), PLACES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_low_precision(name: str, causal: bool, dtype: torch.dtype) -> None:
    layer = make(name, causal)
    x = random(2, LENGTH, layer.dim).to(dtype).double()
    exact = layer(x)
    low = copy.deepcopy(layer).to(dtype)(x.to(dtype))
    assert low.dtype == dtype
    assert close(low.double(), exact, 1e-4 if dtype == torch.float32 else 0.25)


def test_every_weight_has_a_layer() -> None:
    missing = set(WEIGHTS) - {options.get("weight") for options in LAYERS.values()}
    assert not missing, f"add layers with {missing} to LAYERS"


def test_a_generator_draws_features_for_each_head() -> None:
    first, again, other = (
        MultiHeadAttention(
            8, 2, attention="favor-circulant", generator=generator(seed)
        ).features.projection_matrix()
        for seed in (3, 3, 4)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(first[0], first[1])


@pytest.mark.parametrize(
    ("kind", "table"), [(ToeplitzWeight, random(2, 17)), (DecayWeight, -random(2).abs())]
)
def test_what_a_given_weight_learns_is_of_the_layer(kind: Any, table: Tensor) -> None:
    def layer() -> tuple[MultiHeadAttention, nn.Parameter]:
        learned = nn.Parameter(table.clone())
        options = {"attention": "relu", "weight": kind(learned), "causal": True}
        return MultiHeadAttention(8, 2, **options).double(), learned

    fixed = MultiHeadAttention(8, 2, attention="relu", weight=kind(table), causal=True)
    assert not [name for name in fixed.state_dict() if name.startswith("weight")]
    (one, learned), (other, _), x = layer(), layer(), random(2, 9, 8)
    one(x).sum().backward()
    assert learned.grad.abs().max() > 0
    with torch.no_grad():
        learned *= 2
    other.load_state_dict(one.state_dict())
    assert torch.equal(other(x), one(x))


@pytest.mark.parametrize("attention", ["softmax", "favor"])
def test_positions_of_a_grid(attention: str) -> None:
    torch.manual_seed(0)
    layer = MultiHeadAttention(DIM, HEADS, "mixed", attention, grid=(2, 3)).double()
    assert layer.encoder.coord_dim == 2
    x = random(2, 6, DIM)
    assert torch.equal(layer(x), layer(x, grid_positions(2, 3)))
    moved = layer(x, grid_positions(2, 3) + 5)
    assert (properties.largest_difference(moved, layer(x)) < 1e-12) is (attention == "softmax")


def test_a_grid_is_decoded_row_by_row() -> None:
    layer, x = MultiHeadAttention(24, 3, "axial", grid=(2, 3), causal=True), torch.randn(6, 24)
    first, state = layer(x[:4], return_state=True)
    rest = layer(x[4:], state=state)
    assert properties.largest_difference(torch.cat([first, rest]), layer(x)) <= 1e-5
    with pytest.raises(
        ValueError, match=r"positions must be given for 7 tokens, got None\. The grid"
    ):
        layer(torch.randn(7, 24))


def test_positions_are_counted_where_there_is_one_coordinate() -> None:
    layer, x = make("softmax-rope-gate"), random(2, LENGTH, DIM)
    assert torch.equal(layer(x), layer(x, torch.arange(LENGTH)[:, None]))
    layer = MultiHeadAttention(DIM, HEADS, MixedRoPE(D, 2, heads=HEADS))
    with pytest.raises(
        ValueError, match=r"positions must be given .* for an encoder with coord_dim=2"
    ):
        layer(x.float())


def test_queries_and_keys_of_one_length() -> None:
    torch.manual_seed(0)
    layer = MultiHeadAttention(DIM, HEADS, normalize_qk=True).double()
    x = 100 * random(50, DIM)
    assert layer.log_temperature.exp().tolist() == [1, 1, 1]
    asked = MultiHeadAttention(DIM, HEADS, normalize_qk=True, temperature=3.0)
    torch.testing.assert_close(asked.log_temperature.exp(), torch.full((HEADS,), 3.0))
    x[3] = 0
    x.requires_grad_()
    out = layer(x)
    out.sum().backward()
    assert out.isfinite().all()
    assert x.grad.abs().max() < 100  # so of a token that says nothing


@pytest.mark.parametrize("name", ["grouped-circulant", "grouped-cayley", "grouped-axial"])
@pytest.mark.parametrize("given", [False, True])
def test_a_folded_group_says_the_same(name: str, given: bool) -> None:
    layer, x = make(name), random(2, LENGTH, 24)
    if given:
        layer.encoder = CirculantSTRING(4).double()  # one basis for all
    assert layer.encoder.heads == (1 if given else 2)
    folded = layer.folded()
    assert close(folded(x), layer(x), 1e-12)
    assert list(folded.encoder.parameters()) == []
    assert not {*folded.parameters()} & {*layer.parameters()}
    positions = torch.stack([torch.arange(9), torch.arange(9) ** 2])[..., None]  # of each text
    assert close(folded(x, positions), layer(x, positions), 1e-12)


TABLE = torch.zeros(3, 17, requires_grad=True)
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"heads": 5}, "heads must divide dim 12, got 5"),
    ({"kv_heads": 2}, "kv_heads must divide heads = 3, got 2"),
    ({"kv_heads": 1, "encoder": MixedRoPE(4, 1, heads=3)}, "must have heads=1, got heads=3"),
    ({"kv_heads": 1, "encoder": ALiBi(1)}, "encoder must have heads=3, got heads=1"),
    ({"gate": "soft"}, "gate must be None or one of headwise, elementwise, got 'soft'"),
    ({"attention": "gelu"}, "attention must be one of softmax, relu, .*, got 'gelu'"),
    ({"num_features": 8}, "num_features must be None unless attention is one of favor, .*, got 8"),
    ({"attention": "relu", "encoder": "rope"}, "rotate must be 'before' or 'after' with"),
    ({"rotate": "before"}, "rotate must be None for softmax attention without .*, got 'before'"),
    ({"attention": "relu", "rotate": "before"}, "rotate must be None or 'roll' for linear"),
    ({"encoder": "rope", "rotate": "after"}, "rotate must be None or 'before' for softmax"),
    ({"encoder": "rope", "rotate": "both"}, "rotate must be None or 'before' for softmax"),
    ({"attention": "relu", "encoder": "rope", "rotate": "both"},
     "rotate must be 'before' or 'after' for linear attention with a rotary encoder"),
    ({"encoder": RoPE(6)}, "encoder must have head_dim 4, .*, got head_dim 6"),
    ({"encoder": RoPE(4), "attention": "favor", "num_features": 6, "rotate": "after"},
     "encoder must have head_dim 6, .*, got head_dim 4"),
    ({"weight": "cosine", "horizon": 9}, "weight must be None for softmax attention"),
    ({"attention": "relu", "weight": "cosine"}, "horizon must be given for weight 'cosine'"),
    ({"attention": "relu", "horizon": 9}, "horizon must be None unless weight is one of cosine"),
    ({"attention": "relu", "weight": "toeplitz"}, "either length .* or grid"),
    ({"attention": "relu", "length": 4}, "length must be None unless weight is toeplitz, got 4"),
    ({"attention": "relu", "weight": "decay"}, "weight must be one of cosine, .*'decay'"),
    ({"attention": "relu", "weight": "toeplitz", "length": 9, "encoder": ALiBi(3)},
     "weight must be None with a RelativeBias"),
    *[({"attention": "elu", "weight": w, **WEIGHTS_OPTIONS[w]},
       "causal must be True with the weight ") for w in DECAYS],
    ({"attention": "elu", "weight": DecayWeight(torch.zeros(3))}, "causal must be True with the"),
    ({"normalize_qk": True, "temperature": 0.0}, "temperature must be positive and finite, got 0"),
    ({"temperature": 2.0}, "temperature must be 1 unless normalize_qk=True, got 2"),
    ({"attention": FavorFeatures(4, 5, heads=2)}, "attention must be a feature map for 3 heads of"),
    ({"attention": "elu", "weight": "gla", "encoder": "rope", "rotate": "after", "causal": True},
     "rotate must not be 'after' or 'roll' with the weight GLADecay"),
    ({"attention": "elu", "weight": "delta", "encoder": "rope", "rotate": "after", "causal": True},
     "rotate must not be 'after' or 'roll' with the weight LearnedDelta"),
    ({"attention": "identity", "encoder": "rope", "rotate": "after"},
     "rotate must be 'before' with IdentityFeatures"),
    ({"grid": (2, 3)}, "grid must be None unless weight is 'toeplitz' or encoder is a rotary"),
    ({"grid": (4,), "attention": "elu", "weight": "toeplitz"}, "grid must contain 2 numbers, got"),
    *[({"attention": "relu", "weight": ToeplitzWeight(table)},
       r"weight must .* whose bias requires .* nn\.Parameter") for table in (TABLE, 1.7 * TABLE)],
    ({"window": 2, "attention": "relu"}, "window must be None unless .* got 2. .* a decay"),
    ({"window": 0}, "window must be at least 1, got 0"),
    ({"attention_dropout": 0.1, "attention": "elu"}, "attention_dropout must be 0 unless"),
    ({"attention_dropout": 1.1}, "attention_dropout must be between 0 and 1, got 1.1"),
    ({"coord_dim": 2, "encoder": RoPE(4)}, "coord_dim must be None unless encoder is one of"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "match"), REFUSED)
def test_parts_that_cannot_go_together(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        MultiHeadAttention(**{"dim": DIM, "heads": HEADS, **options})


def test_calls_that_do_not_fit_the_layer() -> None:
    layer, x, nprf = make("softmax-rope-gate"), random(2, LENGTH, DIM), make("nprf")
    _, state = layer(x, return_state=True)
    short = torch.ones(2, 8).bool()
    bad: list[tuple[str, Any]] = [
        ("positions must have", lambda: layer(x, torch.arange(8)[:, None])),
        (
            "state and return_state need a layer with causal=True",
            lambda: make("relu", causal=False)(x, return_state=True),
        ),
        (
            "need a weight with a recurrent form, got the weight LearnedToeplitz",
            lambda: nprf(x, return_state=True),
        ),
        ("x must have at most length = 9 tokens, got 10", lambda: nprf(random(10, DIM))),
        ("key_mask must have shape", lambda: layer(x, key_mask=short)),
        ("key_mask must have shape", lambda: layer(x, state=state, key_mask=short)),
        ("state must have the same batch, heads", lambda: layer(x[:1], state=state)),
    ]
    for match, call in bad:
        with pytest.raises(ValueError, match=match):
            call()
