"""Reflections in the plane as they are printed: Householder matrices, multiplied out."""

from __future__ import annotations

import torch
from torch import Tensor


def householder_2d(alpha: Tensor) -> Tensor:
    r"""Return :math:`H(\alpha) = I - 2vv^\top/\|v\|^2`, equation :eq:`eq-reflection-householder`.

    One of them is already relative, up to a constant flip, :eq:`eq-reflection-single`.

    Args:
        alpha: Angle of :math:`v = (\cos\alpha, \sin\alpha)`, any shape ``(...)``.

    Returns:
        float64, ``(..., 2, 2)``.

    Source:
        Householder 1958, the elementary reflection.
    """
    alpha = alpha.double()
    v = torch.stack([torch.cos(alpha), torch.sin(alpha)], -1)
    outer = v[..., :, None] * v[..., None, :]
    squared_norm = torch.sum(v * v, -1)[..., None, None]
    return torch.eye(2, dtype=torch.float64, device=alpha.device) - 2 * outer / squared_norm


def apply_reflection_rope(x: Tensor, positions: Tensor, omega1: Tensor, omega2: Tensor) -> Tensor:
    r"""Multiply pair i of every token by :math:`H(t\,\omega^{(2)}_i)\,H(t\,\omega^{(1)}_i)`.

    Equation :eq:`eq-reflection-rotation`, block by block.

    Args:
        x: ``(..., seq, d)`` with even d; pairs are neighbouring channels.
        positions: t, ``(..., seq)``.
        omega1: :math:`\omega^{(1)}`, ``(d // 2,)``: the mirror that comes first.
        omega2: :math:`\omega^{(2)}`, ``(d // 2,)``.

    Returns:
        float64, of the shape of ``x``.

    Raises:
        ValueError: If d is odd or the number of angles is not d / 2.
    """
    wanted = (x.shape[-1] // 2,)
    if x.shape[-1] % 2 or omega1.shape != wanted or omega2.shape != wanted:
        raise ValueError(
            "x must have an even last dimension d, omega1 and omega2 the shape (d / 2,), "
            f"got {tuple(x.shape)}, {tuple(omega1.shape)} and {tuple(omega2.shape)}"
        )
    blocks = x.double().reshape(*x.shape[:-1], x.shape[-1] // 2, 2)
    positions = positions.double()[..., None]
    first = householder_2d(positions * omega1.double())
    second = householder_2d(positions * omega2.double())
    rotations = second @ first
    return torch.einsum("...ij,...j->...i", rotations, blocks).reshape(x.shape)
