"""Softmax attention on the fused kernel: biases, masks and causality together."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from stringlib import ALiBi, reference, softmax_attention
from stringlib.testing.contract import derives_both_ways
from stringlib.testing.properties import largest_difference
from tests.draws import random

EXACT = 1e-12
INFINITY = float("inf")


def tokens(n: int, keys: int) -> tuple[Tensor, Tensor, Tensor]:
    return random(2, n, 4), random(2, keys, 4, seed=1), random(2, keys, 3, seed=2)


def some_bias(n: int, keys: int) -> Tensor:
    return random(2, n, keys, seed=9)


@pytest.mark.proves("eq-bias-softmax")
@pytest.mark.parametrize(("n", "keys"), [(1, 1), (5, 8), (8, 5)])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_every_combination_equals_the_printed_formula(
    n: int, keys: int, causal: bool, biased: bool, masked: bool
) -> None:
    q, k, v = (x.requires_grad_() for x in tokens(n, keys))
    bias = some_bias(n, keys).requires_grad_() if biased else None
    leaves = [q, k, v] if bias is None else [q, k, v, bias]
    kept = torch.arange(keys) % 3 != 1
    mask = kept if masked else None
    hidden = torch.zeros(2, n, keys).double() if bias is None else bias.clone()
    if masked:
        hidden[..., ~kept] = -INFINITY
    if causal:  # no more queries than keys
        q, hidden = q[:, :keys], hidden[:, :keys]
        bias = None if bias is None else bias[:, :keys]
    expected = reference.softmax_attention(q, k, v, hidden, causal)
    got = softmax_attention(q, k, v, bias, causal, key_mask=mask)
    assert largest_difference(got, expected) <= EXACT
    found, wanted = (torch.autograd.grad(y.square().sum(), leaves) for y in (got, expected))
    assert all(largest_difference(a, b) <= EXACT for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize(("n", "keys"), [(0, 0), (0, 2), (1, 1), (1, 7), (2, 2), (5, 8), (8, 8)])
@pytest.mark.parametrize("window", [1, 2, 3, 7, 8, 100])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("given", ["", "bias", "key_mask"])
def test_a_window_hides_keys_farther_away(
    n: int, keys: int, window: int, causal: bool, given: str
) -> None:
    """As in decoding: the last query is at the position of the last key."""
    q, k, v = leaves = [x.requires_grad_() for x in tokens(n, keys)]
    bias = some_bias(n, keys) if given == "bias" else None
    kept = torch.arange(keys) % 3 != 1
    out = softmax_attention(
        q, k, v, bias, causal, key_mask=kept if given == "key_mask" else None, window=window
    )
    rows = []
    for i in range(n):
        at = keys - n + i
        seen = range(max(0, at - window + 1), at + 1 if causal else min(keys, at + window))
        seen = [j for j in seen if given != "key_mask" or kept[j]]
        logits = torch.einsum("hd,hjd->hj", q[:, i], k[:, seen]) / 2
        logits = logits if bias is None else logits + bias[:, i, seen]
        rows.append(torch.einsum("hj,hjd->hd", logits.softmax(-1), v[:, seen]))
    expected = torch.stack(rows, 1) if rows else v.new_zeros(2, 0, 3) + 0 * (q.sum() + k.sum())
    assert largest_difference(out, expected) <= EXACT
    found, wanted = (
        torch.autograd.grad(y.square().sum(), leaves, allow_unused=True, materialize_grads=True)
        for y in (out, expected)
    )
    assert all(largest_difference(a, b) <= EXACT for a, b in zip(found, wanted, strict=True))


def test_a_window_has_no_query_before_all_keys() -> None:
    with pytest.raises(ValueError, match="k must have at least as many keys as q has queries, 3"):
        softmax_attention(*tokens(3, 2), window=2)


@pytest.mark.parametrize("count", [0, 1, 2, 5, 6])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("given", ["", "bias", "key_mask"])
def test_the_last_queries_see_what_they_see_among_all(
    count: int, kv_heads: int, given: str
) -> None:
    """As in decoding: the last query is at the position of the last key."""
    q, (k, v) = random(3, 4, 6, 8), (random(3, kv_heads, 6, 8, seed=s) for s in (1, 2))
    bias = ALiBi(4).double()
    options: dict = {"key_mask": torch.arange(6) != 2} if given == "key_mask" else {}

    def attend(n: int) -> Tensor:
        added = bias(n, 6, offset=6 - n) if given == "bias" else None
        return softmax_attention(q[..., 6 - n :, :], k, v, added, True, **options)

    assert largest_difference(attend(count), attend(6)[..., 6 - count :, :]) <= EXACT
    if not given:
        group = [x.repeat_interleave(4 // kv_heads, 1)[0] for x in (k, v)]
        wanted = reference.softmax_attention(q[0, :, 6 - count :], *group, causal=True)
        assert largest_difference(attend(count)[0], wanted) <= EXACT


def test_no_query_stands_before_all_keys() -> None:
    q, k, v = tokens(5, 3)
    with pytest.raises(ValueError, match=r"k must have at least as many keys as q has queries, 5"):
        softmax_attention(q, k, v, causal=True)
    assert softmax_attention(q, k, v).shape == (2, 5, 3)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("how", ["mask", "bias", "causal"])
def test_a_query_that_sees_no_key_gets_zero_and_finite_gradients(
    dtype: torch.dtype, how: str
) -> None:
    q, k, v = (x.to(dtype).requires_grad_() for x in tokens(4, 4))
    bias = torch.zeros(2, 4, 4, dtype=dtype)
    options: dict = {
        "mask": {"key_mask": torch.zeros(4).bool()},
        "bias": {"bias": bias.index_fill(1, torch.tensor([0]), -INFINITY)},
        "causal": {"key_mask": torch.arange(4) > 0, "causal": True},
    }[how]
    out = softmax_attention(q, k, v, **options)
    assert (out[:, 0] == 0).all()
    assert all(g.isfinite().all() for g in torch.autograd.grad(out.sum(), (q, k, v)))


@pytest.mark.parametrize("causal", [False, True])
def test_padding_may_hold_anything(causal: bool) -> None:
    q, k, v = (x.expand(3, 2, 6, -1).clone() for x in tokens(6, 6))
    mask = torch.arange(6).expand(3, 6) < torch.tensor([[6], [4], [1]])
    expected = softmax_attention(q, k, v, causal=causal, key_mask=mask)
    for x, bad in ((k, INFINITY), (v, float("nan"))):
        x.masked_fill_(~mask[:, None, :, None], bad)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    got = softmax_attention(*leaves, causal=causal, key_mask=mask)
    assert torch.equal(got, expected)
    assert all(g.isfinite().all() for g in torch.autograd.grad(got.sum(), leaves))
    by_head = softmax_attention(*leaves, causal=causal, key_mask=mask[:, None].expand(3, 2, 6))
    assert torch.equal(got, by_head)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bias_dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
def test_the_dtype_of_the_queries_decides(
    dtype: torch.dtype, bias_dtype: torch.dtype, causal: bool
) -> None:
    q, k, v = (x.to(dtype) for x in tokens(6, 6))
    bias = some_bias(6, 6).to(bias_dtype)
    out = softmax_attention(q, k, v, bias, causal)
    assert out.dtype == dtype
    expected = reference.softmax_attention(q, k, v, bias, causal)
    coarsest = max(torch.finfo(dtype).eps, torch.finfo(bias_dtype).eps)
    assert largest_difference(out.double(), expected) < 8 * coarsest


def test_the_queries_decide_under_autocast_and_beside_other_dtypes_too() -> None:
    q, k, v = tokens(6, 6)
    exact = softmax_attention(q, k, v)
    assert softmax_attention(q, k.float(), v.bfloat16()).dtype == torch.float64
    with torch.autocast("cpu", torch.bfloat16):
        out = softmax_attention(q.float(), k.float(), v.float(), some_bias(6, 6) * 0)
    assert out.dtype == torch.float32
    assert largest_difference(out.double(), exact) < 0.05


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kv_heads", [1, 2])
def test_derivatives_forwards(causal: bool, kv_heads: int) -> None:
    q, k, _ = tokens(5, 5)
    given = q, k[:kv_heads], k[:kv_heads] - 1  # as wide as keys, for the fused kernel

    def attend(*x: Tensor) -> Tensor:
        return softmax_attention(*x, causal=causal)

    leaves = [x.requires_grad_() for x in given]
    assert torch.autograd.gradcheck(attend, leaves, check_forward_ad=True)
    derives_both_ways(lambda q: attend(q, *given[1:]), given[0])


@pytest.mark.parametrize("causal", [False, True])
def test_leading_dimensions_broadcast(causal: bool) -> None:
    (q, k, v), bias = tokens(5, 5), some_bias(5, 5)
    one = softmax_attention(q[:1], k, v, bias, causal)  # one head of queries, two of keys
    assert torch.equal(one, softmax_attention(q[:1].expand(2, -1, -1), k, v, bias, causal))
    # keys without a batch, and a mask that has one
    kept = torch.tensor([[True] * 5, [True, False, True, True, False], [True] * 4 + [False]])
    some = softmax_attention(q.expand(3, -1, -1, -1), k, v, bias, causal, key_mask=kept)
    for row, mask in zip(some, kept, strict=True):
        expected = softmax_attention(q, k, v, bias, causal, key_mask=mask)
        assert largest_difference(row, expected) <= EXACT


def test_no_tokens_and_no_keys() -> None:
    q, k, v = tokens(0, 0)
    assert softmax_attention(q, k, v, causal=True).shape == (2, 0, 3)
    q = tokens(3, 3)[0]
    assert (softmax_attention(q, k, v) == 0).all()


@pytest.mark.parametrize("given", ["", "causal", "bias", "key_mask"])
@pytest.mark.parametrize("lead", [(), (3,), (2, 0), (2, 3)], ids=str)
@pytest.mark.parametrize("kv_heads", [1, 2, 3])
def test_queries_of_a_group_share_keys(kv_heads: int, lead: tuple[int, ...], given: str) -> None:
    q = random(*lead, 6, 5, 4).requires_grad_()
    k, v = (random(*lead, kv_heads, 5, 4, seed=s).requires_grad_() for s in (1, 2))
    options: dict[str, dict[str, Any]] = {
        "causal": {"causal": True},
        "bias": {"bias": random(6, 5, 5, seed=3), "causal": True},
        "key_mask": {"key_mask": random(*lead, 6, 5, seed=4) > -0.5},
    }
    one = [torch.arange(6) // (6 // kv_heads) == h for h in range(kv_heads)]
    whole = [sum(x[..., h : h + 1, :, :] * one[h][:, None, None] for h in range(kv_heads))
             for x in (k, v)]  # fmt: skip
    got = softmax_attention(q, k, v, **options.get(given, {}))
    wanted = softmax_attention(q, *whole, **options.get(given, {}))
    assert largest_difference(got, wanted) <= EXACT
    gradients = [torch.autograd.grad(y.square().sum(), (q, k, v)) for y in (got, wanted)]
    assert all(largest_difference(a, b) <= EXACT for a, b in zip(*gradients, strict=True))


def test_second_derivatives_as_the_documentation_says() -> None:
    q, k, v = (x.requires_grad_() for x in tokens(4, 6))

    def second(out: Tensor) -> tuple[Tensor, ...]:
        (slope,) = torch.autograd.grad(out.square().sum(), q, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), (q, k, v))

    with sdpa_kernel(SDPBackend.MATH):
        got = second(softmax_attention(q, k, v))
    weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
    for found, wanted in zip(got, second(weights @ v), strict=True):
        assert largest_difference(found, wanted) <= EXACT * (1 + wanted.abs().max())


def test_grouped_heads_compile_with_any_number_of_heads() -> None:
    compiled = torch.compile(softmax_attention, fullgraph=True, backend="eager")
    dynamic = torch.compile(softmax_attention, fullgraph=True, backend="eager", dynamic=True)
    k = torch.randn(2, 2, 6, 8)
    for heads in (4, 8, 2):
        q = torch.randn(2, heads, 6, 8)
        for run in (compiled, dynamic):
            torch.testing.assert_close(run(q, k, k), softmax_attention(q, k, k))
