r"""Products with circulant and Toeplitz matrices by the real fast Fourier transform."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor, nn

from stringlib.inputs import common_shape


def circular_convolution(x: Tensor, spectrum: Tensor) -> Tensor:
    r"""Return circ(r) x along the last dimension, equation :eq:`eq-circulant-product`.

    :math:`\mathrm{circ}(r)\,x = \mathrm{irfft}(\hat r \odot \mathrm{rfft}(x))`. The gradients are
    of the same form: circ(r)ᵀg for x, and :math:`\overline{\hat x} \odot \hat g`, summed over the
    tokens, for the spectrum (equation :eq:`eq-circulant-gradient`). Autograd would expand the half
    spectra to whole ones on the way.

    Args:
        x: float32 or float64, ``(..., d)``.
        spectrum: :math:`\hat r = \mathrm{rfft}(r)`, complex, of the matching precision,
            ``(..., d // 2 + 1)``; its leading dimensions broadcast with those of ``x``.

    Returns:
        ``(..., d)``, of the broadcast shape.
    """
    if x.numel() == 0:  # MKL has no FFT of nothing
        shape = common_shape(x.shape[:-1], spectrum.shape[:-1])
        return x.expand(*shape, x.shape[-1]) * spectrum.real.sum()
    return _CircularConvolution.apply(x, spectrum)


class _CircularConvolution(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, spectrum: Tensor) -> Tensor:
        return torch.fft.irfft(_times(torch.fft.rfft(x), spectrum), n=x.shape[-1])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        x, spectrum = inputs
        ctx.x_shape = x.shape
        # x is kept only for the gradient of a spectrum that is learned
        ctx.save_for_backward(x if spectrum.requires_grad else None, spectrum)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, spectrum = ctx.saved_tensors
        d = g.shape[-1]
        g_hat = torch.fft.rfft(g)
        grad_x = grad_spectrum = None
        if ctx.needs_input_grad[1]:
            product = torch.fft.rfft(x).conj() * g_hat
            # each inner frequency stands for itself and its conjugate
            weight = torch.full(product.shape[-1:], 2 / d, dtype=g.dtype, device=g.device)
            weight[0] = 1 / d
            if d % 2 == 0:
                weight[-1] = 1 / d
            grad_spectrum = product.sum_to_size(spectrum.shape) * weight
        if ctx.needs_input_grad[0]:
            grad_x = torch.fft.irfft(_times(g_hat, spectrum.conj()), n=d).sum_to_size(ctx.x_shape)
        return grad_x, grad_spectrum


def _times(signal: Tensor, spectrum: Tensor) -> Tensor:
    """Multiply in place where nothing is differentiated: a fresh tensor costs page faults."""
    fits = common_shape(signal.shape, spectrum.shape) == signal.shape
    return signal.mul_(spectrum) if fits and not torch.is_grad_enabled() else signal * spectrum


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
        ``(..., *queries, *keys)``, which shares the memory of ``values``, but in a compiled graph.
    """
    for size in keys:
        axis = values.ndim - len(keys)  # its columns go last, and the next axis moves up
        if not torch.compiler.is_compiling():
            values = values.unfold(axis, size, 1)
            continue
        # a graph with `unfold` would be for one size: numbers are copied
        row = torch.arange(values.shape[axis] - size + 1, device=values.device)
        which = row[:, None] + torch.arange(size, device=values.device)
        rows = values.index_select(axis, which.flatten()).unflatten(axis, which.shape)
        values = rows.movedim(axis + 1, -1)
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
