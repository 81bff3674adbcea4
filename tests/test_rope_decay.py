"""Sums of waves over distance, the integral they start as, and their bounds."""

from __future__ import annotations

import cmath
import itertools
import math

import pytest
import sympy as sp
import torch
from scipy.integrate import quad

from lab.theory import rope_decay


@pytest.mark.proves("eq-decay-e1")
def test_exponential_integral_has_fourteen_digits_on_both_sides_of_the_boundary() -> None:
    x = torch.cat([torch.logspace(-9, 9, 37), torch.linspace(3.5, 4.5, 21)]).double()
    exact = [complex(sp.expint(1, -sp.I * sp.Float(v, 40)).evalf(40)) for v in x.tolist()]
    exact = torch.tensor(exact, dtype=torch.complex128)
    assert ((rope_decay.exp_integral(x) - exact).abs() / exact.abs()).max() <= 1e-14


@pytest.mark.proves("eq-decay-integral", "eq-decay-e1")
@pytest.mark.parametrize("base", [10.0, 10_000.0])
@pytest.mark.parametrize("t", [0.0, 1e-6, 0.5, 3.0, 40.0, 700.0])
def test_the_integral_by_quadrature(t: float, base: float) -> None:
    waves = math.cos, math.sin
    parts = [quad(lambda s, wave=wave: wave(t * base**-s), 0, 1, limit=2000)[0] for wave in waves]
    given = rope_decay.phase_integral(torch.tensor(t).double(), base).item()
    assert abs(given - complex(*parts)) <= 1e-9


def test_the_integral_at_zero_is_one_and_its_gradient_finite() -> None:
    t = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    value = rope_decay.phase_integral(t, 100.0)
    assert value.tolist() == [1, 1]
    value.abs().sum().backward()
    assert t.grad is not None
    assert t.grad.isfinite().all()


def constant_speed_error(u: float) -> float:
    x = sp.pi.evalf(50) * sp.Float(u, 50)
    return float(1 / x - sp.cot(x)) if u else 0.0


@pytest.mark.parametrize("u", [0.0, 1e-9, -1e-3, 0.0190, 0.0192, 0.5, -0.9, 0.999])
def test_the_error_of_a_constant_speed_has_twelve_digits(u: float) -> None:
    given = rope_decay.corput_bound(torch.tensor([u], dtype=torch.float64)).item()
    assert given == pytest.approx(abs(constant_speed_error(u)), rel=1e-11)


@pytest.mark.proves("eq-decay-corput")
@pytest.mark.parametrize(
    "speeds", [(0.1, 0.7), (-0.6, 0.1), (0.3, -0.5, 0.9), (0.2, 0.2, -0.8, 0.0)]
)
def test_the_bound_is_of_both_ends_and_of_the_variation(speeds: tuple[float, ...]) -> None:
    c = [constant_speed_error(u) for u in speeds]
    variation = sum(abs(b - a) for a, b in itertools.pairwise(c))
    bound = rope_decay.corput_bound(torch.tensor(speeds, dtype=torch.float64)).item()
    assert bound == pytest.approx((abs(c[0]) + abs(c[-1]) + variation) / 2, rel=1e-11)
    assert rope_decay.corput_bound(torch.tensor([*speeds, 1.0])).isinf()


@pytest.mark.proves("eq-decay-endpoint")
@pytest.mark.parametrize(
    ("pairs", "base"), [(1, 10.0), (2, 1e4), (8, 1e4), (64, 1e4), (64, 1.5), (1024, 5e5)]
)
def test_the_main_term_leaves_no_more_than_the_remainder(pairs: int, base: float) -> None:
    t = rope_decay.horizon(pairs, base) * torch.linspace(0, 0.9999, 2000, dtype=torch.float64)
    frequencies = torch.tensor([base ** (-i / pairs) for i in range(pairs)]).double()
    ends = (torch.polar(torch.ones_like(t), t) - torch.polar(torch.ones_like(t), t / base)) / 2
    gap = rope_decay.phase_sum(t, frequencies) - rope_decay.phase_integral(t, base) - ends / pairs
    bound = rope_decay.remainder_bound(t, pairs, base)
    left = (gap - rope_decay.gap_main_term(t, pairs, base)).abs()
    assert (left <= bound + 1e-13).all()
    assert (left / bound)[1:].max() > 0.4  # it is not far from the best possible
    assert rope_decay.remainder_bound(2 * t[-1:], pairs, base).isinf()
    if pairs >= 64:  # here the main term is nearly the whole difference
        half = slice(500, 1000)
        assert (left[half] < 0.07 * gap[half].abs()).all()
        other = (gap + rope_decay.gap_main_term(t, pairs, base)).abs()
        assert (other[half] > bound[half]).all()  # the opposite sign would be noticed


@pytest.mark.proves("eq-decay-abel")
def test_the_abel_bound_step_by_step() -> None:
    theta, h = [1.0, 0.3, 0.1], [2 + 1j, -1 + 0j, 0.5j]
    waves = [cmath.exp(1j * 5 * w) for w in theta]
    partial = [waves[0], waves[0] + waves[1], sum(waves)]
    steps = [h[1] - h[0], h[2] - h[1], -h[2]]
    literal = max(abs(s) for s in steps) * sum(abs(s) for s in partial)
    given = rope_decay.abel_bound(torch.tensor(5.0), torch.tensor(theta).double(), torch.tensor(h))
    assert given.item() == pytest.approx(literal, rel=1e-6)
