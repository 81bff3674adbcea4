"""Intervals of a few runs, against scipy."""

from __future__ import annotations

import math

import pytest
from scipy import stats

from stringlib.theory.spread import difference, interval, mean, t_quantile

VALUES = [0.31, 0.35, 0.28, 0.40, 0.33]
OTHERS = [0.30, 0.30, 0.27, 0.33, 0.30]


def test_the_quantiles_are_those_of_student_s_t() -> None:
    for degrees in [*range(1, 200), 1000, 10**6]:
        assert t_quantile(degrees) == pytest.approx(stats.t.ppf(0.975, degrees), abs=1e-4)


@pytest.mark.parametrize("count", [2, 3, 5, 40])
def test_an_interval_is_scipy_s(count: int) -> None:
    values = [math.sin(i) for i in range(count)]
    expected = stats.t.interval(0.95, count - 1, stats.tmean(values), stats.sem(values))
    assert interval(values) == pytest.approx(expected, rel=1e-4)
    assert mean(values) == pytest.approx(sum(values) / count)


def test_an_interval_covers_the_mean_nineteen_times_in_twenty() -> None:
    draws = stats.norm(2.0, 3.0).rvs((4000, 5), random_state=0)
    covered = sum(low <= 2.0 <= high for low, high in (interval(row) for row in draws.tolist()))
    assert abs(covered / 4000 - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 4000)


def test_a_paired_difference_is_scipy_s_and_narrower_than_the_two_intervals() -> None:
    centre, low, high = difference(VALUES, OTHERS)
    test = stats.ttest_rel(VALUES, OTHERS)
    expected = test.confidence_interval(0.95)
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=1e-5)
    assert centre == pytest.approx(mean(VALUES) - mean(OTHERS))
    # what both share in a seed cancels: apart, the two overlap
    assert low > 0
    assert interval(VALUES)[0] < interval(OTHERS)[1]


def test_what_has_no_interval_is_refused() -> None:
    with pytest.raises(ValueError, match="values must hold at least 2 numbers, got 1"):
        interval([1.0])
    with pytest.raises(ValueError, match="values must hold at least 1 numbers, got 0"):
        mean([])
    with pytest.raises(ValueError, match="values must be finite, got nan"):
        interval([1.0, math.nan])
    with pytest.raises(ValueError, match="others must have 2 values, as many, got 1"):
        difference([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="others must be finite, got inf"):
        difference([1.0, 2.0], [1.0, math.inf])
    with pytest.raises(ValueError, match="degrees must be at least 1, got 0"):
        t_quantile(0)
