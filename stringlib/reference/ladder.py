r"""Four implementations of Circulant-STRING, from matrix exponentials to half spectra.

Each function returns the encoded queries or keys, whose inner products are the scores. These
functions are for comparing speed. Unlike the other reference implementations, they compute in the
precision of the queries and keys. Only angles and matrix exponentials are computed in float64.
"""

from __future__ import annotations

import torch
from torch import Tensor


def encode_by_matrix_exp(x: Tensor, positions: Tensor, coefficients: Tensor) -> Tensor:
    r"""Rotate queries or keys by Circulant-STRING, with one matrix exponential per head and token.

    Args:
        x: Queries or keys, ``(..., heads, seq, d)``.
        positions: Position of each token, ``(seq, coord_dim)``.
        coefficients: First columns of the circulant matrices, ``(heads, coord_dim, d)``.

    Returns:
        The rotated vectors, in the shape and dtype of ``x``.

    Source:
        Schenck et al. 2025, definition 3.1 with equation 11.
    """
    index = torch.arange(x.shape[-1], device=x.device)
    circulant = coefficients.double()[..., (index[:, None] - index) % x.shape[-1]]
    exponent = torch.einsum("nk,hkij->hnij", positions.double(), circulant - circulant.mT)
    # the first matrix is in the batch twice, because torch 2.13 exponentiates a single small
    # matrix with an error of 1e-10
    batch = torch.cat([exponent[:, :1], exponent], 1)
    rotation = torch.matrix_exp(batch)[:, 1:].to(x.dtype)
    return torch.einsum("hnij,...hnj->...hni", rotation, x)


def encode_by_fft(x: Tensor, positions: Tensor, coefficients: Tensor) -> Tensor:
    r"""Rotate queries or keys by Circulant-STRING, with a complex FFT and its inverse.

    The Fourier transform diagonalises the rotation, equation :eq:`eq-circulant-fft`.

    Args:
        x: Queries or keys, ``(..., heads, seq, d)``.
        positions: Position of each token, ``(seq, coord_dim)``.
        coefficients: First columns of the circulant matrices, ``(heads, coord_dim, d)``.

    Returns:
        The rotated vectors, in the shape and dtype of ``x``.

    Source:
        Schenck et al. 2025, theorem 3.5.
    """
    spectrum = torch.fft.fft(x)
    phases = _phases(positions, torch.fft.fft(coefficients.double()))
    return torch.fft.ifft(phases.to(spectrum.dtype) * spectrum).real


def encode_by_rfft(x: Tensor, positions: Tensor, coefficients: Tensor) -> Tensor:
    r"""Rotate queries or keys by Circulant-STRING, with a real FFT and its inverse.

    The vectors are real, so their Fourier coefficients j and d − j are complex conjugates of each
    other. Therefore only the coefficients 0 to ⌊d/2⌋ are computed.

    Args:
        x: Queries or keys, ``(..., heads, seq, d)``.
        positions: Position of each token, ``(seq, coord_dim)``.
        coefficients: First columns of the circulant matrices, ``(heads, coord_dim, d)``.

    Returns:
        The rotated vectors, in the shape and dtype of ``x``.
    """
    spectrum = torch.fft.rfft(x)
    phases = _phases(positions, torch.fft.rfft(coefficients.double()))
    return torch.fft.irfft(phases.to(spectrum.dtype) * spectrum, n=x.shape[-1])


def encode_by_half_spectrum(x: Tensor, positions: Tensor, coefficients: Tensor) -> Tensor:
    r"""Return half of the weighted Fourier coefficients of vectors rotated by Circulant-STRING.

    No inverse FFT is needed. By Parseval's theorem, the inner product of two half spectra equals
    the inner product of the rotated vectors, equation :eq:`eq-inference-half-spectrum`. Coefficient
    0 and, if d is even, coefficient d/2 have the weight 1/d. Any other coefficient has the weight
    2/d, because it also represents its complex conjugate. Each coefficient is multiplied by the
    square root of its weight.

    Args:
        x: Queries or keys, ``(..., heads, seq, d)``.
        positions: Position of each token, ``(seq, coord_dim)``.
        coefficients: First columns of the circulant matrices, ``(heads, coord_dim, d)``.

    Returns:
        Real and imaginary parts of the coefficients 0 to ⌊d/2⌋ side by side, in the dtype of ``x``,
        ``(..., heads, seq, 2 * (d // 2 + 1))``.
    """
    d = x.shape[-1]
    spectrum = torch.fft.rfft(x)
    phases = _phases(positions, torch.fft.rfft(coefficients.double()))
    weight = torch.full((d // 2 + 1,), 2.0, dtype=torch.float64, device=x.device)
    weight[0] = 1.0
    if d % 2 == 0:
        weight[-1] = 1.0
    scaled = (weight / d).sqrt() * phases  # cheap: the whole batch shares one row per token
    return torch.view_as_real(scaled.to(spectrum.dtype) * spectrum).flatten(-2)


def _phases(positions: Tensor, eigenvalues: Tensor) -> Tensor:
    """Return the complex numbers of modulus 1 by which a rotation multiplies Fourier coefficients.

    Args:
        positions: Positions of the tokens, ``(seq, coord_dim)``.
        eigenvalues: Eigenvalues of the circulant matrices C, ``(heads, coord_dim, modes)``. The
            eigenvalues of the generators C − Cᵀ are 2i times the imaginary parts of the eigenvalues
            of C.

    Returns:
        complex128, ``(heads, seq, modes)``.
    """
    angle = torch.einsum("nk,hkj->hnj", positions.double(), 2 * eigenvalues.imag)
    return torch.polar(torch.ones_like(angle), angle)
