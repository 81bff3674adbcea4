r"""Toeplitz matrices: constant along every diagonal, so 2n − 1 numbers instead of n².

``values`` holds one number for each offset of a key from a query: on a sequence ``(..., 2n - 1)``
with :math:`C_{ij}` at index :math:`n - 1 + (j - i)`, so that it begins with the lower left corner.
With ``axes=2`` it belongs to an h × w grid, ``(..., 2h - 1, 2w - 1)``, whose tokens are numbered
row by row; any number of axes is allowed.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn


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


def toeplitz_sizes(values: Tensor, axes: int = 1) -> tuple[int, ...]:
    """Return n, or the sizes of the grid, that ``values`` belong to."""
    return tuple((size + 1) // 2 for size in values.shape[values.ndim - axes :])


def hankel_view(values: Tensor, keys: tuple[int, ...]) -> Tensor:
    r"""View a line of numbers as a matrix, without a copy: entry (i, j) is ``values[i + j]``.

    Backwards, a Toeplitz matrix is such a matrix, :eq:`eq-toeplitz-view`: its rows overlap in
    memory, and strides of 1 and 1 say so. (The strides of the Toeplitz matrix itself, −1 and 1,
    are not to be had in PyTorch.)

    Args:
        values: ``(..., queries + keys - 1)``, along each axis.
        keys: Number of columns along each axis; one number for a sequence.

    Returns:
        ``(..., *queries, *keys)``, which shares the memory of ``values``.
    """
    for size in keys:
        values = values.unfold(-len(keys), size, 1)  # its columns go last, the next axis moves up
    return values


def fast_length(least: int) -> int:
    """Return the smallest number from ``least`` on whose prime factors are 2, 3 and 5."""
    for length in itertools.count(max(least, 1)):
        rest = length
        for prime in (2, 3, 5):
            while rest % prime == 0:
                rest //= prime
        if rest == 1:
            return length
    raise AssertionError  # count has no end


def toeplitz_spectrum(values: Tensor, axes: int = 1) -> Tensor:
    r"""Return the eigenvalues of a circulant matrix that contains C, :eq:`eq-toeplitz-circulant`.

    Its first column is :math:`c_0, c_{-1}, \dots, c_{1-n}`, some zeros, and
    :math:`c_{n-1}, \dots, c_1`.

    Args:
        values: One number for each offset, float32 or float64, ``(..., 2n - 1)`` or a grid's.
        axes: How many dimensions the offsets have.

    Returns:
        The half spectrum of a real transform, complex, of :func:`fast_length` ``(2n - 1)``.
    """
    dims, sizes = list(range(-axes, 0)), toeplitz_sizes(values, axes)
    lengths = [fast_length(2 * size - 1) for size in sizes]
    ends = [(0, long - 2 * size + 1) for size, long in zip(sizes, lengths, strict=True)]
    padded = nn.functional.pad(values.flip(dims), [pad for end in reversed(ends) for pad in end])
    return torch.fft.rfftn(padded.roll([1 - size for size in sizes], dims), dim=dims)


def spectral_product(spectrum: Tensor, x: Tensor, axes: int = 1) -> Tensor:
    """Multiply by the Toeplitz matrix of :func:`toeplitz_spectrum`, in O(n log n).

    Args:
        spectrum: What :func:`toeplitz_spectrum` returned.
        x: One number for each token, ``(..., n)`` or ``(..., h, w)``, of the spectrum's precision.
        axes: How many dimensions the offsets have.

    Returns:
        The product, with the leading dimensions of both and the sizes of ``x``.
    """
    dims, sizes = list(range(-axes, 0)), x.shape[x.ndim - axes :]
    lengths = [fast_length(2 * size - 1) for size in sizes]
    y = torch.fft.irfftn(torch.fft.rfftn(x, lengths, dims) * spectrum, lengths, dims)
    for dim, size in zip(dims, sizes, strict=True):
        y = y.narrow(dim, 0, size)
    return y


def toeplitz_product(values: Tensor, x: Tensor, axes: int = 1) -> Tensor:
    r"""Return :math:`Cx` by FFT, equation :eq:`eq-toeplitz-fft`.

    Args:
        values: One number for each offset, float32 or float64, ``(..., 2n - 1)`` or a grid's.
        x: ``(..., n, d)``, of the same dtype.
        axes: How many dimensions the offsets have.

    Returns:
        ``(..., n, d)``. Its error is absolute: that of the largest terms of all rows.

    Raises:
        ValueError: If the numbers of tokens differ.
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
