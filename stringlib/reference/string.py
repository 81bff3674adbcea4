"""Reference implementations of rotations from generators: LieRE and Circulant-STRING.

The generators of Circulant-STRING are C − Cᵀ with circulant matrices C. The argument
``coefficients`` contains the first columns of these matrices.
"""

from __future__ import annotations

import torch
from torch import Tensor

from stringlib.reference.ladder import encode_by_half_spectrum


def liere_matrix(positions: Tensor, generators: Tensor) -> Tensor:
    r"""Return the rotation matrix of LieRE for each token, :math:`R(r) = \exp(\sum_i r_i A_i)`.

    This is equation :eq:`eq-universal-liere`. If the generators commute, LieRE is a STRING, and a
    score depends on positions only through their difference. If the generators do not commute,
    :math:`R(a)^\top R(b)` is in general not :math:`R(b-a)`, and a score depends on more than the
    difference of the positions.

    Args:
        positions: Position r of each token, ``(seq, coord_dim)``.
        generators: Skew-symmetric generator :math:`A_i` of each coordinate, ``(coord_dim, d, d)``.

    Returns:
        R(r) of each token, float64, ``(seq, d, d)``.

    Raises:
        ValueError: If there is not one generator for each coordinate.

    Source:
        Ostmeier et al. 2025 (LieRE).
    """
    if positions.shape[-1] != generators.shape[0]:
        raise ValueError(
            f"positions must have a last dimension of size {generators.shape[0]}, one coordinate "
            f"for each generator, got shape {tuple(positions.shape)}"
        )
    matrices = torch.zeros(len(positions), *generators.shape[1:], dtype=torch.float64)
    for n, r in enumerate(positions.double()):
        exponent = torch.zeros(generators.shape[1:], dtype=torch.float64)
        for i in range(len(generators)):
            exponent = exponent + r[i] * generators[i].double()
        # a batch of two equal matrices, because torch 2.13 exponentiates a single small matrix
        # with an error of 1e-10, and a batch with an error of 1e-15
        matrices[n] = torch.matrix_exp(torch.stack([exponent, exponent]))[0]
    return matrices


def liere_first_error(a: Tensor, b: Tensor, generators: Tensor) -> Tensor:
    r"""Return the leading term of LieRE's deviation from relative scores, :eq:`eq-universal-area`.

    The deviation is :math:`R(a)^\top R(b) - R(b-a)` with LieRE's rotations R. The deviation is 0 if
    the generators commute.

    Args:
        a: Position of the query, ``(coord_dim,)``.
        b: Position of the key, ``(coord_dim,)``.
        generators: Skew-symmetric generator :math:`A_i` of each coordinate, ``(coord_dim, d, d)``.

    Returns:
        :math:`-\frac12 \sum_{i<j} (a_i b_j - a_j b_i)\,[A_i, A_j]`, float64, ``(d, d)``.
    """
    total = torch.zeros(generators.shape[1:], dtype=torch.float64)
    for i in range(len(generators)):
        for j in range(i + 1, len(generators)):
            area = (a[i] * b[j] - a[j] * b[i]) / 2
            one, other = generators[i].double(), generators[j].double()
            total = total - area * (one @ other - other @ one)
    return total


def _require_coordinates(positions: Tensor, coefficients: Tensor) -> None:
    if positions.shape[-1] != coefficients.shape[-2]:
        raise ValueError(
            f"positions must have a last dimension of size {coefficients.shape[-2]}, one "
            f"coordinate for each circulant matrix of a head, got shape {tuple(positions.shape)}"
        )


def get_eigenvalues(coefficients: Tensor) -> Tensor:
    r"""Return the eigenvalues of the generator :math:`C - C^\top` of a circulant matrix C.

    See equation :eq:`eq-circulant-generator`.

    Args:
        coefficients: First column c of the circulant matrix C, ``(..., d)``.

    Returns:
        The purely imaginary eigenvalues :math:`\mu = \mathrm{FFT}(c) - \overline{\mathrm{FFT}(c)}`,
        complex128, ``(..., d)``.
    """
    eigenvalues = torch.fft.fft(coefficients.double())
    return eigenvalues - torch.conj(eigenvalues)


def circulant_string_rotate(x: Tensor, positions: Tensor, coefficients: Tensor) -> Tensor:
    r"""Rotate each token by Circulant-STRING, computed with an FFT and its inverse.

    The rotated token is :math:`\exp(\sum_k r_k L_k)\,x`. The generators
    :math:`L_k = C_k - C_k^\top` are circulant, so the Fourier transform diagonalises the rotation,
    equation :eq:`eq-circulant-fft`.

    Args:
        x: Queries or keys, ``(..., heads, seq, d)``.
        positions: Position r of each token, ``(seq, coord_dim)``.
        coefficients: First columns of the circulant matrices :math:`C_k`,
            ``(heads, coord_dim, d)``.

    Returns:
        The rotated tokens, float64, of the shape of ``x``.

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
    r"""Return the rotation matrix of Circulant-STRING for each head and token.

    The matrix is :math:`\exp(\sum_k r_k (C_k - C_k^\top))`. The generators
    :math:`C_k - C_k^\top` are filled entry by entry. Then ``torch.matrix_exp`` computes the
    rotation.

    Args:
        positions: Position r of each token, ``(seq, coord_dim)``.
        coefficients: First columns of the circulant matrices :math:`C_k`,
            ``(heads, coord_dim, d)``.

    Returns:
        One rotation per head and token, float64, ``(heads, seq, d, d)``.

    Source:
        Schenck et al. 2025, equation 11.
    """
    _require_coordinates(positions, coefficients)
    c, d = coefficients.double(), coefficients.shape[-1]
    generators = torch.zeros(*c.shape, d, dtype=torch.float64)
    for i in range(d):
        for j in range(d):
            generators[..., i, j] = c[..., (i - j) % d] - c[..., (j - i) % d]
    return torch.stack([liere_matrix(positions, head) for head in generators])


def parseval_logits(q: Tensor, k: Tensor, positions: Tensor, coefficients: Tensor) -> Tensor:
    r"""Return the logits of Circulant-STRING without an inverse FFT, :eq:`eq-circulant-parseval`.

    By Parseval's theorem the inner product of a rotated query and a rotated key is
    :math:`\frac1d \sum_{j \le d/2} w_j \operatorname{Re}(\overline{Q_j} K_j)`. Here :math:`Q_j`
    and :math:`K_j` are the Fourier coefficients of the rotated query and key. The weights are
    :math:`w_0 = 1`, :math:`w_{d/2} = 1` for even d, and :math:`w_j = 2` for all other j.

    Args:
        q: Queries, ``(heads, seq, d)``.
        k: Keys, ``(heads, seq, d)``.
        positions: Position of each token, ``(seq, coord_dim)``.
        coefficients: First columns of the circulant matrices, ``(heads, coord_dim, d)``.

    Returns:
        The logits, not divided by :math:`\sqrt d`, float64, ``(heads, seq, seq)``.
    """
    _require_coordinates(positions, coefficients)
    half_q, half_k = (encode_by_half_spectrum(x.double(), positions, coefficients) for x in (q, k))
    return half_q @ half_k.mT
