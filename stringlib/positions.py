"""Positions of tokens on sequences and grids.

A position is a row of coordinates. You always give the sizes of a grid. They cannot be inferred
from the number of tokens, because 48 tokens may be a grid of 6 x 8 or of 4 x 12.
"""

from __future__ import annotations

import torch
from torch import Tensor

from stringlib.moved import forward
from stringlib.spec import Count0, checked


@checked
def grid_positions(
    *sizes: Count0,
    dtype: torch.dtype = torch.float32,
    num_prefix: Count0 = 0,
    device: torch.device | str | None = None,
) -> Tensor:
    """Return the coordinates of every cell of a grid, in reading order (last axis changes first).

    ``grid_positions(n)`` is for a sequence, ``grid_positions(rows, columns)`` for an image,
    ``grid_positions(depth, rows, columns)`` for a volume. Coordinate ``a`` of a cell is its index
    along axis ``a``, counted from 0. So the distance of neighbours is 1, whatever the size of the
    grid is.

    Args:
        *sizes: Number of cells along each axis.
        dtype: Dtype of the result. Default: float32.
        num_prefix: Number of tokens before the cells that have no position in the grid, such as a
            class token and registers. All coordinates of these tokens are 0, so that an encoder
            does not rotate them. Default: 0.
        device: Device of the result. Default: the default device of torch.

    Returns:
        Positions, ``(num_prefix + product of sizes, len(sizes))``.

    Example:
        >>> grid_positions(2, 3).tolist()
        [[0.0, 0.0], [0.0, 1.0], [0.0, 2.0], [1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]

    Raises:
        TypeError: If ``dtype`` is complex or boolean.
        ValueError: If no size is given, if a size is negative, or if ``dtype`` cannot represent
            all coordinates. For example, bfloat16 represents all integers only up to 256.
    """
    if not sizes:
        raise ValueError(
            "sizes must contain at least one number, one for each axis of the grid, got (). For a "
            "sequence of n tokens call grid_positions(n)."
        )
    largest = _largest_whole(dtype)
    if max(sizes) - 1 > largest:
        raise ValueError(
            f"dtype must represent all integers up to {max(sizes) - 1}, got {dtype}, which "
            f"represents them only up to {largest}. The largest coordinate is {max(sizes) - 1}. "
            "Pass dtype=torch.float64."
        )
    axes = [torch.arange(size, dtype=dtype, device=device) for size in sizes]
    cells = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).flatten(0, -2)
    return torch.cat([cells.new_zeros(num_prefix, len(sizes)), cells])


def _largest_whole(dtype: torch.dtype) -> int:
    """Return the number up to which a dtype represents every integer."""
    if dtype == torch.bool or dtype.is_complex:
        raise TypeError(f"dtype must be an integer or floating-point dtype, got {dtype}")
    return int(2 / torch.finfo(dtype).eps) if dtype.is_floating_point else torch.iinfo(dtype).max


__getattr__ = forward(__name__, "stringlib.kernels.rotation", "geometric_frequencies")
