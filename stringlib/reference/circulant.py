"""Circulant-STRING as it is printed: a complex FFT, a product, an inverse FFT.

``coefficients`` are first columns throughout.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def _require_coordinates(positions: Tensor, coefficients: Tensor) -> None:
    if positions.shape[-1] != coefficients.shape[-2]:
        raise ValueError(
            f"positions must have {coefficients.shape[-2]} coordinates, one for each circulant "
            f"matrix of a head, got shape {tuple(positions.shape)}"
        )


def get_eigenvalues(coefficients: Tensor) -> Tensor:
    r"""Return the eigenvalues of :math:`L = C - C^\top`, equation :eq:`eq-circulant-generator`.

    Args:
        coefficients: The first column of C, ``(..., d)``.

    Returns:
        :math:`\mu = \mathrm{FFT}(c) - \overline{\mathrm{FFT}(c)}`, purely imaginary,
        complex128, ``(..., d)``.
    """
    eigenvalues = torch.fft.fft(coefficients.double())
    return eigenvalues - torch.conj(eigenvalues)


def circulant_string_rotate(x: Tensor, positions: Tensor, coefficients: Tensor) -> Tensor:
    r"""Apply :math:`\exp(\sum_k r_k L_k)` by FFT, equation :eq:`eq-circulant-fft`.

    Args:
        x: ``(..., heads, seq, d)``.
        positions: ``(seq, coord_dim)``.
        coefficients: First columns, ``(heads, coord_dim, d)``.

    Returns:
        float64, of the shape of ``x``.

    Source:
        Schenck et al. 2025, theorem 3.5.
    """
    _require_coordinates(positions, coefficients)
    mu = get_eigenvalues(coefficients)
    exponent = torch.zeros(1, dtype=torch.complex128)
    for k in range(positions.shape[-1]):
        exponent = exponent + positions.double()[:, k, None] * mu[:, None, k, :]
    spectrum = torch.fft.fft(x.double())
    return torch.fft.ifft(torch.exp(exponent) * spectrum).real


def circulant_string_matrix(positions: Tensor, coefficients: Tensor) -> Tensor:
    r"""Return :math:`\exp(\sum_k r_k (C_k - C_k^\top))` entry by entry, then ``matrix_exp``.

    Args:
        positions: ``(seq, coord_dim)``.
        coefficients: First columns, ``(heads, coord_dim, d)``.

    Returns:
        float64, ``(heads, seq, d, d)``.

    Source:
        Schenck et al. 2025, equation 11.
    """
    _require_coordinates(positions, coefficients)
    heads, coord_dim, d = coefficients.shape
    generators = torch.zeros(heads, coord_dim, d, d, dtype=torch.float64)
    for i in range(d):
        for j in range(d):
            generators[..., i, j] = (
                coefficients[..., (i - j) % d].double() - coefficients[..., (j - i) % d].double()
            )
    matrices = []
    for r in positions.double():
        exponent = torch.zeros(heads, d, d, dtype=torch.float64)
        for k in range(coord_dim):
            exponent = exponent + r[k] * generators[:, k]
        # twice: torch 2.13 exponentiates a single small matrix to 1e-10 only, a batch to 1e-15
        matrices.append(torch.matrix_exp(torch.stack([exponent, exponent]))[0])
    return torch.stack(matrices, 1)


def parseval_logits(q: Tensor, k: Tensor, positions: Tensor, coefficients: Tensor) -> Tensor:
    r"""Return the logits from half spectra, without an inverse FFT, :eq:`eq-circulant-parseval`.

    Args:
        q: Queries, ``(heads, seq, d)``.
        k: Keys, ``(heads, seq, d)``.
        positions: ``(seq, coord_dim)``.
        coefficients: First columns, ``(heads, coord_dim, d)``.

    Returns:
        :math:`\frac1d \sum_{j \le d/2} w_j \operatorname{Re}(\overline{Q_j} K_j)` with
        :math:`w_0 = w_{d/2} = 1` and 2 elsewhere: float64, ``(heads, seq, seq)``.
    """
    _require_coordinates(positions, coefficients)
    d = q.shape[-1]
    half = d // 2 + 1
    mu = torch.fft.fft(coefficients.double())[..., :half]
    angle = torch.einsum("nk,hkj->hnj", positions.double(), 2 * mu.imag)
    turn = torch.polar(torch.ones_like(angle), angle)
    spectrum_q = torch.fft.rfft(q.double()) * turn
    spectrum_k = torch.fft.rfft(k.double()) * turn
    weight = torch.full((half,), 2.0, dtype=torch.float64)
    weight[0] = 1.0
    if d % 2 == 0:
        weight[math.floor(d / 2)] = 1.0
    product = torch.einsum("hnj,hmj->hnm", (spectrum_q * weight).conj(), spectrum_k)
    return product.real / d
