"""RoPE as it is printed: two-by-two matrices, one pair after the other."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def apply_rope(x: Tensor, positions: Tensor, frequencies: Tensor) -> Tensor:
    r"""Rotate pair i of every token by the angle :math:`t\,\theta_i`, equation :eq:`eq-rope-pair`.

    Args:
        x: ``(..., seq, d)`` with even d.
        positions: t, ``(..., seq)``.
        frequencies: θ, ``(d // 2,)``.

    Returns:
        float64, of the shape of ``x``.

    Raises:
        ValueError: If d is odd or the number of frequencies is not d / 2.

    Source:
        Su et al. 2024 (RoFormer), equation 34.
    """
    if x.shape[-1] % 2 or frequencies.shape != (x.shape[-1] // 2,):
        raise ValueError(
            "x must have an even last dimension d and frequencies the shape (d / 2,), "
            f"got {tuple(x.shape)} and {tuple(frequencies.shape)}"
        )
    x, positions, frequencies = x.double(), positions.double(), frequencies.double()
    blocks = x.reshape(*x.shape[:-1], x.shape[-1] // 2, 2)
    angles = positions[..., None] * frequencies
    cos, sin = torch.cos(angles), torch.sin(angles)
    first, second = blocks[..., 0], blocks[..., 1]
    rotated = torch.stack([first * cos - second * sin, first * sin + second * cos], -1)
    return rotated.reshape(x.shape)


def rope_matrix(position: float, head_dim: int, base: float = 10000.0) -> Tensor:
    r"""Return the block-diagonal matrix :math:`R(t) = \Theta^t`, equation :eq:`eq-telescope`.

    Args:
        position: t.
        head_dim: Even d.
        base: The base of the frequencies.

    Returns:
        float64, ``(d, d)``.

    Raises:
        ValueError: If d is odd.

    Source:
        Su et al. 2024 (RoFormer), equation 15.
    """
    if head_dim % 2:
        raise ValueError(f"head_dim must be even, got {head_dim}")
    matrix = torch.zeros(head_dim, head_dim, dtype=torch.float64)
    for i in range(head_dim // 2):
        angle = position * base ** (-2 * i / head_dim)
        matrix[2 * i, 2 * i] = matrix[2 * i + 1, 2 * i + 1] = math.cos(angle)
        matrix[2 * i, 2 * i + 1] = -math.sin(angle)
        matrix[2 * i + 1, 2 * i] = math.sin(angle)
    return matrix
