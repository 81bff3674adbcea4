"""A layer takes no state of another kind of layer, though its shape fits."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch

from stringlib import (
    ALiBi,
    CosineWeight,
    DecayWeight,
    MultiHeadAttention,
    RampWeight,
    T5Bias,
    linear_attention,
)

LAYERS: dict[str, dict[str, Any]] = {
    "softmax": {},
    "softmax-rope": {"encoder": "rope"},
    "softmax-shift": {"shift": True},
    "softmax-alibi": {"encoder": ALiBi(2)},
    "softmax-t5": {"encoder": T5Bias(2, bidirectional=False)},
    "softmax-fox": {"position_bias": "fox"},
    "softmax-path": {"position_bias": "path"},
    "softmax-cope": {"position_bias": "cope"},
    "softmax-rope-fox": {"encoder": "rope", "position_bias": "fox"},
    "softmax-rope-alibi": {"encoder": "rope", "position_bias": "alibi"},
    "softmax-steps": {"encoder": "rope", "position_steps": "learned"},
    "softmax-shift-steps": {"encoder": "rope", "shift": True, "position_steps": "learned"},
    "favor-steps": {"attention": "favor", "encoder": "rope", "position_steps": "learned"},
    "relu": {"attention": "relu"},
    "elu": {"attention": "elu"},
    "favor": {"attention": "favor"},
    "relu-rope": {"attention": "relu", "encoder": "rope", "rotate": "before"},
    "relu-roll": {"attention": "relu", "rotate": "roll"},
    "relu-two-cycles": {"attention": "relu", "rotate": "roll", "cycles": (3, 5)},
    "relu-retnet": {"attention": "relu", "weight": "retnet"},
    "relu-ssd": {"attention": "relu", "weight": "ssd"},
    "identity-delta": {"attention": "identity", "weight": "delta"},
    "relu-shift": {"attention": "relu", "shift": True},
    "elu-shift": {"attention": "elu", "shift": True},
}
TOKENS = torch.ones(1, 3, 16)


def make(name: str) -> MultiHeadAttention:
    return MultiHeadAttention(16, 2, causal=True, **LAYERS[name])


@pytest.mark.parametrize(("one", "other"), [*product(LAYERS, LAYERS)])
def test_only_a_state_of_its_own_kind_is_taken(one: str, other: str) -> None:
    layer = make(one)
    state = layer(TOKENS, return_state=True)[1]
    if one == other:
        same = make(other)
        same.load_state_dict(layer.state_dict())  # the same random features too
        assert same(TOKENS, state=state).shape == TOKENS.shape
        return
    with pytest.raises((TypeError, ValueError), match=r"state must (be (a|one of)|come from) "):
        make(other)(TOKENS, state=state)


def test_a_folded_layer_reads_what_the_plain_one_left() -> None:
    layer = MultiHeadAttention(16, 2, "circulant", causal=True)
    state = layer(TOKENS, return_state=True)[1]
    assert layer.folded()(TOKENS, state=state).shape == TOKENS.shape


@pytest.mark.parametrize("lead", [(), (2,), (2, 3)])
def test_a_mask_is_of_those_tokens_alone_that_had_one(lead: tuple[int, ...]) -> None:
    """Tokens before and behind them are seen, for any number of leading dimensions."""
    layer = MultiHeadAttention(16, 2, causal=True).double()
    x = torch.randn(*lead, 7, 16, dtype=torch.float64)
    mask = torch.ones(*lead, 7, dtype=torch.bool)
    mask[..., 2] = False
    expected, state, parts = layer(x, key_mask=mask), None, []
    for start, end in ((0, 2), (2, 4), (4, 7)):
        own = mask[..., start:end] if start == 2 else None
        part, state = layer(x[..., start:end, :], key_mask=own, state=state, return_state=True)
        parts.append(part)
    assert torch.allclose(torch.cat(parts, -2), expected, rtol=0, atol=1e-12)


def test_a_sum_refuses_the_state_of_another_weight() -> None:
    q, k, v = torch.rand(3, 1, 2, 5, 4)
    told = {"causal": True, "return_state": True}
    _, state = linear_attention(q, k, v, CosineWeight(20), **told)
    linear_attention(q, k, v, CosineWeight(20), state=state, **told)
    for other in (CosineWeight(30), RampWeight(20), DecayWeight(-torch.rand(2))):
        with pytest.raises(ValueError, match=r"state must come from .* the state of Cosine"):
            linear_attention(q, k, v, other, state=state, **told)
