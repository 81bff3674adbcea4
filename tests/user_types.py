"""What a user writes, for ``mypy``: calls have the types that their documentation promises."""

from __future__ import annotations

from typing import assert_type

import torch
from torch import Tensor

from stringlib import (
    ALiBi,
    FavorFeatures,
    LanguageModel,
    LinearState,
    MultiHeadAttention,
    RoPE,
    RotaryEncoder,
    delta_rule,
    linear_attention,
    make_encoder,
    softmax_attention,
)


def attend(q: Tensor, v: Tensor, keep: bool) -> torch.Size:
    keys, log_scale = FavorFeatures(64).scaled_keys(q)
    out = linear_attention(q, keys, v, key_scale=log_scale) + 1
    both = linear_attention(q, q, v, causal=True, return_state=True)
    assert_type(both, tuple[Tensor, LinearState])
    either = linear_attention(q, q, v, causal=True, state=both[1], return_state=keep)
    assert_type(either, Tensor | tuple[Tensor, LinearState])
    assert_type(softmax_attention(q, q, out, ALiBi(8)(4, 4)), Tensor)
    assert_type(delta_rule(q, q, v, q[..., 0]), tuple[Tensor, Tensor])
    return linear_attention(q, q, q).shape


def stack(x: Tensor, tokens: Tensor) -> Tensor:
    assert_type(make_encoder("rope", 64), RotaryEncoder)
    layer = MultiHeadAttention(64, heads=4, attention="favor", encoder=RoPE(16), causal=True)
    out, state = layer(x, return_state=True)
    x = layer(out, state=state)
    model = LanguageModel(64, 64, 2, 4, encoder="rope")
    return x + model.generate(tokens, 8)
