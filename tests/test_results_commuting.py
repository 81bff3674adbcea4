"""The study behind the chapter on STRING: its task and its rotations."""

from __future__ import annotations

import pytest
import torch

from results import string_commuting as study
from stringlib.positions import grid_positions


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
    model = study.train(method=method, seed=0, steps=3)
    symbols = study.batch(2, torch.Generator().manual_seed(0))
    places = grid_positions(study.SIDE, study.SIDE)
    here, there = model(symbols, places), model(symbols, places + 100)
    free = method.startswith("liere")
    assert ((here - there).abs().max().item() > 1e-3) is free
    assert (study.commutator(model) > 1e-4) is free
    moved = [p for name, p in model.encoder.named_parameters() if p.numel()]
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in moved)
