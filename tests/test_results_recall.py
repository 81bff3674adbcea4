"""The study behind the chapter on recall: its sequences, its runs and its record."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from results import recall
from stringlib.records import read_record
from stringlib.tasks.recall import Recall
from stringlib.theory.capacity import guess_accuracy

RECORD = Path(recall.__file__).with_suffix(".json")


def test_cells_ask_for_every_map_with_and_without_a_shift() -> None:
    for name in ("8 pairs, no shift", "8 pairs, shift", "32 pairs, shift"):
        told = [recall.CELLS[f"{name}: {attention}"] for attention in recall.MAPS]
        assert {t["attention"] for t in told} == set(recall.MAPS)
        assert {t.get("shift", False) for t in told} == {"no shift" not in name}
        assert {t["pairs"] for t in told} == {int(name.split()[0])}
    for name, told in recall.CELLS.items():
        assert (", unit" in name) is told.get("normalize_qk", False)
        assert ("m = 128" in name) is (told.get("num_features") == 128)
        assert ("two layers" in name) is (told.get("depth") == 2)


def test_the_same_sequences_come_again_and_new_ones_test() -> None:
    task = recall.SeenRecall(50, pairs=4, keys=6)
    known = {tuple(row) for row in task.inputs.tolist()}
    for seed in range(3):
        inputs, targets = task.batch(64, torch.Generator().manual_seed(seed))
        assert {tuple(row) for row in inputs.tolist()} <= known
        for row, target in zip(inputs.tolist(), targets[:, -1].tolist(), strict=True):
            assert dict(zip(row[0:-1:2], row[1:-1:2], strict=True))[row[-1]] == target
    held = task.held_out()
    (seen, _), *_ = held["seen"]
    assert torch.equal(seen, task.inputs)
    ours, theirs = (next(sets["test"])[0] for sets in (held, Recall(4, 6).held_out()))
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize(
    ("cell", "scores"),
    [
        ("8 pairs, shift: softmax", {"test"}),
        ("8 pairs, shift, unit: favor-circulant", {"test", "redrawn"}),
        ("8 pairs, shift: favor-learned", {"test"}),
        ("32 pairs, shift, unit, 5,000 sequences: favor", {"test", "seen", "redrawn"}),
        ("32 pairs, shift: favor-learned", {"test", "64 pairs"}),
        ("8 pairs, t5, two layers, mlp: softmax", {"test"}),
    ],
)
def test_a_run_measures_what_its_cell_allows(cell: str, scores: set[str]) -> None:
    found = recall.run(seed=1, steps=1, **recall.CELLS[cell])
    assert found["scores"].keys() == scores
    assert all(0 <= score <= 1 for score in found["scores"].values())
    assert ("share" in found) is ("shift" in cell)


def test_a_shift_recalls_and_nothing_else_does() -> None:
    with_shift = recall.CELLS["8 pairs, shift: softmax"]
    assert recall.run(seed=0, steps=200, **with_shift)["scores"]["test"] > 0.95
    without = recall.run(seed=0, steps=200, **recall.CELLS["8 pairs, no shift: softmax"])
    assert without["scores"]["test"] < float(guess_accuracy(8, 8)) + 0.03


def test_without_a_shift_no_recorded_layer_beats_the_counts() -> None:
    """2,000 test sequences: the score of a guess is within four standard errors of its mean."""
    record = read_record(RECORD)
    checked = 0
    for name, cell in record["data"]["cells"].items():
        if name.split(":")[0] in ("8 pairs, no shift", "32 pairs, no shift"):
            best = float(guess_accuracy(cell["told"]["pairs"], 8))
            error = (best * (1 - best) / 2000) ** 0.5
            for run in cell["runs"]:
                assert run["scores"]["test"] < best + 4 * error
                checked += 1
    assert checked == 13 * len(record["seeds"])
