"""The figures of turning clocks, of shifted scores and of a circulant's spectrum."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from book.figures.circulant_string import circulant_spectrum
from book.figures.rope import phase_clocks, shifted_scores
from stringlib import RoPE
from stringlib.algebra.circulant import circulant


def test_phase_clocks_show_the_rotation() -> None:
    encoder = RoPE(16, base=100.0)
    fig = phase_clocks(distance=7, base=100.0, dim=16, position=3).figure
    query, key, _, curve, now = fig.data
    theta = encoder.frequencies()[0, :, 0].numpy()
    for hands, at in ((query, 3), (key, -4)):
        x, y = (np.array(v, dtype=float).reshape(-1, 3) for v in (hands.x, hands.y))
        np.testing.assert_allclose(x[:, 1] - x[:, 0], np.cos(at * theta), atol=1e-9)
        np.testing.assert_allclose(y[:, 1] - y[:, 0], np.sin(at * theta), atol=1e-9)
    ones = torch.ones(1, 1, 16, dtype=torch.float64) / 4
    q, k = encoder.rotate(ones, torch.tensor([[3.0]])), encoder.rotate(ones, torch.tensor([[-4.0]]))
    assert now.y[1] == pytest.approx((q * k).sum().item(), abs=1e-9)
    assert curve.y[7] == pytest.approx(now.y[1], abs=1e-9)
    assert curve.y[0] == pytest.approx(1)


def test_shifted_scores_change_only_where_positions_are_added() -> None:
    start, moved = (shifted_scores(shift).figure for shift in (0, 1000))
    rotated = np.abs(np.subtract(start.data[0].z, moved.data[0].z))
    added = np.abs(np.subtract(start.data[1].z, moved.data[1].z))
    assert rotated.max() <= 0.01 + 1e-9  # two decimals are drawn
    assert added.max() > 1
    printed = float(moved.layout.annotations[1].text.rpartition(" ")[2])
    assert printed == pytest.approx(added.max(), abs=0.011)
    assert moved.layout.annotations[0].text.endswith("largest change 0.00")


def test_circulant_spectrum_agrees_with_the_matrices() -> None:
    c = [0.5, 0.9, -0.4, -0.3, 0.2, 0.1, 0.3, 0.0]
    fig = circulant_spectrum(0.7, **{f"c{m}": v for m, v in enumerate(c)}).figure
    matrix = circulant(torch.tensor(c, dtype=torch.float64))
    skew = matrix - matrix.T
    np.testing.assert_allclose(fig.data[1].y, skew[:, 0], atol=1e-12)
    for trace, of in ((2, matrix), (3, skew), (4, torch.matrix_exp(0.7 * skew))):
        drawn_values = np.array(fig.data[trace].x) + 1j * np.array(fig.data[trace].y)
        values = torch.linalg.eigvals(of).numpy()
        apart = np.abs(drawn_values[:, None] - values[None])
        assert apart.min(0).max() < 1e-9
        assert apart.min(1).max() < 1e-9


def test_circulant_spectrum_shows_that_two_coefficients_move_nothing() -> None:
    c = {f"c{m}": 0.1 * m for m in range(8)}
    before = circulant_spectrum(1.0, **c).figure
    after = circulant_spectrum(1.0, **{**c, "c0": -1.0, "c4": 0.9}).figure
    assert not np.allclose(before.data[2].x, after.data[2].x)
    for trace in (1, 3, 4):
        np.testing.assert_allclose(before.data[trace].y, after.data[trace].y, atol=1e-12)


def test_circulant_spectrum_names_its_coefficients() -> None:
    with pytest.raises(ValueError, match="expected c0 to c1, got"):
        circulant_spectrum(1.0, c0=1.0, c2=1.0)


def test_figures_say_their_numbers() -> None:
    assert "at 7 it is" in phase_clocks(7, 100.0, 16, 3).alt
    assert phase_clocks(7, dim=8).alt.startswith("4 dials")
    assert "is 0.00; right" in shifted_scores(1000).alt
    text = circulant_spectrum(0.5, **{f"c{m}": float(m == 1) for m in range(4)}).alt
    assert "first column 0, 1, 0, 0" in text
    assert "minus 2.00 and at 0" in text
