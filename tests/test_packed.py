"""Packed sequences: each document has what it has alone, in every composition of a layer."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from stringlib import (
    MultiHeadAttention,
)
from stringlib.testing import properties
from tests import model_cases
from tests.draws import random
from tests.test_multihead import LAYERS, LENGTH, PLACES, is_streamed, make

IDS = torch.tensor([[0, 0, 0, 1, 5, 5, 5, 5, 5], [-3, 2, 2, 2, 2, 3, 3, 3, 3]])
"""Documents of two rows, of which the second has others than the first."""

SAME_LAST = torch.tensor([[0, 0, 0, 1, 5, 5, 5, 5, 5], [2, 2, 2, 2, 5, 5, 5, 5, 5]])
"""The same, with as many tokens in the last document of both rows."""


def bounds(ids: Tensor) -> list[tuple[int, int]]:
    """Return the first token of each document of a row, and the one behind its last token."""
    _, counts = ids.unique_consecutive(return_counts=True)
    return [*itertools.pairwise([0, *counts.cumsum(0).tolist()])]


def alone(layer: Any, x: Tensor, ids: Tensor = IDS, mask: Tensor | None = None) -> Tensor:
    """Return what a layer gives for each document by itself."""
    rows = []
    for i, row in enumerate(x):
        parts = bounds(ids[i])
        masks = [None if mask is None else mask[i, a:b] for a, b in parts]
        out = [layer(row[a:b], key_mask=m) for (a, b), m in zip(parts, masks, strict=True)]
        rows.append(torch.cat(out))
    return torch.stack(rows)


def close(got: Tensor, expected: Tensor, limit: float = 1e-12) -> bool:
    scale = max(1, expected.abs().max().item())
    return properties.largest_difference(got, expected) <= limit * scale


@pytest.mark.parametrize(("name", "causal"), PLACES)
def test_each_document_has_what_it_has_alone(name: str, causal: bool) -> None:
    layer, x = make(name, causal), random(2, LENGTH, LAYERS[name].get("heads", 3) * 4)
    assert close(layer(x, document_ids=IDS), alone(layer, x))
    weights = layer.attention_weights(x, document_ids=IDS)
    assert not weights[(IDS[:, :, None] != IDS[:, None]).unsqueeze(1).expand_as(weights)].any()
    shared = IDS[0].int().expand(2, -1)  # one row of documents for the whole batch
    assert close(layer(x, document_ids=shared[0]), alone(layer, x, shared))
    mask = torch.ones(2, LENGTH, dtype=torch.bool)
    mask[0, [1, 3, 4, 8]] = mask[1, 1] = False
    padded = torch.where(mask[..., None], x, torch.nan)
    found, expected = layer(padded, document_ids=IDS, key_mask=mask), alone(layer, x, mask=mask)
    assert close(found[mask], expected[mask])


@pytest.mark.parametrize(("name", "causal"), PLACES)
def test_gradients_are_those_of_each_document_alone(name: str, causal: bool) -> None:
    layer = make(name, causal)
    x, probe = (random(2, LENGTH, layer.dim, seed=seed) for seed in (0, 4))
    leaves = [x.requires_grad_(), *layer.parameters()]
    outs = layer(x, document_ids=IDS), alone(layer, x)
    found = [torch.autograd.grad((out * probe).sum(), leaves, allow_unused=True) for out in outs]
    for got, expected in zip(*found, strict=True):
        assert got is not None
        assert expected is not None
        assert close(got, expected)


@pytest.mark.parametrize("name", [name for name in LAYERS if is_streamed(name, causal=True)])
def test_the_state_is_that_of_the_last_document(name: str) -> None:
    layer = make(name)
    x, later = random(2, LENGTH, layer.dim), random(2, 2, layer.dim, seed=3)
    given = {"x": x, "document_ids": SAME_LAST}
    _, state = layer(**given, return_state=True)
    assert state.length == 5
    assert close(layer(later, state=state), layer(torch.cat([x, later], 1)[:, 4:])[:, -2:])
    # the documents of the next tokens begin with the rest of the one in the state
    ids = torch.tensor([1, 1, 1, 2, 2, 2])
    more = random(2, 6, layer.dim, seed=5)
    whole = torch.cat([SAME_LAST, torch.tensor(5).expand(2, 3), torch.tensor(6).expand(2, 3)], 1)
    out, after = layer(more, state=state, document_ids=ids, return_state=True)
    expected, of_whole = layer(torch.cat([x, more], 1), document_ids=whole, return_state=True)
    assert close(out, expected[:, LENGTH:])
    assert after.length == of_whole.length == 3
    for end in (after, of_whole):
        again = layer(later, state=end)
        assert close(again, layer(torch.cat([more[:, 3:], later], 1))[:, -2:])
    # a state that ends in the document in which it began
    _, longer = layer(later, state=after, document_ids=later.new_zeros(2).long(), return_state=True)
    assert longer.length == 5
    with pytest.raises(ValueError, match=r"last document .* in each row.* lengths \[4, 5\]"):
        layer(x, document_ids=IDS, return_state=True)


@pytest.mark.parametrize("name", model_cases.CASES)
def test_a_language_model_gives_each_document_the_logits_it_has_alone(name: str) -> None:
    model = model_cases.language_model(name).double()
    tokens, ids = model_cases.text(2, 7), IDS[:, :7]
    found = model(tokens, document_ids=ids)
    assert close(found, alone(_rows(model), tokens, ids), 1e-11)
    if not model_cases.has_state(name):
        return
    last = torch.tensor([0, 0, 1, 1])
    _, states = model(tokens[:, :4], document_ids=last, return_state=True)
    assert {state.length for state in states} == {2}
    expected = model(tokens[:, 2:])[:, 2:]
    assert close(model(tokens[:, 4:], state=states), expected, 1e-11)
    # the first of the next documents continues the state
    more = model(tokens[:, 4:], state=states, document_ids=torch.tensor([[4, 4, 5]]))
    assert close(more[:, :2], expected[:, :2], 1e-11)
    assert close(more[:, 2:], model(tokens[:, 6:]), 1e-11)


def _rows(model: Any) -> Any:
    """Return a model for one row of tokens."""
    return lambda row, key_mask=None: model(row[None], key_mask=key_mask)[0]


LONG = (
    torch.tensor([40, 1, 70, 33, 6]).repeat_interleave(torch.tensor([40, 1, 70, 33, 6])).sort()[0]
)
"""Documents of 1 to 70 tokens, in order of their length, which cross the chunks of all kernels."""


@pytest.mark.parametrize(
    "name", ["relu", "favor", "gla", "ssd", "retnet-favor", "gated-delta-favor"]
)
def test_documents_cross_the_borders_of_chunks(name: str) -> None:
    layer = make(name)
    x = random(1, len(LONG), layer.dim)
    expected = alone(layer, x, LONG[None])
    assert close(layer(x, document_ids=LONG), expected)
    single, found = layer.float(), layer(x.float(), document_ids=LONG)
    assert close(found.double(), single(x.float(), document_ids=LONG).double())
    assert close(found.double(), expected, 1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("weight", [None, "toeplitz", "ssd"])
def test_large_keys_of_one_document_do_not_underflow_another(
    weight: str | None, causal: bool, dtype: torch.dtype
) -> None:
    if weight == "ssd" and not causal:
        return
    torch.manual_seed(0)
    options = {"weight": weight, "length": LENGTH if weight == "toeplitz" else None}
    layer = MultiHeadAttention(12, 3, attention="favor", causal=causal, **options).to(dtype)
    x = random(2, LENGTH, 12).to(dtype)
    for factor in (1e3, 1e-3):
        scaled = torch.where(IDS[..., None] == IDS[:, :1, None], factor * x, x)
        limit = 1e-12 if dtype == torch.float64 else 1e-5
        assert close(layer(scaled, document_ids=IDS), alone(layer, scaled), limit)
    # the document with the large keys is in the state
    if weight != "toeplitz" and causal:
        _, state = layer(1e3 * x[:, :4], return_state=True)
        ids = torch.tensor([0, 1, 1, 1, 1])
        found = layer(x[:, 4:], state=state, document_ids=ids)
        assert close(found[:, 1:], layer(x[:, 5:]), limit)
