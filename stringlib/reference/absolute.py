"""A position's vector added to its token, one token after the other."""

from __future__ import annotations

from torch import Tensor


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
