"""The study behind the chapter on RoPE: its task and its models."""

from __future__ import annotations

import pytest
import torch

from results import rope_shift


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
