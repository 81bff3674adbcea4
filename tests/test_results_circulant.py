"""The study behind the chapter on Circulant-STRING: its task and its control."""

from __future__ import annotations

import pytest
import torch

from results import circulant_block_size as study
from stringlib.checks import largest_difference


def test_the_neighbour_stands_three_rows_below_and_two_columns_to_the_left() -> None:
    cells, neighbours = study.asking_cells()
    assert len(cells) == (study.SIDE - 3) * (study.SIDE - 2)
    for cell, neighbour in zip(cells.tolist(), neighbours.tolist(), strict=True):
        assert divmod(neighbour, 12) == (cell // 12 + 3, cell % 12 - 2)


@pytest.mark.parametrize(("method", "knows"), [("1", False), ("2", False), ("4", True)])
def test_blocks_of_one_or_two_give_every_cell_of_a_symbol_the_same_answer(
    method: str, knows: bool
) -> None:
    torch.manual_seed(0)
    model = study.Neighbour(method)
    symbols = study.batch(1, torch.Generator().manual_seed(0))
    answers = model(symbols)[0, symbols[0] == 0]
    assert (largest_difference(answers, answers[:1]) > 1e-3) is knows


def test_the_control_starts_where_the_full_block_starts() -> None:
    models = []
    for method in ("16", "direct"):
        torch.manual_seed(0)
        models.append(study.Neighbour(method))
    symbols = study.batch(2, torch.Generator().manual_seed(0))
    assert largest_difference(models[0](symbols), models[1](symbols)) < 1e-5
