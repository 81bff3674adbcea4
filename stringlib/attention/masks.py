"""Which keys are there: one rule for the shape of a mask, in every kind of attention."""

from __future__ import annotations

import torch
from torch import Tensor

from stringlib.inputs import expands


def per_head(key_mask: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return a mask of the keys that broadcasts over heads.

    Args:
        key_mask: True where a key counts: ``(..., heads, keys)`` if it has as many dimensions as
            ``shape``; with fewer it has none for heads, ``(..., keys)``.
        shape: That of all keys, ``(..., heads, keys)``.

    Returns:
        ``(..., heads or 1, keys)``.

    Raises:
        TypeError: If the mask is not a boolean tensor.
        ValueError: If its shape does not fit.
    """
    if not isinstance(key_mask, Tensor) or key_mask.dtype != torch.bool:
        kind = getattr(key_mask, "dtype", type(key_mask).__name__)
        raise TypeError(
            f"key_mask must be a boolean tensor, True for a key that counts, got {kind}"
        )
    mask = key_mask.unsqueeze(-2) if 1 <= key_mask.ndim < len(shape) else key_mask
    if mask.ndim < 2 or not expands(mask.shape, shape) or mask.shape[-1] != shape[-1]:
        raise ValueError(
            f"key_mask must have shape {tuple(shape)}, or that without the heads, "
            f"got {tuple(key_mask.shape)}"
        )
    return mask
