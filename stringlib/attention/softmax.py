r"""Softmax attention with a bias and grouped heads, computed by PyTorch's fused kernel."""

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
    r"""Return the output of softmax attention for given queries, keys and values.

    This is :math:`\operatorname{softmax}(QK^\top/\sqrt d + B)\,V` for each head, equation
    :eq:`eq-bias-softmax`.

    Args:
        q: Queries, ``(..., heads, n, d)``.
        k: Keys, ``(..., kv_heads, keys, d)``. The number ``kv_heads`` divides ``heads``. If it is
            smaller, consecutive query heads share a head of keys and values (grouped-query
            attention).
        v: Values, ``(..., kv_heads, keys, d_v)``.
        bias: B, which is added to the scaled logits, ``(..., heads, n, keys)``; −∞ hides a key. A
            bias with one head, or without batch dimensions, is broadcast. Default: None, no bias.
        causal: If True, query i attends only to the keys 0 … i. Default: False.
        key_mask: False for keys that are padding, ``(..., keys)`` or ``(..., heads, keys)``. Keys
            and values of padding are ignored, even if they are NaN. Default: None, no padding.

    Returns:
        Outputs, ``(..., heads, n, d_v)``, in the dtype of ``q``. The output of a query that
        attends to no key is 0.

    Example:
        >>> from stringlib import ALiBi
        >>> q, k, v = torch.randn(3, 8, 6, 196, 64)
        >>> softmax_attention(q, k, v, bias=ALiBi(6)(196, 196), causal=True).shape
        torch.Size([8, 6, 196, 64])
    """
    group = _group(q, k, v)
    if group > 1 and (bias is not None or key_mask is not None):
        # not every device has a fused kernel for grouped heads with a mask
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
        # the kernel takes a mask or is_causal, not both. The mask is not made from q, because
        # under vmap this would make one mask for each batch entry.
        later = torch.ones(pairs, dtype=torch.bool, device=q.device).triu(1)
        hidden, causal = later if hidden is None else hidden | later, False
    mask = None if hidden is None else ~hidden
    if bias is not None:
        if not expands(bias.shape[:-2], lead):
            raise ValueError(
                f"bias must have shape {(*lead, *pairs)}, one matrix for each head, "
                f"got {tuple(bias.shape)}"
            )
        # the kernel accepts a mask in float32 or in the dtype of q
        mask = bias if bias.dtype == torch.float32 else bias.to(q.dtype)
        mask = mask if hidden is None else mask.masked_fill(hidden, float("-inf"))
    # the fused kernel needs exactly one batch dimension, also in the mask; otherwise PyTorch falls
    # back to the n × n matrix
    batch = math.prod(lead[:-1])
    q, k, v = [
        x.expand(*lead[:-1], heads, *x.shape[-2:]).reshape(batch, heads, *x.shape[-2:])
        for x, heads in ((q, group * lead[-1]), (k, lead[-1]), (v, lead[-1]))
    ]
    if mask is not None and len(lead) > 2 and mask.ndim > 3:
        mask = mask.expand(*lead[:-1], *mask.shape[-3:]).flatten(0, -4)
    elif mask is not None and mask.ndim == 3:
        mask = mask[None]
    # The fused kernel cannot compute the gradient of a mask, and inside vmap PyTorch does not
    # notice that this gradient is needed. Forward-mode derivatives are missing too.
    plain = (mask is not None and in_torch_func()) or forward_ad._current_level >= 0
    with sdpa_kernel(SDPBackend.MATH) if plain else nullcontext():
        out = scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=causal, enable_gqa=group > 1
        )
    # autocast may have computed in another dtype
    return out.view(*lead[:-1], *out.shape[-3:]).to(q.dtype)


def _group(q: Tensor, k: Tensor, v: Tensor) -> int:
    """Return how many query heads share one head of keys and values; 1 if heads broadcast."""
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
    """Return the outputs of softmax attention for new tokens, and the cache extended by them.

    The new tokens attend to the tokens of the cache and to each other.

    Args:
        q: Queries of the new tokens, ``(..., heads, n, d)``.
        k: Keys of the new tokens, ``(..., kv_heads, n, d)``; ``kv_heads`` divides ``heads``.
        v: Values of the new tokens, ``(..., kv_heads, n, d_v)``.
        bias: A relative bias that is added to the logits, or None.
        causal: If True, a token attends only to itself and to earlier tokens.
        key_mask: False for new tokens that are padding, ``(..., n)`` or ``(..., heads, n)``; or
            None.
        cache: The cache of the earlier tokens, or None.

    Returns:
        Outputs, ``(..., heads, n, d_v)``, and the cache with the keys and values of all tokens.
    """
    if key_mask is not None:
        key_mask = per_head(key_mask, q.shape[:-1], q.device).expand(q.shape[:-1])
    before, n = 0 if cache is None else cache.length, q.shape[-2]
    cache = KeyValueCache(k, v, key_mask) if cache is None else cache.extended(k, v, key_mask)
    added = None if bias is None else bias(n, cache.length, offset=before)
    if before and n > 1:
        # query i is at position before + i, but the causal mask of the kernel starts at position 0
        later = torch.ones(n, cache.length, dtype=torch.bool, device=q.device).triu(before + 1)
        added = (q.new_zeros(()) if added is None else added).masked_fill(later, -math.inf)
    out = softmax_attention(
        q, cache.keys, cache.values, added, causal and not before, key_mask=cache.mask
    )
    return out, cache
