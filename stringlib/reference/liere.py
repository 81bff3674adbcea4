"""LieRE as it is printed: one rotation from generators that need not commute."""

from __future__ import annotations

import torch
from torch import Tensor


def liere_matrix(positions: Tensor, generators: Tensor) -> Tensor:
    r"""Return :math:`R(r) = \exp(\sum_i r_i A_i)`, equation :eq:`eq-universal-liere`.

    With commuting generators this is a STRING. Otherwise :math:`R(a)^\top R(b)` is not
    :math:`R(b-a)`, and a score depends on more than the distance.

    Args:
        positions: r, ``(seq, coord_dim)``.
        generators: Skew-symmetric :math:`A_i`, ``(coord_dim, d, d)``.

    Returns:
        float64, ``(seq, d, d)``.

    Raises:
        ValueError: If there is not one generator for each coordinate.

    Source:
        Ostmeier et al. 2025 (LieRE).
    """
    if positions.shape[-1] != generators.shape[0]:
        raise ValueError(
            f"positions must have {generators.shape[0]} coordinates, one for each generator, "
            f"got shape {tuple(positions.shape)}"
        )
    matrices = torch.zeros(len(positions), *generators.shape[1:], dtype=torch.float64)
    for n, r in enumerate(positions.double()):
        exponent = torch.zeros(generators.shape[1:], dtype=torch.float64)
        for i in range(len(generators)):
            exponent = exponent + r[i] * generators[i].double()
        # twice: torch 2.13 exponentiates a single small matrix to 1e-10 only, a batch to 1e-15
        matrices[n] = torch.matrix_exp(torch.stack([exponent, exponent]))[0]
    return matrices


def liere_first_error(a: Tensor, b: Tensor, generators: Tensor) -> Tensor:
    r"""Return the leading term of :math:`R(a)^\top R(b) - R(b-a)`, :eq:`eq-universal-area`.

    Args:
        a: Position of the query, ``(coord_dim,)``.
        b: Position of the key, ``(coord_dim,)``.
        generators: Skew-symmetric :math:`A_i`, ``(coord_dim, d, d)``.

    Returns:
        :math:`-\frac12 \sum_{i<j} (a_i b_j - a_j b_i)\,[A_i, A_j]`: float64, ``(d, d)``.
    """
    total = torch.zeros(generators.shape[1:], dtype=torch.float64)
    for i in range(len(generators)):
        for j in range(i + 1, len(generators)):
            area = (a[i] * b[j] - a[j] * b[i]) / 2
            one, other = generators[i].double(), generators[j].double()
            total = total - area * (one @ other - other @ one)
    return total
