"""The study behind the chapter on the cosine weight: its task and its ceiling."""

from __future__ import annotations

import pytest
import torch

from results import cosformer as study


def test_what_a_key_held_is_its_last_value() -> None:
    keys, values, held = study.batch(3, torch.Generator().manual_seed(0))
    for row in zip(keys.tolist(), values.tolist(), held.tolist(), strict=True):
        memory: dict[int, int] = {}
        for key, value, wanted in zip(*row, strict=True):
            assert memory.get(key, -100) == wanted
            memory[key] = value


@pytest.mark.parametrize("method", study.METHODS)
def test_no_token_sees_its_own_value_or_a_later_one(method: str) -> None:
    torch.manual_seed(0)
    model = study.Memory(method).double()
    keys, values, _ = study.batch(2, torch.Generator().manual_seed(0))
    changed = values.clone()
    changed[:, 30] = (changed[:, 30] + 1) % study.VALUES
    before, after = model(keys, values), model(keys, changed)
    assert (before[:, :31] - after[:, :31]).abs().max() < 1e-12
    assert (before[:, 31:] - after[:, 31:]).abs().max() > 1e-6


def test_the_ceiling_names_the_value_of_the_largest_weight() -> None:
    """By hand, for the decay: every token asks what came before it, at distances 0, 1, 2, …."""
    keys, values, held = study.batch(256, torch.Generator().manual_seed(10_000))
    right = asked = 0
    for row in range(256):
        totals = torch.zeros(study.KEYS, study.VALUES, dtype=torch.float64)
        for t in range(study.LENGTH):
            key, value = keys[row, t], values[row, t]
            if held[row, t] >= 0:
                asked += 1
                right += int(totals[key].argmax() == held[row, t])
            totals *= 7 / 8
            totals[key, value] += 1
    assert study.ceiling("retnet") == pytest.approx(right / asked, abs=1e-9)
    assert study.ceiling("relu") == study.ceiling("softmax") < study.ceiling("cosine")


def test_equal_scores_share_the_answer() -> None:
    scores = torch.tensor([[[1.0, 1, 0, 0], [0, 0, 3, 0], [1, 1, 1, 1], [2, 0, 0, 0]]])
    assert study._right(scores, torch.tensor([[1, 2, 0, -100]])) == pytest.approx(1.75 / 3)
