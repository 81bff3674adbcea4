"""Mean and 95 % confidence interval of a few runs, by Student's t."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

# the 0.975 quantile of Student's t with 1, 2, … degrees of freedom
QUANTILES = (
    *(12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281),
    *(2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860),
    *(2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423),
)


def t_quantile(degrees: int) -> float:
    """Return the 0.975 quantile of Student's t.

    Args:
        degrees: Degrees of freedom, at least 1.

    Raises:
        ValueError: If there are none.
    """
    if degrees < 1:
        raise ValueError(f"degrees must be at least 1, got {degrees}")
    if degrees <= len(QUANTILES):
        return QUANTILES[degrees - 1]
    z = 1.959964  # of the normal distribution, and the first terms in 1/degrees to it
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


def mean(values: Sequence[float]) -> float:
    """Return the mean.

    Raises:
        ValueError: If there is no value, or one is not finite.
    """
    _require("values", values, 1)
    return statistics.fmean(values)


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % confidence interval of the mean, ``(low, high)``.

    It assumes independent runs with normal scores. Scores against a wall, such as accuracies near
    1, are not normal: the interval can reach beyond the wall and is then no more than a warning.

    Args:
        values: One number a run, at least two.

    Raises:
        ValueError: If there are fewer than two, or one is not finite.
    """
    _require("values", values, 2)
    half = t_quantile(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    centre = statistics.fmean(values)
    return centre - half, centre + half


def difference(values: Sequence[float], others: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean of the paired differences ``values - others`` and its interval.

    Pairs share what the two methods do not differ in, such as the seed of the data, so that what
    it does to both of them cancels.

    Args:
        values: One number a run of one method, at least two.
        others: As many of the other, in the same order of seeds.

    Returns:
        ``(mean, low, high)``; no difference is plausible where 0 lies between low and high.

    Raises:
        ValueError: If the numbers do not pair, are fewer than two, or one is not finite.
    """
    if len(values) != len(others):
        raise ValueError(f"others must have {len(values)} values, as many, got {len(others)}")
    _require("others", others, 2)
    _require("values", values, 2)
    each = [a - b for a, b in zip(values, others, strict=True)]
    return statistics.fmean(each), *interval(each)


def _require(name: str, values: Sequence[float], least: int) -> None:
    if len(values) < least:
        raise ValueError(f"{name} must hold at least {least} numbers, got {len(values)}")
    bad = [v for v in values if not math.isfinite(v)]
    if bad:
        raise ValueError(f"{name} must be finite, got {bad[0]}")
