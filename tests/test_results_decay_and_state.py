"""The study behind the chapter on decay: its task, its controls and its record."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from results import decay_and_state as study
from stringlib.records import read_record

RECORD = Path(study.__file__).with_suffix(".json")


@pytest.mark.parametrize("task", study.TASKS)
def test_the_answers_are_those_of_a_plain_search(task: str) -> None:
    tokens, answers = study.batch(task, 20, 40, torch.Generator().manual_seed(0))
    kinds = set(tokens[tokens >= study.SYMBOLS].tolist())
    assert kinds == ({16} if task == "one marker" else {16, 17})
    for row, said in zip(tokens.tolist(), answers.tolist(), strict=True):
        for t, (token, answer) in enumerate(zip(row, said, strict=True)):
            if token >= study.SYMBOLS:
                assert math.isnan(answer)
                continue
            own = 16 if task == "one marker" or token < 8 else 17
            past = row[:t]
            since = past[len(past) - past[::-1].index(own) :] if own in past else past
            assert answer == (token in since)


def test_all_decays_start_from_the_same_weights() -> None:
    weights = []
    for decay in study.DECAYS:
        torch.manual_seed(3)
        weights.append(study.Memory(decay).readout[2].weight)
    assert all(torch.equal(w, weights[0]) for w in weights)


def test_the_log_decay_has_the_shape_that_the_name_says() -> None:
    x = torch.randn(2, 1, 5, study.DIM)
    shapes = {"none": (1,), "constant": (1,), "scalar": (2, 1, 5, 1), "vector": (2, 1, 5, 16)}
    for decay, shape in shapes.items():
        log_decay = study.Memory(decay).log_decay(x)
        assert log_decay.shape == shape
        assert (log_decay <= 0).all()
        assert (log_decay == 0).all() == (decay == "none")


def test_training_learns_and_a_seed_repeats_it() -> None:
    first, second = (study.train("scalar", "one marker", seed=1, steps=5) for _ in range(2))
    assert torch.equal(first.embed.weight, second.embed.weight)
    trained = study.train("scalar", "one marker", seed=1, steps=60)
    assert study.accuracy(trained, "one marker", size=32) > study.by_age("one marker", size=32)


def test_a_rule_by_age_is_right_where_age_decides() -> None:
    """In sequences of two tokens a symbol was there before if its age is 1."""
    assert study.by_age("one marker", length=2, size=400) == 1


def test_the_committed_record_is_of_this_study() -> None:
    record = read_record(RECORD)
    data = record["data"]
    assert len(record["seeds"]) >= 5
    assert set(data["tasks"]) == set(study.TASKS)
    for task, rows in data["tasks"].items():
        assert rows["by_age"] == pytest.approx(study.by_age(task), abs=1e-5)
        for where in ("short", "long"):
            assert set(rows[where]) == set(study.DECAYS)
            assert all(len(row) == len(record["seeds"]) for row in rows[where].values())
