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
        mask: Which tokens are seen, ``(..., heads, tokens)``, or None for all.
    """

    keys: Tensor
    values: Tensor
    mask: Tensor | None

    @property
    def length(self) -> int:
        """Number of tokens so far."""
        return self.keys.shape[-2]

    def extended(self, keys: Tensor, values: Tensor, mask: Tensor | None) -> KeyValueCache:
        """Return the cache with further tokens behind the ones so far.

        Raises:
            ValueError: If they are of another batch, or of other heads.
        """
        pairs = (self.keys, keys), (self.values, values)
        if any(a.shape[:-2] != b.shape[:-2] or a.shape[-1] != b.shape[-1] for a, b in pairs):
            raise ValueError(
                f"state must hold keys and values like {tuple(keys.shape)} and "
                f"{tuple(values.shape)} but for the number of tokens, got "
                f"{tuple(self.keys.shape)} and {tuple(self.values.shape)}"
            )
        if mask is not None or self.mask is not None:
            masks = _or_all(self.mask, self.keys), _or_all(mask, keys)
            mask = torch.cat(masks, -1)
        return KeyValueCache(
            torch.cat([self.keys, keys], -2), torch.cat([self.values, values], -2), mask
        )


def _or_all(mask: Tensor | None, keys: Tensor) -> Tensor:
    """Return the mask, all True if there was none."""
    return keys.new_ones(keys.shape[:-1], dtype=torch.bool) if mask is None else mask
