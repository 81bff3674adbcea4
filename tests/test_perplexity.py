"""Perplexity, and the share of the nearest tokens."""

from __future__ import annotations

import math

import pytest

from book.figures.language_model import near_share, nearest_tokens
from stringlib.perplexity import perplexity


@pytest.mark.proves("eq-perplexity")
def test_perplexity_of_a_word_is_that_of_its_bytes_multiplied() -> None:
    assert perplexity(8) == 256
    assert perplexity(2.5, 4) == pytest.approx(perplexity(2.5) ** 4)
    # a fair die has perplexity 6, whatever it is written in
    assert perplexity(math.log2(6) / 3, 3) == pytest.approx(6)


@pytest.mark.parametrize(("unit", "error"), [(0, ValueError), (-1.0, ValueError), ("5", TypeError)])
def test_a_unit_has_a_positive_length(unit: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="unit must be"):
        perplexity(1.0, unit)  # type: ignore[arg-type]


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
