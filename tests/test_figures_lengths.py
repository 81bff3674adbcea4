"""The figure of a preference learned at 64 tokens and read far beyond."""

from __future__ import annotations

import pytest
import torch

from book.figures.length_extrapolation import LENGTH_METHODS, beyond_training
from stringlib import RoPE
from stringlib.extrapolation import seen_turns


def scores(method: str, scale: int) -> dict[int, float]:
    line = beyond_training(method, scale).figure.data[1]
    return dict(zip(line.x, line.y, strict=True))


def test_the_default_state_shows_that_the_fit_ends_with_training() -> None:
    fig, shown = beyond_training("rope", 16).figure, scores("rope", 16)
    wish = dict(zip(fig.data[0].x, fig.data[0].y, strict=True))
    assert max(abs(shown[x] - wish[x]) for x in wish if x < 64) < 0.3
    assert shown[128] > shown[4] > wish[128] + 2
    assert max(shown) == 1024


@pytest.mark.parametrize("scale", [2, 16])
@pytest.mark.parametrize("method", LENGTH_METHODS)
def test_bars_are_the_circle_seen_and_new(method: str, scale: int) -> None:
    fig, text = beyond_training(method, scale)
    seen, new = (torch.tensor(bar.y) for bar in fig.data[2:])
    turns = seen_turns(RoPE(16).frequencies(), 64)[0, :, 0]
    assert torch.allclose(seen.double(), turns.clamp(max=1), atol=1e-4)
    assert (seen + new).max() < 1.0001
    assert (new.max() < 1e-4).item() is (method in ("pi", "yarn"))
    count = int((new > 0.005).sum())
    assert f"{count} of 8 pairs meet new ones" in text


def test_interpolation_reads_the_old_curve_more_slowly() -> None:
    slow, old = scores("pi", 16), scores("rope", 16)
    assert slow[16] == pytest.approx(old[1], abs=2e-3)
    assert slow[512] == pytest.approx(old[32], abs=2e-3)
