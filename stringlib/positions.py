"""Explicit positions, and the frequencies that read them.

A position is a row of coordinates. Nothing here or elsewhere guesses a grid from
the number of tokens: 48 tokens may be 6 x 8 or 4 x 12.
"""

from __future__ import annotations

import torch
from torch import Tensor

from stringlib.precision import widest
from stringlib.spec import Count0, Positive, checked


@checked
def grid_positions(
    *sizes: Count0,
    dtype: torch.dtype = torch.float32,
    num_prefix: Count0 = 0,
    device: torch.device | str | None = None,
) -> Tensor:
    """Return the coordinates of every cell of a grid, in reading order (last axis fastest).

    ``grid_positions(n)`` is a sequence, ``grid_positions(rows, columns)`` an image,
    ``grid_positions(depth, rows, columns)`` a volume. Coordinate ``a`` counts cells
    along axis ``a`` from 0; neighbours are 1 apart at any resolution.

    Args:
        *sizes: Number of cells along each axis.
        dtype: dtype of the result.
        num_prefix: Tokens in front of the cells that have no place, such as a class token and
            registers. They get the position 0, which turns nothing.
        device: Where the result is to be; the default device if omitted.

    Returns:
        A tensor of shape ``(num_prefix + product of sizes, len(sizes))``.

    Example:
        >>> grid_positions(2, 3).tolist()
        [[0.0, 0.0], [0.0, 1.0], [0.0, 2.0], [1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]

    Raises:
        TypeError: If ``dtype`` is not one of real numbers.
        ValueError: If no size is given, one is negative, or cells would get one coordinate in
            ``dtype``: bfloat16 counts to 256.
    """
    if not sizes:
        raise ValueError("sizes must name at least one axis, got none")
    largest = _largest_whole(dtype)
    if max(sizes) - 1 > largest:
        raise ValueError(
            f"dtype must tell all whole numbers up to {max(sizes) - 1} apart, got {dtype}, "
            f"which does up to {largest}"
        )
    axes = [torch.arange(size, dtype=dtype, device=device) for size in sizes]
    cells = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).flatten(0, -2)
    return torch.cat([cells.new_zeros(num_prefix, len(sizes)), cells])


def _largest_whole(dtype: torch.dtype) -> int:
    """Return the number up to which a dtype holds every whole number."""
    if dtype == torch.bool or dtype.is_complex:
        raise TypeError(f"dtype must be one of real numbers, got {dtype}")
    return int(2 / torch.finfo(dtype).eps) if dtype.is_floating_point else torch.iinfo(dtype).max


@checked
def geometric_frequencies(pairs: Count0, base: Positive = 10000.0) -> Tensor:
    r"""Return RoPE's frequencies, equation :eq:`eq-rope-frequencies`.

    Args:
        pairs: Number of pairs :math:`d/2`.
        base: The base :math:`b`.

    Returns:
        :math:`\theta_i = b^{-i/(d/2)}, 0 \le i < d/2`, in radians per unit of position,
        float64, shape ``(pairs,)``.

    Source:
        Su et al. 2024 (RoFormer), section 3.2.2, :math:`b = 10000`.
    """
    return float(base) ** -(torch.arange(pairs, dtype=widest()) / max(pairs, 1))
