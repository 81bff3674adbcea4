"""A layer from its parts: every composition against its formula, its states, and its refusals."""

from __future__ import annotations

import copy
import itertools
import math
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
    T5Bias,
    ToeplitzWeight,
    reference,
)
from stringlib.attention import LinearState
from stringlib.attention.delta import DeltaWeight
from stringlib.attention.linear import rotated_linear_attention
from stringlib.attention.multihead import MultiHeadAttention
from stringlib.attention.registry import FEATURES, WEIGHTS, make_features
from stringlib.attention.shift import ShiftedState
from stringlib.attention.softmax import KeyValueCache
from stringlib.positions import grid_positions
from stringlib.testing import properties
from tests import attention_cases
from tests.draws import random
from tests.model_cases import DECAYS
from tests.model_cases import WEIGHTS as WEIGHTS_OPTIONS

DIM, HEADS, D = 12, 3, 4
LENGTH = 9
ATTENTIONS = ("softmax", *FEATURES)

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
    "shift": {"encoder": CirculantSTRING(D, heads=HEADS), "normalize_qk": True, "shift": True},
    "shift-favor": {"attention": "favor", "encoder": "rope", "num_features": 7, "shift": True},
    "shift-cosine": {"attention": "relu", "weight": "cosine", "horizon": 20, "shift": True},
    "shift-gla": {"attention": "elu", "weight": "gla", "gate": "elementwise", "shift": True},
    "grouped": {"key_heads": 1, "encoder": CirculantSTRING(D), "bias": True, "normalize_qk": True},
    "grouped-alibi": {"key_heads": 1, "encoder": ALiBi(HEADS), "gate": "headwise"},
    "grouped-favor": {"key_heads": 1, "encoder": "rope", "attention": "favor", "num_features": 7},
    "grouped-after": {"key_heads": 1, "encoder": "rope", "attention": "relu", "rotate": "after"},
    "grouped-ssd": {"key_heads": 1, "attention": "relu", "weight": "ssd", "gate": "elementwise"},
}  # fmt: skip
PLACES = [
    (name, causal)
    for name, options in LAYERS.items()
    for causal in (False, True)
    if causal or options.get("weight") not in DECAYS
]
MAPS = {type(case.make()): case for case in attention_cases.FEATURES.values()}
"""Class of a feature map → one of its cases, with its formula."""


def make(name: str, causal: bool = True, seed: int = 0) -> MultiHeadAttention:
    torch.manual_seed(seed)
    options = copy.deepcopy(LAYERS[name])
    layer = MultiHeadAttention(DIM, HEADS, causal=causal, **options).double()
    with torch.no_grad():
        for parameter in layer.parameters():  # nothing symmetric, nothing near its start
            parameter.add_(0.3 * torch.randn(parameter.shape, dtype=torch.float64))
    return layer


def split(x: Tensor) -> Tensor:
    return torch.stack(x.split(D, -1), -3)


def dense_scores(layer: MultiHeadAttention, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the scores above and below the bar, ``(..., heads, n, n)``, by their formulas."""
    q, k = split(layer.to_q(x)), split(layer.to_k(x))
    n, encoder = x.shape[-2], layer.encoder
    positions = torch.arange(n)[:, None]
    if layer.shift is not None:
        share = layer.shift.logit.sigmoid()[:, None, None]
        k = (1 - share) * k + share * nn.functional.pad(k, (0, 0, 1, 0))[..., :-1, :]
    if layer.log_temperature is not None:
        tau = layer.log_temperature.exp()[:, None, None]
        q = q / q.norm(dim=-1, keepdim=True) * tau.sqrt() * D**0.25
        k = k / k.norm(dim=-1, keepdim=True) * tau.sqrt() * D**0.25
    if layer.features is None:
        if encoder is not None and layer.rotate:
            q, k = encoder.rotate(q, positions), encoder.rotate(k, positions)
        logits = torch.einsum("...id,...jd->...ij", q, k) / D**0.5
        logits = logits if encoder is None or layer.rotate else logits + encoder(n, n)
        return (logits.exp(),) * 2
    case = MAPS[type(layer.features)]
    if case.exponential:
        q, k = q * D**-0.25, k * D**-0.25
    if layer.rotate == "before":
        q, k = encoder.rotate(q, positions), encoder.rotate(k, positions)
    phi_q, phi_k = (case.plain(layer.features, y) for y in (q, k))
    if layer.roll is not None:
        phi_q, phi_k = (rolled(y, layer.roll.cycles) for y in (phi_q, phi_k))
    below = above = torch.einsum("...im,...jm->...ij", phi_q, phi_k)
    if layer.rotate == "after":
        turned = (encoder.rotate(y.expand_as(phi_q), positions) for y in (phi_q, phi_k))
        above = torch.einsum("...im,...jm->...ij", *turned)
    weight = None if layer.weight is None else layer.weight(x)
    if weight is None:
        return above, below
    if isinstance(weight, DeltaWeight):
        return (replaced_products(weight, phi_q, phi_k),) * 2
    if isinstance(weight, DecayWeight):
        return (decayed_products(weight.log_decay, phi_q, phi_k),) * 2
    w = weight.matrix(n, n).double()
    return w * above, w * below


def rolled(phi: Tensor, cycles: tuple[int, ...]) -> Tensor:
    """Return features moved on by their token's number, cycle by cycle."""
    tokens = [
        torch.cat([torch.roll(part, t, -1) for part in row.split(cycles, -1)], -1)
        for t, row in enumerate(phi.unbind(-2))
    ]
    return torch.stack(tokens, -2)


def decayed_products(a: Tensor, phi_q: Tensor, phi_k: Tensor) -> Tensor:
    """Return the products of features under the decays of the tokens between, pair by pair."""
    n = phi_q.shape[-2]
    if a.ndim == 1:
        a = a[:, None].expand(-1, n)
    a = a if a.ndim == phi_k.ndim else a[..., None]
    found = torch.zeros(*phi_q.shape[:-1], n, dtype=torch.float64)
    for i in range(n):
        for j in range(i + 1):
            decay = a[..., j + 1 : i + 1, :].sum(-2).exp()
            found[..., i, j] = (phi_q[..., i, :] * decay * phi_k[..., j, :]).sum(-1)
    return found


def replaced_products(weight: DeltaWeight, phi_q: Tensor, phi_k: Tensor) -> Tensor:
    """Return what each query reads of each key, by the recurrence on unit vectors as values."""
    n = phi_q.shape[-2]
    alpha = torch.ones_like(weight.beta) if weight.log_decay is None else weight.log_decay.exp()
    given = (
        *(y / y.norm(dim=-1, keepdim=True) for y in (phi_q, phi_k)),
        torch.eye(n, dtype=torch.float64).expand(*phi_q.shape[:-2], n, n),
        *(y[..., None] for y in (weight.beta, alpha)),
    )
    q, k, v, beta, alpha = (y.expand(*phi_q.shape[:-1], -1).flatten(0, -3) for y in given)
    read, _ = reference.delta_rule_recurrence(q, k, v, beta[..., 0], alpha[..., 0])
    return read.unflatten(0, phi_q.shape[:-2])


def dense_weights(layer: MultiHeadAttention, x: Tensor) -> Tensor:
    above, below = dense_scores(layer, x)
    if layer.causal:
        above, below = above.tril(), below.tril()
    if layer.features is not None and not (
        layer.features.nonnegative and (layer.weight is None or layer.weight.normalized)
    ):
        return above
    total = below.sum(-1, keepdim=True)
    return above / torch.where(total == 0, 1, total)


def dense(layer: MultiHeadAttention, x: Tensor) -> Tensor:
    y = torch.einsum("...ij,...jd->...id", dense_weights(layer, x), split(layer.to_v(x)))
    if layer.gate is not None:
        y = y * torch.stack((x @ layer.gate.to_gate.weight.mT).sigmoid().chunk(HEADS, -1), -3)
    return layer.to_out(torch.cat(y.unbind(-3), -1))


def close(got: Tensor, expected: Tensor, limit: float) -> bool:
    """Return whether no number is further off than a part of the largest, or of 1."""
    return properties.largest_difference(got, expected) <= limit * max(
        1, expected.abs().max().item()
    )


def stream(layer: MultiHeadAttention, x: Tensor, cuts: tuple[int, ...], key_mask=None):
    """Return what the layer gives piece by piece, and the last state."""
    state, parts = None, []
    for start, end in itertools.pairwise(cuts):
        mask = None if key_mask is None else key_mask[..., start:end]
        part, state = layer(x[:, start:end], key_mask=mask, state=state, return_state=True)
        parts.append(part)
    return torch.cat(parts, 1), state


STREAMS = [name for name in LAYERS if make(name).has_state]


@pytest.mark.proves("eq-gated-layer")
@pytest.mark.parametrize(("name", "causal"), PLACES)
@pytest.mark.parametrize("batch", [(), (2, 1)])
def test_equals_its_formula(name: str, causal: bool, batch: tuple[int, ...]) -> None:
    layer, x = make(name, causal), random(*batch, LENGTH, DIM)
    assert layer(x).shape == x.shape
    assert close(layer(x), dense(layer, x), 1e-11)
    assert close(layer.attention_weights(x), dense_weights(layer, x), 1e-11)


@pytest.mark.parametrize(("name", "causal"), PLACES)
def test_gradients_equal_those_of_the_formula(name: str, causal: bool) -> None:
    layer, x = make(name, causal), random(LENGTH, DIM).requires_grad_()
    leaves = {"x": x, **dict(layer.named_parameters())}
    probe = random(LENGTH, DIM, seed=4)
    found = [
        torch.autograd.grad((f(x) * probe).sum(), list(leaves.values()), allow_unused=True)
        for f in (layer, lambda x: dense(layer, x))
    ]
    for leaf, got, expected in zip(leaves, *found, strict=True):
        assert got is not None, leaf
        assert expected is not None, leaf
        assert close(got, expected, 1e-9), leaf


@pytest.mark.proves("eq-c-cosgate")
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


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("cuts", [(0, 4, 9), tuple(range(10)), (0, 5, 5, 6, 9), (0, 0, 9)])
def test_decoding_with_a_state_equals_the_whole(name: str, cuts: tuple[int, ...]) -> None:
    layer, x = make(name), random(2, LENGTH, DIM)
    found, state = stream(layer, x, cuts)
    kind = KeyValueCache if layer.features is None else LinearState
    assert isinstance(state, kind if layer.shift is None else ShiftedState)
    assert state.length == LENGTH
    assert properties.largest_difference(found, layer(x)) <= 1e-11


@pytest.mark.parametrize(("name", "causal"), PLACES)
def test_padding_is_never_read(name: str, causal: bool) -> None:
    layer, x = make(name, causal), random(2, LENGTH, DIM)
    mask = torch.ones(2, LENGTH, dtype=torch.bool)
    mask[0, [2, *range(6, LENGTH)]] = False
    before = layer(x, key_mask=mask)
    assert properties.largest_difference(before[1], layer(x)[1]) <= 1e-11
    by_head = mask[:, None].expand(2, HEADS, LENGTH)
    for padding in (50 * random(LENGTH, DIM, seed=9), torch.full((LENGTH, DIM), math.nan)):
        padded = torch.where(mask[..., None], x, padding)
        for given in (mask, by_head):
            after = layer(padded, key_mask=given)
            assert properties.largest_difference(before[mask], after[mask]) <= 1e-11
            if causal and layer.has_state:
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


@pytest.mark.parametrize("name", ["softmax", "relu", "favor", "favor-after"])
@pytest.mark.parametrize("causal", [False, True])
def test_a_mask_for_each_head(name: str, causal: bool) -> None:
    layer, x = make(name, causal), random(2, LENGTH, DIM)
    mask = random(2, HEADS, LENGTH, seed=3) > -0.5
    hidden = layer.attention_weights(x, key_mask=mask).masked_select(~mask[..., None, :])
    assert (hidden == 0).all()
    if layer.has_state:
        whole = layer(x, key_mask=mask)
        assert properties.largest_difference(stream(layer, x, (0, 4, 9), mask)[0], whole) <= 1e-11


def test_a_padded_key_does_not_decide_how_small_features_become() -> None:
    """A long key has features of e^-300, 0 in float32; those of a zero key are about 1."""
    layer = make("favor", causal=False).float()
    x = 80 * random(DIM, seed=5).float() + random(2, LENGTH, DIM).float()
    keys = layer.to_k(x[:, :7]).unflatten(-1, (HEADS, D)) / D**0.25
    assert (keys.square().sum(-1) / 2).min() > 300  # a feature is about e to minus this
    x[:, 7:] = 0
    exact = copy.deepcopy(layer).double()(x.double()[:, :7])
    out = layer(x, key_mask=torch.arange(LENGTH) < 7)[:, :7].double()
    assert properties.largest_difference(out, exact) <= 1e-2 * exact.abs().max()


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
def test_short_and_empty_sequences(name: str, causal: bool) -> None:
    layer = make(name, causal)
    for shape in ((0, DIM), (1, DIM), (2, 0, DIM), (0, 3, DIM)):
        out = layer(random(*shape))
        assert out.shape == shape
        assert out.isfinite().all()


@pytest.mark.parametrize(("name", "causal"), PLACES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_low_precision(name: str, causal: bool, dtype: torch.dtype) -> None:
    layer, x = make(name, causal), random(2, LENGTH, DIM)
    x = x.to(dtype).double()
    exact = layer(x)
    low = copy.deepcopy(layer).to(dtype)(x.to(dtype))
    assert low.dtype == dtype
    assert close(low.double(), exact, 1e-4 if dtype == torch.float32 else 0.25)


@pytest.mark.parametrize("name", ["softmax-rope-gate", "favor-rope", "c-cosgate", "nprf"])
def test_autocast_keeps_angles_and_sums_wide(name: str) -> None:
    layer = make(name).float()
    x = random(2, LENGTH, DIM).float()
    far = 1e6 + torch.arange(LENGTH)[:, None].double()
    with torch.autocast("cpu", torch.bfloat16):
        low, moved = layer(x), layer(x, far) if layer.encoder is not None else layer(x)
    assert low.dtype == torch.bfloat16
    assert properties.largest_difference(low.float(), layer(x)) < 0.1 * layer(x).abs().max()
    if name == "softmax-rope-gate":  # bfloat16 angles at a million are noise
        assert properties.largest_difference(low, moved) < 0.05 * low.abs().max()


def test_every_weight_has_a_layer() -> None:
    missing = set(WEIGHTS) - {options.get("weight") for options in LAYERS.values()}
    assert not missing, f"add layers with {missing} to LAYERS"


def test_random_features_are_as_many_as_channels_unless_told() -> None:
    for name in [name for name in FEATURES if name.startswith("favor")]:
        assert make_features(name, 8, heads=3)(random(3, 5, 8).float()).shape == (3, 5, 8)
    assert make_features("hyperbolic", 8)(random(3, 5, 8).float()).shape == (3, 5, 16)


def test_a_generator_draws_features_for_each_head() -> None:
    def matrix(seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        layer = MultiHeadAttention(8, 2, attention="favor-circulant", generator=generator)
        return layer.features.projection_matrix()

    first, again, other = matrix(3), matrix(3), matrix(4)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.shape == (2, 4, 4)
    assert not torch.equal(first[0], first[1])


@pytest.mark.parametrize("causal", [False, True])
def test_a_bias_is_the_weight_of_kernelised_attention(causal: bool) -> None:
    bias = T5Bias(HEADS, num_buckets=8, max_distance=6).double()
    torch.nn.init.normal_(bias.weight)
    layer = MultiHeadAttention(DIM, HEADS, bias, "elu", causal=causal).double()
    weight = layer.weight(random(LENGTH, DIM)).matrix(LENGTH, LENGTH)
    assert properties.largest_difference(weight, bias(LENGTH, LENGTH).exp()) <= 1e-12
    assert list(layer.weight.parameters())


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


def test_a_table_that_learns_elsewhere_is_refused() -> None:
    bias = torch.zeros(2, 17, requires_grad=True)
    for weight in (ToeplitzWeight(bias), ToeplitzWeight(1.7 * bias)):
        with pytest.raises(ValueError, match=r"weight must .*nn\.Parameter\(bias\).*got bias with"):
            MultiHeadAttention(8, 2, attention="relu", weight=weight)


def test_a_shorter_sequence_uses_the_middle_of_the_table() -> None:
    layer, x = make("nprf"), random(4, DIM)
    table = layer.weight.bias
    assert table.shape == (HEADS, 2 * LENGTH - 1)
    middle = ToeplitzWeight(table[:, LENGTH - 4 : LENGTH + 3])
    assert torch.equal(layer.weight(x).matrix(4, 4), middle.matrix(4, 4))
    with pytest.raises(ValueError, match=r"x must have at most length = 9 tokens, got 10"):
        layer(random(10, DIM))


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
    with pytest.raises(ValueError, match="positions must have one row for each"):
        layer(torch.randn(7, 24))


def test_positions_are_counted_where_there_is_one_coordinate() -> None:
    layer, x = make("softmax-rope-gate"), random(2, LENGTH, DIM)
    assert torch.equal(layer(x), layer(x, torch.arange(LENGTH)[:, None]))
    layer = MultiHeadAttention(DIM, HEADS, MixedRoPE(D, 2, heads=HEADS))
    with pytest.raises(ValueError, match=r"positions must be given, \(..., 9, 2\)"):
        layer(x.float())


def test_queries_and_keys_of_one_length() -> None:
    torch.manual_seed(0)
    layer = MultiHeadAttention(DIM, HEADS, normalize_qk=True).double()
    x = 100 * random(50, DIM)
    assert layer.log_temperature.exp().tolist() == [1, 1, 1]
    asked = MultiHeadAttention(DIM, HEADS, normalize_qk=True, temperature=3.0)
    torch.testing.assert_close(asked.log_temperature.exp(), torch.full((HEADS,), 3.0))
    weights = layer.attention_weights(x)
    ratio = (weights.amax(-1) / weights.amin(-1)).max()  # e^{cos − cos'}
    assert 1 < ratio <= math.e**2
    x[3] = 0
    x.requires_grad_()
    out = layer(x)
    out.sum().backward()
    assert out.isfinite().all()
    assert x.grad.abs().max() < 100  # so of a token that says nothing


GROUPED: dict[str, dict[str, Any]] = {
    "plain": {"gate": "headwise"},
    "circulant": {"encoder": "circulant", "bias": True},
    "cayley": {"encoder": "cayley", "normalize_qk": True, "shift": True},
    "axial": {"encoder": "axial", "coord_dim": 1},
    "kerple": {"encoder": KerpleLog(6)},
    "favor-circulant": {"encoder": "circulant", "attention": "favor", "shift": True},
    "relu-after": {"encoder": "circulant", "attention": "relu", "rotate": "after"},
    "favor-toeplitz": {"attention": "favor", "weight": "toeplitz", "length": LENGTH},
}


def grouped(name: str, causal: bool, key_heads: int | None = 2) -> MultiHeadAttention:
    """Return a layer of six heads of queries."""
    torch.manual_seed(0)
    options = {**copy.deepcopy(GROUPED[name]), "generator": torch.Generator().manual_seed(5)}
    layer = MultiHeadAttention(24, 6, causal=causal, key_heads=key_heads, **options).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, dtype=torch.float64))
    return layer


def repeated(layer: MultiHeadAttention, full: MultiHeadAttention) -> dict[str, Tensor]:
    """Return the parameters for a layer with a key for each query: those of a key three times."""
    wanted = dict(full.named_parameters())
    return {
        key: p
        if p.shape == wanted[key].shape
        else p.unflatten(0, (2, -1)).repeat_interleave(3, 0).flatten(0, 1)
        for key, p in layer.named_parameters()
    }


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", GROUPED)
def test_queries_of_a_group_share_a_key(name: str, causal: bool) -> None:
    layer, full = grouped(name, causal), grouped(name, causal, None)
    assert layer.to_k.weight.shape == layer.to_v.weight.shape == (8, 24)
    x, probe = random(2, LENGTH, 24).requires_grad_(), random(2, LENGTH, 24, seed=4)
    mask = torch.ones(2, LENGTH, dtype=torch.bool)
    mask[1, 2:4] = False
    leaves = [x, *layer.parameters()]
    for options in ({}, {"key_mask": mask}, {"key_mask": mask[:, None].expand(2, 6, LENGTH)}):
        if layer.shift is not None and options and options["key_mask"].ndim == 3:
            continue  # one key for six heads is not mixed in several ways
        found = layer(x, **options)
        wanted = torch.func.functional_call(full, repeated(layer, full), (x,), options)
        assert close(found, wanted, 1e-12)
        gradients = [torch.autograd.grad((y * probe).sum(), leaves) for y in (found, wanted)]
        assert all(close(a, b, 1e-10) for a, b in zip(*gradients, strict=True))
    weights = torch.func.functional_call(full, repeated(layer, full), (x,))
    assert weights.shape == x.shape
    assert layer.attention_weights(x).shape == (2, 6, LENGTH, LENGTH)


@pytest.mark.parametrize("name", [name for name in GROUPED if grouped(name, True).has_state])
def test_a_group_is_decoded_from_the_keys_it_shares(name: str) -> None:
    layer, x = grouped(name, True), random(2, LENGTH, 24)
    mask = None if layer.shift is not None else random(2, 6, LENGTH, seed=3) > -0.5
    found, state = stream(layer, x, (0, 4, 9), mask)
    assert close(found, layer(x, key_mask=mask), 1e-11)
    if isinstance(state, KeyValueCache):
        assert state.keys.shape == state.values.shape == (2, 2, LENGTH, 4)


@pytest.mark.parametrize("name", ["circulant", "cayley", "axial"])
@pytest.mark.parametrize("given", [False, True])
def test_a_folded_group_says_the_same(name: str, given: bool) -> None:
    layer, x = grouped(name, True), random(2, LENGTH, 24)
    if given:
        layer.encoder = CirculantSTRING(4).double()  # one basis for all
    assert layer.encoder.heads == (1 if given else 2)
    folded = layer.folded()
    assert close(folded(x), layer(x), 1e-12)
    assert list(folded.encoder.parameters()) == []
    assert not {*folded.parameters()} & {*layer.parameters()}
    positions = torch.stack([torch.arange(9), torch.arange(9) ** 2])[..., None]  # of each text
    assert close(folded(x, positions), layer(x, positions), 1e-12)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"heads": 5}, "heads must divide dim 12, got 5"),
    ({"key_heads": 2}, "key_heads must divide heads 3, got 2"),
    ({"key_heads": 1, "encoder": MixedRoPE(4, 1, heads=3)}, "encoder must have 1 heads, got 3"),
    ({"key_heads": 1, "encoder": ALiBi(1)}, "encoder must have 3 heads, got 1"),
    ({"gate": "soft"}, "gate must be None or one of headwise, elementwise, got 'soft'"),
    ({"attention": "gelu"}, "attention must be one of softmax, relu, .*, got 'gelu'"),
    ({"num_features": 8}, "num_features must be None unless attention is favor or .*, got 8"),
    ({"attention": "relu", "encoder": "rope"}, "rotate must be before or after for ReLUFeatures"),
    ({"rotate": "before"}, "rotate must be None or roll without a rotary encoder, got 'before'"),
    ({"encoder": "rope", "rotate": "after"}, "rotate must be None or before for softmax"),
    ({"encoder": "rope", "rotate": "both"}, "rotate must be None or one of before, after"),
    ({"encoder": RoPE(6)}, "encoder must have head_dim 4, .*, got 6"),
    ({"encoder": RoPE(4), "attention": "favor", "num_features": 6, "rotate": "after"},
     "encoder must have head_dim 6, .*, got 4"),
    ({"weight": "cosine", "horizon": 9}, "weight must be None for softmax attention"),
    ({"attention": "relu", "weight": "cosine"}, "horizon must be given for weight 'cosine'"),
    ({"attention": "relu", "horizon": 9}, "horizon must be None unless weight is cosine"),
    ({"attention": "relu", "weight": "toeplitz"}, "length, the longest sequence, or grid"),
    ({"attention": "relu", "length": 4}, "length must be None unless weight is toeplitz, got 4"),
    ({"attention": "relu", "weight": "decay"}, "weight must be one of cosine, .*'decay'"),
    ({"attention": "relu", "weight": "toeplitz", "length": 9, "encoder": ALiBi(3)},
     "weight must be None with a RelativeBias"),
    *[({"attention": "elu", "weight": w, **WEIGHTS_OPTIONS[w]},
       f"causal must be True for weight '{w}'") for w in DECAYS],
    ({"attention": "elu", "weight": DecayWeight(torch.zeros(3))}, "causal must be True for weight"),
    ({"normalize_qk": True, "temperature": 0.0}, "temperature must be positive and finite, got 0"),
    ({"temperature": 2.0}, "temperature must be 1 unless normalize_qk, got 2"),
    ({"attention": FavorFeatures(4, 5, heads=2)}, "attention must be a map for 3 heads of 4 chan"),
    ({"attention": "elu", "weight": "gla", "encoder": "rope", "rotate": "after", "causal": True},
     "rotate must be before with the weight gla"),
    ({"attention": "elu", "weight": "delta", "encoder": "rope", "rotate": "after", "causal": True},
     "rotate must be before with the weight delta"),
    ({"attention": "identity", "encoder": "rope", "rotate": "after"},
     "rotate must be None or before for IdentityFeatures"),
    ({"grid": (2, 3)}, "grid must be None unless weight is toeplitz or an encoder reads two"),
    ({"grid": (4,), "attention": "elu", "weight": "toeplitz"}, "grid must be 2 numbers, got"),
    ({"coord_dim": 2, "encoder": RoPE(4)}, "coord_dim must be None unless encoder is a name"),
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
        ("state must be None", lambda: make("relu", causal=False)(x, return_state=True)),
        ("return_state must be False for LearnedToeplitz", lambda: nprf(x, return_state=True)),
        ("key_mask must have shape", lambda: layer(x, key_mask=short)),
        ("key_mask must have shape", lambda: layer(x, state=state, key_mask=short)),
        ("state must hold keys and values like", lambda: layer(x[:1], state=state)),
    ]
    for match, call in bad:
        with pytest.raises(ValueError, match=match):
            call()
    with pytest.raises(TypeError, match="horizn is no option of any part of a layer, got 8"):
        MultiHeadAttention(DIM, HEADS, horizn=8)
    with pytest.raises(TypeError, match="head_dim of attention 'favor' is for the layer to say"):
        MultiHeadAttention(DIM, HEADS, attention="favor", head_dim=3)
