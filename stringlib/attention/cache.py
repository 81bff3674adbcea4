"""The key–value cache of softmax attention.

A cache is never changed after it was made. With further tokens a new cache is made. The old and the
new cache can share memory, because the memory has room for more tokens than the old cache
contains. A further token is then written after the last token, so that the keys and values of the
earlier tokens are not copied.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from stringlib.inputs import in_torch_func

LEAST_ROOM = 64
"""The smallest number of tokens for which :meth:`KeyValueCache.extended` allocates memory."""


class Slots:
    """Memory for the keys and values of ``room`` tokens, filled from the beginning.

    Attributes:
        keys: Memory of the keys, ``(..., kv_heads, room, head_dim)``.
        values: Memory of the values, ``(..., kv_heads, room, d_v)``.
        filled: Number of tokens that have been written. Only a cache of exactly this number of
            tokens may write further tokens, because the next slot of a shorter cache is used by
            another cache.
    """

    def __init__(self, keys: Tensor, values: Tensor, room: int) -> None:
        self.keys, self.values = (
            x.new_empty(*x.shape[:-2], room, x.shape[-1]) for x in (keys, values)
        )
        self.filled = 0
        self.write(keys, values)

    @property
    def room(self) -> int:
        """Number of tokens for which memory is allocated."""
        return self.keys.shape[-2]

    def write(self, keys: Tensor, values: Tensor) -> None:
        """Append the keys and values of new tokens."""
        n = keys.shape[-2]
        self.keys.narrow(-2, self.filled, n).copy_(keys)
        self.values.narrow(-2, self.filled, n).copy_(values)
        self.filled += n


class KeyValueCache(NamedTuple):
    """State of causal softmax attention: the keys and values of all tokens so far.

    The cache grows with each token, in contrast to the state of linear attention.

    Attributes:
        keys: Encoded keys, ``(..., kv_heads, tokens, head_dim)``.
        values: Values, ``(..., kv_heads, tokens, d_v)``.
        mask: False for padding, to which no query attends, ``(..., heads, tokens)``. None if no
            mask was given, which means no padding.
        kind: Description of the layer that made the cache. A layer with a different description
            raises an error. Default: empty, which is not checked.
        slots: The memory of which ``keys`` and ``values`` are the beginning, or None.
        marks: The marks of all tokens, ``(..., heads, tokens, m)``, for a
            :class:`~stringlib.attention.logit_bias.TokenBias`. None without such a bias.
    """

    keys: Tensor
    values: Tensor
    mask: Tensor | None
    kind: str = ""
    slots: Slots | None = None
    marks: Tensor | None = None

    @property
    def length(self) -> int:
        """Number of tokens so far."""
        return self.keys.shape[-2]

    def with_room(self, tokens: int) -> KeyValueCache:
        """Return a copy of the cache whose memory has room for at least ``tokens`` tokens."""
        slots = Slots(self.keys, self.values, max(tokens, self.length))
        return _beginning(slots, self.mask, self.kind, self.marks)

    def last(self, tokens: int) -> KeyValueCache:
        """Return the cache of the last ``tokens`` tokens alone."""
        if tokens == self.length:
            return self
        first = self.length - tokens
        keys, values = (x.narrow(-2, first, tokens) for x in (self.keys, self.values))
        mask = None if self.mask is None else self.mask.narrow(-1, first, tokens)
        marks = None if self.marks is None else self.marks.narrow(-2, first, tokens)
        return KeyValueCache(keys, values, mask, self.kind, marks=marks)

    def extended(
        self, keys: Tensor, values: Tensor, mask: Tensor | None, marks: Tensor | None = None
    ) -> KeyValueCache:
        """Return a cache that also contains the keys and values of further tokens.

        If gradients are enabled, under a compiler, under ``torch.func``, on the meta device, and
        if the dtype changes, all tokens are concatenated into new tensors. Otherwise the further
        tokens are written into memory that has room for more tokens. The earlier tokens are then
        copied only if this memory cannot be used, for example because the memory is full or
        because another cache has used the next slot.

        Args:
            keys: Encoded keys of the further tokens, ``(..., kv_heads, n, head_dim)``.
            values: Values of the further tokens, ``(..., kv_heads, n, d_v)``.
            mask: False for padding, ``(..., heads, n)``; None if no token is padding.
            marks: The marks of the further tokens, ``(..., heads, n, m)``, for a token bias. They
                are concatenated to those of the earlier tokens. Default: None, no token bias.

        Raises:
            ValueError: If the further tokens differ from the cache in the batch dimensions, the
                number of heads or the number of channels, or if only one of them has marks.
        """
        if not (_fits(self.keys, keys) and _fits(self.values, values)):
            raise ValueError(
                "state must have the same batch, heads and channels as the new tokens, "
                f"got keys of shape {tuple(self.keys.shape)} and values of shape "
                f"{tuple(self.values.shape)}. The new keys have shape {tuple(keys.shape)}, and the "
                f"new values {tuple(values.shape)}. Pass the state that the same layer returned "
                "for the earlier tokens of the same batch."
            )
        if marks is not None or self.marks is not None:
            if marks is None or self.marks is None or not _fits(self.marks, marks):
                have, need = (x if x is None else tuple(x.shape) for x in (self.marks, marks))
                raise ValueError(
                    "state must have marks of the same batch, heads and channels as the new ones, "
                    f"got shape {have}. The new marks have shape {need}. Pass the state that the "
                    "same layer returned for the earlier tokens of the same batch."
                )
            marks = torch.cat([self.marks.to(marks.dtype), marks], -2)
        if mask is not None or self.mask is not None:
            masks = _or_all(self.mask, mask, self.keys), _or_all(mask, self.mask, keys)
            mask = torch.cat(masks, -1)
        before = self.length
        dtypes = keys.dtype, values.dtype
        converted = before > 0 and dtypes != (self.keys.dtype, self.values.dtype)
        if not _can_share(keys) or converted:
            if not before:  # an empty cache may have another dtype
                return KeyValueCache(keys, values, mask, self.kind, marks=marks)
            both = torch.cat([self.keys, keys], -2), torch.cat([self.values, values], -2)
            return KeyValueCache(*both, mask, self.kind, marks=marks)
        slots, length = self.slots, before + keys.shape[-2]
        if slots is None or not self._may_write(slots, keys, values, length):
            room = max(length + length // 4, LEAST_ROOM, 0 if slots is None else slots.room)
            begun = self.keys.to(keys.dtype), self.values.to(values.dtype)
            slots = Slots(*begun, room)
        slots.write(keys, values)
        return _beginning(slots, mask, self.kind, marks)

    def _may_write(self, slots: Slots, keys: Tensor, values: Tensor, length: int) -> bool:
        """Return whether new tokens can be written into the memory after those of this cache.

        Args:
            slots: The memory of this cache.
            keys: Keys of the new tokens.
            values: Values of the new tokens.
            length: Number of tokens of this cache and of the new tokens together.
        """
        if not (_is_beginning(self.keys, slots.keys) and _is_beginning(self.values, slots.values)):
            return False  # somebody has selected rows of a batch, or replaced the keys
        same = (slots.keys.dtype, slots.values.dtype) == (keys.dtype, values.dtype)
        same = same and slots.keys.device == keys.device
        writable = torch.is_inference_mode_enabled() or not slots.keys.is_inference()
        return same and writable and slots.filled == self.length and length <= slots.room

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what pickle and ``copy`` store: the tokens so far, without room for more."""
        keys, values = self.keys.clone(), self.values.clone()
        return KeyValueCache, (keys, values, self.mask, self.kind, None, self.marks)


def _beginning(slots: Slots, mask: Tensor | None, kind: str, marks: Tensor | None) -> KeyValueCache:
    """Return the cache of all tokens that have been written into the memory ``slots``."""
    n = slots.filled
    return KeyValueCache(
        slots.keys.narrow(-2, 0, n), slots.values.narrow(-2, 0, n), mask, kind, slots, marks
    )


def _fits(x: Tensor, further: Tensor) -> bool:
    """Return whether the vectors of further tokens have the batch, heads and channels of ``x``."""
    return x.shape[:-2] == further.shape[:-2] and x.shape[-1] == further.shape[-1]


def _is_beginning(x: Tensor, memory: Tensor) -> bool:
    """Return whether ``x`` is a view of the first tokens in ``memory``."""
    if x.shape[:-2] != memory.shape[:-2]:
        return False
    if not x.shape[-2]:  # no tokens have no address
        return True
    return x.stride() == memory.stride() and x.data_ptr() == memory.data_ptr()


def _can_share(keys: Tensor) -> bool:
    """Return whether keys may be written in place into memory that several caches share.

    Writing in place is not allowed if gradients are enabled, under a compiler, under
    ``torch.func``, and on the meta device.
    """
    plain = not (torch.is_grad_enabled() or torch.compiler.is_compiling() or in_torch_func())
    return plain and not keys.is_meta


def _or_all(mask: Tensor | None, other: Tensor | None, keys: Tensor) -> Tensor:
    """Return ``mask``, or a mask that is True for all tokens of ``keys`` if ``mask`` is None.

    Args:
        mask: The mask, or None.
        other: A mask of other tokens for the same heads. It is needed only if ``mask`` is None.
        keys: The keys that the mask belongs to.
    """
    if mask is not None:
        return mask
    assert other is not None
    return other.new_ones(*other.shape[:-1], keys.shape[-2])
