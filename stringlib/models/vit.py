"""A vision transformer for images and volumes, with any encoder and any attention."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from stringlib.encoders.registry import BIASES, ENCODERS, make_bias
from stringlib.inputs import require_count
from stringlib.models.absolute import GridSinusoidal, GridTable
from stringlib.models.blocks import Block, initialize
from stringlib.positions import grid_positions

POOLS = ("cls", "mean")


class ViT(nn.Module):
    """Patches, blocks, and a score for each class, of a class token or of the patches' mean.

    Coordinates are explicit: patch (i, j) stands at (i, j), whatever the size of the image. Nothing
    is normalised, and nothing is guessed from the number of patches.

    Args:
        image_size: Pixels along each axis; an int is a square image. One axis is a series, three
            are a volume. Images of other sizes can be given too: the size is needed for learned
            tables alone.
        patch_size: Pixels of a patch along each axis, divisors of ``image_size``; an int serves
            all axes.
        classes: Number of classes.
        dim: Number of channels of a token.
        depth: Number of blocks.
        heads: Number of heads of each block, a divisor of ``dim``.
        encoder: Where position enters. A name in :data:`~stringlib.encoders.registry.ENCODERS`:
            each block has an encoder of its own, which reads the coordinates.
            ``"sinusoidal"`` or ``"learned"``: a vector added to each patch. A name in
            :data:`~stringlib.encoders.registry.BIASES`: one bias for all blocks. A module: an
            encoder or bias that all blocks share. None: patches are a set.
        attention: As for :class:`~stringlib.attention.multihead.MultiHeadAttention`.
        gate: As for :class:`~stringlib.attention.multihead.MultiHeadAttention`.
        channels: Channels of an image.
        hidden: Channels between the projections of the feed-forward part; if omitted
            ``4 * dim`` for ``"mlp"``, two thirds of it for ``"swiglu"``.
        mlp: ``"mlp"``, ``"swiglu"``, or None for attention alone.
        pool: ``"cls"`` reads a class token that stands before the patches. It stands at
            coordinate 0 and is not rotated, so its logits with a patch depend on where the patch
            is: with a class token even a rotary encoder is not blind to a shift of the image.
            ``"mean"`` reads the mean of the patches.
        **options: Options of attention, for every block, such as ``weight`` or ``num_features``.

    A bias, and every weight but ``"toeplitz"``, counts tokens in reading order, the class token
    first: the end of one row and the start of the next are neighbours. The weight ``"toeplitz"``
    has a number for each offset in the plane, and so wants ``pool="mean"`` and the image size it
    was made for.

    Raises:
        TypeError: If an argument has the wrong kind.
        ValueError: If a name is unknown, a number does not fit, or parts cannot go together.

    Source:
        Dosovitskiy et al. 2021.
    """

    def __init__(
        self,
        image_size: int | tuple[int, ...],
        patch_size: int | tuple[int, ...],
        classes: int,
        dim: int = 64,
        depth: int = 2,
        heads: int = 4,
        encoder: Any = None,
        attention: Any = "softmax",
        gate: str | None = None,
        *,
        channels: int = 1,
        hidden: int | None = None,
        mlp: str | None = "mlp",
        pool: str = "cls",
        **options: Any,
    ) -> None:
        super().__init__()
        for name, number in (("classes", classes), ("dim", dim), ("depth", depth)):
            require_count(name, number)
        self.image_size = (image_size,) * 2 if isinstance(image_size, int) else tuple(image_size)
        axes = len(self.image_size)
        self.patch_size = (patch_size,) * axes if isinstance(patch_size, int) else tuple(patch_size)
        self.grid = self._cells("image_size", self.image_size)
        if pool not in POOLS:
            raise ValueError(f"pool must be one of {', '.join(POOLS)}, got {pool!r}")
        self.channels, self.pool = channels, pool
        self.embed = nn.Linear(channels * math.prod(self.patch_size), dim)
        self.cls = nn.Parameter(torch.empty(dim)) if pool == "cls" else None
        self.absolute: GridSinusoidal | GridTable | None = None
        if encoder == "sinusoidal":
            self.absolute, encoder = GridSinusoidal(dim, axes), None
        elif encoder == "learned":
            self.absolute, encoder = GridTable(self.grid, dim), None
        elif isinstance(encoder, str) and encoder in BIASES:
            encoder = make_bias(encoder, heads)
        elif isinstance(encoder, str) and encoder in ENCODERS:
            options["coord_dim"] = axes
        if options.get("weight") == "toeplitz":
            if self.cls is not None:
                raise ValueError(
                    "pool must be 'mean' for weight 'toeplitz', whose table has a number for each "
                    f"offset between patches and none for a class token, got {pool!r}"
                )
            options |= {"length": self.grid[0]} if axes == 1 else {"grid": self.grid}
        self.blocks = nn.ModuleList(
            Block(
                dim,
                heads,
                mlp=mlp,
                hidden=hidden or (8 * dim // 3 if mlp == "swiglu" else 4 * dim),
                encoder=encoder,
                attention=attention,
                gate=gate,
                **options,
            )
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(dim)
        self.readout = nn.Linear(dim, classes)
        initialize(self, self.blocks)
        if self.cls is not None:
            nn.init.normal_(self.cls, std=dim**-0.5)

    def patches(self, images: Tensor) -> Tensor:
        """Return ``(batch, cells, channels * patch)`` of ``(batch, channels, *sizes)``."""
        x = images
        for axis, p in enumerate(self.patch_size):
            x = x.unfold(2 + axis, p, p)
        axes = len(self.patch_size)
        return x.flatten(2 + axes).movedim(1, -2).flatten(-2).flatten(1, axes)

    def forward(self, images: Tensor, positions: Tensor | None = None) -> Tensor:
        """Return scores, ``(batch, classes)``."""
        sizes = self._cells("images", tuple(images.shape[2:]))
        x = self.embed(self.patches(images))
        given = positions is not None
        if positions is None:
            positions = grid_positions(*sizes).to(images.device)
        if isinstance(self.absolute, GridTable) and not given and sizes != self.grid:
            x = self.absolute(x, self.absolute.stretched(positions, sizes))
        elif self.absolute is not None:
            x = self.absolute(x, positions)
        if self.cls is not None:
            x = torch.cat([self.cls.to(x.dtype).expand(len(x), 1, -1), x], 1)
            positions = torch.cat([torch.zeros_like(positions[..., :1, :]), positions], -2)
        for block in self.blocks:
            x, _ = block(x, positions)
        x = self.norm(x)
        return self.readout(x[:, 0] if self.cls is not None else x.mean(1))

    def _cells(self, name: str, sizes: tuple[int, ...]) -> tuple[int, ...]:
        """Return the number of patches along each axis, or say what does not fit."""
        fits = len(sizes) == len(self.patch_size)
        if not fits or any(n % p for n, p in zip(sizes, self.patch_size, strict=True)):
            raise ValueError(
                f"{name} must have sizes that are multiples of patch_size {self.patch_size}, "
                f"got {sizes}"
            )
        return tuple(n // p for n, p in zip(sizes, self.patch_size, strict=True))
