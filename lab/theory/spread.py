"""Statistics of a few runs: means, intervals, paired differences, and shares of successes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from stringlib.spec import Count0, checked

LEVEL = 0.95
"""Confidence level of all intervals of this module."""


@checked
def mean(values: Sequence[float]) -> float:
    """Return the mean.

    Raises:
        ValueError: If there is no value.
    """
    _require("values", values, 1)
    return statistics.fmean(values)


@checked
def interval(values: Sequence[float], comparisons: int = 1) -> tuple[float, float]:
    """Return the 95 % confidence interval of the mean by Student's t, ``(low, high)``.

    The interval assumes independent runs with normally distributed scores. Scores near a limit,
    such as accuracies near 1, are not normally distributed. The interval can then extend beyond the
    limit, and is only a rough indication.

    Args:
        values: One number per run, at least two.
        comparisons: Number of intervals that are considered together. They are corrected by
            Bonferroni: each has the level 1 − 0.05/comparisons, so that with a probability of at
            least 95 % all of them contain their means.

    Raises:
        ValueError: If there are fewer than two values.
    """
    _require("values", values, 2)
    from scipy import stats  # of the extra "train"

    quantile = stats.t.ppf(1 - (1 - LEVEL) / (2 * comparisons), len(values) - 1)
    half = float(quantile) * statistics.stdev(values) / math.sqrt(len(values))
    centre = statistics.fmean(values)
    return centre - half, centre + half


@checked
def difference(
    values: Sequence[float], others: Sequence[float], comparisons: int = 1
) -> tuple[float, float, float]:
    """Return the mean of the paired differences ``values - others`` and its interval.

    The two runs of a pair share everything in which the methods do not differ, such as the seed of
    the data. Effects of what they share cancel in the difference.

    Args:
        values: One number per run of one method, at least two.
        others: The numbers of the other method, in the same order of seeds.
        comparisons: As for :func:`interval`. A difference is only suggestive if its interval
            excludes 0 without this correction, but not with it.

    Returns:
        ``(mean, low, high)``. If 0 is between low and high, the methods may be equally good.

    Raises:
        ValueError: If the numbers of runs differ or are less than two.
    """
    _require("values", values, 2)
    if len(values) != len(others):
        raise ValueError(
            f"others must have as many numbers as values, {len(values)}, got {len(others)}"
        )
    _require("others", others, 2)
    each = [a - b for a, b in zip(values, others, strict=True)]
    return statistics.fmean(each), *interval(each, comparisons)


@checked
def unpaired(
    values: Sequence[float], others: Sequence[float], comparisons: int = 1
) -> tuple[float, float, float]:
    """Return the difference of the means of independent runs and its interval, by Welch.

    Args:
        values: One number per run of one method, at least two.
        others: One number per run of the other method, at least two.
        comparisons: As for :func:`interval`.

    Returns:
        ``(difference, low, high)``.

    Raises:
        ValueError: If a method has fewer than two runs.
    """
    _require("others", others, 2)
    _require("values", values, 2)
    from scipy import stats

    found = stats.ttest_ind(values, others, equal_var=False)
    ends = found.confidence_interval(1 - (1 - LEVEL) / comparisons)
    middle = statistics.fmean(values) - statistics.fmean(others)
    return middle, float(ends.low), float(ends.high)


@checked
def success_interval(successes: Count0, runs: int, comparisons: int = 1) -> tuple[float, float]:
    """Return the 95 % interval of a probability of success, ``(low, high)``, by Wilson's score.

    Unlike Student's interval it is valid for few runs, and if all of them succeed or all fail.

    Args:
        successes: Number of runs that succeeded.
        runs: Number of runs.
        comparisons: As for :func:`interval`.

    Raises:
        ValueError: If ``successes`` is greater than ``runs``.
    """
    if successes > runs:
        raise ValueError(f"successes must be at most runs = {runs}, got {successes}")
    from scipy import stats

    level = 1 - (1 - LEVEL) / comparisons
    found = stats.binomtest(successes, runs).proportion_ci(level, method="wilson")
    return float(found.low), float(found.high)


def _require(name: str, values: Sequence[float], least: int) -> None:
    if len(values) < least:
        raise ValueError(f"{name} must hold at least {least} numbers, got {len(values)}")
