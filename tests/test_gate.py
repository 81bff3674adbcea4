"""The gate behind attention: its value, its place, its price, and what it cannot do."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from stringlib import reference
from stringlib.attention.gate import GATES, Gate
from stringlib.attention.multihead import MultiHeadAttention
from stringlib.testing import properties
from tests.draws import random

kinds = pytest.mark.parametrize("kind", GATES)


def made(kind: str, dim: int = 6, heads: int = 3, seed: int = 0) -> Gate:
    gate = Gate(dim, heads, kind).double()
    with torch.no_grad():
        gate.to_gate.weight.copy_(random(*gate.to_gate.weight.shape, seed=seed))
    return gate


@pytest.mark.proves("eq-gate")
@kinds
@pytest.mark.parametrize(("dim", "heads", "n"), [(6, 3, 5), (6, 1, 2), (5, 5, 1), (1, 1, 7)])
def test_each_head_equals_the_printed_formula(kind: str, dim: int, heads: int, n: int) -> None:
    gate, x, y = (
        made(kind, dim, heads),
        random(2, n, dim),
        random(2, heads, n, dim // heads, seed=1),
    )
    got, per_head = gate(y, x), gate.to_gate.weight.detach().mT.chunk(heads, -1)
    for batch in range(2):
        for head in range(heads):
            expected = reference.gate(y[batch, head], x[batch], per_head[head])
            assert properties.largest_difference(got[batch, head], expected) <= 1e-14


GATE, X, Y = made("headwise"), random(4, 6), random(3, 4, 2)


def uniform_layer(kind: str | None, dim: int = 12, heads: int = 3) -> MultiHeadAttention:
    """Return a layer in which every token counts the same for every other."""
    torch.manual_seed(0)
    layer = MultiHeadAttention(dim, heads, gate=kind).double()
    nn.init.zeros_(layer.to_q.weight)
    return layer


@pytest.mark.proves("eq-gate-rank")
@pytest.mark.parametrize(("kind", "rank"), [(None, 1), ("headwise", 3), ("elementwise", 12)])
def test_the_rank_of_what_one_mean_can_become(kind: str | None, rank: int) -> None:
    out = uniform_layer(kind)(random(40, 12))
    assert torch.linalg.matrix_rank(out, rtol=1e-10) == rank


@pytest.mark.proves("eq-head-rank")
@pytest.mark.parametrize("kind", [None, *GATES])
def test_a_head_stays_in_as_many_dimensions_as_it_has_channels(kind: str | None) -> None:
    torch.manual_seed(0)
    layer, x = MultiHeadAttention(12, 3, gate=kind).double(), random(60, 12)
    said = []
    layer.to_out.register_forward_pre_hook(lambda module, inputs: said.append(inputs[0]))
    layer(x)
    for head in range(3):
        own = slice(4 * head, 4 * head + 4)
        spoken = said[0][:, own] @ layer.to_out.weight.mT[own]
        assert torch.linalg.matrix_rank(spoken, rtol=1e-10) == 4
        product = layer.to_v.weight.mT[:, own] @ layer.to_out.weight.mT[own]
        assert torch.linalg.matrix_rank(product, rtol=1e-10) == 4
    whole = layer.to_v.weight.mT @ layer.to_out.weight.mT
    assert torch.linalg.matrix_rank(whole, rtol=1e-10) == 12
