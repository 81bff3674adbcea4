r"""Softmax attention by PyTorch's fused kernel, with biases, masks, grouped heads and a cache."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from stringlib.attention.cache import KeyValueCache
from stringlib.attention.core import AttentionCore, Given
from stringlib.attention.logit_bias import TokenBias, bias_of_tokens, marks_of
from stringlib.encoders.relative_bias import RelativeBias
from stringlib.encoders.rotary import RotaryEncoder, rotated
from stringlib.inputs import (
    common_shape,
    expands,
    in_torch_func,
    per_head,
)
from stringlib.spec import Floats, Indices, Share, checked, require


@checked
def softmax_attention(
    q: Floats[Tensor, "... heads n d"],
    k: Floats[Tensor, "... #kv_heads keys d"],
    v: Floats[Tensor, "... #kv_heads keys d_v"],
    bias: Floats[Tensor, "...heads n keys"] | None = None,
    causal: bool = False,
    *,
    key_mask: Tensor | None = None,
    window: int | None = None,
    dropout: Share = 0.0,
    document_ids: Indices[Tensor, "...? keys"] | None = None,
) -> Tensor:
    r"""Return the output of softmax attention for given queries, keys and values.

    The output is :math:`\operatorname{softmax}(QK^\top/\sqrt d + B)\,V` for each head, with the
    bias B, equation :eq:`eq-bias-softmax`.

    The fused kernel has no second derivative. To compute one, call this function within
    ``torch.nn.attention.sdpa_kernel(SDPBackend.MATH)``.

    Args:
        q: Queries, ``(..., heads, n, d)``.
        k: Keys, ``(..., kv_heads, keys, d)``. The number ``kv_heads`` divides ``heads``. If
            ``kv_heads`` is smaller than ``heads``, consecutive query heads share a head of keys and
            values (grouped-query attention).
        v: Values, ``(..., kv_heads, keys, d_v)``.
        bias: The bias B, which is added to the scaled logits, ``(..., heads, n, keys)``; −∞ hides a
            key. A bias with one head, or without batch dimensions, is broadcast. Default: None, no
            bias.
        causal: If True, a query attends only to keys up to its own position. The n queries belong
            to the last n of the keys' tokens. If there are as many queries as keys, query i attends
            to the keys 0 … i. If there are fewer queries, as in decoding with a cache, the last
            query attends to all keys. More queries than keys are an error. Default: False.
        key_mask: False for keys that are padding, ``(..., keys)`` or ``(..., heads, keys)``. Keys
            and values of padding are ignored, even if they are NaN. Default: None, no padding.
        window: Number w of keys in the sliding window. A query attends only to keys at a distance
            below w: to the key at its own position and the w − 1 keys before it, and without
            ``causal`` also to the w − 1 keys after it. The n queries belong to the last n of the
            keys' tokens. The matrix of all logits is still computed. Default: None, no window.
        dropout: Probability p of setting an attention weight to 0; the other weights are divided by
            1 − p. Default: 0, no dropout.
        document_ids: Integers that differ between the keys of different documents, ``(..., keys)``.
            A query attends only to keys of its own document. The n queries belong to the last n of
            the keys' tokens. The mask of documents takes n · keys entries of memory. Default: None,
            one document.

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
    n, keys = pairs = q.shape[-2], k.shape[-2]
    if (causal or window is not None) and n != keys:
        if n > keys:
            raise ValueError(
                f"k must have at least as many keys as q has queries, {n}, with causal=True or a "
                f"window, got shape {tuple(k.shape)}"
            )
        causal = causal and n > 1  # the last token attends to all keys
    if window is not None and not torch.compiler.is_exporting() and keys <= window:
        window = None  # no key is farther away
    masked = bias is not None or key_mask is not None or (causal and n != keys)
    masked = masked or window is not None or document_ids is not None
    if group > 1 and masked:
        # not every device has a fused kernel for grouped heads with a mask
        k, v = (x.repeat_interleave(group, -3) for x in (k, v))
        group = 1
    firsts = q if group == 1 else q[..., ::group, :, :]
    try:
        lead = common_shape(firsts.shape[:-2], k.shape[:-2], v.shape[:-2])
    except RuntimeError:
        raise ValueError(
            "k and v must have the same number of heads, which must divide the "
            f"{q.shape[-3]} heads of q, got shapes {tuple(k.shape)} and {tuple(v.shape)}"
        ) from None
    k, v = k.to(q.dtype), v.to(q.dtype)
    hidden = None
    if key_mask is not None:
        hidden = ~per_head(key_mask, (*lead, pairs[1]), q.device)[..., None, :]
        k, v = (x.masked_fill(hidden.mT, 0) for x in (k, v))  # 0 · NaN is NaN
    if document_ids is not None:
        from stringlib.documents import apart

        others = apart(document_ids[..., keys - n :], document_ids)
        hidden = others if hidden is None else hidden | others
    if causal and masked:
        # the kernel takes a mask or is_causal, not both, and is_causal aligns the first tokens. The
        # mask is not made from q, because under vmap this would make one mask for each batch entry.
        later = torch.ones(pairs, dtype=torch.bool, device=q.device).triu(keys - n + 1)
        hidden, causal = later if hidden is None else hidden | later, False
    if window is not None:
        far = torch.ones(pairs, dtype=torch.bool, device=q.device)
        far = far.tril(keys - n - window) | far.triu(keys - n + window)
        hidden = far if hidden is None else hidden | far
    none = None
    if hidden is not None and torch.compiler.is_exporting():
        # in ONNX such a query would have the mean of all values or NaN; see the end
        none = hidden.all(-1, keepdim=True)
        hidden = hidden & ~none
    mask = None if hidden is None else ~hidden
    if bias is not None:
        if not expands(bias.shape[:-2], lead):
            raise ValueError(
                f"bias must have shape {(*lead, *pairs)}, or a shape that expands to it, got "
                f"{tuple(bias.shape)}"
            )
        # the kernel accepts a mask in float32 or in the dtype of q
        mask = bias if bias.dtype == torch.float32 else bias.to(q.dtype)
        mask = mask if hidden is None else mask.masked_fill(hidden, float("-inf"))
    # the fused kernel needs exactly one batch dimension, also in the mask; otherwise PyTorch falls
    # back to the n × n matrix
    batch, heads = lead[:-1], group * lead[-1]
    if len(batch) != 1 or not (
        q.shape[:-2] == (*batch, heads) and k.shape[:-2] == v.shape[:-2] == lead
    ):
        q, k, v = (
            x.expand(*batch, own, *x.shape[-2:]).reshape(math.prod(batch), own, *x.shape[-2:])
            for x, own in ((q, heads), (k, lead[-1]), (v, lead[-1]))
        )
    if mask is not None and len(lead) > 2 and mask.ndim > 3:
        mask = mask.expand(*lead[:-1], *mask.shape[-3:]).flatten(0, -4)
    elif mask is not None and mask.ndim == 3:
        mask = mask[None]
    # The fused kernel cannot compute the gradient of a mask, and inside vmap PyTorch does not
    # notice that this gradient is needed. Forward-mode derivatives are missing too.
    grouped = True if group > 1 else False  # noqa: SIM210 - a compiled size is not a bool
    plain = ((mask is not None or dropout) and in_torch_func()) or forward_ad._current_level >= 0
    with sdpa_kernel(SDPBackend.MATH) if plain else nullcontext():
        out = scaled_dot_product_attention(
            q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal, enable_gqa=grouped
        )
    if torch.compiler.is_exporting():
        # the kernels return different strides, and the ONNX exporter changes the kernel afterwards;
        # a clone, because contiguous() is left out of the program for the first kernel
        out = out.clone(memory_format=torch.contiguous_format)
    # autocast may have computed in another dtype
    out = out.view(*lead[:-1], *out.shape[-3:]).to(q.dtype)
    return out if none is None else out.masked_fill(none, 0)


def _group(q: Tensor, k: Tensor, v: Tensor) -> int:
    """Return the number of query heads that share one head of keys and values.

    The result is 1 if heads are not shared but broadcast.
    """
    heads, own = q.shape[-3], k.shape[-3]
    return heads // own if own == v.shape[-3] and 0 < own < heads and heads % own == 0 else 1


class SoftmaxAttention(AttentionCore):
    r"""Softmax attention, :eq:`eq-vit-heads`, with a rotary encoder and a bias of the logits.

    Args:
        encoder: A :class:`~stringlib.encoders.rotary.RotaryEncoder`, which rotates queries and
            keys; a :class:`~stringlib.encoders.relative_bias.RelativeBias`, which is added to the
            logits; or None.
        position_bias: A :class:`~stringlib.attention.logit_bias.TokenBias` or a relative bias,
            which is added to the logits, with or without a rotary encoder. A token bias requires
            ``causal=True``. Default: None.
        causal: If True, a token attends only to itself and to earlier tokens. Default: False.
        grid: ``(rows, columns)`` of an image. The positions of the grid are then the default for an
            encoder with two coordinates. Default: None, a sequence.
        window: Number w of tokens in the sliding window. A token attends only to tokens at a
            distance below w. The cache keeps all tokens nevertheless. Default: None, no window.
        dropout: Probability of setting an attention weight to 0 in training. The other weights are
            scaled up. Default: 0, no dropout.

    Example:
        >>> from stringlib import RoPE
        >>> core, (q, k, v) = SoftmaxAttention(RoPE(64), causal=True), torch.randn(3, 2, 6, 10, 64)
        >>> out, cache = core(q, k, v)
        >>> out.shape, cache.length
        (torch.Size([2, 6, 10, 64]), 10)
    """

    part_types: ClassVar = {
        **AttentionCore.part_types,
        "position_bias": (TokenBias, RelativeBias),
        "roll": (),
    }
    state_type = KeyValueCache
    position_bias: TokenBias | RelativeBias | None

    def __init__(
        self,
        encoder: RotaryEncoder | RelativeBias | None = None,
        *,
        position_bias: TokenBias | RelativeBias | None = None,
        causal: bool = False,
        grid: tuple[int, int] | None = None,
        window: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(causal, grid)
        require("window", window, int | None)
        require("dropout", dropout, Share)
        _require_fit(encoder, position_bias, causal)
        self.encoder, self.roll, self.window, self.dropout = encoder, None, window, dropout
        self.position_bias = position_bias
        self.rotate = "before" if isinstance(encoder, RotaryEncoder) else None
        self.kind = self._description()

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute. A bias that does not fit the other parts is refused."""
        if name in ("encoder", "position_bias") and "kind" in vars(self):
            parts = {"encoder": self.encoder, "position_bias": self.position_bias, name: value}
            _require_fit(**parts, causal=self.causal)
        super().__setattr__(name, value)

    def _unfit(self) -> str | None:
        """Return the kind of layer, apart from a causal one, that refuses a context, or None."""
        return None if self.window is None else "a layer with a window"

    def _description(self) -> str:
        """Return the value of ``kind`` for the parts that the core has now."""
        bias = self.position_bias
        also = "" if bias is None else f" and {type(bias).__name__}"
        return f"softmax{super()._description()}{also}"

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, given: Given
    ) -> tuple[Tensor, KeyValueCache | None]:
        """Return the outputs of the heads, and the cache of all tokens so far if causal."""
        at, key_at, tokens, key_mask, state, documents = given
        encoder, position_bias = self.encoder, self.position_bias
        if at is not None:
            q, k = rotated(encoder, q, k, at, key_at, whole=False)
        before, cache = 0, None
        document_ids = None if documents is None else documents.of_keys
        if self.causal:
            if key_mask is not None:
                key_mask = per_head(key_mask, q.shape[:-1], q.device).expand(q.shape[:-1])
            marks = None
            if isinstance(position_bias, TokenBias):
                marks = marks_of(position_bias, q, tokens, key_mask)
            if state is None:
                cache = KeyValueCache(k, v, key_mask, marks=marks)
            else:
                before, cache = state.length, state.extended(k, v, key_mask, marks)
            k, v, key_mask, marks = cache.keys, cache.values, cache.mask, cache.marks
            window = self.window
            if window is not None and before >= window and not torch.compiler.is_exporting():
                # the first of the new tokens attends to the window - 1 tokens before it
                start = before - window + 1
                k, v = k[..., start:, :], v[..., start:, :]
                key_mask = None if key_mask is None else key_mask[..., start:]
                marks = None if marks is None else marks[..., start:, :]
                document_ids = None if document_ids is None else document_ids[..., start:]
                before = window - 1
        bias = None
        relative = position_bias if position_bias is not None else encoder
        if isinstance(relative, RelativeBias):
            n, keys = q.shape[-2], k.shape[-2]
            bias = relative(num_queries=n, num_keys=keys, offset=before)
        elif isinstance(position_bias, TokenBias):
            assert marks is not None
            bias = bias_of_tokens(position_bias, q, k, marks, key_mask)
        out = softmax_attention(
            q,
            k,
            v,
            bias,
            self.causal,
            key_mask=key_mask,
            window=self.window,
            dropout=self.dropout if self.training else 0.0,
            document_ids=document_ids,
        )
        return out, cache

    def _shortened(self, state: KeyValueCache, length: int) -> KeyValueCache:
        """Return the cache of the last ``length`` tokens alone."""
        return state.last(length)


def _require_fit(encoder: Any, position_bias: Any, causal: bool) -> None:
    """Raise ``ValueError`` if a bias of the logits cannot be used with the other parts of a core.

    Args:
        encoder: The encoder, or None.
        position_bias: The bias, or None.
        causal: Whether the core is causal.
    """
    kind = type(position_bias).__name__
    if position_bias is not None and isinstance(encoder, RelativeBias):
        raise ValueError(
            f"position_bias must be None if encoder is a relative bias, got a {kind}. Each of "
            "the two is a bias of the logits. Leave out one of them."
        )
    if isinstance(position_bias, TokenBias) and not causal:
        raise ValueError(
            f"causal must be True if position_bias is a {kind}, got False. This bias depends on "
            "the tokens from a key to a later query. Pass causal=True, or another bias."
        )
    if getattr(position_bias, "reads_keys", False) and encoder is not None:
        raise ValueError(
            f"encoder must be None for a {kind}, got a {type(encoder).__name__}. The bias reads "
            "queries and keys, and after a rotation it would depend on the positions themselves. "
            "Leave out encoder."
        )
