"""The figure of what a decay leaves shows what it says."""

from __future__ import annotations

import math

import pytest

from book.figures import decay_and_state as figures

STATES = [(0.9, 8, 0.0), (0.5, 0, 0.0), (0.99, 20, 0.25), (0.97, 12, 1.0)]


@pytest.mark.parametrize(("gamma", "reset", "kept"), STATES)
def test_the_curves_are_products_of_the_decays_below(gamma: float, reset: int, kept: float) -> None:
    constant, gated, _, *decays = figures.decay_memory(gamma, reset, kept).figure.data
    for left, decay in zip((constant, gated), decays, strict=True):
        assert left.yaxis == "y"
        assert decay.yaxis == "y2"
        assert left.line.color == decay.line.color
        for j, y in enumerate(left.y):
            assert y == pytest.approx(math.prod(decay.y[j + 1 :]), abs=2e-4)
    assert set(decays[0].y) == {gamma}
    assert [t for t, y in enumerate(decays[1].y) if y != 1] == ([reset] if kept < 1 else [])


@pytest.mark.parametrize(("gamma", "reset", "kept"), STATES)
def test_the_words_give_the_stars(gamma: float, reset: int, kept: float) -> None:
    figure, text = figures.decay_memory(gamma, reset, kept)
    constant, gated, stars, *_ = figure.data
    for star, curve in zip(stars.y, (constant, gated), strict=True):
        assert star == curve.y[stars.x[0]]
        assert f"with {star:.2f} for token {stars.x[0]}" in text
        assert f"{star:.2f}" in figure.layout.annotations[0].text
    assert gated.y[0] == (1 if reset == 0 else kept)
    if reset:
        assert f"it is {kept:.2f} before token {reset}" in text
