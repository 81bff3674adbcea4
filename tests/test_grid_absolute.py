"""What is added to a patch because of its place: sinusoids, and a table read between its cells."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from stringlib import LearnedAbsolute, Sinusoidal, checks
from stringlib.models.absolute import GridSinusoidal, GridTable
from stringlib.positions import grid_positions


def test_sinusoids_of_each_coordinate() -> None:
    x, places = torch.randn(2, 6, 24), grid_positions(2, 3)
    found = GridSinusoidal(24, 2)(x, places)
    line = Sinusoidal(12)
    assert torch.equal(found[..., :12], line(x[..., :12], places[:, :1]))
    assert torch.equal(found[..., 12:], line(x[..., 12:], places[:, 1:]))
    x = torch.randn(6, 8)
    assert torch.equal(GridSinusoidal(8, 1)(x, places[:, :1]), Sinusoidal(8)(x, places[:, :1]))


@pytest.mark.parametrize("sizes", [(5,), (2, 3), (2, 3, 4)])
def test_a_table_adds_its_row(sizes: tuple[int, ...]) -> None:
    table, places = GridTable(sizes, 8), grid_positions(*sizes)
    x = torch.randn(2, len(places), 8)
    rows = x + table.weight.flatten(0, -2)
    assert torch.equal(table(x, places), rows)
    assert torch.equal(table.places(*sizes), places)
    if len(sizes) == 1:
        line = LearnedAbsolute(5, 8)
        line.weight.data = table.weight.data
        assert torch.equal(table(x, places), line(x, places))


@pytest.mark.parametrize(("sizes", "kind"), [((5,), "linear"), ((4, 3), "bilinear")])
def test_a_table_over_another_grid_is_interpolated(sizes: tuple[int, ...], kind: str) -> None:
    table = GridTable(sizes, 8).double()
    for other in ([2 * n for n in sizes], [n + 1 for n in sizes], [1 for _ in sizes]):
        image = table.weight.movedim(-1, 0)[None]
        expected = nn.functional.interpolate(image, other, mode=kind, align_corners=False)
        places = table.places(*other)
        found = table(torch.zeros(len(places), 8).double(), places)
        assert checks.largest_difference(found, expected[0].flatten(1).mT) <= 1e-6


def test_a_table_between_and_beyond_its_cells() -> None:
    table = GridTable((2, 3), 8)
    at = torch.tensor([[0.5, 1.25], [-3.0, 9.0]])
    found = table(torch.zeros(2, 8), at)
    w = table.weight
    between = 0.5 * (0.75 * w[0, 1] + 0.25 * w[0, 2]) + 0.5 * (0.75 * w[1, 1] + 0.25 * w[1, 2])
    assert torch.allclose(found, torch.stack([between, w[0, 2]]), atol=1e-7)
