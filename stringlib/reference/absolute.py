"""Reference implementations of absolute position vectors, which compute one entry at a time."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def sinusoidal_table(length: int, dim: int, base: float = 10000.0) -> Tensor:
    r"""Return the table of sinusoidal position vectors, equation :eq:`eq-sinusoidal`.

    Args:
        length: Number of positions.
        dim: Even number of channels D.
        base: Base b of the frequencies :math:`b^{-2j/D}`, which are in radians per position.
            Default: 10000.

    Returns:
        The table, float64, ``(length, dim)``. Row t contains :math:`\sin(t\,b^{-2j/D})` in
        channel 2j and :math:`\cos(t\,b^{-2j/D})` in channel 2j + 1.

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
    """Return the sum of each token and the position vector of its position, :eq:`eq-abs-sum`.

    Args:
        x: Tokens, ``(seq, dim)``.
        positions: Integer position of each token, from 0 to ``num_positions - 1``, ``(seq,)``.
        table: One position vector (row) per position, ``(num_positions, dim)``.

    Returns:
        The sums, float64, ``(seq, dim)``.

    Source:
        Vaswani et al. 2017, section 3.5.
    """
    out = x.double().clone()
    for token, position in enumerate(positions.tolist()):
        out[token] += table[int(position)].double()
    return out
