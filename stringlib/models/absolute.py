"""Absolute position encodings of a grid, which add a vector for its position to each patch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from stringlib.encoders.absolute import Sinusoidal
from stringlib.positions import grid_positions
from stringlib.spec import Floats, Positions, checked


class GridSinusoidal(nn.Module):
    """Sinusoidal position encoding with several coordinates.

    The channels are split evenly between the coordinates. Each coordinate adds the sines and
    cosines of a one-dimensional encoding to its share of the channels, see
    :class:`~stringlib.encoders.absolute.Sinusoidal`.

    Args:
        dim: Number of channels, a multiple of ``2 * coord_dim``.
        coord_dim: Number of coordinates.

    Raises:
        ValueError: If ``dim`` is not a multiple of ``2 * coord_dim``.

    Source:
        Vaswani et al. 2017, section 3.5, for one coordinate.
    """

    @checked
    def __init__(self, dim: int, coord_dim: int) -> None:
        super().__init__()
        if dim % (2 * coord_dim):
            raise ValueError(
                f"dim must be a multiple of 2 * coord_dim = {2 * coord_dim}, got {dim}. Each "
                "coordinate has as many sines as cosines."
            )
        self.dim, self.coord_dim = dim, coord_dim
        self.line = Sinusoidal(dim // coord_dim)

    @checked
    def forward(
        self,
        x: Floats[Tensor, "... n self.dim"],
        positions: Positions[Tensor, "... n self.coord_dim"],
    ) -> Tensor:
        """Return ``x`` plus the encoding of the positions.

        Args:
            x: Tokens, ``(..., cells, dim)``.
            positions: Coordinates of the tokens, ``(..., cells, coord_dim)``.
        """
        parts = zip(x.chunk(self.coord_dim, -1), positions.split(1, -1), strict=True)
        return torch.cat([self.line(part, coordinate) for part, coordinate in parts], -1)


class GridTable(nn.Module):
    """Learned position encoding with one vector per cell of a grid.

    A position between cells gets a weighted mean of the vectors of its neighbours (multilinear
    interpolation). A position outside the grid gets the vector of the nearest position at the edge.

    Args:
        sizes: Number of cells along each axis.
        dim: Number of channels.

    Attributes:
        weight: The vectors, ``(*sizes, dim)``. The initial values are normal with standard
            deviation 0.02.

    Source:
        Dosovitskiy et al. 2021, section 3.1, and section 3.2 for the interpolation.
    """

    @checked
    def __init__(self, sizes: Sequence[int], dim: int) -> None:
        super().__init__()
        if not sizes:
            raise ValueError(f"sizes must contain the number of patches per axis, got {sizes!r}")
        self.sizes, self.dim, self.axes = tuple(sizes), dim, len(sizes)
        self.weight = nn.Parameter(torch.empty(*self.sizes, dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values for the vectors."""
        nn.init.normal_(self.weight, std=0.02)

    @checked
    def forward(
        self, x: Floats[Tensor, "... n self.dim"], positions: Positions[Tensor, "... n self.axes"]
    ) -> Tensor:
        """Return ``x`` plus the vectors at the positions.

        Args:
            x: Tokens, ``(..., cells, dim)``.
            positions: Coordinates in the table, ``(..., cells, axes)``. The cell with index i along
                an axis has the coordinate i.
        """
        share = positions.new_ones(*positions.shape[:-1], 1, dtype=torch.float32)
        for size, coordinate in zip(self.sizes, positions.float().unbind(-1), strict=True):
            cells = torch.arange(size, device=x.device)
            near = 1 - (coordinate.clamp(0, size - 1)[..., None] - cells).abs()
            share = (share[..., None] * near.clamp(min=0)[..., None, :]).flatten(-2)
        return x + (share.to(self.weight.dtype) @ self.weight.flatten(0, -2)).to(x.dtype)

    def places(self, *sizes: int, device: torch.device | None = None) -> Tensor:
        """Return the coordinates in the table for the cells of another grid over the same image.

        Along an axis with n cells, the centre of cell i is at the fraction (i + ½) / n of the
        length of the axis. For the sizes of the table itself the coordinates are the integers.

        Args:
            *sizes: Number of cells of the other grid along each axis.
            device: Device of the result. Default: the device of the table.

        Returns:
            ``(cells, axes)``, with the cells in row-major order.
        """
        columns = grid_positions(*sizes, device=device or self.weight.device).unbind(-1)
        shares = [own / other for own, other in zip(self.sizes, sizes, strict=True)]
        return torch.stack([(c + 0.5) * s - 0.5 for c, s in zip(columns, shares, strict=True)], -1)
