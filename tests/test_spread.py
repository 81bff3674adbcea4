"""Intervals of a few runs, against scipy; perplexity, and the share of the nearest tokens."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from scipy import stats

from book.figures.language_model import near_share, nearest_tokens
from stringlib.theory.perplexity import perplexity
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


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: interval([1.0]), "values must hold at least 2 numbers, got 1"),
        (lambda: mean([]), "values must hold at least 1 numbers, got 0"),
        (lambda: interval([1.0, math.nan]), "values must be finite, got nan"),
        (lambda: difference([1.0, 2.0], [1.0]), "others must have 2 values, as many, got 1"),
        (lambda: difference([1.0, 2.0], [1.0, math.inf]), "others must be finite, got inf"),
        (lambda: t_quantile(0), "degrees must be at least 1, got 0"),
        (lambda: perplexity(1.0, 0), "unit must be positive and finite, got 0"),
        (lambda: perplexity(1.0, -1.0), "unit must be positive and finite, got -1.0"),
    ],
)
def test_what_does_not_fit_is_named(call: Callable[[], object], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        call()


@pytest.mark.proves("eq-perplexity")
def test_perplexity_of_a_word_is_that_of_its_bytes_multiplied() -> None:
    assert perplexity(8) == 256
    assert perplexity(2.5, 4) == pytest.approx(perplexity(2.5) ** 4)
    # a fair die has perplexity 6, whatever it is written in
    assert perplexity(math.log2(6) / 3, 3) == pytest.approx(6)


@pytest.mark.proves("eq-near-share")
@pytest.mark.parametrize("tokens", [1, 7, 200])
def test_share_of_the_nearest(tokens: int) -> None:
    flat = [0.3] * tokens
    cosine = [math.cos(math.pi * d / (2 * tokens)) for d in range(tokens)]
    for near in range(1, tokens + 1):
        assert near_share(flat, near) == pytest.approx(near / tokens)
        assert near / tokens <= near_share(cosine, near) * (1 + 1e-12)
        assert near_share(cosine, near) <= math.pi / 2 * near / tokens


@pytest.mark.parametrize("length", [64, 1024])
def test_the_figure_draws_what_its_text_says(length: int) -> None:
    fig, told = nearest_tokens(length, 4)
    for curve in fig.data:
        assert len(curve.x) == 20  # as many points at every length
        assert curve.y[-1] == 1
        at_four = curve.y[list(curve.x).index(4)]
        assert f"{at_four:.1%}" in told
