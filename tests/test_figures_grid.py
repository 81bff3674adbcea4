"""The figures of queries on grids: they show the scores of the encoders that they name."""

import pytest
import torch

from book.figures import rope_2d_3d as figures
from stringlib import AxialRoPE, checks
from stringlib.positions import grid_positions


def heat(encoder, row, column):
    cells = figures.grid_kernel(encoder, row, column).figure.data[0].z
    return torch.tensor(cells, dtype=torch.float64)


@pytest.mark.parametrize("name", figures.GRID_ENCODERS)
def test_a_cell_shows_the_score_of_its_key(name):
    encoder = figures.GRID_ENCODERS[name]()
    ones = torch.full((1, 196, 64), 1 / 8, dtype=torch.float64)
    table = checks.logits(encoder, ones, ones, grid_positions(14, 14, dtype=torch.float64))[0]
    for row, column in ((0, 0), (6, 9)):
        expected = table[14 * row + column].view(14, 14)
        assert checks.largest_difference(heat(name, row, column), expected) <= 1e-12


def test_shapes_are_as_the_text_says():
    middle = {name: heat(name, 6, 6) for name in figures.GRID_ENCODERS}
    # a step to the end of the row, and a step down and back by one: the same index, 13 further on
    end, below = heat("raster index", 0, 0)[0, 13], heat("raster index", 0, 13)[1, 12]
    assert abs(end - below) < 1e-12
    equal = middle["equal frequencies"]
    assert torch.allclose(equal[0, 12], equal[6, 6], atol=1e-12)
    axial, mixed = middle["axial"], middle["mixed, one head"]
    assert axial.diff(dim=0).diff(dim=1).abs().max() < 1e-12 < mixed.diff(dim=0).diff(dim=1).max()
    round_hill = middle["mixed, many directions"]
    ring = [round_hill[6 + a, 6 + b] for a, b in ((5, 0), (0, 5), (-5, 0), (3, 4), (4, -3))]
    assert torch.stack(ring).std() < 0.05
    text = figures.grid_kernel("equal frequencies", 6, 6).alt
    assert "score is 1 in 13 cells and above 0.5 in 63 cells" in text
    assert "score is 1 in 1 cell and" in figures.grid_kernel("axial", 0, 13).alt


@pytest.mark.parametrize(
    ("convention", "kept"), [("count patches", 0), ("scale", 1), ("pin the corners", None)]
)
@pytest.mark.parametrize("side", [7, 20, 56])
def test_a_convention_keeps_one_kind_of_offset_at_most(convention, kept, side):
    fig, text = figures.resolution_scores(convention, side)
    changes = [float(a.text.split()[-1]) for a in fig.layout.annotations]
    assert [change == 0 for change in changes] == [kept == 0, kept == 1]
    trained, tested = (dict(zip(fig.data[n].x, fig.data[n].y, strict=True)) for n in (0, 1))
    common = trained.keys() & tested.keys() & set(range(1, 14))
    same = all(abs(trained[x] - tested[x]) < 1e-12 for x in common)
    assert common
    assert same is (kept == 0)
    assert f"up to {changes[0]:.3f}, against" in text


def test_resolutions_show_the_scores_of_patches():
    fig = figures.resolution_scores("scale", 28).figure
    ones = torch.full((1, 28, 64), 1 / 8, dtype=torch.float64)
    columns = torch.stack([torch.zeros(28), 0.5 * torch.arange(28)], -1).double()
    expected = checks.logits(AxialRoPE(64, 2), ones, ones, columns)[0, 0]
    assert fig.data[3].y == pytest.approx(expected.tolist(), abs=1e-12)
    assert fig.data[3].x == pytest.approx([n / 28 for n in range(28)])


def test_a_slice_shows_the_scores_at_its_time():
    fig = figures.volume_kernel(2).figure
    axial = torch.tensor(fig.data[0].z)

    def mean_cosine(time, row, column):
        total = 0.0
        for offset, n in ((time, 11), (row, 11), (column, 10)):
            total += sum(torch.cos(torch.tensor(offset * 10.0 ** (-i / n))) for i in range(n))
        return total / 32

    for row, column in ((0, 0), (-6, 3), (5, -2)):
        assert abs(axial[row + 6, column + 6] - mean_cosine(2, row, column)) < 0.0051
    # the mixed head has its ridges elsewhere, and is as high where the query stands
    middle, text = figures.volume_kernel(0)
    for trace in middle.data:
        assert trace.z[6][6] == 1.0
    assert "axial, highest, 1.00, at (0, 0)" in text
    mixed = torch.tensor(fig.data[1].z)
    assert torch.equal(axial, axial.flip(0))
    assert (mixed - mixed.flip(0)).abs().max() > 0.2
