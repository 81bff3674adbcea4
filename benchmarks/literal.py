"""Rotary encoders written out from papers and implementation notes, for comparison.

All functions compute in float32. Queries and keys have shape ``(batch, heads, seq, head_dim)``.
Learned angles are computed in every call.
"""

from __future__ import annotations

import torch
from torch import Tensor

from stringlib.kernels.rotation import geometric_frequencies


def axial_table(positions: Tensor, head_dim: int, base: float = 100.0) -> Tensor:
    """Return the phases of RoPE-Axial for two coordinates as complex numbers of modulus 1.

    Each coordinate has d/4 pairs (Heo et al. 2024). The table is computed once, for all calls.

    Args:
        positions: Positions of the tokens, ``(seq, 2)``.
        head_dim: Number of channels d, a multiple of 4.
        base: Base of the frequencies.

    Returns:
        complex64, ``(seq, head_dim // 2)``.
    """
    frequencies = geometric_frequencies(head_dim // 4, base).to(positions)
    angles = torch.cat([positions[:, axis, None] * frequencies for axis in (0, 1)], -1)
    return torch.polar(torch.ones_like(angles), angles)


def mixed_table(positions: Tensor, omega: Tensor) -> Tensor:
    """Return the phases of RoPE-Mixed as complex numbers of modulus 1 (Heo et al. 2024).

    Args:
        positions: Positions of the tokens, ``(seq, 2)``.
        omega: Learned frequencies, ``(heads, head_dim // 2, 2)``.

    Returns:
        complex64, ``(heads, seq, head_dim // 2)``.
    """
    x, y = (positions[:, axis, None] * omega[:, None, :, axis] for axis in (0, 1))
    angles = x + y
    return torch.polar(torch.ones_like(angles), angles)


def turn_complex(x: Tensor, table: Tensor) -> Tensor:
    """Rotate neighbouring channels as complex numbers.

    If the table has fewer rows than there are tokens, the first tokens are not rotated.
    """
    first = x.shape[-2] - table.shape[-2]
    patches = x[..., first:, :]
    pairs = torch.view_as_complex(patches.float().reshape(*patches.shape[:-1], -1, 2))
    turned = torch.view_as_real(pairs * table).flatten(-2).type_as(x)
    return torch.cat([x[..., :first, :], turned], -2) if first else turned


def circulant_fft(x: Tensor, positions: Tensor, coefficients: Tensor) -> Tensor:
    """Rotate tokens by Circulant-STRING as published: FFT, exponential, product, inverse FFT.

    Args:
        x: Queries or keys, ``(batch, heads, seq, d)``.
        positions: Positions of the tokens, ``(batch, seq, coord_dim)``, as in implementation notes.
        coefficients: First columns of the circulant matrices, ``(heads, coord_dim, d)``.
    """
    eigenvalues = torch.fft.fft(coefficients)
    eigenvalues = eigenvalues - eigenvalues.conj()
    scaled = positions[:, None, :, :, None] * eigenvalues[:, None]  # batch, heads, seq, coord, d
    turned = torch.exp(scaled.sum(-2)) * torch.fft.fft(x.to(torch.complex64))
    return torch.fft.ifft(turned).real.to(x.dtype)


def cayley_tokens(x: Tensor, skew: Tensor, table: Tensor) -> Tensor:
    """Rotate tokens by Cayley-STRING as in its definition, with one linear system per token.

    The arguments are those of :func:`cayley_solve`.
    """
    eye = torch.eye(skew.shape[-1], dtype=x.dtype, device=x.device)
    right = (eye + skew).unsqueeze(1) @ x.unsqueeze(-1)
    return turn_complex(torch.linalg.solve((eye - skew).unsqueeze(1), right).squeeze(-1), table)


def cayley_solve(x: Tensor, skew: Tensor, table: Tensor) -> Tensor:
    """Rotate tokens by Cayley-STRING, with one linear system per head and sequence.

    Args:
        x: Queries or keys, ``(batch, heads, seq, d)``.
        skew: Skew-symmetric matrix S of each head, ``(heads, d, d)``.
        table: Phases as complex numbers of modulus 1, ``(heads, seq, d // 2)``.
    """
    eye = torch.eye(skew.shape[-1], dtype=x.dtype, device=x.device)
    in_basis = torch.linalg.solve(eye - skew, (eye + skew) @ x.mT)  # Pᵀ = (I − S)⁻¹(I + S)
    return turn_complex(in_basis.mT, table)
