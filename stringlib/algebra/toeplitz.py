r"""Toeplitz matrices: constant along every diagonal, so that 2n − 1 numbers give an n × n matrix.

``values`` contains one number for each offset :math:`j - i` of a key j from a query i. For a
sequence of n tokens, the shape of ``values`` is ``(..., 2n - 1)``, and :math:`C_{ij}` is at index
:math:`n - 1 + (j - i)`. So the first number is the lower left corner of the matrix. For an h × w
grid (``axes=2``), whose tokens are numbered row by row, the shape of ``values`` is
``(..., 2h - 1, 2w - 1)``. Any number of axes is allowed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from stringlib.kernels.fft import (
    hankel_view,
    spectral_product,
    toeplitz_sizes,
    toeplitz_spectrum,
)


def toeplitz(values: Tensor, axes: int = 1) -> Tensor:
    r"""Return the Toeplitz matrices with given values, equation :eq:`eq-toeplitz-matrix`.

    Args:
        values: One number for each offset, ``(..., 2n - 1)`` for a sequence, or
            ``(..., 2h - 1, 2w - 1)`` for a grid.
        axes: Number of dimensions of an offset: 1 for a sequence (default), 2 for an image.

    Returns:
        The matrix :math:`C_{ij} = c_{j-i}`, ``(..., n, n)``, where n is the number of tokens.
    """
    dims = list(range(-axes, 0))
    keys = toeplitz_sizes(values, axes)
    return hankel_view(values.flip(dims), keys).flatten(-axes).flatten(-axes - 1, -2).flip(-1)


def toeplitz_product(values: Tensor, x: Tensor, axes: int = 1) -> Tensor:
    r"""Return the product Cx of a Toeplitz matrix C and vectors x by FFT, :eq:`eq-toeplitz-fft`.

    Args:
        values: One number for each offset, float32 or float64, ``(..., 2n - 1)`` for a sequence, or
            ``(..., 2h - 1, 2w - 1)`` for a grid.
        x: Vectors of the n tokens, ``(..., n, d)``, in the dtype of ``values``.
        axes: Number of dimensions of an offset: 1 for a sequence (default), 2 for an image.

    Returns:
        The product, ``(..., n, d)``. The rounding error is about the same in all rows and
        proportional to the largest terms of any row. So the relative error of small entries can be
        large.

    Raises:
        ValueError: If ``x`` does not have one row for each token.
    """
    sizes = toeplitz_sizes(values, axes)
    tokens = torch.Size(sizes).numel()
    if x.shape[-2] != tokens:
        raise ValueError(
            f"x must have {tokens} rows for values of shape {tuple(values.shape)}, got shape "
            f"{tuple(x.shape)}. Each token has one row."
        )
    spectrum = toeplitz_spectrum(values, axes).unsqueeze(-axes - 1)
    return spectral_product(spectrum, x.mT.unflatten(-1, sizes), axes).flatten(-axes).mT
