r"""The Walsh–Hadamard transform: a product with a large matrix of signs that is not formed."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from stringlib.precision import widest
from stringlib.spec import checked


@checked
def hadamard(size: int, device: torch.device | None = None) -> Tensor:
    r"""Return Sylvester's Hadamard matrix, :math:`H_{2n} = H_2 \otimes H_n`, :eq:`eq-hadamard`.

    Args:
        size: A power of 2.
        device: Device of the result. Default: the default device of torch.

    Returns:
        A symmetric matrix with entries ±1 and :math:`H^2 = \mathrm{size} \cdot I`, float64,
        ``(size, size)``.

    Raises:
        ValueError: If ``size`` is not a power of 2.
    """
    _require_power("size", size)
    matrix = torch.ones(1, 1, dtype=widest(device), device=device)
    for _ in range(size.bit_length() - 1):
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix


def fast_hadamard(x: Tensor) -> Tensor:
    r"""Return the products Hx of Sylvester's Hadamard matrix H and the vectors in ``x``.

    H itself, :eq:`eq-hadamard`, is not formed. If vectors have n entries, H is a Kronecker product
    :math:`H_a \otimes H_b` with a and b near :math:`\sqrt n`. So Hx needs one product with each of
    two small matrices, about :math:`2 n^{3/2}` multiplications in total. The fast (butterfly)
    algorithm needs only :math:`n \log_2 n` additions, but processors do the arithmetic of matrix
    products about ten times as fast.

    Args:
        x: Vectors, floating-point, ``(..., n)``, where n is a power of 2.

    Returns:
        Hx, not normalised, with the shape of ``x``.

    Raises:
        ValueError: If n is not a power of 2.
    """
    size = int(x.shape[-1])  # torch.jit.trace has tensors as sizes
    _require_power("x.shape[-1]", size)
    low = 1 << (size.bit_length() // 2)
    inner, outer = (hadamard(n, x.device).to(x.dtype) for n in (low, size // low))
    folded = x.unflatten(-1, (size // low, low)) @ inner
    return (outer @ folded).flatten(-2) if size > low else folded.flatten(-2)


def next_power(size: int) -> int:
    """Return the smallest power of 2 that is at least ``size``."""
    return 1 << math.ceil(math.log2(size)) if size > 1 else 1


def _require_power(name: str, size: int) -> None:
    if size < 1 or size & (size - 1):
        raise ValueError(f"{name} must be a power of 2, got {size}")
