r"""Circulant FAVOR+ as it is printed: complex FFTs, one token and one block at a time."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def circulant_project(x: Tensor, column: Tensor, signs: Tensor) -> Tensor:
    r"""Return :math:`F^{-1}(F(r) \circ F(s \odot x))`, :eq:`eq-circulant-product`.

    Args:
        x: One token, ``(d,)``.
        column: r, the first column of every block, ``(blocks, d)``.
        signs: s, ``(blocks, d)``.

    Returns:
        The products of all blocks, one after the other; float64, ``(blocks * d,)``.
    """
    parts = []
    for r, s in zip(column.double(), signs.double(), strict=True):
        spectrum = torch.fft.fft(r) * torch.fft.fft(s * x.double())
        parts.append(torch.fft.ifft(spectrum).real)
    return torch.cat(parts)


def circulant_projection_matrix(column: Tensor, signs: Tensor) -> Tensor:
    r"""Return circ(r) diag(s) of all blocks, entry by entry, :eq:`eq-circulant-projection`.

    Args:
        column: r, ``(blocks, d)``.
        signs: s, ``(blocks, d)``.

    Returns:
        Entry (i, n) of a block is :math:`r_{(i-n) \bmod d}\,s_n`: float64, ``(blocks * d, d)``.
    """
    blocks, d = column.shape
    matrix = torch.zeros(blocks * d, d, dtype=torch.float64)
    for b in range(blocks):
        for i in range(d):
            for n in range(d):
                matrix[b * d + i, n] = column[b, (i - n) % d] * signs[b, n]
    return matrix


def circulant_favor_features(x: Tensor, column: Tensor, signs: Tensor, num_features: int) -> Tensor:
    r"""Return :math:`e^{-\|x\|^2/2}\,e^{(\tilde\Omega x)_i} / \sqrt m` for the first m entries.

    Args:
        x: One token, ``(d,)``; for :math:`e^{q^\top k/\sqrt d}` scaled by :math:`d^{-1/4}` before.
        column: r, ``(blocks, d)``.
        signs: s, ``(blocks, d)``.
        num_features: m, at most ``blocks * d``.

    Returns:
        float64, ``(num_features,)``.
    """
    exponent = circulant_project(x, column, signs)[:num_features]
    half = x.double().square().sum() / 2
    return torch.exp(exponent - half) / math.sqrt(num_features)


def circulant_gradient(x: Tensor, grad_output: Tensor, signs: Tensor) -> Tensor:
    r"""Return the gradient of r, summed over tokens, :eq:`eq-circulant-gradient`.

    .. math::
        \frac{\partial\mathcal L}{\partial r} = \sum_t F^{-1}\Big(
        \overline{F(s \odot x_t)} \circ F\big(\partial\mathcal L/\partial y_t\big)\Big)

    Args:
        x: Tokens, ``(n, d)``.
        grad_output: The gradient of the loss by each projected token, ``(n, d)``.
        signs: s of one block, ``(d,)``.

    Returns:
        float64, ``(d,)``.
    """
    total = torch.zeros(x.shape[-1], dtype=torch.float64)
    for token, grad in zip(x.double(), grad_output.double(), strict=True):
        spectrum = torch.fft.fft(signs.double() * token).conj() * torch.fft.fft(grad)
        total = total + torch.fft.ifft(spectrum).real
    return total


def unit_circulant_column(phases: Tensor, size: int) -> Tensor:
    r"""Return r whose Fourier transform has modulus 1, :eq:`eq-unit-circulant`.

    Args:
        phases: :math:`\theta_0, \dots, \theta_{\lfloor d/2 \rfloor}`; only the sign of the cosine
            counts at 0 and, for even d, at d/2.
        size: d.

    Returns:
        float64, ``(d,)``.
    """
    total = torch.zeros(size, dtype=torch.float64)
    n = torch.arange(size, dtype=torch.float64)
    for j in range(size // 2 + 1):
        phase = phases[j].double()
        if j == 0 or 2 * j == size:
            total = total + torch.cos(phase).sign() * torch.cos(2 * math.pi * j * n / size) / size
        else:
            total = total + 2 * torch.cos(2 * math.pi * j * n / size + phase) / size
    return total


def hadamard_projection_matrix(diagonals: Tensor) -> Tensor:
    r"""Return :math:`H D_1 H D_2 H D_3` with H orthonormal, :eq:`eq-hadamard-projection`.

    Args:
        diagonals: ``(3, D)``, D a power of 2.

    Returns:
        float64, ``(D, D)``. Entry (i, n) of :math:`\sqrt D H` is :math:`(-1)^{i \cdot n}`, the
        product of the binary digits of i and n.
    """
    size = diagonals.shape[-1]
    transform = torch.zeros(size, size, dtype=torch.float64)
    for i in range(size):
        for n in range(size):
            transform[i, n] = (-1) ** (i & n).bit_count() / math.sqrt(size)
    first, second, third = (torch.diag(d) for d in diagonals.double())
    return transform @ first @ transform @ second @ transform @ third
