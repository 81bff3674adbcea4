r"""Products with circulant matrices by the real fast Fourier transform."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


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
        shape = torch.broadcast_shapes(x.shape[:-1], spectrum.shape[:-1])
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
    fits = torch.broadcast_shapes(signal.shape, spectrum.shape) == signal.shape
    return signal.mul_(spectrum) if fits and not torch.is_grad_enabled() else signal * spectrum
