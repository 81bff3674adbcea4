r"""Circulant matrices, and the real Fourier basis.

In the real Fourier basis, every circulant matrix is block-diagonal: the matrix scales and rotates
each of the Fourier planes. In this module ``c`` is the first COLUMN of a circulant d × d matrix C:
:math:`C_{ij} = c_{(i-j) \bmod d}`, as in ``scipy.linalg.circulant``. If c were the first row, every
rotation would have the opposite sign.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from stringlib.precision import widen, widest
from stringlib.spec import Floats, checked


def circulant(column: Tensor) -> Tensor:
    r"""Return the circulant matrices with given first columns, equation :eq:`eq-circulant`.

    Args:
        column: The first column :math:`c`, ``(..., d)``.

    Returns:
        The matrix :math:`C_{ij} = c_{(i-j) \bmod d}`, ``(..., d, d)``.
    """
    index = torch.arange(column.shape[-1], device=column.device)
    return column[..., (index[:, None] - index) % column.shape[-1]]


def circulant_eigenvalues(column: Tensor) -> Tensor:
    r"""Return the eigenvalues of a circulant matrix, equation :eq:`eq-circulant-eigenvalues`.

    Args:
        column: The first column :math:`c`, ``(..., d)``.

    Returns:
        The eigenvalues :math:`\lambda_j = \sum_m c_m e^{-2\pi\mathrm{i}\,jm/d}`, complex,
        ``(..., d)``. The eigenvector of :math:`\lambda_j` has the entries
        :math:`e^{2\pi\mathrm{i}\,jn/d}/\sqrt d`.
    """
    return torch.fft.fft(column)


def circulant_frequencies(column: Tensor) -> Tensor:
    r"""Return the frequencies of the rotations that a circulant matrix C generates.

    At position r, the rotation :math:`\exp(r(C - C^\top))` rotates Fourier plane j by the angle
    :math:`\omega_j r`, equation :eq:`eq-circulant-frequencies`.

    Args:
        column: The first column :math:`c` of the circulant matrix :math:`C`, ``(..., d)``.

    Returns:
        The frequencies :math:`\omega_j = 2 \sum_m c_m \sin(2\pi jm/d)` for
        :math:`1 \le j < d/2`, in radians per unit of position, ``(..., (d - 1) // 2)``.
    """
    size = column.shape[-1]
    m = torch.arange(size, device=column.device)
    # with c_m − c_{d−m} computed first, the even part of c, with c_0 and c_{d/2}, has gradient 0
    odd = column - column[..., -m % size]
    sines = torch.sin(m.to(column.dtype) * (2 * math.pi / size))
    return odd @ sines[m[1 : (size + 1) // 2, None] * m % size].mT


@checked
def nearest_orthogonal_circulant(column: Floats[Tensor, "... d"]) -> Tensor:
    r"""Return the first column of the orthogonal matrix that is nearest to a circulant matrix.

    Every eigenvalue of the circulant matrix is divided by its absolute value. The result is
    circulant, and no orthogonal matrix is nearer in the Frobenius norm,
    :eq:`eq-nearest-circulant`. An eigenvalue of 0 becomes 1; in this case other orthogonal matrices
    are equally near.

    The gradient changes the phases of the eigenvalues of ``column`` and not their absolute values.
    For eigenvalues near 0, the gradient is large.

    Args:
        column: The first column of a circulant matrix, float32 or float64, ``(..., d)``.

    Returns:
        The first column of the nearest orthogonal matrix, ``(..., d)``.

    Source:
        Fan and Hoffman, "Some metric inequalities in the space of matrices" (1955): the nearest
        unitary matrix is the unitary polar factor. This function is the circulant case.
    """
    spectrum = torch.fft.rfft(column)
    size = spectrum.abs()
    unit = spectrum / size.masked_fill(size == 0, 1)
    return torch.fft.irfft(unit.masked_fill(size == 0, 1), n=column.shape[-1])


@checked
def fourier_basis(size: int) -> Tensor:
    r"""Return the real Fourier basis, equation :eq:`eq-fourier-basis`.

    The first columns are, for each :math:`1 \le j < d/2`, the two vectors of a plane,
    :math:`f_j(n) = \sqrt{2/d} \cos(2\pi jn/d)` and :math:`g_j(n) = \sqrt{2/d} \sin(2\pi jn/d)`.
    The next column is the constant vector :math:`1/\sqrt d`. If :math:`d` is even, the last
    column is :math:`(-1)^n/\sqrt d`. Because the basis is orthogonal, gradient descent on the
    coordinates of a circulant column in this basis equals gradient descent on the column,
    :eq:`eq-fourier-descent`.

    Args:
        size: The size :math:`d`.

    Returns:
        An orthogonal matrix, float64, ``(size, size)``.
    """
    n = torch.arange(size)
    j = torch.arange(1, (size + 1) // 2)
    # reduced modulo d as integers, n·j gives angles below 2π without rounding of large products
    angle = widen(n[:, None] * j % size) * (2 * math.pi / size)
    planes = torch.stack([angle.cos(), angle.sin()], -1).flatten(1) * math.sqrt(2 / size)
    still = [torch.ones(size, dtype=widest())]
    if size % 2 == 0:
        still.append(1.0 - 2.0 * widen(n % 2))
    return torch.cat([planes, torch.stack(still, 1) / math.sqrt(size)], 1)
