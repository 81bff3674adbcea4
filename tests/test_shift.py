"""Keys that take in the key before: the formula, a state, and recall."""

from __future__ import annotations

import itertools

import torch

from stringlib import MultiHeadAttention
from stringlib.attention.shift import KeyShift
from tests.draws import random

DIM, HEADS, N = 12, 3, 9


def test_a_key_is_the_mixture_of_two() -> None:
    shift, k = KeyShift(HEADS).double(), random(2, HEADS, N, 4)
    assert shift.logit.sigmoid().tolist() == [0.5] * HEADS
    torch.nn.init.normal_(shift.logit)
    mixed, last = shift(k)
    share = shift.logit.sigmoid()
    for head, t in itertools.product(range(HEADS), range(N)):
        before = k[:, head, t - 1] if t else torch.zeros(2, 4)
        expected = (1 - share[head]) * k[:, head, t] + share[head] * before
        assert torch.allclose(mixed[:, head, t], expected, rtol=0, atol=1e-14)
    assert torch.equal(last[:, :, 0], k[:, :, -1])


def test_one_head_finds_a_value_by_the_key_before_it() -> None:
    """Shares set by hand: with all of the earlier key, the query's own token picks its value."""
    names = torch.eye(DIM).double()
    tokens = torch.tensor([0, 6, 1, 7, 2, 8, 1])  # 0 → 6, 1 → 7, 2 → 8; asked for 1
    layer = MultiHeadAttention(DIM, 1, causal=True, shift=True).double()
    for projection, size in ((layer.to_q, 60.0), (layer.to_k, 1.0), (layer.to_v, 1.0)):
        projection.weight.data = size * names
    layer.shift.logit.data[:] = 40.0
    assert layer.attention_weights(names[tokens])[0, -1].argmax() == 3
    layer.shift.logit.data[:] = -40.0  # no shift: a token finds itself
    assert layer.attention_weights(names[tokens])[0, -1, 3] < 1e-6
