"""Circulant features: the literal algorithm, its gradient, and closed forms of mean and error."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from lab.theory.structured_variance import (
    _chi_quadrature,
    circulant_mean_mse,
    circulant_mse,
    circulant_ratio,
    hadamard_moments,
    structured_bias_bounds,
    unit_circulant_bias,
    unit_circulant_moments,
    unit_circulant_ratio,
)
from stringlib import FavorFeatures
from stringlib.attention import projections
from stringlib.attention.projections import PROJECTIONS
from stringlib.reference import (
    circulant_favor_features,
    circulant_gradient,
    circulant_project,
    circulant_projection_matrix,
    hadamard_projection_matrix,
    simplex_circulant_column,
    unit_circulant_column,
)
from stringlib.testing import properties
from tests.draws import random

SIZES = [1, 2, 3, 5, 8, 9]


def all_signs(d: int) -> Tensor:
    return torch.tensor(list(itertools.product([-1.0, 1.0], repeat=d)), dtype=torch.float64)


def made(kind: str, d: int, m: int, draws: int = 1, learnable: bool = False):
    generator = torch.Generator().manual_seed(1)
    return PROJECTIONS[kind](d, m, draws, learnable, generator).double()


def direction(name: str, d: int, square: float) -> Tensor:
    z = {"one-hot": torch.eye(d)[0], "constant": torch.ones(d), "random": random(d, seed=3)}[name]
    return z.double() / z.norm() * math.sqrt(square)


@pytest.mark.proves("eq-circulant-product", "eq-circulant-projection")
@pytest.mark.parametrize("d", SIZES)
@pytest.mark.parametrize("rows", [1, 10**6], ids=["transform", "product"])
def test_features_are_those_of_the_printed_algorithm(
    d: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(projections, "FEWEST_ROWS", {"fft": rows})
    m = 2 * d + 1
    generator = torch.Generator().manual_seed(1)
    phi = FavorFeatures(d, m, "circulant", stabilize=False, generator=generator).double()
    column, signs = phi.projection.column[0], phi.projection.signs[0]
    matrix = circulant_projection_matrix(column, signs)
    assert matrix.shape == (3 * d, d)
    assert properties.largest_difference(phi.projection_matrix()[0], matrix[:m]) == 0
    x = random(1, 4, d) / 2
    for token, features in zip(x[0], phi(x)[0], strict=True):
        literal = circulant_project(token, column, signs)
        assert properties.largest_difference(literal, matrix @ token) <= 1e-13
        expected = circulant_favor_features(token, column, signs, m)
        torch.testing.assert_close(features, expected, rtol=1e-12, atol=0)


@pytest.mark.proves("eq-circulant-gradient")
@pytest.mark.parametrize("d", [*SIZES, 64])
@pytest.mark.parametrize("rows", [1, 10**6], ids=["transform", "product"])
def test_the_gradient_of_the_column_is_the_printed_one(
    d: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(projections, "FEWEST_ROWS", {"fft": rows})
    projection = made("circulant", d, d, learnable=True)
    x, g = random(2, 1, 7, d, seed=2) / math.sqrt(14)
    (projection(x[None])[0] * g).sum().backward()
    expected = circulant_gradient(x[0], g[0], projection.signs[0, 0])
    assert properties.largest_difference(projection.column.grad[0, 0], expected) <= 1e-14 * d**0.5


@pytest.mark.proves("eq-unit-circulant", "eq-simplex-circulant")
@pytest.mark.parametrize("d", SIZES)
@pytest.mark.parametrize(
    ("kind", "printed"),
    [("unit-circulant", unit_circulant_column), ("simplex-circulant", simplex_circulant_column)],
)
def test_the_column_is_the_printed_sum_of_cosines(
    kind: str, printed: Callable[[Tensor, int], Tensor], d: int
) -> None:
    if (kind, d) == ("simplex-circulant", 1):
        return  # a simplex has two corners
    projection = made(kind, d, d)
    column = printed(projection.phases[0, 0], d)
    literal = circulant_projection_matrix(column[None], projection.signs[0])
    expected = projection.lengths[0, :, None] * literal
    assert properties.largest_difference(projection.matrix()[0], expected) <= 1e-13
    if kind == "unit-circulant":
        assert properties.orthogonality_error(literal) <= 1e-13


@pytest.mark.parametrize(("d", "m"), [(1, 1), (5, 5), (5, 3), (8, 8), (8, 1)])
def test_the_circulant_error_is_the_mean_over_gaussian_columns(d: int, m: int) -> None:
    """E exp(ω_i·z + ω_j·z) from the covariance of the printed rows, entry by entry."""
    z, signs = random(d) / 2, torch.sign(random(d, seed=1))
    # the rows are linear in r: row i of this matrix, times r, is ω_i·z
    rows = torch.stack(
        [circulant_projection_matrix(r[None], signs[None]) @ z for r in torch.eye(d)], 1
    )[:m]
    covariance = rows @ rows.T
    expected = torch.expm1(covariance).mean()
    assert properties.largest_difference(circulant_mse(z, signs, m), expected) <= 1e-13


@pytest.mark.proves("eq-circulant-variance-signs")
@pytest.mark.parametrize("d", [1, 2, 3, 4, 6, 7, 8])
def test_the_mean_over_signs_is_exact(d: int) -> None:
    z = random(d)
    for m in range(1, d + 1):
        expected = circulant_mse(z, all_signs(d), m).mean()
        assert circulant_mean_mse(z, m).item() == pytest.approx(expected.item(), rel=1e-12)
    whole, part = circulant_mean_mse(z, d), circulant_mean_mse(z, 1)
    blocks = (4 * d**2 * whole / 2 + part) / (2 * d + 1) ** 2
    assert circulant_mean_mse(z, 2 * d + 1).item() == pytest.approx(blocks.item(), rel=1e-12)
    stacked = circulant_mean_mse(torch.stack([z, -2 * z]), d)
    assert stacked.shape == (2,)
    assert stacked[0].item() == pytest.approx(whole.item(), rel=1e-12)


@pytest.mark.proves("eq-circulant-ratio", "eq-unit-ratio")
def test_the_ratio_has_its_limit_and_its_largest_value() -> None:
    x = torch.linspace(0.01, 12, 12_000, dtype=torch.float64)
    ratio = circulant_ratio(x)
    assert ratio.max().item() == pytest.approx(1.3238, abs=1e-4)
    assert x[ratio.argmax()].item() == pytest.approx(1.5936, abs=1e-3)
    assert torch.equal(ratio + unit_circulant_ratio(x), torch.full_like(x, 2))
    for square in (0.5, 1.5936, 4.0):
        z = direction("constant", 2048, square)
        exact = circulant_mean_mse(z, 2048) * 2048 / math.expm1(square)
        limit = circulant_ratio(torch.tensor(square, dtype=torch.float64))
        assert exact.item() == pytest.approx(limit.item(), rel=0.005)


@pytest.mark.proves("eq-unit-pair")
@pytest.mark.parametrize("name", ["one-hot", "constant", "random"])
@pytest.mark.parametrize(("d", "m"), [(5, 5), (8, 3), (16, 16)])
def test_moments_of_the_unit_circulant_given_the_signs(name: str, d: int, m: int) -> None:
    z, draws = direction(name, d, 1.0), 20_000
    projection = made("unit-circulant", d, m, draws)
    signs = torch.sign(random(d, seed=5))
    projection.signs.copy_(signs.expand_as(projection.signs))
    estimate = torch.exp(projection.matrix() @ z - 0.5).mean(-1)
    mean, square = unit_circulant_moments(z, signs, m)
    error = estimate.std() / math.sqrt(draws)
    assert abs(estimate.mean() - mean) <= 4 * error
    squares = estimate.square()
    assert abs(squares.mean() - square) <= 4 * squares.std() / math.sqrt(draws)


@pytest.mark.proves("eq-structured-bias")
@pytest.mark.parametrize(
    ("name", "square", "d"),
    [
        *itertools.product(("one-hot", "constant", "random"), (0.5, 1.0, 1.9), (2, 3, 4)),
        # hundreds of signs each
        ("constant", 1.0, 8),
        ("random", 1.9, 8),
        ("one-hot", 0.5, 9),
        ("random", 1.9, 9),
    ],
)
def test_the_bias_of_the_unit_circulant_is_bounded(name: str, d: int, square: float) -> None:
    z = direction(name, d, square)
    signs = all_signs(d)
    means = torch.stack([unit_circulant_moments(z, s, 1)[0] for s in signs[: len(signs) // 2]])
    low, high = structured_bias_bounds(torch.tensor(square).double(), d)
    assert low <= means.mean() - 1 <= high
    assert (means - 1 <= high + 1e-12).all()  # for every choice of signs


@pytest.mark.proves("eq-hadamard-pair")
@pytest.mark.parametrize("d", [1, 2, 4])
def test_moments_of_hadamard_features_given_two_diagonals(d: int) -> None:
    """All signs of the first diagonal, all pairs of rows, and the means over lengths apart."""
    nodes, weights = _chi_quadrature(d)
    z, rest = direction("random", d, 1.3), torch.sign(random(2, d, seed=7))
    mean, square = hadamard_moments(z, rest)
    rows = torch.stack(
        [hadamard_projection_matrix(torch.cat([first[None], rest])) @ z for first in all_signs(d)]
    )
    features = torch.exp(nodes[:, None, None] * rows - 0.65)  # node, signs, row
    alone = torch.einsum("a,asi->si", weights, features)
    both = torch.einsum("si,sk->sik", alone, alone)
    both.diagonal(dim1=1, dim2=2).copy_(torch.einsum("a,asi->si", weights, features.square()))
    assert mean.item() == pytest.approx(alone.mean().item(), rel=1e-12)
    assert square.item() == pytest.approx(both.mean().item(), rel=1e-12)


@pytest.mark.proves("eq-unit-bias", "eq-unit-ratio")
def test_the_first_order_of_the_bias_and_the_limit_of_the_ratio() -> None:
    """One-hot: no sign matters, and d² times what is left of the bias stays bounded."""
    rest = []
    for d in (16, 32, 64, 128, 256):
        z = direction("one-hot", d, 2.0)
        mean, square = unit_circulant_moments(z, torch.ones(d), d)
        rest.append(((mean - 1 - unit_circulant_bias(z)) * d**2).item())
    assert all(abs(r) < 1 for r in rest)
    assert abs(rest[-1] - rest[-2]) < 0.05
    ratio = (square - 2 * mean + 1).item() * d / math.expm1(2)
    limit = unit_circulant_ratio(torch.tensor(2.0, dtype=torch.float64)).item()
    assert ratio == pytest.approx(limit, abs=0.045)


@pytest.mark.proves("eq-unit-bias")
@pytest.mark.parametrize(("d", "gap"), [(128, 64), (128, 40), (129, 64)])
def test_the_bias_of_two_channels_depends_on_whether_they_are_opposite(d: int, gap: int) -> None:
    z = torch.zeros(d, dtype=torch.float64)
    z[0] = z[gap] = 1
    first, means = unit_circulant_bias(z), []
    for sign in (1.0, -1.0):
        signs = torch.ones_like(z)
        signs[gap] = sign
        means.append(unit_circulant_moments(z, signs, 1)[0])
    assert first.item() == pytest.approx(0 if 2 * gap == d else 2 / (8 * d), abs=1e-12)
    assert abs(torch.stack(means).mean() - 1 - first) * d**2 < 3
    assert torch.equal(unit_circulant_bias(torch.stack([z, z])), first.expand(2))


def test_the_quadrature_is_exact_for_moments() -> None:
    for d in (1, 2, 7, 64, 1024):
        nodes, weights = _chi_quadrature(d)
        expected = 1.0
        for k in range(6):
            assert (weights * nodes ** (2 * k)).sum().item() == pytest.approx(expected, rel=1e-10)
            expected *= d + 2 * k
