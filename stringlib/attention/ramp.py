r"""Weights that fall to 0 at their horizon: polynomials of the distance, each a few products."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from stringlib.attention.weights import Factors, PositionWeight, copies
from stringlib.precision import widest
from stringlib.spec import Count0, Positive, checked

HIGHEST_DEGREE = 8  # of a FallingWeight, that float32 still carries: an error of 1e-4


class PolynomialWeight(PositionWeight):
    r"""Weight :math:`P(1 - (i-j)/M)` for j ≤ i and a polynomial P, :eq:`eq-polynomial-weight`.

    For causal attention only. With what the query knows, :math:`x = 1 - i/M`, and what the key
    knows, :math:`y = j/M`, Taylor's formula
    :math:`P(x + y) = \sum_r \tfrac{1}{r!}P^{(r)}(x)\,y^r` makes it a sum of p + 1 products:
    attention with it is attention without a weight on (p + 1)m features.

    Args:
        horizon: M, in tokens. Longer sequences are refused.
        coefficients: Of P, that of :math:`s^0` first; p is one less than their number.
    """

    causal_only = True

    def __init__(self, horizon: float, coefficients: Sequence[float]) -> None:
        super().__init__()
        self.horizon, self.coefficients = horizon, tuple(float(c) for c in coefficients)

    @checked
    def matrix(self, num_queries: Count0, num_keys: Count0) -> Tensor:
        """Return the weights: float64, ``(num_queries, num_keys)``, 0 for later keys.

        Raises:
            ValueError: If a distance exceeds the horizon.
        """
        self._require_reach(max(num_queries, num_keys))
        s = 1 - (self._places(0, num_queries)[:, None] - self._places(0, num_keys))
        return sum(
            (c * s**k for k, c in enumerate(self.coefficients) if c), torch.zeros_like(s)
        ).tril()

    def factors(self, phi_q: Tensor, phi_k: Tensor, start: int = 0) -> Factors:
        """Return (p + 1)m features; see ``PositionWeight.factors``.

        Raises:
            ValueError: If the sequence, with the tokens before it, is too long for the horizon.
        """
        self._require_reach(start + max(phi_q.shape[-2], phi_k.shape[-2]))
        i, j = (self._places(start, x.shape[-2], x.device) for x in (phi_q, phi_k))
        terms = range(len(self.coefficients))
        queries = torch.stack([self._taylor(r, 1 - i) for r in terms], -1)
        keys = torch.stack([self._share(r) * j**r for r in terms], -1)
        return Factors(copies(phi_q, queries), copies(phi_k, keys))

    def _taylor(self, r: int, x: Tensor) -> Tensor:
        """Return the r-th derivative of P at x, over r! and over the share of the keys."""
        whole = math.comb(len(self.coefficients) - 1, r)
        return sum(
            (
                c * math.comb(k, r) / whole * self._share(r) * x ** (k - r)
                for k, c in enumerate(self.coefficients)
                if c and k >= r
            ),
            torch.zeros_like(x),
        )

    def _share(self, r: int) -> float:
        """Return the factor of the keys in term r: half of the binomial coefficient's digits."""
        return math.comb(len(self.coefficients) - 1, r) ** 0.5

    def _places(self, start: int, count: int, device: torch.device | None = None) -> Tensor:
        """Return i/M for the positions from ``start`` on."""
        positions = torch.arange(start, start + count, dtype=widest(device), device=device)
        return positions / self.horizon

    def _require_reach(self, length: int) -> None:
        if length - 1 > self.horizon:
            raise ValueError(
                f"horizon must be at least {length - 1} for {length} tokens, got {self.horizon}: "
                "farther apart the weight would be negative, or rise again"
            )


class RampWeight(PolynomialWeight):
    r"""Weight :math:`(1 - (i-j)/M)^p` for j ≤ i, equation :eq:`eq-ramp-weight`.

    A :class:`PolynomialWeight`, by the binomial theorem; none of its features is negative where
    those of the map are not. No weight of one frequency that is never negative and never rises
    prefers the nearest tokens more than p = 2 does, nor a single cosine more than p = 1,
    :eq:`eq-ramp-best`. As many copies of higher powers do more as a :class:`FallingWeight`, which
    it is at 1 and 2.

    Args:
        horizon: M, in tokens: the distance where the weight is 0. Longer sequences are refused.
        power: p; 1 is a straight line.

    Source:
        This book; the bounds are proved in its chapter on cosine weights.
    """

    @checked
    def __init__(self, horizon: Positive, power: int = 1) -> None:
        super().__init__(horizon, [0] * int(power) + [1])
        self.power = int(power)

    def extra_repr(self) -> str:
        """Describe the arguments in ``repr``."""
        return f"{self.horizon}, power={self.power}"


class FallingWeight(PolynomialWeight):
    r"""The falling polynomial of degree p that is highest at 0, :eq:`eq-falling-weight`.

    Of all polynomials of its degree that never rise and are never negative up to the horizon it has
    the largest weight at distance 0 over its mean: :math:`1/t_1`, :eq:`eq-falling-best`, where
    :math:`t_1` is the least node of a Gauss formula on [0, 1]. That is 2, 3, 4.73, 6.45, 8.87,
    11.3, 14.4, 17.5 for p = 1 … 8, where the ramps have p + 1. At degrees 1 and 2 it is the
    :class:`RampWeight`. It costs p + 1 copies of the features. Some of them are negative; the
    weights are not, but for rounding: in float32 they are off by about 1e-7 of the largest at
    degree 3, 2e-6 at 5, and 1e-4 at 8.

    Args:
        horizon: M, in tokens: the distance where the weight is 0. Longer sequences are refused.
        degree: p, from 1 to 8.

    Raises:
        ValueError: If the degree is not from 1 to 8.

    Source:
        Chebyshev 1883 for the least mean of a non-negative polynomial; Szegő 1975, section 7.72.
    """

    @checked
    def __init__(self, horizon: Positive, degree: int = 3) -> None:
        if degree > HIGHEST_DEGREE:
            raise ValueError(f"degree must be at most {HIGHEST_DEGREE}, got {degree}")
        super().__init__(horizon, falling_coefficients(degree))
        self.degree = degree

    def extra_repr(self) -> str:
        """Describe the arguments in ``repr``."""
        return f"{self.horizon}, degree={self.degree}"


def gauss_nodes(degree: int) -> list[float]:
    r"""Return the nodes of :eq:`eq-falling-best`, the least first.

    For odd p those of the Gauss formula with (p + 1)/2 points on [0, 1], for even p those with p/2
    points and the weight :math:`1 - t`. They are the roots of a polynomial of Legendre or of
    Jacobi; from 0 Newton's method rises to the least root that is not yet divided out. The least
    times :math:`(p + 2)^2` tends to a number, :eq:`eq-falling-limit`.

    Args:
        degree: p, at least 1.
    """
    nodes: list[float] = []
    for _ in range((degree + 1) // 2):
        t, before = 0.0, -1.0
        while t > before:
            value, slope = _orthogonal(degree, t)
            divided = slope - value * sum(1 / (t - node) for node in nodes)
            before, t = t, t - value / divided
        nodes.append(before)
    return nodes


def _orthogonal(degree: int, t: float) -> tuple[float, float]:
    """Return the polynomial whose roots are the nodes, and its derivative, by its recursion."""
    odd = degree % 2
    values, slopes = (0.0, 1.0), (0.0, 0.0)
    for k in range((degree + 1) // 2):
        middle = 0.5 if odd else (1 - 1 / (4 * (k + 1) ** 2 - 1)) / 2
        beside = k**2 / (4 * k**2 - 1) / 4 if odd else k * (k + 1) / (2 * k + 1) ** 2 / 4
        slopes = slopes[1], (t - middle) * slopes[1] + values[1] - beside * slopes[0]
        values = values[1], (t - middle) * values[1] - beside * values[0]
    return values[1], slopes[1]


def falling_coefficients(degree: int) -> list[float]:
    r"""Return P of :eq:`eq-falling-weight`, that of :math:`s^0` first; :math:`P(1) = 1`.

    Args:
        degree: p, at least 1.
    """
    slope = [1.0] if degree % 2 else [0.0, 1.0]
    for node in gauss_nodes(degree)[1:]:
        for _ in range(2):  # a double zero at the node, 1 - t in terms of s
            slope = [a - (1 - node) * b for a, b in zip([0.0, *slope], [*slope, 0.0], strict=True)]
    risen = [0.0, *(c / (k + 1) for k, c in enumerate(slope))]
    return [c / math.fsum(risen) for c in risen]
