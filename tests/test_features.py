"""Feature maps: against literal twins, on average over draws, stabilised, in every dtype."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor

from stringlib import FEATURES, FavorFeatures, MultiHeadAttention, linear_attention
from stringlib.attention.favor import optimal_alpha
from stringlib.attention.projections import PROJECTIONS
from stringlib.kernels.features import elu_plus_one, half_square, unit
from stringlib.reference import (
    hyperbolic_features,
    optimal_features,
    positive_features,
    trigonometric_features,
)
from stringlib.testing import properties
from tests.draws import random
from tests.refusals import refusals

EXACT = 1e-12
UNBIASED = ("iid", "orthogonal", "circulant")


def favor(
    head_dim: int = 6, num_features: int = 11, projection: str = "iid", **other: object
) -> FavorFeatures:
    generator = torch.Generator().manual_seed(1)
    return FavorFeatures(head_dim, num_features, projection, generator=generator, **other).double()


def without_stabiliser(phi: FavorFeatures) -> FavorFeatures:
    plain = copy.deepcopy(phi)
    plain.stabilize = False
    return plain


def require_same_gradients(*outputs: Tensor, tensors: list[Tensor]) -> None:
    """Raise unless two outputs, and the gradients of a random sum of each, are the same."""
    torch.testing.assert_close(*outputs, rtol=1e-12, atol=1e-14)
    probe = random(*outputs[0].shape, seed=6)
    gradients = [
        torch.autograd.grad((out * probe).sum(), tensors, retain_graph=True) for out in outputs
    ]
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-12)


@pytest.mark.proves("eq-favor-features", "eq-favor-hyperbolic")
@pytest.mark.parametrize("hyperbolic", [False, True])
@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize(("d", "m"), [(1, 1), (2, 1), (6, 11), (8, 5), (5, 5)])
@pytest.mark.parametrize("projection", PROJECTIONS)
def test_values_and_gradients_are_those_of_the_literal_form(
    projection: str, d: int, m: int, heads: int, hyperbolic: bool
) -> None:
    phi = favor(d, m, projection, heads=heads, hyperbolic=hyperbolic, stabilize=False)
    literal = hyperbolic_features if hyperbolic else positive_features
    x = random(2, 3, 7, d, seed=2).requires_grad_()
    matrix = phi.projection_matrix()
    assert matrix.shape == (heads, m, d)
    expected = torch.stack([literal(x[:, h], matrix[h % heads]) for h in range(3)], 1)
    assert expected.shape == (2, 3, 7, 2 * m if hyperbolic else m)
    for is_query in (True, False):
        require_same_gradients(phi(x, is_query), expected, tensors=[x])


def with_alpha(phi: FavorFeatures, alpha: Tensor) -> FavorFeatures:
    phi.alpha = alpha
    return phi


@pytest.mark.proves("eq-favor-optimal")
@pytest.mark.parametrize("hyperbolic", [False, True])
@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize(("d", "m"), [(1, 1), (6, 11), (8, 5)])
@pytest.mark.parametrize("projection", PROJECTIONS)
def test_optimal_features_are_those_of_the_literal_form(
    projection: str, d: int, m: int, heads: int, hyperbolic: bool
) -> None:
    alpha = torch.linspace(-0.9, 0.12, heads * d).double().reshape(heads, d)
    phi = favor(d, m, projection, heads=heads, hyperbolic=hyperbolic, stabilize=False,
                learnable=True)  # fmt: skip
    with_alpha(phi, alpha)
    x = random(2, 3, 7, d, seed=2).requires_grad_()
    rows = phi.projection_matrix()
    rows = torch.cat([rows, -rows], -2) if hyperbolic else rows
    tensors = [x, *phi.parameters()]
    expected = torch.stack(
        [optimal_features(x[:, h], rows[h % heads], alpha[h % heads]) for h in range(3)], 1
    )
    require_same_gradients(phi(x), expected, tensors=tensors)


@pytest.mark.proves("eq-favor-unbiased", "eq-favor-hyperbolic", "eq-favor-optimal")
@pytest.mark.parametrize(
    ("d", "square", "alpha"),
    [(8, 0.5, None), (8, 2.0, None), (3, 0.5, -1.0), (3, 0.5, -0.1), (3, 0.5, 0.08)],
)
@pytest.mark.parametrize("hyperbolic", [False, True])
@pytest.mark.parametrize("projection", UNBIASED)
def test_the_mean_over_draws_is_the_exponential(
    projection: str, hyperbolic: bool, d: int, square: float, alpha: float | None
) -> None:
    draws = 40_000  # every head is a draw of its own
    phi = favor(d, 12, projection, heads=draws, hyperbolic=hyperbolic, stabilize=False)
    if alpha is not None:
        with_alpha(phi, alpha * torch.tensor([[1.0, 0.7, 0.0]]).double())
    x, y = random(2, d, seed=4)
    x, y = (a * (square**0.5 / (x + y).norm()) for a in (x, y))
    products = (phi(x.expand(draws, 1, d)) * phi(y.expand(draws, 1, d))).sum(-1).flatten()
    error = products.std() / math.sqrt(draws)
    assert abs(products.mean() - (x @ y).exp()) <= 4 * error
    assert error < 0.05 * (x @ y).exp()  # else the line above says little


@pytest.mark.proves("eq-favor-optimal-alpha")
def test_alpha_of_a_map_is_the_best_of_its_mean_square() -> None:
    phi = favor(mean_square=3.0)
    expected = optimal_alpha(torch.tensor(3.0).double(), 6).expand(1, 6)
    torch.testing.assert_close(phi.alpha, expected, rtol=1e-6, atol=0)
    assert (phi.alpha < 0).all()
    squares = torch.rand(2, 6, generator=torch.Generator().manual_seed(0))
    phi = favor(heads=2, mean_square=squares)
    torch.testing.assert_close(phi.alpha, optimal_alpha(squares, 1).double(), rtol=1e-5, atol=0)
    assert favor(mean_square=squares[0]).alpha.shape == (1, 6)
    assert optimal_alpha(1e300, 6) < 0  # and nothing overflows


@pytest.mark.proves("eq-favor-trigonometric")
def test_trigonometric_features_estimate_the_same() -> None:
    x, y, matrix = 0.4 * random(5, seed=1), 0.4 * random(5, seed=2), random(4_000, 5, seed=3)
    features = [trigonometric_features(a, matrix) for a in (x, y)]
    terms = ((x @ x + y @ y) / 2).exp() * torch.cos(matrix @ (x - y))
    assert abs(features[0] @ features[1] - terms.mean()) <= EXACT
    assert abs(terms.mean() - (x @ y).exp()) <= 4 * terms.std() / math.sqrt(len(terms))


@pytest.mark.proves("eq-favor-stabiliser")
@pytest.mark.parametrize("mean_square", [0.0, 5.0])
@pytest.mark.parametrize("hyperbolic", [False, True])
def test_queries_and_keys_leave_out_what_they_say(hyperbolic: bool, mean_square: float) -> None:
    phi = favor(hyperbolic=hyperbolic, mean_square=mean_square)
    x = random(2, 3, 7, 6, seed=2)
    top = 1 / math.sqrt(phi(x).shape[-1])
    raw = without_stabiliser(phi)(x)
    rows, whole = raw.amax(-1, keepdim=True), raw.amax((-1, -2), keepdim=True)
    torch.testing.assert_close(phi(x), raw / rows * top, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(phi(x, False), raw / whole * top, rtol=1e-12, atol=1e-14)


@pytest.mark.proves("eq-favor-scaled-keys")
@pytest.mark.parametrize("mean_square", [0.0, 5.0])
@pytest.mark.parametrize("hyperbolic", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_scaled_keys_are_the_plain_ones(causal: bool, hyperbolic: bool, mean_square: float) -> None:
    phi = favor(hyperbolic=hyperbolic, mean_square=mean_square)
    plain = without_stabiliser(phi)
    q, k, v = tensors = [t.requires_grad_() for t in random(3, 2, 3, 9, 6, seed=7)]
    features, log_scale = phi.scaled_keys(k)
    assert not log_scale.requires_grad
    torch.testing.assert_close(features * log_scale[..., None].exp(), plain(k))
    torch.testing.assert_close(
        features.amax(-1), torch.full_like(log_scale, features.shape[-1] ** -0.5)
    )
    expected = linear_attention(plain(q), plain(k), v, causal=causal)
    for keys, scale in ((features, log_scale), (phi(k, is_query=False), None)):
        got = linear_attention(phi(q), keys, v, causal=causal, key_scale=scale)
        require_same_gradients(got, expected, tensors=tensors)


def test_half_the_square_and_its_derivatives() -> None:
    x = torch.cat([random(3, 4), torch.zeros(1, 4).double()]).requires_grad_()
    torch.testing.assert_close(half_square(x), (x * x).sum(-1, keepdim=True) / 2)
    assert torch.autograd.gradcheck(half_square, x, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(half_square, x)


def test_elu_plus_one_and_its_derivatives() -> None:
    x = torch.cat([random(3, 4), torch.full((1, 4), -20.0).double()]).requires_grad_()
    assert torch.autograd.gradcheck(elu_plus_one, x, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(elu_plus_one, x)
    narrow = torch.tensor([-100.0, -17.5, 0.0, 3.0], requires_grad=True)
    (slope,) = torch.autograd.grad(elu_plus_one(narrow).sum(), narrow)
    torch.testing.assert_close(slope, narrow.detach().clamp(max=0).exp(), rtol=1e-6, atol=0)
    rows = torch.func.vmap(torch.func.grad(lambda row: elu_plus_one(row).sum()))(x.detach())
    torch.testing.assert_close(rows, x.detach().clamp(max=0).exp())


@pytest.mark.parametrize("mean_square", [0.0, 5.0])
@pytest.mark.parametrize("hyperbolic", [False, True])
@pytest.mark.parametrize("size", [1.0, 170.0, 3e4, 7e5])
def test_no_feature_of_a_key_is_above_its_bound(
    size: float, hyperbolic: bool, mean_square: float
) -> None:
    phi = favor(6, 9, hyperbolic=hyperbolic, mean_square=mean_square).float()
    k = size * random(2, 3, 11, 6).float()
    features, log_scale = phi.scaled_keys(k)
    bound = (1 + 1e-6) * features.shape[-1] ** -0.5
    assert log_scale.isfinite().all()
    for found in (features, phi(k, is_query=False)):
        assert 0.999 * bound < found.max() <= bound
    # each key has a largest feature, and of all keys together one is at the bound
    assert (features.amax(-1) > 0.999 * bound).all()


TWO_HEADS = favor(heads=2)


test_bad_arguments_are_named = refusals(
    *[(lambda x=x: FavorFeatures(4, 4, mean_square=x), f"mean_square must be .*, got {shown}")
      for x, shown in ((-1.0, "-1.0"), (torch.tensor([1.0, -1.0, 0.0, 2.0]), "the entry -1"))],
    (lambda: FavorFeatures(4, 4, heads=2, mean_square=torch.ones(3)),
     r"mean_square must be a number or have shape \(4,\) or \(2, 4\), got \(3,\)"),
    (lambda: FavorFeatures(4, 4, mean_square=torch.ones(4, dtype=torch.long)),
     "TypeError: mean_square must be a floating-point tensor"),
    *[(lambda f=f: f(random(3, 4, 6)), "must have 2 heads, got shape")
      for f in (TWO_HEADS, TWO_HEADS.scaled_keys)],
)  # fmt: skip


def test_unit_vectors_and_their_gradients_beside_zero() -> None:
    x = random(4, 3)
    assert properties.largest_difference(unit(x), torch.nn.functional.normalize(x, dim=-1)) <= 1e-15
    x.requires_grad_()
    assert torch.autograd.gradcheck(unit, x, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(unit, x)
    zero = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(unit(zero).sum(), zero, create_graph=True)
    assert torch.equal(first, torch.ones_like(zero))
    (second,) = torch.autograd.grad(first.square().sum(), zero)
    assert torch.equal(second, torch.zeros_like(zero))
    assert torch.equal(torch.func.jvp(unit, (zero.detach(),), (first.detach(),))[1], first)


# identity features give sums that are not divided, and that exceed the range of float16
DIVIDED = [name for name in FEATURES if name != "identity"]


@pytest.mark.parametrize("name", DIVIDED)
def test_a_layer_learns_in_float16_as_in_float32(name: str) -> None:
    """With logits of rms 12, gradients of the features themselves exceed the range of float16."""
    torch.manual_seed(0)
    half = MultiHeadAttention(64, 2, attention=name, causal=True).half()
    wide = copy.deepcopy(half).float()
    x = (6 * torch.randn(2, 300, 64)).half()
    found = []
    for layer in (half, wide):
        leaf = x.to(layer.to_q.weight.dtype).requires_grad_()
        out = layer(leaf)
        assert out.dtype == leaf.dtype
        found.append((out, *torch.autograd.grad(out.float().mean(), leaf)))
    for got, want in zip(*found, strict=True):
        assert (got.float() - want).norm() <= 0.01 * want.norm()


@pytest.mark.parametrize("name", DIVIDED)
def test_a_layer_learns_under_float16_autocast(name: str) -> None:
    torch.manual_seed(0)
    layer = MultiHeadAttention(64, 2, attention=name, causal=True)
    x, y = 8 * torch.randn(2, 300, 64), torch.randn(2, 300, 64)
    with torch.autocast("cpu", dtype=torch.float16):
        out = layer(x)
    loss = 2**10 * (out.float() - y).square().mean()  # scaled, as a gradient scaler does
    assert all(g.isfinite().all() for g in torch.autograd.grad(loss, [*layer.parameters()]))


def test_small_features_of_float16_have_the_gradients_of_float32() -> None:
    """All features are near e⁻¹², so that their gradients are near e¹²."""
    torch.manual_seed(0)
    given = [(-12 - torch.rand(1, 5, 4)).half() for _ in range(2)] + [torch.randn(1, 5, 4).half()]
    found, phi = [], FEATURES["elu"]()
    for dtype in (torch.float16, torch.float32):
        leaves = [x.to(dtype).requires_grad_() for x in given]
        q, k, v = leaves
        out = linear_attention(phi(q), phi(k), v)
        found.append((out, *torch.autograd.grad(out.float().square().sum(), leaves)))
    for got, want in zip(*found, strict=True):
        torch.testing.assert_close(got.float(), want, rtol=1e-2, atol=1e-3)


def test_features_of_float16_vectors_do_not_overflow() -> None:
    x = torch.full((1, 3, 4), 300.0).half()
    assert torch.equal(FEATURES["taylor"](4)(x), FEATURES["taylor"](4)(x.float()))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("projection", PROJECTIONS)
def test_a_map_can_be_made_under_a_half_default_dtype(projection: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    wide = FavorFeatures(8, 12, projection, mean_square=2.0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        torch.manual_seed(0)
        phi = FavorFeatures(8, 12, projection, mean_square=2.0)
    finally:
        torch.set_default_dtype(before)
    assert torch.equal(phi.projection_matrix(), wide.projection_matrix())
