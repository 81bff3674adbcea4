"""Packed sequences: each document has what it has alone, in every composition of a layer."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from stringlib import (
    CosineWeight,
    LinearAttention,
    MultiHeadAttention,
    PositionWeight,
    ReLUFeatures,
    RoPE,
    SoftmaxAttention,
    document_ids_of,
    linear_attention,
    rotated_linear_attention,
    softmax_attention,
)
from stringlib.attention.weights import Factors
from stringlib.inputs import without_looking
from stringlib.models.blocks import Block
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
    with pytest.raises(ValueError, match=r"last document .* in every row.* lengths \[4, 5\]"):
        layer(x, document_ids=IDS, return_state=True)


@pytest.mark.parametrize("name", [*model_cases.CASES, *model_cases.PUBLISHED])
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


def test_functions_keep_documents_apart() -> None:
    q, k, v = random(3, 2, 3, LENGTH, 4)
    ids = document_ids_of(torch.tensor([0, 4, 4, 7]), LENGTH)
    assert ids.tolist() == [0, 0, 0, 0, 2, 2, 2, 3, 3]
    parts, encoder = bounds(ids), RoPE(4)
    at = torch.cat([torch.arange(b - a) for a, b in parts])[:, None]

    def softmax(*x: Tensor, **options: Any) -> Tensor:
        return softmax_attention(*x, **options)

    def linear(*x: Tensor, **options: Any) -> Tensor:
        return linear_attention(x[0].exp(), x[1].exp(), x[2], CosineWeight(9), **options)

    def rotated(*x: Tensor, numerator_only: bool = True, **options: Any) -> Tensor:
        features, positions = (x[0].exp(), x[1].exp(), x[2]), at[: x[0].shape[-2]]
        if "document_ids" not in options:
            positions = torch.arange(x[0].shape[-2])[:, None]
        options["numerator_only"] = numerator_only
        return rotated_linear_attention(*features, encoder, positions, **options)

    for function in (softmax, linear, rotated, partial(rotated, numerator_only=False)):
        for causal in (False, True):
            found = function(q, k, v, causal=causal, document_ids=ids)
            alone = [
                function(*(x[..., a:b, :] for x in (q, k, v)), causal=causal) for a, b in parts
            ]
            assert close(found, torch.cat(alone, -2))
    # the queries are the last of the tokens
    found = softmax_attention(q[..., -3:, :], k, v, causal=True, document_ids=ids)
    assert close(found, softmax_attention(q, k, v, causal=True, document_ids=ids)[..., -3:, :])
    for mode in ("parallel", "recurrent", "chunk"):
        found = linear(q, k, v, causal=True, document_ids=ids, mode=mode)
        assert close(found, linear(q, k, v, causal=True, document_ids=ids))
    _, state = linear(q, k, v, causal=True, document_ids=ids, return_state=True)
    assert state.length == 2
    with pytest.raises(ValueError, match="phi_k must have 3 tokens, as many as phi_q, if docum"):
        linear(q[..., :3, :], k, v, document_ids=ids)


class Early(PositionWeight):
    """A weight with a matrix alone that is no function of the distance."""

    def matrix(self, num_queries: int, num_keys: int) -> Tensor:
        i, j = torch.arange(num_queries)[:, None], torch.arange(num_keys)
        return 1 / (1.0 + i + j**2)


class Wave(PositionWeight):
    """A weight with factors that are no function of the distance."""

    def matrix(self, num_queries: int, num_keys: int) -> Tensor:
        i, j = torch.arange(num_queries)[:, None], torch.arange(num_keys)
        return torch.exp(-0.1 * i - 0.2 * j)

    def factors(self, phi_q: Tensor, phi_k: Tensor, start: int | Tensor = 0) -> Factors:
        place = start + torch.arange(phi_q.shape[-2])
        return Factors(
            phi_q * torch.exp(-0.1 * place)[..., None], phi_k * torch.exp(-0.2 * place)[..., None]
        )


@pytest.mark.parametrize("attention", ["relu", "favor"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("weight", [Early, Wave])
def test_a_weight_of_your_own_counts_positions_in_each_document(
    weight: type[PositionWeight], causal: bool, attention: str
) -> None:
    layer = MultiHeadAttention(12, 3, attention=attention, weight=weight(), causal=causal).double()
    x = random(2, LENGTH, 12)
    assert close(layer(x, document_ids=IDS), alone(layer, x))


@pytest.mark.parametrize("name", ["softmax-circulant", "favor", "ramp", "nprf", "shift-gla"])
def test_it_is_one_graph_and_inspects_nothing(name: str) -> None:
    layer, x = make(name), random(2, LENGTH, 12)
    call = torch.compile(lambda x, ids: layer(x, document_ids=ids), fullgraph=True, backend="eager")
    expected = layer(x, document_ids=IDS)
    assert close(call(x, IDS), expected)
    with without_looking():
        assert close(layer(x, document_ids=IDS), expected)
    mapped = torch.func.vmap(lambda x, ids: layer(x, document_ids=ids))(x, IDS)
    assert close(mapped, expected)


@pytest.mark.parametrize("name", ["softmax-circulant", "favor", "cosformer", "nprf", "shift-gla"])
def test_empty_inputs(name: str) -> None:
    layer = make(name)
    for shape in ((0,), (2, 0), (0, 3)):
        x, ids = random(*shape, 12), torch.zeros(shape, dtype=torch.long)
        assert layer(x, document_ids=ids).shape == x.shape
        if layer.has_state:
            state = layer(x, document_ids=ids, return_state=True)[1]
            assert state.length in (0, shape[-1])
    if layer.has_state:
        x = random(2, 3, 12)
        _, state = layer(x, return_state=True)
        nothing = torch.zeros(2, 0, dtype=torch.long)
        state = layer(x[:, :0], document_ids=nothing, state=state, return_state=True)[1]
        assert close(layer(x, state=state), layer(torch.cat([x, x], 1))[:, 3:])


def test_positions_can_be_given() -> None:
    layer, x = make("favor-rope"), random(2, LENGTH, 12)
    at = torch.cat([torch.arange(n) for n in (3, 1, 5)])[:, None]
    found = layer(x, at, document_ids=IDS[0])
    assert torch.equal(found, layer(x, document_ids=IDS[0]))
    moved = layer(x, at + 7, document_ids=IDS[0])
    assert not close(moved, found)


def test_a_cache_holds_the_last_document_alone() -> None:
    core, (q, k, v) = SoftmaxAttention(causal=True), random(3, 2, 3, LENGTH, 4)
    mask = torch.ones(2, LENGTH, dtype=torch.bool)
    mask[0, 7] = False
    with torch.no_grad():
        _, cache = core(q, k, v, document_ids=SAME_LAST, key_mask=mask, return_state=True)
    assert torch.equal(cache.keys, k[..., 4:, :])
    assert torch.equal(cache.values, v[..., 4:, :])
    assert cache.mask.tolist() == mask[:, None, 4:].expand(2, 3, 5).tolist()
    assert core(q, k, v, document_ids=IDS)[1] is None
    linear = LinearAttention(ReLUFeatures(), causal=True)
    _, state = linear(q, k, v, document_ids=SAME_LAST, return_state=True)
    assert state.length == 5


def test_blocks_pass_documents_on() -> None:
    block, x = Block(12, 3, causal=True, encoder="rope").double(), random(2, LENGTH, 12)
    assert close(block(x, document_ids=IDS)[0], alone(lambda x, key_mask: block(x)[0], x))


REFUSED: dict[str, tuple[Any, type[Exception], str]] = {
    "falling": (IDS.flip(-1), ValueError, "document_ids must not decrease along a row, got"),
    "floats": (IDS.double(), TypeError, "document_ids must be a tensor of integers, int64 or int3"),
    "short": (
        IDS[:, 1:],
        ValueError,
        r"document_ids must have shape \(\.\.\., n\) with n = 9",
    ),
    "batch": (IDS[:, None], ValueError, "document_ids must .* dimensions that expand to"),
    "device": (
        IDS.to("meta"),
        ValueError,
        "document_ids must be on cpu, the device of x",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("layer", ["softmax", "favor", "shift"])
def test_wrong_documents_are_refused(name: str, layer: str) -> None:
    ids, error, words = REFUSED[name]
    with pytest.raises(error, match=words):
        make(layer)(random(2, LENGTH, 12), document_ids=ids)


def test_what_has_no_packed_form_says_so() -> None:
    x = random(2, 6, 12).float()
    grid = {"grid": (2, 3), "attention": "favor"}
    ids = torch.zeros(6, dtype=torch.long)
    with pytest.raises(ValueError, match="document_ids must be None for a ToeplitzWeight of a gri"):
        MultiHeadAttention(12, 3, weight="toeplitz", **grid)(x, document_ids=ids)
    with pytest.raises(
        ValueError, match=r"positions must be given .* for an encoder with coord_dim=2"
    ):
        MultiHeadAttention(12, 3, "mixed", **grid)(x, document_ids=ids)
    long = MultiHeadAttention(12, 3, attention="relu", weight="cosine", horizon=3)
    assert long(x, document_ids=ids.new_tensor([0, 0, 1, 1, 1, 1])).shape == x.shape
    with pytest.raises(ValueError, match="horizon must be at least 4 for 5 tokens, got 3"):
        long(x, document_ids=ids.new_tensor([0, 1, 1, 1, 1, 1]))
    model = model_cases.language_model("softmax-learned")
    with pytest.raises(ValueError, match=r"document_ids must .* dimensions that expand to"):
        model(model_cases.text(1, 5), document_ids=IDS[:, :5])


def test_cumulative_lengths() -> None:
    assert document_ids_of(torch.tensor([0, 2, 5], dtype=torch.int32), 5).tolist() == [
        0,
        0,
        1,
        1,
        1,
    ]
    assert document_ids_of(torch.tensor([0]), 2).tolist() == [0, 0]
    assert document_ids_of(torch.tensor([0, 0]), 0).tolist() == []
    for wrong in ([], [1, 3], [0, 3, 2], [0, 6]):
        with pytest.raises(ValueError, match="cu_seqlens must start with 0, not decrease and not"):
            document_ids_of(torch.tensor(wrong, dtype=torch.long), 5)
