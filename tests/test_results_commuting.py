"""The study behind the chapter on STRING: its task, its rotations and its record."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from results import string_commuting as study
from stringlib.positions import grid_positions
from stringlib.records import read_record

RECORD = Path(study.__file__).with_suffix(".json")


def test_the_neighbour_stands_two_rows_below_and_one_column_to_the_left() -> None:
    cells, neighbours = study.asking_cells()
    assert len(cells) == (study.SIDE - 2) * (study.SIDE - 1)
    for cell, neighbour in zip(cells.tolist(), neighbours.tolist(), strict=True):
        assert divmod(neighbour, study.SIDE) == (cell // study.SIDE + 2, cell % study.SIDE - 1)


def test_all_methods_start_as_the_same_function() -> None:
    symbols = study.batch(2, torch.Generator().manual_seed(0))
    places, outputs = grid_positions(study.SIDE, study.SIDE), []
    for method in study.METHODS:
        torch.manual_seed(0)
        outputs.append(study.Neighbour(method).double()(symbols, places))
    for other in outputs[1:]:
        assert torch.allclose(other, outputs[0], atol=1e-10, rtol=0)


@pytest.mark.parametrize("method", study.METHODS)
def test_only_free_generators_feel_a_shift_and_only_they_stop_commuting(method: str) -> None:
    model = study.train(method, seed=0, steps=3)
    symbols = study.batch(2, torch.Generator().manual_seed(0))
    places = grid_positions(study.SIDE, study.SIDE)
    here, there = model(symbols, places), model(symbols, places + 100)
    free = method.startswith("liere")
    assert ((here - there).abs().max().item() > 1e-3) is free
    assert (study.commutator(model) > 1e-4) is free
    moved = [p for name, p in model.encoder.named_parameters() if p.numel()]
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in moved)


def test_training_learns_and_a_seed_repeats_it() -> None:
    first, second = (study.train("liere", seed=0, steps=5) for _ in range(2))
    assert torch.equal(first.readout.weight, second.readout.weight)
    trained = study.train("liere", seed=0, steps=60)
    untrained = study.train("liere", seed=0, steps=0)
    assert study.accuracy(trained, 0) > study.accuracy(untrained, 0) + 0.1


def test_the_committed_record_is_of_this_study() -> None:
    record = read_record(RECORD)
    data, seeds = record["data"], len(record["seeds"])
    assert seeds >= 5
    assert data["shifts"] == list(study.SHIFTS)
    assert set(data["accuracy"]) == set(data["commutator"]) == set(study.METHODS)
    for method in study.METHODS:
        assert torch.tensor(data["accuracy"][method]).shape == (seeds, len(study.SHIFTS))
        assert len(data["commutator"][method]) == seeds
