"""Vectors added to tokens, as they are printed: one sine, one cosine, one token at a time."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def sinusoidal_table(length: int, dim: int, base: float = 10000.0) -> Tensor:
    r"""Return the table of absolute position vectors, equation :eq:`eq-sinusoidal`.

    Args:
        length: Number of positions.
        dim: Even number of channels D.
        base: The base of the frequencies.

    Returns:
        :math:`\mathrm{PE}_{t,2j} = \sin(t\,b^{-2j/D})` and the cosine beside it: float64,
        ``(length, dim)``.

    Raises:
        ValueError: If ``dim`` is odd.

    Source:
        Vaswani et al. 2017, section 3.5.
    """
    if dim % 2:
        raise ValueError(f"dim must be even, got {dim}")
    table = torch.zeros(length, dim, dtype=torch.float64)
    for t in range(length):
        for j in range(dim // 2):
            angle = t / base ** (2 * j / dim)
            table[t, 2 * j] = math.sin(angle)
            table[t, 2 * j + 1] = math.cos(angle)
    return table


def add_rows(x: Tensor, positions: Tensor, table: Tensor) -> Tensor:
    """Add to every token the table's row of its position, equation :eq:`eq-abs-sum`.

    Args:
        x: ``(seq, dim)``.
        positions: Whole numbers, ``(seq,)``.
        table: One row a position, ``(num_positions, dim)``.

    Returns:
        float64, ``(seq, dim)``.

    Source:
        Vaswani et al. 2017, section 3.5.
    """
    out = x.double().clone()
    for token, position in enumerate(positions.tolist()):
        out[token] += table[int(position)].double()
    return out
