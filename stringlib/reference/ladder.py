r"""Circulant-STRING from its definition down to half spectra: one rung, one function.

Every function takes queries or keys x, ``(..., heads, seq, d)``, positions ``(seq, coord_dim)`` and
the first columns of the circulants, ``(heads, coord_dim, d)``, and returns vectors whose inner
products are the scores, like x unless it says so. They are written down to be timed, so unlike the
other references they compute in the precision of x; angles and exponentials are float64.
"""

from __future__ import annotations

import torch
from torch import Tensor


def encode_by_matrix_exp(x: Tensor, positions: Tensor, coefficients: Tensor) -> Tensor:
    r"""Return R(r)x with one matrix exponential for each head and token.

    Source:
        Schenck et al. 2025, definition 3.1 with equation 11.
    """
    index = torch.arange(x.shape[-1], device=x.device)
    circulant = coefficients.double()[..., (index[:, None] - index) % x.shape[-1]]
    exponent = torch.einsum("nk,hkij->hnij", positions.double(), circulant - circulant.mT)
    # twice the first: torch 2.13 exponentiates a single small matrix to 1e-10 only
    batch = torch.cat([exponent[:, :1], exponent], 1)
    rotation = torch.matrix_exp(batch)[:, 1:].to(x.dtype)
    return torch.einsum("hnij,...hnj->...hni", rotation, x)


def encode_by_fft(x: Tensor, positions: Tensor, coefficients: Tensor) -> Tensor:
    r"""Return R(r)x by a complex FFT and its inverse, equation :eq:`eq-circulant-fft`.

    Source:
        Schenck et al. 2025, theorem 3.5.
    """
    spectrum = torch.fft.fft(x)
    turn = _turn(positions, torch.fft.fft(coefficients.double()))
    return torch.fft.ifft(turn.to(spectrum.dtype) * spectrum).real


def encode_by_rfft(x: Tensor, positions: Tensor, coefficients: Tensor) -> Tensor:
    r"""Return R(r)x by a real FFT and its inverse: modes j and d − j are conjugate."""
    spectrum = torch.fft.rfft(x)
    turn = _turn(positions, torch.fft.rfft(coefficients.double()))
    return torch.fft.irfft(turn.to(spectrum.dtype) * spectrum, n=x.shape[-1])


def encode_by_half_spectrum(x: Tensor, positions: Tensor, coefficients: Tensor) -> Tensor:
    r"""Return the weighted half spectrum of R(r)x, equation :eq:`eq-inference-half-spectrum`.

    There is no way back to d channels. Parseval's theorem makes it unnecessary: the inner
    product of two such vectors is that of the rotated ones.

    Returns:
        ``(..., heads, seq, 2 * (d // 2 + 1))``, real and imaginary parts side by side.
    """
    d = x.shape[-1]
    spectrum = torch.fft.rfft(x)
    turn = _turn(positions, torch.fft.rfft(coefficients.double()))
    weight = torch.full((d // 2 + 1,), 2.0, dtype=torch.float64, device=x.device)
    weight[0] = 1.0
    if d % 2 == 0:
        weight[-1] = 1.0
    scaled = (weight / d).sqrt() * turn  # small: one row per token, shared by the batch
    return torch.view_as_real(scaled.to(spectrum.dtype) * spectrum).flatten(-2)


def _turn(positions: Tensor, eigenvalues: Tensor) -> Tensor:
    """Return the phases by which modes turn: complex128, ``(heads, seq, modes)``."""
    angle = torch.einsum("nk,hkj->hnj", positions.double(), 2 * eigenvalues.imag)
    return torch.polar(torch.ones_like(angle), angle)
