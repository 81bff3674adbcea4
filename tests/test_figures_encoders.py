"""The figures of the chapters on positions show what the package computes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from book.figures.circulant_string import circulant_spectrum
from book.figures.rope_2d_3d import GRID_ENCODERS, grid_kernel
from book.figures.why_positions import bias_curves
from stringlib import ALiBi, RoPE
from stringlib.algebra.circulant import circulant
from stringlib.positions import grid_positions
from stringlib.testing import properties
from tests.figure_cases import exact, states

# --- why positions ---


def test_bias_curves_are_the_modules() -> None:
    figure = bias_curves(slope=3, r1=2.0, r2=0.25, power=0.5).figure
    curves = {trace.name: np.array(trace.y) for trace in figure.data}
    distance = np.arange(129)
    assert ALiBi(8).slopes[2].item() == 1 / 8
    log = -2 * np.log(1 + 0.25 * distance)
    wanted = {
        "ALiBi": -distance / 8,
        "KERPLE (power)": -2 * distance**0.5,
        "KERPLE (logarithmic)": log,
    }
    for name, curve in wanted.items():
        np.testing.assert_allclose(curves[name], curve, atol=1e-3)
    stairs = curves["T5 bias, means of KERPLE (logarithmic)"]
    np.testing.assert_allclose(stairs[:16], log[:16], atol=1e-3)
    assert np.unique(stairs[113:]).size == 1
    assert stairs[113] == pytest.approx(log[113:].mean(), abs=1e-3)


def test_phase_clocks_show_the_rotation() -> None:
    for at, (fig, _) in states("rope.phase_clocks"):
        query, key, _, curve, now = fig.data
        place, dim = at["position"], at["dim"]
        encoder = RoPE(dim, base=at["base"])
        theta = encoder.frequencies()[0, :, 0].numpy()
        for hands, angle in ((query, place), (key, place - at["distance"])):
            x, y = (np.array(v, dtype=float).reshape(-1, 3) for v in (hands.x, hands.y))
            np.testing.assert_allclose(x[:, 1] - x[:, 0], np.cos(angle * theta), atol=1e-9)
            np.testing.assert_allclose(y[:, 1] - y[:, 0], np.sin(angle * theta), atol=1e-9)
        ones = torch.full((1, 1, dim), dim**-0.5, dtype=torch.float64)
        places = exact([place, place - at["distance"]])
        q, k = (encoder.rotate(ones, p.view(1, 1)) for p in places)
        score = pytest.approx((q * k).sum().item(), abs=1e-9)
        assert (now.y[1], curve.y[at["distance"]]) == (score, score)


def test_powers_keep_the_score_where_the_matrix_is_orthogonal_or_keys_are_its_inverse() -> None:
    for at, (figure, text) in states("rope.matrix_powers"):
        angle, squeeze = math.radians(at["turn"]), np.diag([1, at["squeeze"]])
        turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
        theta = squeeze @ turn @ np.linalg.inv(squeeze)
        for_keys = theta if at["keys"] == "as queries" else np.linalg.inv(theta).T
        start, curve = np.array([1.0, 0.0]), figure.data[4].y
        for place in range(0, 49, 6):
            query = np.linalg.matrix_power(theta, place + 3) @ start
            key = np.linalg.matrix_power(for_keys, place) @ start
            assert curve[place] == pytest.approx(query @ key)
            if place == at["shift"]:
                drawn = [(trace.x[1], trace.y[1]) for trace in figure.data[2:4]]
                np.testing.assert_allclose(drawn, [query, key], atol=1e-9)
        level = at["squeeze"] == 1 or at["keys"] != "as queries"
        assert (np.ptp(curve) < 1e-9) == level
        assert f"{min(curve):.2f} to {max(curve):.2f}" in text


def test_heads_stay_relative_where_the_cut_parts_no_pair() -> None:
    for at, (figure, _) in states("rope.split_heads"):
        curves, channels = np.array([trace.y for trace in figure.data[::2]]), int(at["channels"])
        whole = at["order"] == "interleaved" and channels % 2 == 0
        assert (np.ptp(curves[:4], axis=1).max() < 1e-9) == whole
        assert np.ptp(curves[4]) < 1e-9  # their mean is the score of all channels
        np.testing.assert_allclose(curves[4], curves[:4].mean(0), atol=1e-4)
        drawn = [trace.y[0] for trace in figure.data[1::2]]
        np.testing.assert_allclose(drawn, curves[:, int(2 * at["shift"])], atol=1e-4)


@pytest.mark.parametrize("name", GRID_ENCODERS)
def test_a_cell_shows_the_score_of_its_key(name: str) -> None:
    ones = torch.full((1, 196, 64), 1 / 8, dtype=torch.float64)
    places = grid_positions(14, 14, dtype=torch.float64)
    table = properties.logits(GRID_ENCODERS[name](), ones, ones, places)[0]
    for row, column in ((0, 0), (6, 9)):
        drawn = exact(grid_kernel(name, row, column).figure.data[0].z)
        wanted = table[14 * row + column].view(14, 14)
        assert properties.largest_difference(drawn, wanted) <= 1e-12


def test_circulant_spectrum_agrees_with_the_matrices() -> None:
    c = [0.5, 0.9, -0.4, -0.3, 0.2, 0.1, 0.3, 0.0]
    fig = circulant_spectrum(0.7, **{f"c{m}": v for m, v in enumerate(c)}).figure
    matrix = circulant(exact(c))
    skew = matrix - matrix.T
    np.testing.assert_allclose(fig.data[1].y, skew[:, 0], atol=1e-12)
    for trace, of in ((2, matrix), (3, skew), (4, torch.matrix_exp(0.7 * skew))):
        drawn = np.array(fig.data[trace].x) + 1j * np.array(fig.data[trace].y)
        apart = np.abs(drawn[:, None] - torch.linalg.eigvals(of).numpy())
        assert apart.min(0).max() < 1e-9
        assert apart.min(1).max() < 1e-9
