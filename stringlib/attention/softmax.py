r"""Softmax attention, on PyTorch's fused kernel."""

from __future__ import annotations

import math
from contextlib import nullcontext

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from stringlib.attention.cache import KeyValueCache
from stringlib.encoders.relative_bias import RelativeBias
from stringlib.inputs import (
    common_shape,
    expands,
    in_torch_func,
    per_head,
)
from stringlib.spec import Floats, checked


@checked
def softmax_attention(
    q: Floats[Tensor, "... heads n d"],
    k: Floats[Tensor, "... #kv_heads keys d"],
    v: Floats[Tensor, "... #kv_heads keys d_v"],
    bias: Floats[Tensor, "...heads n keys"] | None = None,
    causal: bool = False,
    *,
    key_mask: Tensor | None = None,
) -> Tensor:
    r"""Return :math:`\operatorname{softmax}(QK^\top/\sqrt d + B)\,V`, :eq:`eq-bias-softmax`.

    Args:
        q: Queries, ``(..., heads, n, d)``.
        k: Keys, ``(..., heads, keys, d)``. Keys and values may have fewer heads, a divisor: the
            first heads of queries then share the first of keys, the next the next.
        v: Values, ``(..., heads, keys, d_v)``.
        bias: Added to the scaled logits, ``(..., heads, n, keys)``; −∞ hides a key. One head
            serves all, and so does one batch.
        causal: Whether query i sees the keys 0 … i only.
        key_mask: False for keys that are padding, ``(..., keys)`` or ``(..., heads, keys)``.
            What their vectors hold is never read, be it NaN.

    Returns:
        ``(..., heads, n, d_v)``, of the dtype of ``q``. A query that sees no key gets 0.

    Example:
        >>> from stringlib import ALiBi
        >>> q, k, v = torch.randn(3, 8, 6, 196, 64)
        >>> softmax_attention(q, k, v, bias=ALiBi(6)(196, 196), causal=True).shape
        torch.Size([8, 6, 196, 64])
    """
    group = _group(q, k, v)
    if group > 1 and (bias is not None or key_mask is not None):
        # with a mask not every device has a fused kernel that shares keys
        k, v = (x.repeat_interleave(group, -3) for x in (k, v))
        group = 1
    firsts = q if group == 1 else q[..., ::group, :, :]
    pairs = q.shape[-2], k.shape[-2]
    try:
        lead = common_shape(firsts.shape[:-2], k.shape[:-2], v.shape[:-2])
    except RuntimeError:
        raise ValueError(
            f"k must have the {q.shape[-3]} heads of q or a divisor, got shape {tuple(k.shape)}"
        ) from None
    k, v = k.to(q.dtype), v.to(q.dtype)
    hidden = None
    if key_mask is not None:
        hidden = ~per_head(key_mask, (*lead, pairs[1]), q.device)[..., None, :]
        k, v = (x.masked_fill(hidden.mT, 0) for x in (k, v))  # 0 · NaN is NaN
    if causal and (bias is not None or hidden is not None):
        # the kernel takes a mask or is_causal, not both
        # not of q: under vmap a mask for each of its batch would be made
        later = torch.ones(pairs, dtype=torch.bool, device=q.device).triu(1)
        hidden, causal = later if hidden is None else hidden | later, False
    mask = None if hidden is None else ~hidden
    if bias is not None:
        if not expands(bias.shape[:-2], lead):
            raise ValueError(
                f"bias must have shape {(*lead, *pairs)}, one matrix for each head, "
                f"got {tuple(bias.shape)}"
            )
        mask = bias if bias.dtype == torch.float32 else bias.to(q.dtype)  # what the kernel takes
        mask = mask if hidden is None else mask.masked_fill(hidden, float("-inf"))
    # the fused kernel wants one batch dimension, for the mask too; with fewer or more PyTorch falls
    # back to the n × n matrix
    batch = math.prod(lead[:-1])
    q, k, v = (
        x.expand(*lead[:-1], heads, *x.shape[-2:]).reshape(batch, heads, *x.shape[-2:])
        for x, heads in ((q, group * lead[-1]), (k, lead[-1]), (v, lead[-1]))
    )
    if mask is not None and len(lead) > 2 and mask.ndim > 3:
        mask = mask.expand(*lead[:-1], *mask.shape[-3:]).flatten(0, -4)
    elif mask is not None and mask.ndim == 3:
        mask = mask[None]
    # the fused kernel has no gradient of a mask, and under vmap it is not seen that one is wanted;
    # nor has it a derivative forwards
    plain = (mask is not None and in_torch_func()) or forward_ad._current_level >= 0
    with sdpa_kernel(SDPBackend.MATH) if plain else nullcontext():
        out = scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=causal, enable_gqa=group > 1
        )
    return out.view(*lead[:-1], *out.shape[-3:]).to(q.dtype)  # autocast has its own


def _group(q: Tensor, k: Tensor, v: Tensor) -> int:
    """Return how many heads of queries share one of keys and values; 1 if their heads broadcast."""
    heads, own = q.shape[-3], k.shape[-3]
    return heads // own if own == v.shape[-3] and 0 < own < heads and heads % own == 0 else 1


def continued_softmax(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: RelativeBias | None,
    causal: bool,
    key_mask: Tensor | None,
    cache: KeyValueCache | None,
) -> tuple[Tensor, KeyValueCache]:
    """Attend to the tokens of a cache and to new ones; return the outputs and the longer cache.

    Args:
        q: Queries of the new tokens, ``(..., heads, n, d)``.
        k: Their keys, ``(..., kv_heads, n, d)``; ``kv_heads`` divides ``heads``.
        v: Their values, ``(..., kv_heads, n, d_v)``.
        bias: A relative bias that is added to the logits, or None.
        causal: Whether a token attends only to itself and to earlier tokens.
        key_mask: False for new tokens that are padding.
        cache: The cache of the earlier tokens, or None.
    """
    if key_mask is not None:
        key_mask = per_head(key_mask, q.shape[:-1], q.device).expand(q.shape[:-1])
    before, n = 0 if cache is None else cache.length, q.shape[-2]
    cache = KeyValueCache(k, v, key_mask) if cache is None else cache.extended(k, v, key_mask)
    added = None if bias is None else bias(n, cache.length, offset=before)
    if before and n > 1:
        # query i is at position before + i; the causal mask of the kernel would begin at 0
        later = torch.ones(n, cache.length, dtype=torch.bool, device=q.device).triu(before + 1)
        added = (q.new_zeros(()) if added is None else added).masked_fill(later, -math.inf)
    out = softmax_attention(
        q, cache.keys, cache.values, added, causal and not before, key_mask=cache.mask
    )
    return out, cache
