"""Intervals of a few runs and of successes; perplexity, and the share of the nearest tokens."""

from __future__ import annotations

import math
import statistics

import pytest
from scipy import stats

from book.figures.language_model import near_share
from lab.theory.perplexity import perplexity
from lab.theory.spread import difference, interval, mean, success_interval, unpaired
from tests.refusals import refusals


@pytest.mark.parametrize(
    ("count", "comparisons", "quantile"),  # of Student's t, from printed tables
    [(2, 1, 12.7062), (3, 1, 4.3027), (5, 1, 2.7764), (31, 1, 2.0423), (5, 5, 4.6041)],
)
def test_an_interval_is_as_wide_as_tables_say(
    count: int, comparisons: int, quantile: float
) -> None:
    values = [math.sin(i) for i in range(count)]
    centre = sum(values) / count
    error = math.sqrt(sum((v - centre) ** 2 for v in values) / (count - 1) / count)
    wanted = centre - quantile * error, centre + quantile * error
    assert interval(values, comparisons) == pytest.approx(wanted, rel=1e-4)
    assert mean(values) == pytest.approx(centre)


def test_a_share_of_successes_has_wilson_s_interval() -> None:
    for successes, runs in ((0, 30), (1, 5), (17, 30), (30, 30)):
        low, high = success_interval(successes, runs)
        for end in (low, high):  # where the chance is just 1.96 of its own deviations away
            if 0 < end < 1:
                off = (successes / runs - end) / math.sqrt(end * (1 - end) / runs)
                assert abs(off) == pytest.approx(1.959964, rel=1e-5)
        assert low <= successes / runs <= high
    assert success_interval(30, 30) == pytest.approx((0.88649, 1), abs=1e-5)
    wide = success_interval(17, 30, comparisons=10)
    assert wide[0] < success_interval(17, 30)[0]
    assert wide[1] > success_interval(17, 30)[1]


def test_a_paired_difference_has_scipy_s_interval() -> None:
    a, b = [0.31, 0.35, 0.28, 0.40, 0.33], [0.30, 0.30, 0.27, 0.33, 0.30]
    low, high = stats.ttest_rel(a, b).confidence_interval(0.95)
    assert difference(a, b) == pytest.approx((mean(a) - mean(b), low, high), abs=1e-5)


def test_an_unpaired_difference_has_welch_s_interval() -> None:
    a, b, comparisons = [0.3, 0.5, 0.45, 0.7], [0.1, 0.2, -0.4, 0.1, 0.35, 0.6], 3
    found = unpaired(a, b, comparisons)
    own, other = (statistics.variance(x) / len(x) for x in (a, b))
    freedom = (own + other) ** 2 / (own**2 / (len(a) - 1) + other**2 / (len(b) - 1))
    half = stats.t.ppf(1 - 0.025 / comparisons, freedom) * math.sqrt(own + other)
    middle = mean(a) - mean(b)
    assert found == pytest.approx((middle, middle - half, middle + half))


test_what_does_not_fit_is_named = refusals(
    (lambda: interval([1.0]), "values must hold at least 2 numbers, got 1"),
    (lambda: mean([]), "values must hold at least 1 numbers, got 0"),
    (lambda: difference([1.0, 2.0], [1.0]), "others must have as many numbers as values, 2, got 1"),
    (lambda: unpaired([1.0, 2.0], [1.0]), "others must hold at least 2 numbers, got 1"),
    (lambda: success_interval(4, 3), "successes must be at most runs = 3, got 4"),
)


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
