r"""Causal position weights that are polynomials of the distance and fall to 0 at a horizon."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from stringlib.attention.weights import Factors, PositionWeight, copies
from stringlib.documents import require_reach, token_positions
from stringlib.spec import Count0, Positive, checked

TOO_FAR = (
    "At distances greater than the horizon the weight is negative or rises again. Pass a larger "
    "horizon."
)
"""Reason and remedy in the error for a distance greater than the horizon."""

HIGHEST_DEGREE = 8  # of FallingWeight: float32 errors are then 1e-4 of the largest weight


class PolynomialWeight(PositionWeight):
    r"""Position weight :math:`P(1 - (i-j)/M)` with a polynomial P and the horizon M.

    Here i is the position of the query, j ≤ i that of the key, and p the degree of P, see
    :eq:`eq-polynomial-weight`. The weight is for causal attention only. The argument of P is
    :math:`x + y`, where :math:`x = 1 - i/M` depends on the query alone and :math:`y = j/M` on the
    key alone. Taylor's formula :math:`P(x + y) = \sum_r \tfrac{1}{r!}P^{(r)}(x)\,y^r` therefore
    writes the weight as a sum of p + 1 products. So linear attention with this weight on m features
    equals linear attention without a weight on (p + 1)m features.

    Args:
        horizon: The distance M in tokens. A sequence of more than M + 1 tokens raises an error.
        coefficients: The p + 1 coefficients of the polynomial P(s), starting with that of
            :math:`s^0`.
    """

    causal_only = True

    def __init__(self, horizon: float, coefficients: Sequence[float]) -> None:
        super().__init__()
        self.horizon, self.coefficients = horizon, tuple(float(c) for c in coefficients)

    @checked
    def matrix(self, num_queries: Count0, num_keys: Count0) -> Tensor:
        """Return the weights, float64, ``(num_queries, num_keys)``, with 0 for later keys.

        Raises:
            ValueError: If a distance exceeds the horizon.
        """
        require_reach(self.horizon, 0, max(num_queries, num_keys), TOO_FAR)
        s = 1 - (self._places(0, num_queries)[:, None] - self._places(0, num_keys))
        return sum(
            (c * s**k for k, c in enumerate(self.coefficients) if c), torch.zeros_like(s)
        ).tril()

    def factors(self, phi_q: Tensor, phi_k: Tensor, start: int | Tensor = 0) -> Factors:
        """Return the weighted similarity as a product of (p + 1)m features for degree p.

        Raises:
            ValueError: If the sequence, together with the ``start`` earlier tokens, has more than
                M + 1 tokens.
        """
        require_reach(self.horizon, start, max(phi_q.shape[-2], phi_k.shape[-2]), TOO_FAR)
        i, j = (self._places(start, x.shape[-2], x.device) for x in (phi_q, phi_k))
        terms = range(len(self.coefficients))
        queries = torch.stack([self._taylor(r, 1 - i) for r in terms], -1)
        keys = torch.stack([self._share(r) * j**r for r in terms], -1)
        return Factors(copies(phi_q, queries), copies(phi_k, keys))

    def _taylor(self, r: int, x: Tensor) -> Tensor:
        """Return the factor of the queries in term r of Taylor's formula.

        The factor is the r-th derivative of P at x, divided by r! and by the constant factor
        :meth:`_share` of the keys. So the product of the factors of query and key is term r.
        """
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
        """Return the constant factor of the keys in term r of Taylor's formula.

        For degree p this is the square root of p choose r, which gives queries and keys factors of
        similar size.
        """
        return math.comb(len(self.coefficients) - 1, r) ** 0.5

    def _places(
        self, start: int | Tensor, count: int, device: torch.device | None = None
    ) -> Tensor:
        """Return the positions from ``start`` on, divided by the horizon."""
        return token_positions(start, count, device) / self.horizon


class RampWeight(PolynomialWeight):
    r"""Position weight :math:`(1 - (i-j)/M)^p` with the power p and the horizon M.

    Here i is the position of the query and j ≤ i that of the key, :eq:`eq-ramp-weight`. The weight
    is a :class:`PolynomialWeight` with :math:`P(s) = s^p`, and needs p + 1 copies of the features.
    If the features are not negative, the copies are not negative.

    No wave of one frequency prefers the nearest tokens more than p = 2 does, :eq:`eq-ramp-best`.
    More precisely, let :math:`w(\Delta) = c_0 + c_1\cos\omega\Delta + c_2\sin\omega\Delta` be
    non-negative and non-increasing from 0 to M. Then w gives the nearest tokens no larger share
    than p = 2 does. If :math:`c_0 = 0`, w gives the nearest tokens no larger share than p = 1 does.

    For p = 1 and p = 2 this weight equals the :class:`FallingWeight` of degree p. For p > 2 the
    :class:`FallingWeight` of degree p is better. The two weights need the same number of copies,
    and the ratio of the weight at distance 0 to the mean weight is greater for the
    :class:`FallingWeight` than for this weight.

    Args:
        horizon: The distance M in tokens at which the weight is 0. A sequence of more than M + 1
            tokens raises an error.
        power: The power p. Default: 1, for which the weight falls linearly.

    Source:
        This book. Its chapter on cosine weights proves the bounds.
    """

    @checked
    def __init__(self, horizon: Positive, power: int = 1) -> None:
        super().__init__(horizon, [0] * int(power) + [1])
        self.power = int(power)

    def extra_repr(self) -> str:
        """Return the arguments that ``repr`` shows."""
        return f"{self.horizon}, power={self.power}"


class FallingWeight(PolynomialWeight):
    r"""Falling polynomial of degree p with the greatest height at 0, :eq:`eq-falling-weight`.

    The height is the weight at distance 0 divided by the mean weight of the distances from 0 to the
    horizon M. Among all polynomials of degree p that are non-negative and non-increasing from 0 to
    M, the falling polynomial has the greatest height, :math:`1/t_1`, :eq:`eq-falling-best`. Here
    :math:`t_1` is the least node of a Gauss formula on [0, 1], see :func:`gauss_nodes`. For
    p = 1 … 8 the height is 2, 3, 4.73, 6.45, 8.87, 11.3, 14.4, 17.5. The height of a
    :class:`RampWeight` of power p is p + 1. For p = 1 and p = 2 the falling weight equals the
    :class:`RampWeight` of power p.

    The weight needs p + 1 copies of the features, some of which are negative. The weights are
    not negative, except for rounding. In float32 the rounding error of a weight is about 1e-7 of
    the largest weight at degree 3, 2e-6 at degree 5, and 1e-4 at degree 8.

    Args:
        horizon: The distance M in tokens at which the weight is 0. A sequence of more than M + 1
            tokens raises an error.
        degree: The degree p, from 1 to 8. Default: 3.

    Raises:
        ValueError: If the degree is less than 1 or greater than 8.

    Source:
        Chebyshev 1883 for the least mean of a non-negative polynomial; Szegő 1975, section 7.72,
        for the problem with a weight function.
    """

    @checked
    def __init__(self, horizon: Positive, degree: int = 3) -> None:
        if degree > HIGHEST_DEGREE:
            raise ValueError(
                f"degree must be at most {HIGHEST_DEGREE}, got {degree}. Rounding errors grow with "
                "the degree."
            )
        super().__init__(horizon, falling_coefficients(degree))
        self.degree = degree

    def extra_repr(self) -> str:
        """Return the arguments that ``repr`` shows."""
        return f"{self.horizon}, degree={self.degree}"


def gauss_nodes(degree: int) -> list[float]:
    r"""Return the Gauss nodes of a falling weight of degree p in increasing order.

    The least node gives the height of the weight, :eq:`eq-falling-best`. For odd p the nodes are
    those of the Gauss formula with (p + 1)/2 points on [0, 1], the roots of a Legendre polynomial.
    For even p the nodes are those of the Gauss formula with p/2 points for the weight
    :math:`1 - t`, the roots of a Jacobi polynomial. As p grows, the least node times
    :math:`(p + 2)^2` converges, :eq:`eq-falling-limit`.

    The function finds the roots one by one. Newton's method, started at 0, increases to the least
    root of the polynomial divided by the factors of the roots found before.

    Args:
        degree: The degree p, at least 1.
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
    """Return the value and the derivative at t of the polynomial whose roots are the Gauss nodes.

    Value and derivative follow from the three-term recurrence of orthogonal polynomials.
    """
    odd = degree % 2
    values, slopes = (0.0, 1.0), (0.0, 0.0)
    for k in range((degree + 1) // 2):
        middle = 0.5 if odd else (1 - 1 / (4 * (k + 1) ** 2 - 1)) / 2
        beside = k**2 / (4 * k**2 - 1) / 4 if odd else k * (k + 1) / (2 * k + 1) ** 2 / 4
        slopes = slopes[1], (t - middle) * slopes[1] + values[1] - beside * slopes[0]
        values = values[1], (t - middle) * values[1] - beside * values[0]
    return values[1], slopes[1]


def falling_coefficients(degree: int) -> list[float]:
    r"""Return the coefficients of the falling polynomial, starting with that of :math:`s^0`.

    The polynomial P is that of :eq:`eq-falling-weight`. The coefficients are scaled so that
    :math:`P(1) = 1`, which is the weight at distance 0.

    Args:
        degree: The degree p, at least 1.
    """
    slope = [1.0] if degree % 2 else [0.0, 1.0]
    for node in gauss_nodes(degree)[1:]:
        for _ in range(2):  # a double zero at the node t, which is s = 1 - t
            slope = [a - (1 - node) * b for a, b in zip([0.0, *slope], [*slope, 0.0], strict=True)]
    risen = [0.0, *(c / (k + 1) for k, c in enumerate(slope))]
    return [c / math.fsum(risen) for c in risen]
