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
from tests.refusals import refusals

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


@kinds
def test_a_gate_is_half_open_for_a_token_of_zeros_and_never_leaves_the_unit_interval(
    kind: str,
) -> None:
    gate = made(kind)
    assert (gate.values(torch.zeros(3, 6, dtype=torch.float64)) == 0.5).all()
    values = gate.values(100 * random(50, 6))
    assert values.shape == (3, 50, 1 if kind == "headwise" else 2)
    assert ((values >= 0) & (values <= 1)).all()
    assert values.max() > 0.999
    assert values.min() < 0.001


@kinds
@pytest.mark.parametrize("n", [0, 1])
def test_short_sequences_and_half_precision(kind: str, n: int) -> None:
    gate, y, x = made(kind).bfloat16(), random(3, n, 2).bfloat16(), random(n, 6).bfloat16()
    assert gate(y, x).shape == (3, n, 2)
    assert gate(y, x).dtype == torch.bfloat16
    gate.float()
    with torch.autocast("cpu", torch.bfloat16):
        assert gate(y.float(), x.float()).dtype == torch.float32


GATE, X, Y = made("headwise"), random(4, 6), random(3, 4, 2)


test_bad_input_is_named = refusals(
    (
        lambda: Gate(6, 3, "both"),
        "gate must be None or one of headwise, elementwise, got 'both'",
    ),
    (lambda: Gate(6, 4), "heads must divide dim 6, got 4"),
    (lambda: GATE(Y[None], X), r"y must have shape \(3, 4, 2\), got \(1, 3, 4, 2\)"),
)


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


@pytest.mark.parametrize("kind", [None, *GATES])
def test_one_token_alone(kind: str | None) -> None:
    """Without a gate a linear map, with one a gated linear unit."""
    torch.manual_seed(0)
    layer, x = MultiHeadAttention(12, 3, gate=kind).double(), random(1, 12)
    linear = properties.largest_difference(layer(2 * x), 2 * layer(x)) < 1e-13
    assert linear is (kind is None)
