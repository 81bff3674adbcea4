"""Formulas of papers and implementation notes, written out as they stand: what is compared with.

float32, q and k ``(batch, heads, seq, head_dim)``, and the angles anew in every call where they
are learned.
"""

from __future__ import annotations

import torch
from torch import Tensor

from stringlib.kernels.rotation import geometric_frequencies


def axial_table(positions: Tensor, head_dim: int, base: float = 100.0) -> Tensor:
    """Return the unit phases of RoPE-Axial for two coordinates, d/4 pairs each (Heo et al. 2024).

    Args:
        positions: ``(seq, 2)``.
        head_dim: A multiple of 4.
        base: Of the frequencies.

    Returns:
        complex64, ``(seq, head_dim // 2)``: made once, for all calls.
    """
    frequencies = geometric_frequencies(head_dim // 4, base).to(positions)
    angles = torch.cat([positions[:, axis, None] * frequencies for axis in (0, 1)], -1)
    return torch.polar(torch.ones_like(angles), angles)


def mixed_table(positions: Tensor, omega: Tensor) -> Tensor:
    """Return the unit phases of RoPE-Mixed (Heo et al. 2024).

    Args:
        positions: ``(seq, 2)``.
        omega: Learned, ``(heads, head_dim // 2, 2)``.

    Returns:
        complex64, ``(heads, seq, head_dim // 2)``.
    """
    x, y = (positions[:, axis, None] * omega[:, None, :, axis] for axis in (0, 1))
    angles = x + y
    return torch.polar(torch.ones_like(angles), angles)


def turn_complex(x: Tensor, table: Tensor) -> Tensor:
    """Turn neighbouring channels as complex numbers; tokens in front of the table's stay."""
    first = x.shape[-2] - table.shape[-2]
    patches = x[..., first:, :]
    pairs = torch.view_as_complex(patches.float().reshape(*patches.shape[:-1], -1, 2))
    turned = torch.view_as_real(pairs * table).flatten(-2).type_as(x)
    return torch.cat([x[..., :first, :], turned], -2) if first else turned


def circulant_fft(x: Tensor, positions: Tensor, coefficients: Tensor) -> Tensor:
    """Rotate as Circulant-STRING is printed: FFT, exponential, product, inverse FFT.

    Args:
        x: ``(batch, heads, seq, d)``.
        positions: ``(batch, seq, coord_dim)``, as implementation notes have them.
        coefficients: First columns, ``(heads, coord_dim, d)``.
    """
    eigenvalues = torch.fft.fft(coefficients)
    eigenvalues = eigenvalues - eigenvalues.conj()
    scaled = positions[:, None, :, :, None] * eigenvalues[:, None]  # batch, heads, seq, coord, d
    turned = torch.exp(scaled.sum(-2)) * torch.fft.fft(x.to(torch.complex64))
    return torch.fft.ifft(turned).real.to(x.dtype)


def cayley_tokens(x: Tensor, skew: Tensor, table: Tensor) -> Tensor:
    """Rotate as :func:`cayley_solve`, with a system for every token: what its definition says."""
    eye = torch.eye(skew.shape[-1], dtype=x.dtype, device=x.device)
    right = (eye + skew).unsqueeze(1) @ x.unsqueeze(-1)
    return turn_complex(torch.linalg.solve((eye - skew).unsqueeze(1), right).squeeze(-1), table)


def cayley_solve(x: Tensor, skew: Tensor, table: Tensor) -> Tensor:
    """Rotate by Cayley-STRING with one system a head and sequence, then turn.

    Args:
        x: ``(batch, heads, seq, d)``.
        skew: S, ``(heads, d, d)``.
        table: Unit phases, ``(heads, seq, d // 2)``.
    """
    eye = torch.eye(skew.shape[-1], dtype=x.dtype, device=x.device)
    in_basis = torch.linalg.solve(eye - skew, (eye + skew) @ x.mT)  # Pᵀ = (I − S)⁻¹(I + S)
    return turn_complex(in_basis.mT, table)
