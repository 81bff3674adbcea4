"""The decay of RoPE: sums of waves over distance, an integral near these sums, and bounds.

:math:`n = d/2` is the number of pairs. Everything is computed in float64.
"""

from __future__ import annotations

import math
from typing import Annotated

import torch
from torch import Tensor

from stringlib.spec import Floats, Numbers, Reals, checked

EULER = 0.5772156649015329
"""Euler's constant γ."""

Base = Annotated[float, Numbers("finite and above 1", lambda b: 1 < b < math.inf)]

SERIES_TERMS, FRACTION_TERMS, BOUNDARY = 40, 60, 4.0  # relative error below 1e-14


@checked
def phase_sum(
    distances: Reals[Tensor, "..."],
    frequencies: Floats[Tensor, "pairs"],
    amplitudes: Tensor | None = None,
) -> Tensor:
    r"""Return the sum of waves :math:`\sum_i h_i e^{\mathrm{i} t \theta_i}`.

    By default this is :math:`S(t)`, equation :eq:`eq-decay-sum`, with :math:`h_i = 1/n`. The real
    part of S(t) is the score of two vectors of ones, divided by d. The mean square over all
    distances is :math:`\sum_i |h_i|^2`, equation :eq:`eq-decay-mean-square`. With
    :math:`h_i = e^{-\mathrm{i} t_0 \theta_i}/n` the sum is largest at :math:`t_0`, equation
    :eq:`eq-decay-anywhere`.

    Args:
        distances: Distances t, of any shape.
        frequencies: Frequencies θ, ``(pairs,)``.
        amplitudes: Amplitudes h, real or complex, ``(pairs,)``.

    Returns:
        The sums, complex128, of the shape of ``distances``.

    Raises:
        ValueError: If there is not one amplitude for each frequency.
    """
    h = _amplitudes(frequencies, amplitudes)
    return (_waves(distances, frequencies) * h).sum(-1)


@checked
def abel_bound(
    distances: Reals[Tensor, "..."],
    frequencies: Floats[Tensor, "pairs"],
    amplitudes: Tensor | None = None,
) -> Tensor:
    r"""Return RoFormer's bound of the absolute value of :func:`phase_sum`, :eq:`eq-decay-abel`.

    Without amplitudes this is the curve in figure 2 of RoFormer.

    Args:
        distances: Distances t, of any shape.
        frequencies: Frequencies θ, ``(pairs,)``, in the order of the pairs.
        amplitudes: Amplitudes h, real or complex, ``(pairs,)``.

    Returns:
        The bounds, float64, of the shape of ``distances``.

    Raises:
        ValueError: If there is not one amplitude for each frequency.

    Source:
        Su et al. 2024 (RoFormer), section 3.4.3, equations 36 and 37, where :math:`h_n = 0`.
    """
    h = _amplitudes(frequencies, amplitudes)
    steps = torch.diff(h, append=h.new_zeros(1)).abs()
    partial = _waves(distances, frequencies).cumsum(-1).abs()
    return steps.max() * partial.sum(-1)


@checked
def exp_integral(x: Floats[Tensor, "..."]) -> Tensor:
    r"""Return :math:`E_1(-\mathrm{i}x) = \int_x^\infty e^{\mathrm{i}u}/u\,du` for x > 0.

    The function uses a power series up to x = 4, and a continued fraction above. It does not use
    the divergent expansion of equation :eq:`eq-decay-parts`, whose error cannot be made arbitrarily
    small.

    Args:
        x: Positive floating-point numbers, of any shape.

    Returns:
        The integrals, complex128, of the same shape.

    Source:
        Abramowitz and Stegun 1964, 5.1.11 and 5.1.22 (the latter in its contracted form).
    """
    x = x.double()
    near = x.clamp(max=BOUNDARY)
    term = torch.ones_like(near, dtype=torch.complex128)
    total = torch.zeros_like(term)
    for k in range(1, SERIES_TERMS + 1):
        term = term * (1j * near / k)
        total = total + term / k
    series = -EULER - near.log() + 0.5j * math.pi - total
    z = -1j * x.clamp(min=BOUNDARY)
    fraction = z + 2 * FRACTION_TERMS + 1
    for k in range(FRACTION_TERMS, 0, -1):
        fraction = z + 2 * k - 1 - k * k / fraction
    return torch.where(x < BOUNDARY, series, torch.exp(-z) / fraction)


@checked
def phase_integral(distances: Floats[Tensor, "..."], base: Base) -> Tensor:
    """Return :math:`I(t)`, the limit of :math:`S(t)` for infinitely many pairs.

    It is defined by equation :eq:`eq-decay-integral` and computed by :eq:`eq-decay-e1`.

    Args:
        distances: Distances t ≥ 0, floating-point, of any shape.
        base: The base b > 1.

    Returns:
        The integrals, complex128, of the same shape.
    """
    t = distances.double()
    away = torch.where(t == 0, 1.0, t)
    value = (exp_integral(away / base) - exp_integral(away)) / math.log(base)
    return torch.where(t == 0, 1, value)


@checked
def regimes(distances: Floats[Tensor, "..."], base: Base) -> tuple[Tensor, Tensor]:
    r"""Return the two approximations of the integral, equation :eq:`eq-decay-regimes`.

    Args:
        distances: Distances t > 0, floating-point, of any shape.
        base: The base b > 1.

    Returns:
        :math:`(\ln(b/t) - \gamma)/\ln b`, the real part for 1 ≪ t ≪ b, and :math:`b/(t \ln b)`, the
        absolute value for t ≫ b, with a relative error of about :math:`1/b + 1.5\,(b/t)^2`. For t ≫
        b the real part is about minus this absolute value times :math:`\sin(t/b)`, with an error of
        about 1/b + b/t times the absolute value. So it is negative at first.
    """
    t = distances.double()
    return ((base / t).log() - EULER) / math.log(base), base / (t * math.log(base))


@checked
def horizon(pairs: int, base: Base) -> float:
    r"""Return the distance up to which the sum follows its integral, :eq:`eq-decay-horizon`.

    Args:
        pairs: Number of pairs :math:`n = d/2`.
        base: The base b > 1.

    Returns:
        The horizon :math:`2\pi n/\ln b`, where the angles of neighbouring pairs of high frequency
        differ by a full turn. At smaller distances, sum and integral differ by at most
        :func:`gap_bound` and the terms at the ends of the sum.
    """
    return 2 * math.pi * pairs / math.log(base)


@checked
def corput_bound(speeds: Floats[Tensor, "... values"]) -> Tensor:
    r"""Return a bound of the difference of a sum of waves and its integral, :eq:`eq-decay-corput`.

    The terms of the sum are :math:`e^{2\pi\mathrm{i}\varphi(j)}` for j = 0 … N, with weight ½ for
    the first and the last term. The integral is from 0 to N. Let
    :math:`c(u) = 1/(\pi u) - \cot \pi u`, which is the error for a constant frequency u. Then the
    bound is :math:`\tfrac12\big(|c(\varphi'(0))| + |c(\varphi'(N))| + V(c \circ \varphi')\big)`,
    where V is the total variation. If :math:`\varphi'` is monotone and does not change its sign,
    the bound is :math:`c(\max|\varphi'|)`.

    Args:
        speeds: Values of :math:`\varphi'` in turns per step, in order, ``(..., values)``: at both
            ends, at all local extrema, and on both sides of a jump. Between these values
            :math:`\varphi'` is monotone.

    Returns:
        The bounds, float64, ``(...)``. A bound is infinite if a value of :math:`\varphi'` reaches
        one turn per step.

    Source:
        van der Corput 1921 with another constant, as lemma 4.8 of Titchmarsh 1986.
    """
    u = speeds.double()
    within = u.abs() < 1
    x = math.pi * torch.where(within, u, 0.5)
    near = x.abs() < 0.06  # there 1/x and cot x cancel
    series = x / 3 + x**3 / 45 + 2 * x**5 / 945
    safe = torch.where(near, 1.0, x)
    error = torch.where(near, series, 1 / safe - 1 / safe.tan())
    ends = error[..., 0].abs() + error[..., -1].abs()
    bound = (ends + error.diff(dim=-1).abs().sum(-1)) / 2
    return torch.where(within.all(-1), bound, math.inf)


@checked
def gap_bound(distances: Floats[Tensor, "..."], pairs: int, base: Base) -> Tensor:
    r"""Return a bound of the difference between RoPE's sum and its integral, :eq:`eq-decay-gap`.

    Args:
        distances: Distances t ≥ 0, floating-point, of any shape.
        pairs: Number of pairs :math:`n = d/2`.
        base: The base b > 1.

    Returns:
        The bound of :math:`|S(t) - I(t) - (e^{\mathrm{i}t} - e^{\mathrm{i}t/b})/2n|`, float64, of
        the shape of ``distances``. From the horizon on it is infinite.
    """
    fastest = distances.double() / horizon(pairs, base)  # turns between the two fastest pairs
    return corput_bound(torch.stack([fastest, fastest / base], -1)) / pairs


@checked
def gap_main_term(distances: Floats[Tensor, "..."], pairs: int, base: Base) -> Tensor:
    r"""Return the main term of RoPE's sum minus its integral, equation :eq:`eq-decay-endpoint`.

    Args:
        distances: Distances t from 0 to the horizon, floating-point, of any shape.
        pairs: Number of pairs :math:`n = d/2`.
        base: The base b > 1.

    Returns:
        :math:`\tfrac{\mathrm{i}}{2n}(c(\delta)\,e^{\mathrm{i}t} - c(\delta/b)\,e^{\mathrm{i}t/b})`
        with :math:`\delta = t/t^*`, complex128, of the shape of ``distances``. From the horizon on
        it is infinite.
    """
    t = distances.double()
    fastest = t / horizon(pairs, base)
    first, last = (corput_bound(x.unsqueeze(-1)) for x in (fastest, fastest / base))
    waves = torch.polar(first, t) - torch.polar(last, t / base)
    return 0.5j * waves / pairs


@checked
def remainder_bound(distances: Floats[Tensor, "..."], pairs: int, base: Base) -> Tensor:
    r"""Return a bound of the remainder after :func:`gap_main_term`, :eq:`eq-decay-endpoint`.

    Args:
        distances: Distances t from 0 to the horizon, floating-point, of any shape.
        pairs: Number of pairs :math:`n = d/2`.
        base: The base b > 1.

    Returns:
        The smaller of the bound in the equation and :math:`(c(\delta) - c(\delta/b))/2n`, float64,
        of the shape of ``distances``. From the horizon on it is infinite.
    """
    fastest = distances.double() / horizon(pairs, base)
    share = fastest.clamp(max=0.999999)  # nearer to the horizon the other bound is smaller
    cubes = torch.special.zeta(torch.tensor(3.0).double(), 1 - share)
    squares = torch.pi**2 / 6 - torch.special.zeta(torch.tensor(2.0).double(), 1 + share)
    second = math.log(base) / (4 * math.pi**2 * pairs) * (2 * share * cubes + squares / 2)
    first, last = (corput_bound(x.unsqueeze(-1)) for x in (fastest, fastest / base))
    bound = torch.minimum(second, (first - last) / 2).clamp(min=0) / pairs
    return torch.where(fastest < 1, bound, math.inf)


def _waves(distances: Tensor, frequencies: Tensor) -> Tensor:
    """Return the unit waves, complex128, ``(..., pairs)``."""
    angles = distances.double().unsqueeze(-1) * frequencies.double()
    return torch.polar(torch.ones_like(angles), angles)


def _amplitudes(frequencies: Tensor, amplitudes: Tensor | None) -> Tensor:
    if amplitudes is None:
        pairs = frequencies.shape[0]
        return torch.full_like(frequencies, 1 / max(pairs, 1), dtype=torch.complex128)
    if amplitudes.shape != frequencies.shape:
        raise ValueError(
            f"amplitudes must have the shape of frequencies, {tuple(frequencies.shape)}, "
            f"got {tuple(amplitudes.shape)}"
        )
    return amplitudes.to(torch.complex128)
