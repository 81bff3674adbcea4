"""The key–value cache of softmax attention.

A cache is a value: it never changes after it was made. Further tokens give another, longer cache.
Both can share memory, because the memory has room for more tokens than the cache contains. A token
is then written behind the last one, instead of copying all keys and values into a longer tensor.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from stringlib.inputs import in_torch_func

LEAST_ROOM = 64
"""The smallest number of tokens for which memory is allocated."""


class Slots:
    """Memory for keys and values, filled from the beginning.

    Attributes:
        keys: ``(..., kv_heads, room, head_dim)``.
        values: ``(..., kv_heads, room, d_v)``.
        filled: Number of tokens that have been written. Only a cache that ends here may write
            more; for any other, the next slot belongs to somebody else.
    """

    def __init__(self, keys: Tensor, values: Tensor, room: int) -> None:
        self.keys, self.values = (
            x.new_empty(*x.shape[:-2], room, x.shape[-1]) for x in (keys, values)
        )
        self.filled = 0
        self.write(keys, values)

    @property
    def room(self) -> int:
        """Number of tokens for which there is memory."""
        return self.keys.shape[-2]

    def write(self, keys: Tensor, values: Tensor) -> None:
        """Write further tokens behind the last one."""
        n = keys.shape[-2]
        self.keys.narrow(-2, self.filled, n).copy_(keys)
        self.values.narrow(-2, self.filled, n).copy_(values)
        self.filled += n


class KeyValueCache(NamedTuple):
    """Keys and values of all tokens so far. It grows with each token; a linear state does not.

    Attributes:
        keys: Encoded keys, ``(..., kv_heads, tokens, head_dim)``.
        values: ``(..., kv_heads, tokens, d_v)``.
        mask: True for the tokens to which queries attend, ``(..., heads, tokens)``; None for all.
        kind: Words that identify the kind of layer, as for
            :class:`~stringlib.attention.weights.LinearState`.
        slots: The memory of which ``keys`` and ``values`` are the beginning, or None.
    """

    keys: Tensor
    values: Tensor
    mask: Tensor | None
    kind: str = ""
    slots: Slots | None = None

    @property
    def length(self) -> int:
        """Number of tokens so far."""
        return self.keys.shape[-2]

    def with_room(self, tokens: int) -> KeyValueCache:
        """Return the same cache in memory for so many tokens."""
        slots = Slots(self.keys, self.values, max(tokens, self.length))
        return _beginning(slots, self.mask, self.kind)

    def last(self, tokens: int) -> KeyValueCache:
        """Return the cache of the last tokens."""
        if tokens == self.length:
            return self
        first = self.length - tokens
        keys, values = (x.narrow(-2, first, tokens) for x in (self.keys, self.values))
        mask = None if self.mask is None else self.mask.narrow(-1, first, tokens)
        return KeyValueCache(keys, values, mask, self.kind)

    def extended(self, keys: Tensor, values: Tensor, mask: Tensor | None) -> KeyValueCache:
        """Return the cache with further tokens behind the ones so far.

        Without gradients they are written into memory that has room for more. This copies the
        earlier tokens only if the memory is full, or if another cache has used the next slot.

        Raises:
            ValueError: If the tokens are of another batch, or of other heads.
        """
        pairs = (self.keys, keys), (self.values, values)
        if any(a.shape[:-2] != b.shape[:-2] or a.shape[-1] != b.shape[-1] for a, b in pairs):
            raise ValueError(
                "state must have keys and values of the same batch, heads and channels as the new "
                f"tokens, whose shapes are {tuple(keys.shape)} and {tuple(values.shape)}, got "
                f"{tuple(self.keys.shape)} and {tuple(self.values.shape)}"
            )
        if mask is not None or self.mask is not None:
            masks = _or_all(self.mask, mask, self.keys), _or_all(mask, self.mask, keys)
            mask = torch.cat(masks, -1)
        converted = self.length > 0 and any(a.dtype != b.dtype for a, b in pairs)
        if not _can_share(keys) or converted:
            if not self.length:  # an empty cache may have another dtype
                return KeyValueCache(keys, values, mask, self.kind)
            both = torch.cat([self.keys, keys], -2), torch.cat([self.values, values], -2)
            return KeyValueCache(*both, mask, self.kind)
        slots, length = self.slots, self.length + keys.shape[-2]
        if slots is None or not self._may_write(slots, keys, values, length):
            room = max(length + length // 4, LEAST_ROOM, 0 if slots is None else slots.room)
            begun = self.keys.to(keys.dtype), self.values.to(values.dtype)
            slots = Slots(*begun, room)
        slots.write(keys, values)
        return _beginning(slots, mask, self.kind)

    def _may_write(self, slots: Slots, keys: Tensor, values: Tensor, length: int) -> bool:
        """Return whether the slot behind this cache is free, and of the kind of the new keys."""
        pairs = (self.keys, slots.keys), (self.values, slots.values)
        if any(not _is_beginning(x, memory) for x, memory in pairs):
            return False  # somebody has selected rows of a batch, or replaced the keys
        same = (slots.keys.dtype, slots.values.dtype) == (keys.dtype, values.dtype)
        same = same and slots.keys.device == keys.device
        writable = torch.is_inference_mode_enabled() or not slots.keys.is_inference()
        return same and writable and slots.filled == self.length and length <= slots.room

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy the tokens, and not the memory for later ones."""
        keys, values = self.keys.clone(), self.values.clone()
        return KeyValueCache, (keys, values, self.mask, self.kind)


def _beginning(slots: Slots, mask: Tensor | None, kind: str) -> KeyValueCache:
    """Return the cache of all tokens that have been written."""
    keys, values = (x.narrow(-2, 0, slots.filled) for x in (slots.keys, slots.values))
    return KeyValueCache(keys, values, mask, kind, slots)


def _is_beginning(x: Tensor, memory: Tensor) -> bool:
    """Return whether ``x`` is a view of the first tokens of a memory."""
    if x.shape[:-2] != memory.shape[:-2]:
        return False
    if not x.shape[-2]:  # no tokens have no address
        return True
    return x.stride() == memory.stride() and x.data_ptr() == memory.data_ptr()


def _can_share(keys: Tensor) -> bool:
    """Return whether writing in place is allowed: without gradients, a compiler or torch.func."""
    plain = not (torch.is_grad_enabled() or torch.compiler.is_compiling() or in_torch_func())
    return plain and not keys.is_meta


def _or_all(mask: Tensor | None, other: Tensor | None, keys: Tensor) -> Tensor:
    """Return the mask, or True for all tokens if there is none but another for the same heads."""
    if mask is not None:
        return mask
    assert other is not None
    return other.new_ones(*other.shape[:-1], keys.shape[-2])
