"""Axial RoPE as it is described: one coordinate after the other, each with channels of its own."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def apply_axial_rope(x: Tensor, positions: Tensor, base: float = 100.0) -> Tensor:
    r"""Rotate each coordinate's own pairs of channels, equation :eq:`eq-grid-axial`.

    Args:
        x: ``(..., seq, d)`` with even d.
        positions: ``(seq, coord_dim)``.
        base: The base of the frequencies.

    Returns:
        float64, of the shape of ``x``.

    Raises:
        ValueError: If d is odd or there are more coordinates than pairs.

    Source:
        Heo et al. 2024, RoPE-Axial.
    """
    pairs, coord_dim = x.shape[-1] // 2, positions.shape[-1]
    if x.shape[-1] % 2 or pairs < coord_dim:
        raise ValueError(
            f"x must have an even last dimension of at least {2 * coord_dim}, one pair for each "
            f"coordinate of positions, got {tuple(x.shape)}"
        )
    x, positions = x.double(), positions.double()
    rotated = torch.empty_like(x)
    first = 0  # of the channels of the coordinate
    for k in range(coord_dim):
        own = pairs // coord_dim + (1 if k < pairs % coord_dim else 0)
        for i in range(own):
            a, b = first + 2 * i, first + 2 * i + 1
            for n in range(positions.shape[0]):
                angle = positions[n, k].item() * base ** (-i / own)
                cos, sin = math.cos(angle), math.sin(angle)
                rotated[..., n, a] = x[..., n, a] * cos - x[..., n, b] * sin
                rotated[..., n, b] = x[..., n, a] * sin + x[..., n, b] * cos
        first += 2 * own
    return rotated
