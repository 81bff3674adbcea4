"""The study behind the chapter on decay: its tasks and its models."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from results import rope_decay


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize(("task", "back"), [("near", 3), ("far", 40)])
def test_the_answer_stands_where_the_task_says(task: str, back: int) -> None:
    tokens, answers = rope_decay.batch(task, 50, generator())
    assert tokens.shape == (50, rope_decay.LENGTH)
    assert torch.equal(answers, tokens[:, back - 1])  # the nearest token is at distance 1


def test_anywhere_marks_one_symbol_and_asks_for_it() -> None:
    tokens, answers = rope_decay.batch("anywhere", 2000, generator())
    marked = tokens >= rope_decay.SYMBOLS
    assert marked.sum(1).eq(1).all()
    assert torch.equal(tokens[marked] - rope_decay.SYMBOLS, answers)
    assert marked.any(0).all()  # at every distance


def test_the_table_of_scores_is_attention_with_rope() -> None:
    torch.manual_seed(0)
    model = rope_decay.OneHead().double()
    tokens, _ = rope_decay.batch("anywhere", 3, generator())
    query = torch.full((3, 1), rope_decay.QUERY)
    x = model.embed(torch.cat([tokens.flip(1), query], 1))[:, None]  # as a text is read
    places = torch.arange(rope_decay.LENGTH + 1, dtype=torch.float64)[:, None]
    q, k = model.encoder(model.to_q(x), model.to_k(x), places)
    v = model.to_v(x)
    out = nn.functional.scaled_dot_product_attention(
        q[:, :, -1:], k[:, :, :-1], v[:, :, :-1], scale=rope_decay.DIM**-0.5
    )
    assert (model(tokens) - model.readout(out[:, 0, 0])).abs().max() < 1e-12


def test_yarn_multiplies_scores_by_the_square_of_its_factor() -> None:
    torch.manual_seed(0)
    model = rope_decay.OneHead().double()
    model.extend("yarn")
    sharp = model.score_table(8)
    model.factor = 1.0
    assert (sharp / model.score_table(8) - (1 + 0.1 * torch.tensor(4.0).log()) ** 2).abs().max() < (
        1e-6
    )
