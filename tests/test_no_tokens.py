"""No tokens are as good a number of them as any; fewer than none are refused."""

from __future__ import annotations

import pytest
import torch

from stringlib import (
    ALiBi,
    CosineWeight,
    DecayWeight,
    FallingWeight,
    PositionWeight,
    RampWeight,
    ToeplitzWeight,
)
from stringlib.attention.learned import BiasWeight
from stringlib.attention.weights import ConstantWeight

WEIGHTS: dict[str, PositionWeight] = {
    "constant": ConstantWeight(),
    "cosine": CosineWeight(9),
    "cosine-positive": CosineWeight(9, positive=True),
    "ramp": RampWeight(9),
    "falling": FallingWeight(9),
    "decay": DecayWeight(-torch.ones(2)),
    "bias": BiasWeight(ALiBi(2)),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_a_matrix_may_have_no_rows_or_columns(name: str) -> None:
    weight = WEIGHTS[name]
    for queries, keys in ((3, 0), (0, 3), (0, 0)):
        assert weight.matrix(queries, keys).shape[-2:] == (queries, keys)


def test_a_table_has_a_matrix_of_as_many_queries_as_keys() -> None:
    weight = ToeplitzWeight(torch.ones(2, 5))
    assert weight.matrix(0, 0).shape == (2, 0, 0)
