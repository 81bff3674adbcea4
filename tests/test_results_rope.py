"""The study behind the chapter on RoPE: its task, its models and its record."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from results import rope_shift
from stringlib.records import read_record

RECORD = Path(rope_shift.__file__).with_suffix(".json")


def test_the_answer_is_the_token_that_stands_three_places_back() -> None:
    tokens, answers = rope_shift.batch(4, torch.Generator().manual_seed(0))
    for place in range(rope_shift.BACK, rope_shift.LENGTH):
        assert torch.equal(answers[:, place - rope_shift.BACK], tokens[:, place - 3])


@pytest.mark.parametrize(
    ("method", "moves"),
    [("rope", False), ("sinusoidal", True), ("sinusoidal-moved", True), ("none", False)],
)
def test_a_shift_changes_the_output_only_where_a_table_is_added(method: str, moves: bool) -> None:
    torch.manual_seed(0)
    model = rope_shift.OneLayer(method)
    tokens, _ = rope_shift.batch(4, torch.Generator().manual_seed(0))
    here, there = (model(tokens, rope_shift.span(shift)) for shift in (0, 1000))
    assert ((here - there).abs().max().item() > 1e-2) is moves


def test_training_learns_and_a_seed_repeats_it() -> None:
    first, second = (rope_shift.train("rope", seed=0, steps=40) for _ in range(2))
    assert torch.equal(first.readout.weight, second.readout.weight)
    untrained = rope_shift.train("rope", seed=0, steps=0)
    assert rope_shift.accuracy(first, 0) > rope_shift.accuracy(untrained, 0) + 0.05


def test_the_committed_record_is_of_this_study() -> None:
    record = read_record(RECORD)
    data = record["data"]
    assert len(record["seeds"]) >= 5
    assert data["shifts"] == list(rope_shift.SHIFTS)
    assert set(data["accuracy"]) == set(rope_shift.METHODS)
    shape = (len(record["seeds"]), len(rope_shift.SHIFTS))
    assert all(torch.tensor(rows).shape == shape for rows in data["accuracy"].values())
