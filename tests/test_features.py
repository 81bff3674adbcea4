"""Feature maps: against literal twins, on average over draws, stabilised, in every dtype."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor

from stringlib import ELUFeatures, FavorFeatures, ReLUFeatures, checks, linear_attention
from stringlib.attention.projections import PROJECTIONS
from stringlib.kernels.features import half_square
from stringlib.reference import hyperbolic_features, positive_features, trigonometric_features

EXACT = 1e-12
UNBIASED = ("iid", "orthogonal", "circulant")


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=seeded(seed))


def favor(
    head_dim: int = 6, num_features: int = 11, projection: str = "iid", **other: object
) -> FavorFeatures:
    made = FavorFeatures(head_dim, num_features, projection, generator=seeded(1), **other)
    return made.double()


def attend(phi: FavorFeatures, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return linear_attention(phi(q), phi(k, is_query=False), v)


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
    for is_query in (True, False):
        got = phi(x, is_query)
        assert got.shape == (2, 3, 7, 2 * m if hyperbolic else m)
        torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-14)
        probe = random(*got.shape, seed=3)
        gradients = [
            torch.autograd.grad((f * probe).sum(), x, retain_graph=True) for f in (got, expected)
        ]
        torch.testing.assert_close(*gradients, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("projection", PROJECTIONS)
def test_fast_products_keep_values_and_gradients(projection: str) -> None:
    d = 256  # where circulant and Hadamard rows are multiplied by a transform
    phi = favor(d, d, projection, heads=2, stabilize=False)
    x = (random(2, 3, d, seed=2) / 8).requires_grad_()
    expected = torch.stack(
        [positive_features(a, w) for a, w in zip(x, phi.projection_matrix(), strict=True)]
    )
    got = phi(x)
    torch.testing.assert_close(got, expected, rtol=1e-11, atol=1e-14)
    gradients = [torch.autograd.grad(f.square().sum(), x)[0] for f in (got, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-13)


@pytest.mark.proves("eq-favor-unbiased", "eq-favor-hyperbolic")
@pytest.mark.parametrize("hyperbolic", [False, True])
@pytest.mark.parametrize("projection", UNBIASED)
@pytest.mark.parametrize("square", [0.5, 2.0])
def test_the_mean_over_draws_is_the_exponential(
    projection: str, hyperbolic: bool, square: float
) -> None:
    d, draws = 8, 20_000  # every head is a draw of its own
    phi = favor(d, 12, projection, heads=draws, hyperbolic=hyperbolic, stabilize=False)
    x, y = random(2, d, seed=4)
    z = x + y
    x, y = (a * (square**0.5 / z.norm()) for a in (x, y))
    products = (phi(x.expand(draws, 1, d)) * phi(y.expand(draws, 1, d))).sum(-1).flatten()
    error = products.std() / math.sqrt(draws)
    assert abs(products.mean() - (x @ y).exp()) <= 4 * error
    assert error < 0.05 * (x @ y).exp()  # else the line above says little


@pytest.mark.proves("eq-favor-trigonometric")
def test_trigonometric_features_estimate_the_same() -> None:
    x, y, matrix = 0.4 * random(5, seed=1), 0.4 * random(5, seed=2), random(4_000, 5, seed=3)
    features = [trigonometric_features(a, matrix) for a in (x, y)]
    terms = ((x @ x + y @ y) / 2).exp() * torch.cos(matrix @ (x - y))
    assert abs(features[0] @ features[1] - terms.mean()) <= EXACT
    assert abs(terms.mean() - (x @ y).exp()) <= 4 * terms.std() / math.sqrt(len(terms))


@pytest.mark.parametrize("hyperbolic", [False, True])
@pytest.mark.parametrize("projection", PROJECTIONS)
def test_the_stabiliser_cancels(projection: str, hyperbolic: bool) -> None:
    phi = favor(6, 9, projection, heads=2, hyperbolic=hyperbolic)
    plain = copy.deepcopy(phi)
    plain.stabilize = False
    tensors = [t.requires_grad_() for t in 1.5 * random(3, 2, 2, 8, 6, seed=5)]
    q, k, v = tensors
    outputs = [attend(f, q, k, v) for f in (phi, plain)]
    assert checks.largest_difference(*outputs) <= EXACT
    probe = random(*v.shape, seed=6)
    gradients = [torch.autograd.grad((out * probe).sum(), tensors) for out in outputs]
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-11)


@pytest.mark.proves("eq-favor-stabiliser")
@pytest.mark.parametrize("hyperbolic", [False, True])
def test_queries_and_keys_leave_out_what_they_say(hyperbolic: bool) -> None:
    phi = favor(hyperbolic=hyperbolic)
    plain = copy.deepcopy(phi)
    plain.stabilize = False
    x = random(2, 3, 7, 6, seed=2)
    top = 1 / math.sqrt(phi(x).shape[-1])
    raw = plain(x)
    rows, whole = raw.amax(-1, keepdim=True), raw.amax((-1, -2), keepdim=True)
    torch.testing.assert_close(phi(x), raw / rows * top, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(phi(x, False), raw / whole * top, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("hyperbolic", [False, True])
@pytest.mark.parametrize("norm", [0.0, 1e-3, 1.0, 10.0, 30.0])
def test_large_arguments_stay_finite_in_float32(norm: float, hyperbolic: bool) -> None:
    phi = favor(64, 64, "orthogonal", hyperbolic=hyperbolic).float()
    x = torch.nn.functional.normalize(random(2, 2, 3, 20, 64), dim=-1).float() * norm
    q, k = x.requires_grad_().unbind()
    features = phi(q), phi(k, is_query=False)
    for f in features:
        assert f.isfinite().all()
        top = f.detach().amax((-1, -2))
        torch.testing.assert_close(top, torch.full_like(top, f.shape[-1] ** -0.5))
    out = linear_attention(*features, k)
    assert out.isfinite().all()
    if norm <= 10:  # beyond, denominators come near the smallest number there is
        (gradient,) = torch.autograd.grad(out.sum(), x)
        assert gradient.isfinite().all()


@pytest.mark.proves("eq-favor-scaled-keys")
@pytest.mark.parametrize("hyperbolic", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_scaled_keys_are_the_plain_ones(causal: bool, hyperbolic: bool) -> None:
    phi = favor(hyperbolic=hyperbolic)
    plain = copy.deepcopy(phi)
    plain.stabilize = False
    tensors = [t.requires_grad_() for t in random(3, 2, 3, 9, 6, seed=7)]
    q, k, v = tensors
    features, log_scale = phi.scaled_keys(k)
    assert log_scale.shape == (2, 3, 9)
    assert not log_scale.requires_grad
    torch.testing.assert_close(features * log_scale[..., None].exp(), plain(k))
    torch.testing.assert_close(
        features.amax(-1), torch.full_like(log_scale, features.shape[-1] ** -0.5)
    )
    got = linear_attention(phi(q), features, v, causal=causal, key_scale=log_scale)
    expected = linear_attention(plain(q), plain(k), v, causal=causal)
    assert checks.largest_difference(got, expected) <= EXACT
    probe = random(*v.shape, seed=8)
    gradients = [torch.autograd.grad((o * probe).sum(), tensors) for o in (got, expected)]
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-11)


def test_scaled_keys_do_not_look_at_other_keys_and_the_stabiliser_does() -> None:
    phi, k = favor(), random(1, 1, 6, 6)
    other = k.clone()
    other[..., -1, :] = phi.projection_matrix()[0, 3]  # where a feature is largest
    before, after = phi.scaled_keys(k), phi.scaled_keys(other)
    assert torch.equal(before[0][..., :-1, :], after[0][..., :-1, :])
    assert torch.equal(before[1][..., :-1], after[1][..., :-1])
    assert not torch.allclose(phi(k, False)[..., :-1, :], phi(other, False)[..., :-1, :])


def test_a_later_key_cannot_outgrow_the_longest_row() -> None:
    """No log φ exceeds ‖ω‖²/2 − log √m, whatever the key."""
    phi = favor(stabilize=False)
    keys = 40 * random(1, 1, 500, 6)
    bound = phi.projection_matrix().square().sum(-1).max() / 2 - 0.5 * math.log(11)
    _, log_scale = phi.scaled_keys(torch.cat([keys, phi.projection_matrix()[None]], -2))
    assert log_scale.max() - 0.5 * math.log(11) <= bound + 1e-12
    assert log_scale.max() - 0.5 * math.log(11) == pytest.approx(bound.item(), abs=1e-12)


@pytest.mark.parametrize("phi", [ReLUFeatures(), ELUFeatures()])
def test_fixed_maps_need_no_scale(phi: torch.nn.Module) -> None:
    k = random(2, 1, 4, 3)
    features, scale = phi.scaled_keys(k)
    assert scale is None
    assert torch.equal(features, phi(k))


def test_fixed_maps_are_relu_and_elu_plus_one() -> None:
    x = torch.cat([random(40) * 3, torch.zeros(1).double()]).requires_grad_()
    for phi, literal in (
        (ReLUFeatures(), torch.relu),
        (ELUFeatures(), lambda a: torch.nn.functional.elu(a) + 1),
    ):
        got, expected = phi(x), literal(x)
        torch.testing.assert_close(got, expected, rtol=1e-14, atol=1e-15)
        gradients = [torch.autograd.grad(f.sum(), x)[0] for f in (got, expected)]
        torch.testing.assert_close(*gradients, rtol=1e-14, atol=1e-15)
        for dtype in (torch.float16, torch.bfloat16, torch.float32):
            assert phi(x.to(dtype)).dtype == dtype
        assert phi(torch.zeros(2, 1, 0, 3)).shape == (2, 1, 0, 3)
        assert phi(torch.tensor([math.nan])).isnan().all()


def test_elu_plus_one_stays_positive() -> None:
    x = torch.tensor([-30.0, -17.5])
    assert (torch.nn.functional.elu(x) + 1 == 0).all()
    torch.testing.assert_close(ELUFeatures()(x), x.exp(), rtol=1e-6, atol=0)


def test_a_generator_repeats_the_draw_and_redraw_is_in_place() -> None:
    for projection in PROJECTIONS:
        first, second = (
            FavorFeatures(6, 15, projection, heads=2, generator=seeded(3)) for _ in range(2)
        )
        drawn = first.projection_matrix().clone()
        assert torch.equal(drawn, second.projection_matrix())
        tensors = {id(t): t for t in (*first.parameters(), *first.buffers())}
        first.redraw(seeded(4))
        assert not torch.allclose(drawn, first.projection_matrix())
        first.redraw(seeded(3))
        assert torch.equal(drawn, first.projection_matrix())
        assert tensors.keys() == {id(t) for t in (*first.parameters(), *first.buffers())}
        torch.manual_seed(5)
        first.redraw()
        assert not torch.allclose(drawn, first.projection_matrix())
        first.load_state_dict(second.state_dict())
        assert torch.equal(drawn, first.projection_matrix())


def test_the_global_generator_draws_by_default() -> None:
    made = []
    for _ in range(2):
        torch.manual_seed(8)
        made.append(FavorFeatures(4, 4).projection_matrix())
    assert torch.equal(*made)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("hyperbolic", [False, True])
def test_half_precision_rounds_once(dtype: torch.dtype, hyperbolic: bool) -> None:
    phi = favor(16, 16, "orthogonal", hyperbolic=hyperbolic).float()
    x = random(2, 3, 7, 16).to(dtype)
    for is_query in (True, False):
        got = phi(x, is_query)
        assert got.dtype == dtype
        assert torch.equal(got, phi(x.float(), is_query).to(dtype))
    features, log_scale = phi.scaled_keys(x)
    assert (features.dtype, log_scale.dtype) == (dtype, torch.float32)


def test_autocast_does_not_reach_the_exponent() -> None:
    phi, x = favor(16, 16).float(), random(2, 3, 7, 16).float()
    expected = phi(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(phi(x), expected)


def test_one_head_serves_any_number() -> None:
    phi, x = favor(), random(2, 5, 4, 6)
    torch.testing.assert_close(
        phi(x), torch.cat([phi(h) for h in x.split(1, 1)], 1), rtol=1e-12, atol=0
    )


@pytest.mark.parametrize("hyperbolic", [False, True])
@pytest.mark.parametrize("projection", PROJECTIONS)
def test_empty_and_single_tokens(projection: str, hyperbolic: bool) -> None:
    phi = favor(6, 9, projection, hyperbolic=hyperbolic)
    m = 18 if hyperbolic else 9
    for is_query in (True, False):
        assert phi(random(2, 3, 0, 6), is_query).shape == (2, 3, 0, m)
        assert phi(random(0, 3, 4, 6), is_query).shape == (0, 3, 4, m)
        assert phi(random(3, 1, 6), is_query).shape == (3, 1, m)
    features, log_scale = phi.scaled_keys(random(2, 3, 0, 6))
    assert (features.shape, log_scale.shape) == ((2, 3, 0, m), (2, 3, 0))


def test_nan_in_is_nan_out() -> None:
    x = random(1, 2, 3, 6)
    x[0, 0, 1, 2] = math.nan
    phi = favor()
    assert phi(x)[0, 0, 1].isnan().all()
    assert phi(x)[0, 0, 0].isfinite().all()
    assert phi(x, is_query=False)[0, 0].isnan().all()
    assert phi(x, is_query=False)[0, 1].isfinite().all()


def test_the_argument_is_left_alone() -> None:
    for hyperbolic in (False, True):
        phi, x = favor(hyperbolic=hyperbolic), random(1, 2, 3, 6)
        before = x.clone()
        phi(x), phi(x, False), phi.scaled_keys(x)
        assert torch.equal(x, before)


def test_a_map_over_a_batch_with_torch_func() -> None:
    phi, x = favor(), random(4, 2, 3, 6)
    for is_query in (True, False):
        mapped = torch.func.vmap(lambda a, is_query=is_query: phi(a, is_query))(x)
        torch.testing.assert_close(mapped, phi(x, is_query), rtol=1e-12, atol=0)


def test_half_the_square_and_its_derivatives() -> None:
    x = torch.cat([random(3, 4), torch.zeros(1, 4).double()]).requires_grad_()
    torch.testing.assert_close(half_square(x), (x * x).sum(-1, keepdim=True) / 2)
    assert torch.autograd.gradcheck(half_square, x, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(half_square, x)


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"head_dim": 0}, ValueError, "head_dim must be at least 1, got 0"),
        ({"num_features": 2.0}, TypeError, "num_features must be an int, got 2.0"),
        ({"heads": 0}, ValueError, "heads must be at least 1, got 0"),
        ({"projection": "gauss"}, ValueError, r"projection must be one of iid, .*got 'gauss'"),
        ({"generator": 3}, TypeError, "generator must be a torch.Generator or None, got 3"),
    ],
)
def test_bad_arguments_are_named(
    arguments: dict[str, object], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        FavorFeatures(**{"head_dim": 4, "num_features": 4, **arguments})


def test_bad_tensors_are_named() -> None:
    phi = favor(heads=2)
    for call in (phi, phi.scaled_keys):
        with pytest.raises(ValueError, match=r"x must have shape \(\.\.\., 2 heads, seq, 6\), got"):
            call(random(3, 4, 6))
        with pytest.raises(TypeError, match=r"x must be a floating-point tensor, got torch\.int64"):
            call(torch.ones(2, 4, 6, dtype=torch.long))
    for fixed in (ReLUFeatures(), ELUFeatures()):
        with pytest.raises(TypeError, match=r"x must be a floating-point tensor, got torch\.int64"):
            fixed(torch.ones(2, 4, 6, dtype=torch.long))


@pytest.mark.parametrize("hyperbolic", [False, True])
@pytest.mark.parametrize("size", [1.0, 170.0, 3e4, 7e5])
def test_no_feature_of_a_key_is_above_its_bound(size: float, hyperbolic: bool) -> None:
    phi = favor(6, 9, hyperbolic=hyperbolic).float()
    k = size * random(2, 3, 11, 6).float()
    features, log_scale = phi.scaled_keys(k)
    bound = (1 + 1e-6) * features.shape[-1] ** -0.5
    assert log_scale.isfinite().all()
    for found in (features, phi(k, is_query=False)):
        assert 0.999 * bound < found.max() <= bound
    # each key has a largest feature, and of all keys together one is at the bound
    assert (features.amax(-1) > 0.999 * bound).all()


def test_the_gradient_of_scaled_keys_is_whole() -> None:
    phi, k = favor(5, 7), random(3, 4, 5).requires_grad_()
    features, log_scale = phi.scaled_keys(k)
    assert not log_scale.requires_grad
    probe = random(3, 4, 7)
    (got,) = torch.autograd.grad((features * log_scale.exp()[..., None] * probe).sum(), k)
    plain = favor(5, 7)
    plain.stabilize = False
    (exact,) = torch.autograd.grad((plain(k) * probe).sum(), k)
    torch.testing.assert_close(got, exact, rtol=1e-10, atol=1e-12)
