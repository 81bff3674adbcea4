"""The study of ListOps: its expressions and what it measures."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from results import listops as study
from stringlib.tasks.listops import CLOSE, OPERATORS, ListOps


def small() -> ListOps:
    return ListOps(**study.EXPRESSIONS, train_size=200, test_size=300)


class Names(nn.Module):
    """Always names one digit."""

    def __init__(self, digit: int) -> None:
        super().__init__()
        self.digit = digit

    def forward(self, tokens: Tensor) -> Tensor:
        scores = torch.zeros(*tokens.shape, 16)
        scores[..., self.digit] = 1
        return scores


def test_every_expression_has_an_operator_and_a_value() -> None:
    for inputs, targets in small().held_out()["test"]:
        assert ((inputs[:, 0] >= 10) & (inputs[:, 0] < CLOSE)).all()
        assert ((targets >= 0).sum(-1) == 1).all()
        assert inputs.shape[1] <= 31


@pytest.mark.parametrize("digit", [0, 9])
def test_accuracy_by_operator_is_the_share_of_that_value(digit: int) -> None:
    task = small()
    tokens, values = task.test
    found = study.by_operator(Names(digit), task)
    assert list(found) == list(OPERATORS)
    for i, name in enumerate(OPERATORS):
        mine = values[tokens[:, 0] == 10 + i]
        assert found[name] == pytest.approx((mine == digit).double().mean().item(), abs=1e-6)
