"""Sums of waves over distance, the integral they start as, and their bounds."""

from __future__ import annotations

import cmath
import math

import numpy as np
import pytest
import sympy as sp
import torch
from scipy.integrate import quad
from scipy.special import sici
from torch import Tensor

from lab.theory import rope_decay
from stringlib import RoPE
from stringlib.positions import geometric_frequencies
from stringlib.testing import properties
from tests.draws import random


def exact_e1(x: float) -> sp.Expr:
    """Return E₁(−ix) to 40 digits."""
    return sp.expint(1, -sp.I * sp.Float(x, 40)).evalf(40)


@pytest.mark.proves("eq-decay-sum")
def test_the_sum_is_ropes_score_of_ones() -> None:
    encoder, ones = RoPE(32), torch.ones(1, 1, 32, dtype=torch.float64)
    t = torch.arange(0, 2000, 7, dtype=torch.float64)
    turned = encoder.rotate(ones.expand(1, len(t), 32), t[:, None])
    scores = (turned @ ones[0, 0])[0] / 32
    total = rope_decay.phase_sum(t, encoder.frequencies()[0, :, 0])
    assert properties.largest_difference(total.real, scores) <= 1e-12


@pytest.mark.proves("eq-decay-e1")
def test_exponential_integral_has_fourteen_digits_on_both_sides_of_the_boundary() -> None:
    x = torch.cat([torch.logspace(-9, 9, 37), torch.linspace(3.5, 4.5, 21)]).double()
    exact = torch.tensor([complex(exact_e1(v)) for v in x.tolist()], dtype=torch.complex128)
    assert ((rope_decay.exp_integral(x) - exact).abs() / exact.abs()).max() <= 1e-14


@pytest.mark.proves("eq-decay-integral", "eq-decay-e1")
@pytest.mark.parametrize("base", [10.0, 10_000.0])
@pytest.mark.parametrize("t", [0.0, 1e-6, 0.5, 3.0, 40.0, 700.0])
def test_the_integral_by_quadrature(t: float, base: float) -> None:
    def wave(part: str, s: float) -> float:
        return getattr(cmath.exp(1j * t * base**-s), part)

    parts = [quad(lambda s, p=p: wave(p, s), 0, 1, limit=2000)[0] for p in ("real", "imag")]
    given = rope_decay.phase_integral(torch.tensor(t).double(), base).item()
    assert abs(given - complex(*parts)) <= 1e-9


def test_the_integral_at_zero_is_one_and_its_gradient_finite() -> None:
    t = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    value = rope_decay.phase_integral(t, 100.0)
    assert value.tolist() == [1, 1]
    value.abs().sum().backward()
    assert t.grad is not None
    assert t.grad.isfinite().all()


@pytest.mark.proves("eq-decay-parts")
@pytest.mark.parametrize("x", [0.3, 1.0, 10.0, 60.0])
@pytest.mark.parametrize("terms", [0, 1, 5, 20])
def test_the_remainder_is_at_most_the_first_term_left_out(x: float, terms: int) -> None:
    ix = sp.I * sp.Float(x, 40)
    partial = -sp.exp(ix) / ix * sum(sp.factorial(k) / ix**k for k in range(terms))
    rest = abs((exact_e1(x) - partial).evalf(40))
    assert 0 < rest <= sp.factorial(terms) / sp.Float(x, 40) ** (terms + 1)


@pytest.mark.proves("eq-decay-regimes")
@pytest.mark.parametrize("base", [1e4, 1e8])
def test_the_integral_follows_a_logarithm_then_one_over_t(base: float) -> None:
    t = torch.logspace(2, math.log10(base) - 2, 30, dtype=torch.float64)
    early, _ = rope_decay.regimes(t, base)
    gap = rope_decay.phase_integral(t, base).real - early
    # what is left out: E₁(−it) is at most 1/t, the series after −γ − ln x at most x²/4
    assert (gap.abs() * math.log(base) <= 1 / t + (t / base) ** 2 / 4 + 1e-12).all()
    far = base * torch.logspace(2, 4, 30, dtype=torch.float64)
    _, late = rope_decay.regimes(far, base)
    size = rope_decay.phase_integral(far, base).abs()
    assert ((size / late - 1).abs() <= 1.01 / base + 1.5 * (base / far) ** 2).all()
    real = rope_decay.phase_integral(far, base).real  # negative first, then in turns of πb
    left_out = 1 / base + base / far + 1 / (base * far)
    assert ((real / late + (far / base).sin()).abs() <= left_out).all()


def constant_speed_error(u: float) -> float:
    """Return c(u) to 30 digits."""
    x = sp.pi.evalf(50) * sp.Float(u, 50)
    return float(1 / x - sp.cot(x)) if u else 0.0


@pytest.mark.parametrize("u", [0.0, 1e-9, -1e-3, 0.0190, 0.0192, 0.5, -0.9, 0.999])
def test_the_error_of_a_constant_speed_has_twelve_digits(u: float) -> None:
    given = rope_decay.corput_bound(torch.tensor([u], dtype=torch.float64)).item()
    assert given == pytest.approx(abs(constant_speed_error(u)), rel=1e-11)


def sum_and_integral(phase: np.ndarray, steps: int) -> complex:
    """Return their difference for a phase in turns that is linear between its values.

    Args:
        phase: At whole places and at equally many between two of them.
        steps: Number of whole steps.
    """
    wave, turns = np.exp(2j * np.pi * phase), np.diff(phase)
    each = np.where(np.abs(turns) < 1e-9, wave[:-1], np.diff(wave) / (2j * np.pi * turns))
    whole = wave[:: (len(phase) - 1) // steps]
    return whole.sum() - (whole[0] + whole[-1]) / 2 - each.sum() * steps / len(each)


@pytest.mark.proves("eq-decay-corput")
@pytest.mark.parametrize("kind", ["monotone", "through zero", "jumps", "waves"])
def test_no_speed_does_worse_than_the_bound(kind: str) -> None:
    random, used = np.random.default_rng(0), 0.0
    for steps in (1, 2, 3, 7, 20, 39) * 5:
        x = (np.arange(400 * steps) + 0.5) / 400
        low, high, power = *random.uniform(0, 0.999, 2), random.uniform(0.2, 5)
        speed = {
            "monotone": low + (high - low) * (x / steps) ** power,
            "through zero": -low + (low + high) * (x / steps) ** power,
            "jumps": random.uniform(-0.98, 0.98, 4)[(4 * x / steps).astype(int)],
            "waves": high * np.sin(random.uniform(0.01, 2) * x + random.uniform(0, 6)),
        }[kind]
        phase = random.uniform() + np.concatenate([[0], np.cumsum(speed) / 400])
        gap = abs(sum_and_integral(phase, steps))
        bound = rope_decay.corput_bound(torch.from_numpy(speed)).item()
        assert gap <= bound * (1 + 1e-9) + 1e-12
        used = max(used, gap / bound)
        if kind == "monotone":
            assert bound == pytest.approx(constant_speed_error(np.abs(speed).max()), rel=1e-9)
    assert used > 0.5  # half the bound would be wrong


@pytest.mark.proves("eq-decay-corput")
@pytest.mark.parametrize(("steps", "speed"), [(1, 0.5), (3, 0.5), (7, 1 / 14), (5, 0.9)])
def test_a_constant_speed_reaches_the_bound(steps: int, speed: float) -> None:
    gap = abs(sum_and_integral(speed * np.arange(steps + 1), steps))
    bound = rope_decay.corput_bound(torch.tensor([speed], dtype=torch.float64)).item()
    assert gap == pytest.approx(bound, rel=1e-13)


@pytest.mark.proves("eq-decay-gap")
@pytest.mark.parametrize("pairs", [1, 2, 5, 33, 256])
@pytest.mark.parametrize("base", [1.01, 2.0, 1e3, 1e6, 1e12])
def test_before_the_horizon_the_sum_is_near_its_integral(pairs: int, base: float) -> None:
    t = 2 * np.pi * pairs / np.log(base) * np.linspace(0.002, 0.998, 1500)
    total = np.exp(1j * np.outer(t, base ** (-np.arange(pairs) / pairs))).mean(1)
    parts = [-sici(x)[1] + 1j * (np.pi / 2 - sici(x)[0]) for x in (t / base, t)]
    ends = (np.exp(1j * t) - np.exp(1j * t / base)) / (2 * pairs)
    gap = total - (parts[0] - parts[1]) / np.log(base)
    bound = rope_decay.gap_bound(torch.from_numpy(t), pairs, base).numpy()
    rounding = 1e-13 / np.log(base)
    assert (np.abs(gap - ends) <= bound + rounding).all()
    if pairs > 2:  # with the sign of the ends changed it would not hold
        assert (np.abs(gap + ends) > bound + rounding).any()


@pytest.mark.proves("eq-decay-horizon")
@pytest.mark.parametrize("pairs", [64, 1024])
@pytest.mark.parametrize("base", [100.0, 10_000.0])
def test_the_sum_leaves_the_integral_at_the_horizon(pairs: int, base: float) -> None:
    leaves = rope_decay.horizon(pairs, base)
    assert leaves == pytest.approx(2 * math.pi * pairs / math.log(base), rel=1e-15)
    theta, wave = geometric_frequencies(pairs, base), 1 / math.sqrt(pairs * math.log(base))

    def gap(low: float, high: float) -> Tensor:
        t = torch.linspace(low * leaves, high * leaves, 200, dtype=torch.float64)
        return (rope_decay.phase_sum(t, theta) - rope_decay.phase_integral(t, base)).abs()

    assert gap(0, 0.5).max() <= 2 / pairs
    assert 0.7 * wave < gap(1.15, 1.9).mean() < 1.5 * wave


@pytest.mark.proves("eq-decay-mean-square")
def test_the_mean_square_is_the_sum_of_squared_amplitudes() -> None:
    theta, h = geometric_frequencies(16), torch.view_as_complex(random(16, 2))
    generator = torch.Generator().manual_seed(1)
    t = 1e9 * torch.rand(200_000, dtype=torch.float64, generator=generator)
    mean = rope_decay.phase_sum(t, theta, h).abs().square().mean()
    assert mean == pytest.approx(h.abs().square().sum().item(), rel=0.02)


@pytest.mark.proves("eq-decay-anywhere")
@pytest.mark.parametrize("distance", [0, 7, 500, 123_456])
def test_the_largest_score_may_stand_at_any_distance(distance: int) -> None:
    theta = geometric_frequencies(32)
    h = torch.polar(torch.full_like(theta, 1 / 32), -distance * theta)
    t = distance + torch.arange(-300, 301, dtype=torch.float64)
    score = rope_decay.phase_sum(t, theta, h).real
    assert score.argmax() == 300
    assert score[300].item() == pytest.approx(1, abs=1e-10)
    assert score[torch.arange(601) != 300].max() < 0.999


@pytest.mark.proves("eq-decay-abel")
@pytest.mark.parametrize("seed", range(2))
def test_the_abel_bound_holds(seed: int) -> None:
    theta = geometric_frequencies(64)
    t = torch.linspace(0, 1e4, 500, dtype=torch.float64)
    h = torch.view_as_complex(random(64, 2, seed=seed))
    for amplitudes in (h, h.cumsum(0), None):
        bound = rope_decay.abel_bound(t, theta, amplitudes)
        assert (rope_decay.phase_sum(t, theta, amplitudes).abs() <= bound * (1 + 1e-12)).all()


@pytest.mark.proves("eq-decay-abel")
def test_the_abel_bound_step_by_step() -> None:
    theta, h = [1.0, 0.3, 0.1], [2 + 1j, -1 + 0j, 0.5j]
    waves = [cmath.exp(1j * 5 * w) for w in theta]
    partial = [waves[0], waves[0] + waves[1], sum(waves)]
    steps = [h[1] - h[0], h[2] - h[1], -h[2]]
    literal = max(abs(s) for s in steps) * sum(abs(s) for s in partial)
    given = rope_decay.abel_bound(torch.tensor(5.0), torch.tensor(theta).double(), torch.tensor(h))
    assert given.item() == pytest.approx(literal, rel=1e-6)
