"""The figure of random features: what it draws is what the formulas and the draws say."""

from __future__ import annotations

import pytest
import torch

from book.figures.favor_plus import FAVOR_KINDS, favor_error
from stringlib.attention.variance import orthogonal_mse, positive_mse


@pytest.mark.parametrize("kind", FAVOR_KINDS)
def test_lines_are_the_formulas_and_bars_are_all_draws(kind: str) -> None:
    figure = favor_error(1.0, 64, kind).figure
    independent, own, measured, bars, median = figure.data
    one = torch.ones((), dtype=torch.float64)
    assert independent.y[2] == pytest.approx(positive_mse(one, 64).sqrt().item(), rel=5e-3)
    expected = {
        "iid": positive_mse(one, 64).sqrt().item(),
        "orthogonal": orthogonal_mse(one, 64, 64).sqrt().item(),
        "circulant": None,
        "hyperbolic": orthogonal_mse(one, 32, 64, hyperbolic=True).sqrt().item(),
    }[kind]
    assert own.y[2] == (expected if expected is None else pytest.approx(expected, rel=5e-3))
    if expected is not None:  # small arguments, so that 1,000 draws hold the whole error
        assert measured.y[2] == pytest.approx(expected, rel=0.1)
    assert sum(bars.y) == pytest.approx(100, abs=0.2)
    assert 0.9 < median.x[0] < 1.05


def test_the_text_says_what_is_drawn() -> None:
    figure, text = favor_error(2.0, 64, "iid")
    median = figure.data[4].x[0]
    assert f"median is {median:.2f}" in text
    assert median < 0.9
