r"""Products with circulant and Toeplitz matrices by the real fast Fourier transform."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor, nn

from stringlib.inputs import common_shape


def circular_convolution(x: Tensor, spectrum: Tensor) -> Tensor:
    r"""Return the circular convolution of vectors ``x`` with the vector r of a given spectrum.

    The result is circ(r) x, where circ(r) is the circulant matrix with the first column r. The
    product is computed as
    :math:`\mathrm{circ}(r)\,x = \mathrm{irfft}(\hat r \odot \mathrm{rfft}(x))`,
    :eq:`eq-circulant-product`. The gradients are written by hand and have the same form. Let g
    be the gradient with respect to the result, and let a hat denote the real Fourier transform.
    Then the gradient with respect to x is circ(r)ᵀg. The gradient with respect to the spectrum is
    :math:`\overline{\hat x} \odot \hat g`, summed over the dimensions in which the spectrum was
    broadcast, and multiplied by a constant per frequency, :eq:`eq-circulant-gradient`. Autograd
    would expand the half spectra to full spectra, which takes more time.

    Args:
        x: Vectors in float32 or float64, ``(..., d)``.
        spectrum: The real Fourier transform :math:`\hat r = \mathrm{rfft}(r)`,
            ``(..., d // 2 + 1)``, in complex64 for float32 and in complex128 for float64. The
            leading dimensions broadcast with those of ``x``.

    Returns:
        The vectors circ(r) x, ``(..., d)``, with the broadcast leading dimensions.
    """
    if x.numel() == 0:  # MKL has no FFT of empty tensors
        shape = common_shape(x.shape[:-1], spectrum.shape[:-1])
        return x.expand(*shape, x.shape[-1]) * spectrum.real.sum()
    if torch._C._is_tracing():
        return _CircularConvolution.forward(x, spectrum)
    return _CircularConvolution.apply(x, spectrum)


class _CircularConvolution(torch.autograd.Function):
    """The function :func:`circular_convolution` with gradients written by hand."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, spectrum: Tensor) -> Tensor:
        return torch.fft.irfft(_times(torch.fft.rfft(x), spectrum), n=x.shape[-1])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        x, spectrum = inputs
        ctx.x_shape = x.shape
        # only the gradient of the spectrum needs x
        ctx.save_for_backward(x if spectrum.requires_grad else None, spectrum)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, spectrum = ctx.saved_tensors
        d = g.shape[-1]
        g_hat = torch.fft.rfft(g)
        grad_x = grad_spectrum = None
        if ctx.needs_input_grad[1]:
            product = torch.fft.rfft(x).conj() * g_hat
            # entries other than the first (and the last for even d) represent two frequencies
            weight = torch.full(product.shape[-1:], 2 / d, dtype=g.dtype, device=g.device)
            weight[0] = 1 / d
            if d % 2 == 0:
                weight[-1] = 1 / d
            grad_spectrum = product.sum_to_size(spectrum.shape) * weight
        if ctx.needs_input_grad[0]:
            grad_x = torch.fft.irfft(_times(g_hat, spectrum.conj()), n=d).sum_to_size(ctx.x_shape)
        return grad_x, grad_spectrum


def _times(signal: Tensor, spectrum: Tensor) -> Tensor:
    """Return the product of two spectra, computed in place in ``signal`` if gradients are off.

    If ``signal`` has to be broadcast, the product is not computed in place. In place no tensor is
    allocated, which would cost page faults.
    """
    fits = common_shape(signal.shape, spectrum.shape) == signal.shape
    return signal.mul_(spectrum) if fits and not torch.is_grad_enabled() else signal * spectrum


def toeplitz_sizes(values: Tensor, axes: int = 1) -> tuple[int, ...]:
    """Return the number of tokens along each axis for a table of one value per offset.

    The result is ``(n,)`` for a sequence, and for example ``(h, w)`` for a grid.

    Args:
        values: One number per offset, ``(..., 2n - 1)``, or ``(..., 2h - 1, 2w - 1)`` for a grid.
        axes: Number of dimensions of the offsets.
    """
    return tuple((size + 1) // 2 for size in values.shape[values.ndim - axes :])


def hankel_view(values: Tensor, keys: tuple[int, ...]) -> Tensor:
    r"""Return the Hankel matrix with entry (i, j) equal to ``values[i + j]`` as a view.

    A Toeplitz matrix becomes a Hankel matrix if the order of its columns is reversed,
    :eq:`eq-toeplitz-view`. The rows of a Hankel matrix overlap in memory. The view has the strides
    1 and 1, so that no number is copied. A view as a Toeplitz matrix would need the strides −1 and
    1, but PyTorch does not support negative strides.

    Args:
        values: Numbers, one for each offset. The last dimensions are the axes of the offsets, each
            of size ``queries + keys - 1``.
        keys: Number of columns along each axis. For a sequence this is a tuple of one integer.

    Returns:
        ``(..., *queries, *keys)``, which shares the memory of ``values``. In a compiled graph the
        result is a copy.
    """
    for size in keys:
        axis = values.ndim - len(keys)  # unfold moves the columns of an axis to the end
        if not torch.compiler.is_compiling():
            values = values.unfold(axis, size, 1)
            continue
        # `unfold` would fix the size of a compiled graph, so the numbers are copied
        row = torch.arange(values.shape[axis] - size + 1, device=values.device)
        which = row[:, None] + torch.arange(size, device=values.device)
        rows = values.index_select(axis, which.flatten()).unflatten(axis, which.shape)
        values = rows.movedim(axis + 1, -1)
    return values


def fast_length(least: int) -> int:
    """Return the smallest integer ≥ ``least`` that has no prime factors but 2, 3 and 5.

    FFTs of lengths with only these prime factors are fast.
    """
    for length in itertools.count(max(least, 1)):
        rest = length
        for prime in (2, 3, 5):
            while rest % prime == 0:
                rest //= prime
        if rest == 1:
            return length
    raise AssertionError  # count has no end


def toeplitz_spectrum(values: Tensor, axes: int = 1) -> Tensor:
    r"""Return the eigenvalues of a circulant matrix that contains a Toeplitz matrix.

    Let :math:`c_{j-i}` be the entry of the Toeplitz matrix in row i and column j. The first column
    of the circulant matrix is :math:`c_0, c_{-1}, \dots, c_{1-n}`, then zeros, then
    :math:`c_{n-1}, \dots, c_1`, :eq:`eq-toeplitz-circulant`. The zeros extend this column to the
    length :func:`fast_length` ``(2n - 1)``. For a grid this holds along each axis.

    Args:
        values: One number c per offset, float32 or float64, ``(..., 2n - 1)``, or
            ``(..., 2h - 1, 2w - 1)`` for a grid.
        axes: Number of dimensions of the offsets.

    Returns:
        The eigenvalues as the half spectrum of a real FFT, complex.
    """
    dims, sizes = list(range(-axes, 0)), toeplitz_sizes(values, axes)
    lengths = [fast_length(2 * size - 1) for size in sizes]
    ends = [(0, long - 2 * size + 1) for size, long in zip(sizes, lengths, strict=True)]
    padded = nn.functional.pad(values.flip(dims), [pad for end in reversed(ends) for pad in end])
    return torch.fft.rfftn(padded.roll([1 - size for size in sizes], dims), dim=dims)


def spectral_product(spectrum: Tensor, x: Tensor, axes: int = 1) -> Tensor:
    """Return the product of an n × n Toeplitz matrix and ``x`` in O(n log n) operations.

    Args:
        spectrum: The result of :func:`toeplitz_spectrum` for the matrix.
        x: One number per token, ``(..., n)`` or ``(..., h, w)``, in the precision of ``spectrum``.
        axes: Number of dimensions of the offsets.

    Returns:
        The product, with the sizes of ``x`` and the broadcast leading dimensions of ``spectrum``
        and ``x``.
    """
    dims, sizes = list(range(-axes, 0)), x.shape[x.ndim - axes :]
    lengths = [fast_length(2 * size - 1) for size in sizes]
    y = torch.fft.irfftn(torch.fft.rfftn(x, lengths, dims) * spectrum, lengths, dims)
    for dim, size in zip(dims, sizes, strict=True):
        y = y.narrow(dim, 0, size)
    return y
