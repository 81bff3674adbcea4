"""The study behind the chapter on decay: its task and its controls."""

from __future__ import annotations

import math

import pytest
import torch

from results import decay_and_state as study


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


def test_a_rule_by_age_is_right_where_age_decides() -> None:
    """In sequences of two tokens a symbol was there before if its age is 1."""
    assert study.by_age("one marker", length=2, size=400) == 1
