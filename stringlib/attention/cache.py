"""What softmax attention keeps of earlier tokens: all their keys and values."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class KeyValueCache(NamedTuple):
    """Keys and values of all tokens so far. It grows with each of them; a linear state does not.

    Attributes:
        keys: ``(..., heads, tokens, head_dim)``, already encoded.
        values: ``(..., heads, tokens, d_v)``.
        mask: Which tokens are seen, ``(..., tokens)``, or None for all.
    """

    keys: Tensor
    values: Tensor
    mask: Tensor | None

    @property
    def length(self) -> int:
        """Number of tokens so far."""
        return self.keys.shape[-2]

    def extended(self, keys: Tensor, values: Tensor, mask: Tensor | None) -> KeyValueCache:
        """Return the cache with further tokens behind the ones so far."""
        if mask is not None or self.mask is not None:
            pairs = (self.mask, self.keys), (mask, keys)
            mask = torch.cat([_spread(kept, tokens) for kept, tokens in pairs], -1)
        return KeyValueCache(
            torch.cat([self.keys, keys], -2), torch.cat([self.values, values], -2), mask
        )


def _spread(mask: Tensor | None, keys: Tensor) -> Tensor:
    """Return a mask for every sequence, all True if there was none."""
    shape = (*keys.shape[:-3], keys.shape[-2])
    return keys.new_ones(shape, dtype=torch.bool) if mask is None else mask.expand(shape)
