r"""Circulant matrices and the real Fourier basis that turns them all into rotations.

``c`` is always the first COLUMN: :math:`C_{ij} = c_{(i-j) \bmod d}`, as in
``scipy.linalg.circulant``. With the first row instead, every rotation runs backwards.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from stringlib.precision import widen, widest
from stringlib.spec import Floats, checked


def circulant(column: Tensor) -> Tensor:
    r"""Build circulant matrices from their first columns, equation :eq:`eq-circulant`.

    Args:
        column: :math:`c`, shape ``(..., d)``.

    Returns:
        :math:`C_{ij} = c_{(i-j) \bmod d}`, shape ``(..., d, d)``.
    """
    index = torch.arange(column.shape[-1], device=column.device)
    return column[..., (index[:, None] - index) % column.shape[-1]]


def circulant_eigenvalues(column: Tensor) -> Tensor:
    r"""Return the eigenvalues of a circulant matrix, equation :eq:`eq-circulant-eigenvalues`.

    Args:
        column: The first column :math:`c`, shape ``(..., d)``.

    Returns:
        :math:`\lambda_j = \sum_m c_m e^{-2\pi\mathrm{i}\,jm/d}`, complex, shape ``(..., d)``; the
        eigenvector of :math:`\lambda_j` has entries :math:`e^{2\pi\mathrm{i}\,jn/d}/\sqrt d`.
    """
    return torch.fft.fft(column)


def circulant_frequencies(column: Tensor) -> Tensor:
    r"""Return how fast :math:`C - C^\top` turns each Fourier plane, :eq:`eq-circulant-frequencies`.

    Args:
        column: The first column :math:`c` of :math:`C`, shape ``(..., d)``.

    Returns:
        :math:`\omega_j = 2 \sum_m c_m \sin(2\pi jm/d)` for :math:`1 \le j < d/2`, radians per
        unit of position, shape ``(..., (d - 1) // 2)``.
    """
    size = column.shape[-1]
    m = torch.arange(size, device=column.device)
    # the odd part first, so that c_0, c_{d/2} and what is even get a gradient of exactly 0
    odd = column - column[..., -m % size]
    sines = torch.sin(m.to(column.dtype) * (2 * math.pi / size))
    return odd @ sines[m[1 : (size + 1) // 2, None] * m % size].mT


@checked
def nearest_orthogonal_circulant(column: Floats[Tensor, "... d"]) -> Tensor:
    r"""Return the first column of the nearest orthogonal matrix, :eq:`eq-nearest-circulant`.

    Every eigenvalue of the circulant matrix is divided by its modulus. In the Frobenius norm no
    orthogonal matrix, circulant or not, is nearer. An eigenvalue of 0 becomes 1, which is then one
    of many that are equally near.

    Its gradient turns the eigenvalues and never stretches them; where one is small, it is large.

    Args:
        column: The first column of a circulant matrix, float32 or float64, ``(..., d)``.

    Returns:
        The first column of the orthogonal one, ``(..., d)``.

    Source:
        The circulant case of the polar factor, the nearest unitary matrix: Fan and Hoffman, "Some
        metric inequalities in the space of matrices" (1955).
    """
    spectrum = torch.fft.rfft(column)
    size = spectrum.abs()
    unit = spectrum / size.masked_fill(size == 0, 1)
    return torch.fft.irfft(unit.masked_fill(size == 0, 1), n=column.shape[-1])


@checked
def fourier_basis(size: int) -> Tensor:
    r"""Return the real Fourier basis, equation :eq:`eq-fourier-basis`.

    Columns: for each :math:`1 \le j < d/2` the plane :math:`f_j(n) = \sqrt{2/d}
    \cos(2\pi jn/d)`, :math:`g_j(n) = \sqrt{2/d} \sin(2\pi jn/d)`, then the constant
    :math:`1/\sqrt d`, then (even :math:`d`) the alternating :math:`(-1)^n/\sqrt d`. Gradient
    descent in these coordinates is that of the column itself, :eq:`eq-fourier-descent`.

    Args:
        size: The size :math:`d`.

    Returns:
        An orthogonal float64 matrix, ``(size, size)``.
    """
    n = torch.arange(size)
    j = torch.arange(1, (size + 1) // 2)
    # reduce n·j modulo d as integers: the angle stays below 2π and keeps all its digits
    angle = widen(n[:, None] * j % size) * (2 * math.pi / size)
    planes = torch.stack([angle.cos(), angle.sin()], -1).flatten(1) * math.sqrt(2 / size)
    still = [torch.ones(size, dtype=widest())]
    if size % 2 == 0:
        still.append(1.0 - 2.0 * widen(n % 2))
    return torch.cat([planes, torch.stack(still, 1) / math.sqrt(size)], 1)
