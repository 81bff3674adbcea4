"""One rotation from generators, as LieRE prints it, and from circulant ones by FFT.

``coefficients`` are first columns throughout.
"""

from __future__ import annotations

import torch
from torch import Tensor

from stringlib.reference.ladder import encode_by_half_spectrum


def liere_matrix(positions: Tensor, generators: Tensor) -> Tensor:
    r"""Return :math:`R(r) = \exp(\sum_i r_i A_i)`, equation :eq:`eq-universal-liere`.

    With commuting generators this is a STRING. Otherwise :math:`R(a)^\top R(b)` is not
    :math:`R(b-a)`, and a score depends on more than the distance.

    Args:
        positions: r, ``(seq, coord_dim)``.
        generators: Skew-symmetric :math:`A_i`, ``(coord_dim, d, d)``.

    Returns:
        float64, ``(seq, d, d)``.

    Raises:
        ValueError: If there is not one generator for each coordinate.

    Source:
        Ostmeier et al. 2025 (LieRE).
    """
    if positions.shape[-1] != generators.shape[0]:
        raise ValueError(
            f"positions must have {generators.shape[0]} coordinates, one for each generator, "
            f"got shape {tuple(positions.shape)}"
        )
    matrices = torch.zeros(len(positions), *generators.shape[1:], dtype=torch.float64)
    for n, r in enumerate(positions.double()):
        exponent = torch.zeros(generators.shape[1:], dtype=torch.float64)
        for i in range(len(generators)):
            exponent = exponent + r[i] * generators[i].double()
        # twice: torch 2.13 exponentiates a single small matrix to 1e-10 only, a batch to 1e-15
        matrices[n] = torch.matrix_exp(torch.stack([exponent, exponent]))[0]
    return matrices


def liere_first_error(a: Tensor, b: Tensor, generators: Tensor) -> Tensor:
    r"""Return the leading term of :math:`R(a)^\top R(b) - R(b-a)`, :eq:`eq-universal-area`.

    Args:
        a: Position of the query, ``(coord_dim,)``.
        b: Position of the key, ``(coord_dim,)``.
        generators: Skew-symmetric :math:`A_i`, ``(coord_dim, d, d)``.

    Returns:
        :math:`-\frac12 \sum_{i<j} (a_i b_j - a_j b_i)\,[A_i, A_j]`: float64, ``(d, d)``.
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
    c, d = coefficients.double(), coefficients.shape[-1]
    generators = torch.zeros(*c.shape, d, dtype=torch.float64)
    for i in range(d):
        for j in range(d):
            generators[..., i, j] = c[..., (i - j) % d] - c[..., (j - i) % d]
    return torch.stack([liere_matrix(positions, head) for head in generators])


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
    half_q, half_k = (encode_by_half_spectrum(x.double(), positions, coefficients) for x in (q, k))
    return half_q @ half_k.mT
