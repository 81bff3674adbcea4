"""The figures of the chapters on positions show what the package computes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from book.figures.circulant_string import circulant_spectrum
from book.figures.rope import shifted_scores
from book.figures.rope_2d_3d import GRID_ENCODERS, grid_kernel, volume_kernel
from book.figures.why_positions import POSITIONS, bias_curves, permuted_words
from stringlib import ALiBi, RoPE
from stringlib.algebra.circulant import circulant
from stringlib.positions import grid_positions
from stringlib.testing import properties
from tests.figure_cases import states

# --- why positions ---

WORDS = "dog bites man"


def outputs(order: str, positions: str) -> dict[str, list[float]]:
    """Return word → the drawn channels of its output, and those of the mean."""
    rows = permuted_words(order, positions).figure.data[1].z
    return dict(zip([*order.split(), "mean"], map(list, rows), strict=True))


@pytest.mark.parametrize("positions", POSITIONS)
def test_outputs_follow_their_words_only_without_positions(positions: str) -> None:
    start = outputs(WORDS, positions)
    for order in ("dog man bites", "bites dog man", "bites man dog", "man dog bites"):
        assert (outputs(order, positions) == start) is (positions == "none")
    # a symmetric bias cannot see a reversal
    assert (outputs("man bites dog", positions) == start) is (positions in ("none", "ALiBi"))


def test_weights_are_weights_the_mask_hides_what_follows_and_the_change_is_printed() -> None:
    for at, (figure, told) in states("why_positions.permuted_words"):
        weights = np.array(figure.data[0].customdata).reshape(3, 3)
        areas = np.array(figure.data[0].marker.size).reshape(3, 3) ** 2
        np.testing.assert_allclose(areas / areas.max(), weights / weights.max(), atol=1e-2)
        np.testing.assert_allclose(weights.sum(1), 1, atol=2e-3)
        assert (np.triu(weights, 1) == 0).all() == (at["positions"] == "causal mask")
        before, after = outputs(WORDS, at["positions"]), outputs(**at)
        drawn = max(np.abs(np.subtract(before[w], after[w])).max() for w in WORDS.split())
        printed = float(figure.layout.annotations[1].text.split("by ")[1].split(",")[0])
        assert printed >= drawn - 0.01  # all channels count, some are drawn
        assert f"{printed:.2f}" in told


def test_bias_curves_are_the_modules() -> None:
    figure = bias_curves(slope=3, r1=2.0, r2=0.25, power=0.5).figure
    curves = {trace.name: np.array(trace.y) for trace in figure.data}
    distance = np.arange(129)
    assert ALiBi(8).slopes[2].item() == 1 / 8
    log = -2 * np.log(1 + 0.25 * distance)
    wanted = {"ALiBi": -distance / 8, "KERPLE power": -2 * distance**0.5, "KERPLE log": log}
    for name, curve in wanted.items():
        np.testing.assert_allclose(curves[name], curve, atol=1e-3)
    stairs = curves["T5 buckets, following log"]
    np.testing.assert_allclose(stairs[:16], log[:16], atol=1e-3)
    assert np.unique(stairs[113:]).size == 1
    assert stairs[113] == pytest.approx(log[113:].mean(), abs=1e-3)


# --- RoPE ---


def test_phase_clocks_show_the_rotation() -> None:
    for at, (fig, text) in states("rope.phase_clocks"):
        query, key, _, curve, now = fig.data
        place, dim = at["position"], at["dim"]
        encoder = RoPE(dim, base=at["base"])
        theta = encoder.frequencies()[0, :, 0].numpy()
        for hands, angle in ((query, place), (key, place - at["distance"])):
            x, y = (np.array(v, dtype=float).reshape(-1, 3) for v in (hands.x, hands.y))
            np.testing.assert_allclose(x[:, 1] - x[:, 0], np.cos(angle * theta), atol=1e-9)
            np.testing.assert_allclose(y[:, 1] - y[:, 0], np.sin(angle * theta), atol=1e-9)
        ones = torch.full((1, 1, dim), dim**-0.5, dtype=torch.float64)
        places = torch.tensor([place, place - at["distance"]], dtype=torch.float64)
        q, k = (encoder.rotate(ones, p.view(1, 1)) for p in places)
        assert now.y[1] == pytest.approx((q * k).sum().item(), abs=1e-9)
        assert curve.y[at["distance"]] == pytest.approx(now.y[1], abs=1e-9)
        assert curve.y[0] == pytest.approx(1)
        assert text.startswith(f"{dim // 2} dials")


def test_shifted_scores_change_only_where_positions_are_added() -> None:
    start = shifted_scores(0).figure
    for at, (moved, text) in states("rope.shifted_scores"):
        rotated, added = (np.abs(np.subtract(start.data[n].z, moved.data[n].z)) for n in (0, 1))
        assert rotated.max() <= 0.01 + 1e-9  # two decimals are drawn
        assert (added.max() > 1) == (at["shift"] != 0)
        heads = [note.text for note in moved.layout.annotations]
        assert heads[0].endswith("largest change 0.00")
        assert float(heads[1].rpartition(" ")[2]) == pytest.approx(added.max(), abs=0.011)
        assert "is 0.00; right" in text


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
        width = 4 * channels
        generator = torch.Generator().manual_seed(170)
        vectors = torch.randn(2, width, generator=generator, dtype=torch.float64).numpy()
        pairs = np.arange(width).reshape((2, -1) if at["order"] == "half" else (-1, 2))
        first, second = pairs if at["order"] == "half" else pairs.T
        turned = []
        for vector, place in zip(vectors, (at["shift"] + 3, at["shift"]), strict=True):
            angles = place * 10_000.0 ** (-np.arange(width // 2) / (width // 2))
            after, phase = np.empty(width), np.exp(1j * angles)
            z = (vector[first] + 1j * vector[second]) * phase
            after[first], after[second] = z.real, z.imag
            turned.append(after)
        scores = (turned[0] * turned[1]).reshape(4, -1).sum(1)
        np.testing.assert_allclose(scores, drawn[:4], atol=1e-4)


# --- STRING ---


def test_scores_of_a_moving_pair_stay_without_area_or_with_commuting_generators() -> None:
    for at, (figure, text) in states("string.moving_pair"):
        scores = np.array([trace.y for trace in figure.data])
        level = at["mixing"] == 0 or at["direction"] == 0
        assert (np.ptp(scores, axis=1).max() < 2e-3) == level
        assert ("level" in text) == level
        assert ("commutator: 0.00" in figure.layout.title.text) == (at["mixing"] == 0)


# --- grids and volumes ---


def heat(encoder: str, row: float, column: float) -> torch.Tensor:
    cells = grid_kernel(encoder, row, column).figure.data[0].z
    return torch.tensor(cells, dtype=torch.float64)


@pytest.mark.parametrize("name", GRID_ENCODERS)
def test_a_cell_shows_the_score_of_its_key(name: str) -> None:
    ones = torch.full((1, 196, 64), 1 / 8, dtype=torch.float64)
    places = grid_positions(14, 14, dtype=torch.float64)
    table = properties.logits(GRID_ENCODERS[name](), ones, ones, places)[0]
    for row, column in ((0, 0), (6, 9)):
        expected = table[14 * row + column].view(14, 14)
        assert properties.largest_difference(heat(name, row, column), expected) <= 1e-12


def test_a_convention_keeps_one_kind_of_offset_at_most() -> None:
    for at, (fig, text) in states("rope_2d_3d.resolution_scores"):
        by_patch, by_width = (float(a.text.split()[-1]) for a in fig.layout.annotations)
        assert (by_patch == 0) is (at["convention"] == "count patches")
        assert (by_width == 0) is (at["convention"] == "scale")
        trained, tested = (dict(zip(fig.data[n].x, fig.data[n].y, strict=True)) for n in (0, 1))
        common = trained.keys() & tested.keys() & set(range(1, 14))
        assert common
        same = all(abs(trained[x] - tested[x]) < 1e-12 for x in common)
        assert same is (at["convention"] == "count patches")
        assert f"up to {by_patch:.3f}, against" in text


def test_a_slice_shows_the_scores_at_its_time() -> None:
    def mean_cosine(*offsets: float) -> float:
        pairs = zip(offsets, (11, 11, 10), strict=True)
        return sum(math.cos(o * 10 ** (-i / n)) for o, n in pairs for i in range(n)) / 32

    axial, mixed = (torch.tensor(trace.z) for trace in volume_kernel(2).figure.data)
    for row, column in ((0, 0), (-6, 3), (5, -2)):
        assert abs(axial[row + 6, column + 6] - mean_cosine(2, row, column)) < 0.0051
    # the mixed head has its ridges elsewhere, and is as high where the query stands
    assert torch.equal(axial, axial.flip(0))
    assert (mixed - mixed.flip(0)).abs().max() > 0.2
    middle, text = volume_kernel(0)
    assert [trace.z[6][6] for trace in middle.data] == [1, 1]
    assert "axial, highest, 1.00, at (0, 0)" in text


# --- circulant STRING ---


def test_circulant_spectrum_agrees_with_the_matrices() -> None:
    c = [0.5, 0.9, -0.4, -0.3, 0.2, 0.1, 0.3, 0.0]
    fig = circulant_spectrum(0.7, **{f"c{m}": v for m, v in enumerate(c)}).figure
    matrix = circulant(torch.tensor(c, dtype=torch.float64))
    skew = matrix - matrix.T
    np.testing.assert_allclose(fig.data[1].y, skew[:, 0], atol=1e-12)
    for trace, of in ((2, matrix), (3, skew), (4, torch.matrix_exp(0.7 * skew))):
        drawn = np.array(fig.data[trace].x) + 1j * np.array(fig.data[trace].y)
        apart = np.abs(drawn[:, None] - torch.linalg.eigvals(of).numpy())
        assert apart.min(0).max() < 1e-9
        assert apart.min(1).max() < 1e-9
