"""Errors of random features in closed form: against series, printed formulas and draws."""

from __future__ import annotations

import math

import pytest
import scipy.special
import torch
from torch import Tensor

from lab.theory.variance import (
    attention_mse,
    hyperbolic_mse,
    optimal_mse,
    orthogonal_gain,
    orthogonal_gain_bound,
    orthogonal_mse,
    positive_mse,
    sqrt_norm_mean,
    trigonometric_mse,
)
from stringlib.attention.favor import optimal_alpha
from tests.draws import random

SQUARES = torch.tensor([0.0, 1e-3, 0.3, 1.0, 2.0, 8.0, 50.0], dtype=torch.float64)


def haar(draws: int, d: int, seed: int = 0) -> Tensor:
    """Return Haar matrices, from the polar factor: no QR, so no sign to forget."""
    u, _, vh = torch.linalg.svd(random(draws, d, d, seed=seed))
    return u @ vh


def compare(estimates: Tensor, expected: Tensor) -> None:
    """Hold the mean square of relative errors to within five of its standard errors."""
    squares = (estimates - 1).square()
    error = squares.std() / math.sqrt(len(squares))
    assert abs(squares.mean() - expected) <= 5 * error
    assert error < 0.05 * expected


@pytest.mark.proves(
    "eq-favor-mse-trigonometric", "eq-favor-mse-positive", "eq-favor-mse-hyperbolic"
)
def test_closed_forms_are_those_of_the_paper() -> None:
    x, y = 0.5 * random(2, 5)
    kernel, m = (x @ y).exp(), 7
    plus, minus = ((x + y) @ (x + y), (x - y) @ (x - y))
    positive = plus.exp() * kernel**2 * (1 - (-plus).exp()) / m
    printed = {
        trigonometric_mse(minus, m): plus.exp() / kernel**2 * (1 - (-minus).exp()) ** 2 / (2 * m),
        positive_mse(plus, m): positive,
        hyperbolic_mse(plus, m): positive * (1 - (-plus).exp()) / 2,
    }
    for ours, theirs in printed.items():
        torch.testing.assert_close(ours * kernel**2, theirs, rtol=1e-13, atol=0)


@pytest.mark.proves("eq-favor-optimal-mse")
@pytest.mark.parametrize("square", [0.3, 1.2])
@pytest.mark.parametrize("alpha", [-0.6, -0.08, 0.02])
def test_optimal_draws_have_this_error(alpha: float, square: float) -> None:
    d, m = 5, 8
    omega = random(60_000, m, d, seed=1)
    exponent = 2 * alpha * omega.square().sum(-1)  # of two features, but for what is constant
    terms = (exponent + math.sqrt((1 - 4 * alpha) * square) * omega[..., 0]).exp()
    estimates = (1 - 4 * alpha) ** (d / 2) * terms.mean(-1) * math.exp(-square / 2)
    compare(estimates, optimal_mse(torch.tensor(square).double(), m, d, alpha))


@pytest.mark.proves("eq-favor-optimal-mse", "eq-favor-optimal-alpha")
@pytest.mark.parametrize("d", [1, 3, 64])
def test_the_best_alpha_is_the_best(d: int) -> None:
    best = optimal_alpha(SQUARES, d)
    assert best[0] == 0
    assert (best[1:] < 0).all()
    error = optimal_mse(SQUARES, 7, d, best)
    assert (error <= positive_mse(SQUARES, 7) * (1 + 1e-12)).all()
    for step in (-1e-3, 1e-3):
        assert (error <= optimal_mse(SQUARES, 7, d, (best + step).clamp(max=0.12))).all()
    torch.testing.assert_close(optimal_mse(SQUARES, 7, d, 0.0), positive_mse(SQUARES, 7))
    root = 1 / (1 - 8 * best)
    quadratic = 2 * SQUARES * root**2 + (2 * SQUARES + d) * root - d
    torch.testing.assert_close(quadratic, torch.zeros_like(root), rtol=0, atol=1e-12)


@pytest.mark.proves("eq-favor-orthogonal")
@pytest.mark.parametrize("hyperbolic", [False, True])
@pytest.mark.parametrize("m", [1, 3, 4, 9])
def test_orthogonal_draws_have_these_errors(m: int, hyperbolic: bool) -> None:
    d, draws, square = 4, 20_000, torch.tensor(0.7, dtype=torch.float64)
    blocks = [haar(draws, d, seed) * random(draws, d, d, seed=9 + seed).norm(dim=-1, keepdim=True)
              for seed in range(-(-m // d))]  # fmt: skip
    u = torch.cat(blocks, 1)[:, :m, 0] * square.sqrt()
    terms = u.cosh() if hyperbolic else u.exp()
    estimates = (terms * (-square / 2).exp()).mean(-1)
    compare(estimates, orthogonal_mse(square, m, d, hyperbolic))


@pytest.mark.proves("eq-favor-orthogonal-pair")
@pytest.mark.parametrize("d", [1, 2, 3, 64])
def test_the_pair_is_a_confluent_hypergeometric_function(d: int) -> None:
    expected = scipy.special.hyp1f1(d, d / 2, SQUARES.numpy() / 2)
    got = 1 - orthogonal_gain(SQUARES, d)
    expected = torch.from_numpy(expected) * (-SQUARES).exp()
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-13)


@pytest.mark.proves("eq-favor-orthogonal-bound")
@pytest.mark.parametrize("d", [1, 2, 3, 16, 64, 1000])
def test_the_bound_holds_and_is_tight_for_small_arguments(d: int) -> None:
    gain, bound = orthogonal_gain(SQUARES, d), orthogonal_gain_bound(SQUARES, d)
    assert (gain >= bound * (1 - 1e-12)).all()
    assert gain[1] / bound[1] == pytest.approx(1, abs=2e-3)


@pytest.mark.proves("eq-favor-sqrt-norm")
@pytest.mark.parametrize("d", [1, 2, 3, 64])
def test_rows_of_one_length_estimate_too_little(d: int) -> None:
    expected = scipy.special.hyp0f1(d / 2, d * SQUARES.numpy() / 4) * (-SQUARES / 2).exp().numpy()
    got = sqrt_norm_mean(SQUARES, d)
    torch.testing.assert_close(got, torch.from_numpy(expected), rtol=1e-10, atol=0)
    assert (got[1:] < 1).all()
    small = SQUARES[1]
    assert (1 - got[1]) / (small**2 / (4 * (d + 2))) == pytest.approx(1, abs=1e-3)


@pytest.mark.proves("eq-favor-covariance", "eq-favor-attention-error")
@pytest.mark.parametrize(("n", "keys"), [(3, 5), (1, 2), (4, 1)])
def test_the_error_of_attention_is_that_of_a_written_out_sum(n: int, keys: int) -> None:
    q, k, m = 0.4 * random(n, 3, seed=1), 0.4 * random(keys, 3, seed=2), 17
    expected, size = 0.0, 0.0
    for i in range(n):
        weights = (q[i] @ k.T).softmax(-1)
        z = q[i] + k
        covariance = ((z @ z.T).exp() - 1) / m
        for j in range(keys):
            less_mean = -weights
            less_mean = less_mean + torch.eye(keys, dtype=torch.float64)[j]
            expected += weights[j].item() ** 2 * (less_mean @ covariance @ less_mean).item()
            size += weights[j].item() ** 2
    assert attention_mse(q, k, m).item() == pytest.approx(expected / size, rel=1e-12, abs=1e-15)
