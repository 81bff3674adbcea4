"""Heads of several kinds as one layer: what it says, and how it starts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lab.mixed_heads import one_of_each
from stringlib import LanguageModel, MultiHeadAttention

DIM, WIDTH, DEPTH = 16, 8, 3
SOFTMAX: dict[str, Any] = {"encoder": "rope", "shift": True}
ELU: dict[str, Any] = {"attention": "elu", "shift": True}
GLA: dict[str, Any] = {"attention": "elu", "weight": "gla"}


def tokens() -> Tensor:
    return torch.randn(2, 11, DIM, dtype=torch.float64)


def test_both_kinds_run_apart_and_joined() -> None:
    torch.manual_seed(0)
    layer, x = one_of_each(DIM, DEPTH, {}, {"attention": "elu"}).double(), tokens()
    softmax, linear = layer.parts
    later = torch.ones(11, 11).triu(1).bool()
    said = []
    for head in layer.parts:
        q, k = head.to_q(x), head.to_k(x)
        if head is softmax:
            weights = torch.exp(q @ k.mT / WIDTH**0.5)
        else:
            weights = (nn.functional.elu(q) + 1) @ (nn.functional.elu(k) + 1).mT
        weights = weights.masked_fill(later, 0)
        said.append(weights / weights.sum(-1, keepdim=True) @ head.to_v(x))
    to_out = torch.cat([softmax.to_out.weight, linear.to_out.weight], 1)
    torch.testing.assert_close(layer(x), torch.cat(said, -1) @ to_out.mT)


def test_two_heads_of_one_kind_are_a_layer_of_two_heads() -> None:
    torch.manual_seed(0)
    layer, x = one_of_each(DIM, DEPTH, SOFTMAX, SOFTMAX).double(), tokens()
    plain = MultiHeadAttention(DIM, 2, causal=True, **SOFTMAX).double()
    with torch.no_grad():
        for name, axis in (("to_q", 0), ("to_k", 0), ("to_v", 0), ("to_out", 1)):
            weights = [getattr(head, name).weight for head in layer.parts]
            getattr(plain, name).weight.copy_(torch.cat(weights, axis))
    torch.testing.assert_close(layer(x), plain(x))
    assert sum(p.numel() for p in layer.parameters()) == sum(p.numel() for p in plain.parameters())


def test_a_weight_reads_all_channels_and_nothing_looks_ahead() -> None:
    layer, x = one_of_each(DIM, DEPTH, SOFTMAX, GLA).double(), tokens()
    changed = layer(x.index_fill(1, torch.tensor([7]), 3.0))
    torch.testing.assert_close(changed[:, :7], layer(x)[:, :7])
    assert (changed - layer(x))[:, 7].abs().amin() > 1e-3


def test_it_starts_like_a_layer_of_a_model() -> None:
    torch.manual_seed(0)
    layer = one_of_each(256, DEPTH, SOFTMAX, ELU)
    plain = LanguageModel(7, 256, DEPTH, 2, **ELU).blocks[0].attention
    for head in layer.parts:
        for name in ("to_q", "to_k", "to_v", "to_out"):
            mine, model = (getattr(one, name).weight.std().item() for one in (head, plain))
            assert mine == pytest.approx(model, rel=0.03), name
