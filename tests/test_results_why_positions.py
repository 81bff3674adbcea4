"""The study behind the chapter on why positions: its tasks, its models and its record."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from results import why_positions as study
from stringlib.records import read_record

RECORD = Path(study.__file__).with_suffix(".json")


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("task", study.TASKS)
def test_the_answer_stands_as_far_back_as_the_token_asks(task: str) -> None:
    tokens, back, answers = study.batch(task, 8, 20, generator())
    assert set(back.flatten().tolist()) == set(range(1, study.TASKS[task] + 1))
    for row in range(8):
        for place in range(study.FARTHEST, 20):
            answer = tokens[row, place - back[row, place]]
            assert answers[row, place - study.FARTHEST] == answer


@pytest.mark.parametrize("method", study.METHODS)
def test_a_shift_changes_the_output_of_added_vectors_only(method: str) -> None:
    torch.manual_seed(0)
    model = study.OneLayer(method).double()
    tokens, back, _ = study.batch("asked", 4, study.LENGTH, generator())
    if method == "learned":
        with pytest.raises(ValueError, match="positions must be whole numbers from 0 to 31"):
            model(tokens, back, 1)
        return
    change = (model(tokens, back) - model(tokens, back, 1000)).abs().max().item()
    assert change > 1e-2 if method == "sinusoidal" else change < 1e-12


@pytest.mark.parametrize("method", study.METHODS)
def test_no_token_sees_what_comes_after_it(method: str) -> None:
    torch.manual_seed(0)
    model = study.OneLayer(method).double()
    tokens, back, _ = study.batch("asked", 2, 12, generator())
    changed = tokens.clone()
    changed[:, 8:] = (tokens[:, 8:] + 1) % study.TOKENS
    gap = (model(tokens, back) - model(changed, back)).abs().amax((0, 2))
    assert gap[:8].max() < 1e-12
    assert gap[8:].min() > 1e-6


def test_training_learns_and_a_seed_repeats_it() -> None:
    first, second = (study.train("previous", "rope", seed=0, steps=30) for _ in range(2))
    assert torch.equal(first.readout.weight, second.readout.weight)
    untrained = study.train("previous", "rope", seed=0, steps=0)
    before, after = (study.accuracy(m, "previous", "as trained") for m in (untrained, first))
    assert before is not None
    assert after is not None
    assert after > before + 0.05


def test_the_committed_record_is_of_this_study() -> None:
    record = read_record(RECORD)
    data = record["data"]
    assert len(record["seeds"]) >= 5
    assert data["tests"] == list(study.TESTS)
    assert set(data["accuracy"]) == set(study.TASKS)
    for methods in data["accuracy"].values():
        assert set(methods) == set(study.METHODS)
        for method, rows in methods.items():
            assert len(rows) == len(record["seeds"])
            for row in rows:
                assert [a is None for a in row] == [method == "learned" and i > 0 for i in range(3)]
                assert all(a is None or 0 <= a <= 1 for a in row)
