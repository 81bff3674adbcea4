"""What a few runs say: mean and interval, paired differences, shares of successes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from stringlib.spec import Count0, checked

LEVEL = 0.95
"""Of every interval here."""


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

    It assumes independent runs with normal scores. Scores against a wall, such as accuracies near
    1, are not normal: the interval can reach beyond the wall and is then no more than a warning.

    Args:
        values: One number per run, at least two.
        comparisons: How many such intervals are looked at together. All of them hold their means
            at once with 95 %, by Bonferroni: each has the level 1 − 0.05/comparisons.

    Raises:
        ValueError: If there are fewer than two.
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

    Pairs share what the two methods do not differ in, such as the seed of the data, so that what
    it does to both of them cancels.

    Args:
        values: One number per run of one method, at least two.
        others: As many of the other, in the same order of seeds.
        comparisons: As for :func:`interval`. A difference whose interval excludes 0 alone, but not
            among the comparisons that it was picked from, is suggestive and no more.

    Returns:
        ``(mean, low, high)``; no difference is plausible where 0 lies between low and high.

    Raises:
        ValueError: If the numbers do not pair, or are fewer than two.
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
    """Return the difference of the means of runs that share nothing, and its interval, by Welch.

    Args:
        values: One number per run of one method, at least two.
        others: Of the other, at least two.
        comparisons: As for :func:`interval`.

    Returns:
        ``(difference, low, high)``.

    Raises:
        ValueError: If one has fewer than two.
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
    """Return the 95 % interval of the chance of success, ``(low, high)``, by Wilson's score.

    Unlike Student's it holds for a few runs, too, and where all of them succeed or fail.

    Args:
        successes: How many runs succeeded.
        runs: How many there were.
        comparisons: As for :func:`interval`.

    Raises:
        ValueError: If there are more successes than runs.
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
