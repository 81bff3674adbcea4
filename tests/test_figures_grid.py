"""The figure of a query on a grid: its kernels are those of the encoders that it names."""

import pytest
import torch

from stringlib import checks
from stringlib.explore import figures
from stringlib.positions import grid_positions


def heat(encoder, row, column):
    return torch.tensor(figures.grid_kernel(encoder, row, column).data[0].z, dtype=torch.float64)


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
    text = figures.grid_kernel_text("equal frequencies", 6, 6)
    assert "score is 1 in 13 cells and above 0.5 in 63 cells" in text
    assert "score is 1 in 1 cell and" in figures.grid_kernel_text("axial", 0, 13)
