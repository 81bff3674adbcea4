"""Mixed RoPE on images as it is printed: pairs as complex numbers, two learned tables."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def mixed_start(head_dim: int, angle: float, base: float = 10.0) -> tuple[Tensor, Tensor]:
    r"""Return the frequencies along x and y with which a head starts, :eq:`eq-grid-start`.

    Args:
        head_dim: d, a multiple of 4.
        angle: The head's random rotation in radians.
        base: The base of the magnitudes.

    Returns:
        :math:`\theta^x` and :math:`\theta^y`, float64, ``(d // 2,)`` each: d/4 magnitudes along
        the direction ``angle``, then the same along ``angle`` + π/2.

    Raises:
        ValueError: If 4 does not divide d.

    Source:
        Heo et al. 2024, RoPE-Mixed.
    """
    if head_dim % 4:
        raise ValueError(f"head_dim must be a multiple of 4, got {head_dim}")
    along_x, along_y = [], []
    for direction in (angle, angle + math.pi / 2):
        for t in range(head_dim // 4):
            magnitude = base ** (-t / (head_dim / 4))
            along_x.append(magnitude * math.cos(direction))
            along_y.append(magnitude * math.sin(direction))
    return torch.tensor(along_x).double(), torch.tensor(along_y).double()


def apply_mixed_rope(x: Tensor, positions: Tensor, along_x: Tensor, along_y: Tensor) -> Tensor:
    r"""Multiply pair t by :math:`e^{\mathrm{i}(\theta^x_t p^x + \theta^y_t p^y)}`.

    Equation :eq:`eq-grid-mixed` for two coordinates.

    Args:
        x: ``(..., heads, seq, d)`` with even d.
        positions: :math:`(p^x, p^y)` of each token, ``(seq, 2)``.
        along_x: :math:`\theta^x`, ``(heads, d // 2)``.
        along_y: :math:`\theta^y`, ``(heads, d // 2)``.

    Returns:
        float64, of the shape of ``x``.

    Raises:
        ValueError: If positions have not two coordinates.

    Source:
        Heo et al. 2024, RoPE-Mixed.
    """
    if positions.shape[-1] != 2:
        raise ValueError(f"positions must have shape (seq, 2), got {tuple(positions.shape)}")
    x, positions = x.double(), positions.double()
    place_x, place_y = positions[:, 0], positions[:, 1]
    angle = torch.einsum("n,ht->hnt", place_x, along_x.double())
    angle = angle + torch.einsum("n,ht->hnt", place_y, along_y.double())
    numbers = torch.complex(x[..., 0::2], x[..., 1::2])
    turned = numbers * torch.exp(1j * angle)
    return torch.stack([turned.real, turned.imag], -1).reshape(x.shape)
