"""Patch coordinates as image models print them: (x, y), optionally scaled to [0, 1]."""

from __future__ import annotations

import torch
from torch import Tensor


def get_2d_positions(num_patches_h: int, num_patches_w: int, normalize: bool = True) -> Tensor:
    """Return the (x, y) coordinates of image patches in reading order.

    Scaling makes one patch of offset depend on the resolution: the package itself counts
    patches, see :func:`stringlib.positions.grid_positions`. A single row or column is put
    at 0; the literal division by ``num_patches - 1`` would give NaN there.

    Args:
        num_patches_h: Number of rows.
        num_patches_w: Number of columns.
        normalize: Whether to divide by the largest coordinate.

    Returns:
        float64, ``(num_patches_h * num_patches_w, 2)``.
    """
    rows = [[float(x), float(y)] for y in range(num_patches_h) for x in range(num_patches_w)]
    positions = torch.tensor(rows, dtype=torch.float64).reshape(-1, 2)
    if normalize:
        positions[:, 0] /= max(num_patches_w - 1, 1)
        positions[:, 1] /= max(num_patches_h - 1, 1)
    return positions
