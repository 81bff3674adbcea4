r"""Softmax attention, on PyTorch's fused kernel."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def softmax_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None = None,
    causal: bool = False,
    *,
    key_mask: Tensor | None = None,
) -> Tensor:
    """Skeleton."""
    if bias is not None and causal:
        mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril()
        bias = bias.masked_fill(~mask, float("-inf"))
        causal = False
    if key_mask is not None:
        extra = torch.zeros_like(key_mask, dtype=q.dtype).masked_fill(~key_mask, float("-inf"))
        bias = extra[..., None, :] + (0 if bias is None else bias)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=causal)
