"""Absolute encodings of a grid: what is added to a patch because of the place it has."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from stringlib.encoders.absolute import Sinusoidal
from stringlib.positions import grid_positions
from stringlib.spec import Floats, Positions, checked


class GridSinusoidal(nn.Module):
    """Add sines and cosines of each coordinate: the channels are split evenly between them.

    Args:
        dim: Number of channels, a multiple of twice ``coord_dim``.
        coord_dim: Number of coordinates.

    Raises:
        ValueError: If the channels cannot be split evenly into pairs.

    Source:
        Vaswani et al. 2017, section 3.5, for one coordinate.
    """

    @checked
    def __init__(self, dim: int, coord_dim: int) -> None:
        super().__init__()
        if dim % (2 * coord_dim):
            raise ValueError(
                f"dim must be a multiple of {2 * coord_dim} for sinusoids of {coord_dim} "
                f"coordinates, got {dim}"
            )
        self.dim, self.coord_dim = dim, coord_dim
        self.line = Sinusoidal(dim // coord_dim)

    @checked
    def forward(
        self,
        x: Floats[Tensor, "... n self.dim"],
        positions: Positions[Tensor, "... n self.coord_dim"],
    ) -> Tensor:
        """Return ``x``, ``(..., cells, dim)``, plus the encoding of ``(..., cells, coord_dim)``."""
        parts = zip(x.chunk(self.coord_dim, -1), positions.split(1, -1), strict=True)
        return torch.cat([self.line(part, place) for part, place in parts], -1)


class GridTable(nn.Module):
    """Add one learned vector for each cell of a grid, read between cells by interpolation.

    A place between cells gets the weighted mean of its neighbours, linear along each axis; a place
    beyond the edge gets what the edge has.

    Args:
        sizes: Number of cells along each axis.
        dim: Number of channels.

    Attributes:
        weight: ``(*sizes, dim)``. Starts normal with a standard deviation of 0.02.

    Source:
        Dosovitskiy et al. 2021, section 3.1; section 3.2 for reading it between cells.
    """

    @checked
    def __init__(self, sizes: Sequence[int], dim: int) -> None:
        super().__init__()
        if not sizes:
            raise ValueError(f"sizes must be one number for each axis, got {sizes!r}")
        self.sizes, self.dim, self.axes = tuple(sizes), dim, len(sizes)
        self.weight = nn.Parameter(torch.empty(*self.sizes, dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the table anew."""
        nn.init.normal_(self.weight, std=0.02)

    @checked
    def forward(
        self, x: Floats[Tensor, "... n self.dim"], positions: Positions[Tensor, "... n self.axes"]
    ) -> Tensor:
        """Return ``x``, ``(..., cells, dim)``, plus what stands at ``(..., cells, axes)``."""
        share = positions.new_ones(*positions.shape[:-1], 1, dtype=torch.float32)
        for size, place in zip(self.sizes, positions.float().unbind(-1), strict=True):
            cells = torch.arange(size, device=x.device)
            near = 1 - (place.clamp(0, size - 1)[..., None] - cells).abs()
            share = (share[..., None] * near.clamp(min=0)[..., None, :]).flatten(-2)
        return x + (share.to(self.weight.dtype) @ self.weight.flatten(0, -2)).to(x.dtype)

    def places(self, *sizes: int) -> Tensor:
        """Return where the cells of a grid of these sizes lie when it covers the table.

        The centre of a cell i of n lies at (i + ½) / n of the way; for the table's own sizes these
        are the whole numbers.
        """
        columns = grid_positions(*sizes, device=self.weight.device).unbind(-1)
        shares = [own / other for own, other in zip(self.sizes, sizes, strict=True)]
        return torch.stack([(c + 0.5) * s - 0.5 for c, s in zip(columns, shares, strict=True)], -1)
