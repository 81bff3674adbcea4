"""The study behind the chapter on why positions: its tasks and its models."""

from __future__ import annotations

import pytest
import torch

from results import why_positions as study


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
