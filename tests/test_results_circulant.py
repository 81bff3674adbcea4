"""The study behind the chapter on Circulant-STRING: its task, its control and its record."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from results import circulant_block_size as study
from stringlib.checks import largest_difference
from stringlib.records import read_record

RECORD = Path(study.__file__).with_suffix(".json")


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


def test_training_learns_and_a_seed_repeats_it() -> None:
    first, second = (study.train("16", seed=1, steps=5) for _ in range(2))
    assert torch.equal(first.readout.weight, second.readout.weight)
    trained = study.train("16", seed=1, steps=60)
    assert study.accuracy(trained, grids=16) > 2 * study.commonest(16)


def test_the_committed_record_is_of_this_study() -> None:
    record = read_record(RECORD)
    accuracies = record["data"]["accuracy"]
    assert len(record["seeds"]) >= 5
    assert set(accuracies) == set(study.METHODS)
    assert all(len(row) == len(record["seeds"]) for row in accuracies.values())
    assert record["data"]["commonest"] == pytest.approx(study.commonest(), abs=1e-5)
