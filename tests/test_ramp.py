"""Ramps and falling polynomials: equal to their formulas, and the best of their kind."""

import math

import numpy as np
import pytest
import torch
from numpy.polynomial import chebyshev
from scipy.optimize import linprog

from stringlib import (
    FallingWeight,
    RampWeight,
    linear_attention,
)
from stringlib.attention.ramp import falling_coefficients, gauss_nodes
from stringlib.reference import falling_weight
from stringlib.testing.properties import largest_difference
from tests.draws import random


@pytest.mark.proves("eq-ramp-weight")
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 6), (6, 1), (5, 9), (9, 5)])
@pytest.mark.parametrize("power", [1, 2, 5])
def test_the_matrix_holds_the_formula(queries, keys, power):
    matrix = RampWeight(10.5, power).matrix(queries, keys)
    assert matrix.dtype == torch.float64
    distance = torch.arange(queries)[:, None] - torch.arange(keys).double()
    wanted = ((1 - distance / 10.5) ** power).tril()
    assert matrix.shape == wanted.shape
    assert largest_difference(matrix, wanted) < 1e-15


@pytest.mark.parametrize("power", [1, 2, 3])
@pytest.mark.parametrize("start", [0, 4])
def test_products_of_the_features_carry_the_weight_and_none_is_negative(power, start):
    phi = random(2, 7, 5).abs()
    weight = RampWeight(10, power)
    q, k, log_decay = weight.factors(phi, phi, start)
    assert log_decay is None
    assert q.shape == k.shape == (2, 7, 5 * (power + 1))
    assert q.min() >= 0
    assert k.min() >= 0
    wanted = weight.matrix(7, 7) * (phi @ phi.mT)
    assert largest_difference((q @ k.mT).tril(), wanted) < 1e-12
    # the features of a token do not depend on where its piece of the sequence begins
    before = torch.nn.functional.pad(phi, (0, 0, start, 0))
    for piece, whole in zip((q, k), weight.factors(before, before), strict=False):
        assert torch.equal(piece, whole[:, start:])


def test_it_is_zero_at_the_horizon_and_keeps_its_digits_before():
    """No cancellation: in float32 a tiny weight is right to a millionth of itself."""
    weight = RampWeight(1000, 2)
    phi = torch.ones(1, 1001, 1)
    q, k, _ = weight.factors(phi, phi)
    last = (q[0] @ k[0].mT)[-1].double()
    exact = torch.tensor([(j / 1000) ** 2 for j in range(1001)], dtype=torch.float64)
    assert last[0] == 0
    assert ((last - exact).abs() <= 1e-6 * exact).all()


def test_the_future_is_refused():
    phi, v = random(2, 12, 4).exp(), random(2, 12, 3)
    with pytest.raises(ValueError, match="causal must be True with a RampWeight"):
        linear_attention(phi, phi, v, RampWeight(11))


@pytest.mark.proves("eq-polynomial-weight", "eq-falling-weight")
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (6, 1), (5, 9), (9, 5)])
@pytest.mark.parametrize("degree", range(1, 9))
def test_the_falling_weight_is_what_defines_it(queries, keys, degree):
    weight = FallingWeight(10.5, degree)
    matrix = weight.matrix(queries, keys)
    assert matrix.dtype == torch.float64
    distance = torch.arange(queries).double()[:, None] - torch.arange(keys)
    wanted = falling_weight(distance.clamp(min=0) / 10.5, degree) * (distance >= 0)
    assert largest_difference(matrix, wanted) < 1e-9  # the moments of the twin are nearly singular
    phi_q, phi_k = random(2, queries, 3), random(2, keys, 3)
    q, k, log_decay = weight.factors(phi_q, phi_k)
    assert log_decay is None
    assert q.shape[-1] == k.shape[-1] == 3 * (degree + 1)
    products = (q @ k.mT) * (distance >= 0)
    assert largest_difference(products, matrix * (phi_q @ phi_k.mT)) < 1e-12


def height(coefficients):
    """Return the weight at distance 0 over its mean, of P in powers of s."""
    return math.fsum(coefficients) / math.fsum(c / (k + 1) for k, c in enumerate(coefficients))


@pytest.mark.proves("eq-falling-best")
@pytest.mark.parametrize("degree", range(1, 9))
def test_no_falling_polynomial_is_higher_at_0(degree):
    """A linear program over all polynomials that fall at 2,001 places."""
    places = np.linspace(0, 1, 2001)
    basis = [chebyshev.Chebyshev.basis(k, [0, 1]) for k in range(degree + 1)]
    falls = np.stack([f.deriv()(places) for f in basis], -1)
    means = [f.integ()(1) - f.integ()(0) for f in basis]
    top, end = ([f(x) for f in basis] for x in (0, 1))
    found = linprog(
        [-x for x in top],
        A_ub=np.vstack([falls, [-x for x in end]]),
        b_ub=np.zeros(len(places) + 1),
        A_eq=[means],
        b_eq=[1],
        bounds=[(None, None)] * (degree + 1),
    )
    best = 1 / gauss_nodes(degree)[0]
    assert -found.fun == pytest.approx(best, rel=2e-3)
    assert -found.fun >= best - 1e-6  # what falls at 2,001 places need not fall between
    assert height(falling_coefficients(degree)) == pytest.approx(best, rel=1e-12)
    assert height(RampWeight(1, degree).coefficients) == degree + 1


@pytest.mark.proves("eq-falling-limit")
def test_many_products_tend_to_the_zero_of_bessel():
    zero = 2.404825557695773
    rests = [1 / gauss_nodes(p)[0] - (p + 2) ** 2 / zero**2 for p in (40, 41, 80, 81)]
    assert rests == pytest.approx([0.222, 0.389] * 2, abs=0.005)
