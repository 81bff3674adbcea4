"""Kernelised attention with a bias for every offset, as printed: sums, and products by FFT."""

from __future__ import annotations

import torch
from torch import Tensor

from stringlib.reference.linear import linear_attention


def toeplitz_matrix(c: Tensor) -> Tensor:
    r"""Return :math:`C_{ij} = c_{j-i}`, entry by entry, equation :eq:`eq-toeplitz-matrix`.

    Args:
        c: :math:`c_{1-n}, \dots, c_{n-1}`, ``(2n - 1,)``.

    Returns:
        ``(n, n)``, in the dtype of ``c``.
    """
    n = (len(c) + 1) // 2
    matrix = torch.zeros(n, n, dtype=c.dtype)
    for i in range(n):
        for j in range(n):
            matrix[i, j] = c[(j - i) + n - 1]
    return matrix


def fft_toeplitz_matmul(c: Tensor, x: Tensor) -> Tensor:
    r"""Return :math:`Cx` by a circulant matrix of size 2n, equation :eq:`eq-toeplitz-fft`.

    The circulant's first column is :math:`[c_0, c_{-1}, \dots, c_{1-n}, 0, c_{n-1}, \dots, c_1]`.
    Computed in the dtype of the arguments, so that the error of each can be seen.

    Args:
        c: ``(2n - 1,)`` or ``(..., 2n - 1)``; :math:`c_{j-i}` at index :math:`(j - i) + n - 1`.
        x: ``(n, d)`` or ``(..., n, d)``.

    Returns:
        ``(..., n, d)``.

    Source:
        Luo et al. 2021, section 3.2; Gray 2006.
    """
    n = x.shape[-2]
    zero = torch.zeros_like(c[..., :1])
    past, future = c[..., :n].flip(-1), c[..., n:].flip(-1)  # c_0 … c_{1-n} and c_{n-1} … c_1
    column = torch.cat([past, zero, future], -1)
    padded = torch.cat([x, torch.zeros_like(x)], -2)
    spectrum = torch.fft.fft(column).unsqueeze(-1) * torch.fft.fft(padded, dim=-2)
    return torch.fft.ifft(spectrum, dim=-2).real[..., :n, :]


def nprf_attention(phi_q: Tensor, phi_k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    r"""Return attention by algorithm 1: all n × m × d products at once, then FFTs.

    Equation :eq:`eq-toeplitz-algorithm`. The algorithm prints :math:`C\,(K'^\top V)`, whose shapes
    do not fit; what fits is one product for each feature and channel.

    Args:
        phi_q: Features of the queries, ``(n, m)`` or ``(..., n, m)``.
        phi_k: Features of the keys, of the same shape.
        v: ``(n, d)`` or ``(..., n, d)``.
        bias: :math:`b_{j-i}` at index :math:`(j - i) + n - 1`, ``(2n - 1,)`` or ``(..., 2n - 1)``.

    Returns:
        ``(..., n, d)``, in the dtype of the arguments.

    Source:
        Luo et al. 2021, algorithm 1.
    """
    c = torch.exp(bias)
    a1 = phi_k.unsqueeze(-1) * v.unsqueeze(-2)  # (..., n, m, d): one outer product a token
    a2 = phi_k
    d1 = fft_toeplitz_matmul(c, a1.flatten(-2)).unflatten(-1, a1.shape[-2:])
    d2 = fft_toeplitz_matmul(c, a2)
    numerator = torch.einsum("...im,...imd->...id", phi_q, d1)
    denominator = torch.einsum("...im,...im->...i", phi_q, d2)
    return numerator / denominator.unsqueeze(-1)


def toeplitz_attention(
    phi_q: Tensor, phi_k: Tensor, v: Tensor, bias: Tensor, causal: bool = False
) -> Tensor:
    r"""Return attention sum by sum, equation :eq:`eq-toeplitz-attention`.

    Args:
        phi_q: Features of the queries, ``(n, m)``.
        phi_k: Features of the keys, ``(n, m)``.
        v: ``(n, d)``.
        bias: ``(2n - 1,)``.
        causal: Whether query i sees the keys 0 … i only.

    Returns:
        float64, ``(n, d)``.

    Source:
        Luo et al. 2021, equation of section 3.1.
    """
    weights = toeplitz_matrix(torch.exp(bias.double()))
    return linear_attention(phi_q[None], phi_k[None], v[None], weights[None], causal)[0]


def grid_toeplitz_matrix(c: Tensor) -> Tensor:
    r"""Return :math:`C` on a grid, pair by pair: ``c[h - 1 + rows, w - 1 + columns]``.

    Args:
        c: One number for each offset in rows and columns, ``(2h - 1, 2w - 1)``.

    Returns:
        ``(hw, hw)``, tokens numbered row by row.
    """
    h, w = (c.shape[0] + 1) // 2, (c.shape[1] + 1) // 2
    matrix = torch.zeros(h * w, h * w, dtype=c.dtype)
    for i in range(h * w):
        for j in range(h * w):
            rows, columns = j // w - i // w, j % w - i % w
            matrix[i, j] = c[h - 1 + rows, w - 1 + columns]
    return matrix
