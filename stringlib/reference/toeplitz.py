"""Reference implementations of linear attention with a bias per offset, by sums or by FFTs."""

from __future__ import annotations

import torch
from torch import Tensor

from stringlib.reference.linear import linear_attention


def toeplitz_matrix(c: Tensor) -> Tensor:
    r"""Return the Toeplitz matrix with one given number per offset, :eq:`eq-toeplitz-matrix`.

    Args:
        c: One number per offset, :math:`c_{1-n}, \dots, c_{n-1}`, ``(2n - 1,)``.

    Returns:
        The matrix C with the entries :math:`C_{ij} = c_{j-i}`, ``(n, n)``, in the dtype of ``c``.
    """
    n = (len(c) + 1) // 2
    matrix = torch.zeros(n, n, dtype=c.dtype)
    for i in range(n):
        for j in range(n):
            matrix[i, j] = c[(j - i) + n - 1]
    return matrix


def fft_toeplitz_matmul(c: Tensor, x: Tensor) -> Tensor:
    r"""Return the product :math:`Cx` of a Toeplitz matrix C and a matrix, :eq:`eq-toeplitz-fft`.

    C is the upper left block of a circulant matrix of size 2n. The first column of the circulant
    matrix is :math:`[c_0, c_{-1}, \dots, c_{1-n}, 0, c_{n-1}, \dots, c_1]`, and the product with it
    is computed by FFT. Everything is computed in the dtype of the arguments, so that the rounding
    errors of each dtype can be measured.

    Args:
        c: One number per offset, :math:`c_{j-i}` at index :math:`(j - i) + n - 1`,
            ``(2n - 1,)`` or ``(..., 2n - 1)``.
        x: The matrix to be multiplied, ``(n, d)`` or ``(..., n, d)``.

    Returns:
        The product Cx, ``(..., n, d)``.

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
    r"""Return linear attention with a bias per offset, by the published algorithm with FFTs.

    The algorithm stores all n × m × d products of a feature of a key and a channel of the key's
    value. It multiplies these products by the Toeplitz matrix C with the entries
    :math:`e^{b_{j-i}}`, equation :eq:`eq-toeplitz-algorithm`. The shapes in the paper's formula
    :math:`C\,(K'^\top V)` do not fit. Here C multiplies one vector of n numbers for each feature
    and channel.

    Args:
        phi_q: Features of the queries, ``(n, m)`` or ``(..., n, m)``.
        phi_k: Features of the keys, of the same shape.
        v: Values, ``(n, d)`` or ``(..., n, d)``.
        bias: One bias per offset, :math:`b_{j-i}` at index :math:`(j - i) + n - 1`,
            ``(2n - 1,)`` or ``(..., 2n - 1)``.

    Returns:
        Outputs of the queries, ``(..., n, d)``, in the dtype of the arguments.

    Source:
        Luo et al. 2021, algorithm 1.
    """
    c = torch.exp(bias)
    a1 = phi_k.unsqueeze(-1) * v.unsqueeze(-2)  # (..., n, m, d): one outer product per token
    a2 = phi_k
    d1 = fft_toeplitz_matmul(c, a1.flatten(-2)).unflatten(-1, a1.shape[-2:])
    d2 = fft_toeplitz_matmul(c, a2)
    numerator = torch.einsum("...im,...imd->...id", phi_q, d1)
    denominator = torch.einsum("...im,...im->...i", phi_q, d2)
    return numerator / denominator.unsqueeze(-1)


def toeplitz_attention(
    phi_q: Tensor, phi_k: Tensor, v: Tensor, bias: Tensor, causal: bool = False
) -> Tensor:
    r"""Return linear attention with a bias per offset, by sums over all pairs of tokens.

    The weight of query i and key j is :math:`e^{b_{j-i}}`, equation
    :eq:`eq-toeplitz-attention`.

    Args:
        phi_q: Features of the queries, ``(n, m)``.
        phi_k: Features of the keys, ``(n, m)``.
        v: Values, ``(n, d)``.
        bias: One bias per offset, :math:`b_{j-i}` at index :math:`(j - i) + n - 1`,
            ``(2n - 1,)``.
        causal: If True, query i attends only to the keys 0 … i. Default: False.

    Returns:
        Outputs of the queries, float64, ``(n, d)``.

    Source:
        Luo et al. 2021, equation of section 3.1.
    """
    weights = toeplitz_matrix(torch.exp(bias.double()))
    return linear_attention(phi_q[None], phi_k[None], v[None], weights[None], causal)[0]


def grid_toeplitz_matrix(c: Tensor) -> Tensor:
    r"""Return the matrix whose entries depend on the offset of two tokens of an h × w grid.

    Let token j be ``rows`` rows below and ``columns`` columns to the right of token i. Then entry
    (i, j) is ``c[h - 1 + rows, w - 1 + columns]``. If token j is above token i, ``rows`` is
    negative. If token j is to the left of token i, ``columns`` is negative.

    Args:
        c: One number per offset in rows and columns, ``(2h - 1, 2w - 1)``.

    Returns:
        The matrix, ``(hw, hw)``, in the dtype of ``c``. Tokens are numbered row by row.
    """
    h, w = (c.shape[0] + 1) // 2, (c.shape[1] + 1) // 2
    matrix = torch.zeros(h * w, h * w, dtype=c.dtype)
    for i in range(h * w):
        for j in range(h * w):
            rows, columns = j // w - i // w, j % w - i % w
            matrix[i, j] = c[h - 1 + rows, w - 1 + columns]
    return matrix
