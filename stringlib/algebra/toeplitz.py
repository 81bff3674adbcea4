r"""Toeplitz matrices: constant along every diagonal, so 2n − 1 numbers instead of n².

``values`` holds one number for each offset of a key from a query: on a sequence ``(..., 2n - 1)``
with :math:`C_{ij}` at index :math:`n - 1 + (j - i)`, so that it begins with the lower left corner.
With ``axes=2`` it belongs to an h × w grid, ``(..., 2h - 1, 2w - 1)``, whose tokens are numbered
row by row; any number of axes is allowed.
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
    r"""Build Toeplitz matrices, equation :eq:`eq-toeplitz-matrix`.

    Args:
        values: One number for each offset, ``(..., 2n - 1)`` or that of a grid.
        axes: How many dimensions the offsets have.

    Returns:
        :math:`C_{ij} = c_{j-i}`, ``(..., n, n)``, n the number of tokens.
    """
    dims = list(range(-axes, 0))
    keys = toeplitz_sizes(values, axes)
    return hankel_view(values.flip(dims), keys).flatten(-axes).flatten(-axes - 1, -2).flip(-1)


def toeplitz_product(values: Tensor, x: Tensor, axes: int = 1) -> Tensor:
    r"""Return :math:`Cx` by FFT, equation :eq:`eq-toeplitz-fft`.

    Args:
        values: One number for each offset, float32 or float64, ``(..., 2n - 1)`` or a grid's.
        x: ``(..., n, d)``, of the same dtype.
        axes: How many dimensions the offsets have.

    Returns:
        ``(..., n, d)``. Its error is absolute: that of the largest terms of all rows.
    """
    sizes = toeplitz_sizes(values, axes)
    tokens = torch.Size(sizes).numel()
    if x.shape[-2] != tokens:
        raise ValueError(
            f"x must have {tokens} rows for values of shape {tuple(values.shape)}, "
            f"got shape {tuple(x.shape)}"
        )
    spectrum = toeplitz_spectrum(values, axes).unsqueeze(-axes - 1)
    return spectral_product(spectrum, x.mT.unflatten(-1, sizes), axes).flatten(-axes).mT
