"""The figure of the circulant's correlated rows shows what it says."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from book.figures import circulant_favor as figures

STATES = list(itertools.product(figures.CIRCULANT_VECTORS, figures.CIRCULANT_SIGNS, (0.5, 2.0)))


@pytest.mark.parametrize(("vector", "signs", "square"), STATES)
def test_bars_and_lines_are_those_of_the_vector(vector: str, signs: str, square: float) -> None:
    bars, correlation, independent, _, circulant = figures.row_correlation(
        vector, signs, square
    ).figure.data
    u = torch.tensor(bars.y)
    for delta, value in enumerate(correlation.y):
        assert abs((u * u.roll(-delta)).sum() - value) < 2e-3
    assert abs(correlation.y[0] - square) < 1e-3
    for m in (1, 7, 16):
        assert abs(independent.y[m - 1] - math.expm1(square) / m) < 1e-4
        gaps = range(1 - m, m)
        exact = sum((m - abs(k)) * math.expm1(correlation.y[k % 16]) for k in gaps) / m**2
        assert abs(circulant.y[m - 1] - exact) < 1e-2


def test_the_default_state_makes_the_point() -> None:
    flat = figures.row_correlation("constant", "no signs", 1.0).figure.data[4].y
    assert max(flat) - min(flat) < 1e-9
    one = figures.row_correlation("one channel", "no signs", 1.0).figure.data
    assert all(abs(a - b) < 1e-4 for a, b in zip(one[2].y, one[4].y, strict=True))


def test_text_and_errors() -> None:
    text = figures.row_correlation("constant", "no signs", 1.0).alt
    assert "at most 1.00 in size" in text
    assert "0.107 for independent rows, 1.718 for the circulant" in text
    with pytest.raises(ValueError, match=r"vector must be one of .*, got 'x'"):
        figures.row_correlation("x", "no signs", 1.0)
    with pytest.raises(ValueError, match=r"signs must be one of .*, got 'x'"):
        figures.row_correlation("constant", "x", 1.0)
