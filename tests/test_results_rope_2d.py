"""The study behind the chapter on grids: its tasks and its models."""

from __future__ import annotations

import pytest
import torch

from results import rope_2d as study
from stringlib.checks import largest_difference


def grids(task: str, side: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    return study.batch(task, side, 3, torch.Generator().manual_seed(0))


@pytest.mark.parametrize("side", [8, 12])
def test_the_answers_stand_on_the_diagonals(side: int) -> None:
    asking = study.asking_cells(side).tolist()
    assert len(asking) == (side - 2) ** 2
    for task in study.TASKS:
        symbols, answers = grids(task, side)
        table = symbols.view(3, side, side)
        for column, cell in enumerate(asking):
            y, x = divmod(cell, side)
            below_left, above_left = table[:, y + 1, x - 1], table[:, y - 1, x - 1]
            expected = below_left if task == "one" else above_left + table[:, y + 1, x + 1]
            assert torch.equal(answers[:, column], expected)


@pytest.mark.parametrize("method", study.METHODS)
def test_moving_the_grid_changes_nothing(method: str) -> None:
    torch.manual_seed(0)
    model = study.Head(method, "one").double()
    symbols, _ = grids("one")
    here, there = (model(symbols, model.positions(8, *first)) for first in ((0, 0), (40, 23)))
    assert largest_difference(here, there) < 1e-12
    assert largest_difference(here, model(symbols, 2 * model.positions(8))) > 1e-4


def test_only_the_raster_index_depends_on_the_width() -> None:
    for method in study.METHODS:
        model = study.Head(method, "one")
        steps = [model.positions(side)[side] - model.positions(side)[0] for side in (8, 12)]
        assert torch.equal(*steps) is (method != "rope")  # one row down


@pytest.mark.parametrize(("task", "knows"), [("one", False), ("two", False), ("two-content", True)])
def test_scores_see_the_symbols_only_where_the_task_says_so(task: str, knows: bool) -> None:
    torch.manual_seed(0)
    model = study.Head("mixed", task).double()
    asked: list[torch.Tensor] = []
    model.encoder.register_forward_pre_hook(lambda _, given: asked.append(given[0].detach()))
    model(grids(task)[0], model.positions(8))
    assert (largest_difference(asked[0], asked[0][:, :, :1]) > 0.1) is knows
