"""A vision transformer for images and volumes, with any encoder and any attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from stringlib.attention.features import FeatureMap
from stringlib.encoders.registry import BIASES, make_bias
from stringlib.encoders.relative_bias import RelativeBias
from stringlib.encoders.string import RotaryEncoder
from stringlib.inputs import per_head, require_like_weight, require_places, require_same_tokens
from stringlib.models.absolute import GridSinusoidal, GridTable
from stringlib.models.blocks import (
    Block,
    Blocks,
    initialize,
    phases_of,
    require_known,
    share_encoders,
)
from stringlib.positions import grid_positions
from stringlib.spec import Floats, Positions, checked


class ViT(Blocks):
    """Patches, blocks, and a score for each class, of a class token or of the patches' mean.

    Coordinates are explicit: patch (i, j) stands at (i, j), whatever the size of the image. Nothing
    is normalised, and nothing is guessed from the number of patches.

    Args:
        image_size: Pixels along each axis; an int is a square image. One axis is a series, three
            are a volume. Images of other sizes can be given too: only learned tables have a size.
        patch_size: Pixels of a patch along each axis, divisors of ``image_size``; an int serves
            all axes.
        classes: Number of classes.
        dim: Number of channels of a token.
        depth: Number of blocks.
        heads: Number of heads of each block, a divisor of ``dim``.
        encoder: Where position enters. A name in :data:`~stringlib.encoders.registry.ENCODERS`:
            each block has an encoder of its own, which reads the coordinates, or all have one if it
            learns nothing.
            ``"sinusoidal"`` or ``"learned"``: a vector added to each patch. A name in
            :data:`~stringlib.encoders.registry.BIASES`: one bias for all blocks. A module: an
            encoder or bias that all blocks share. None: patches are a set.
        attention: As for :class:`~stringlib.attention.multihead.MultiHeadAttention`.
        gate: As for :class:`~stringlib.attention.multihead.MultiHeadAttention`.
        channels: Channels of an image.
        hidden: As for :class:`~stringlib.models.blocks.Block`.
        mlp: ``"mlp"``, ``"swiglu"``, or None for attention alone.
        pool: ``"cls"`` reads a class token that stands before the patches. It stands at
            coordinate 0 and is not rotated, so its logits with a patch depend on where the patch
            is, :eq:`eq-vit-cls`: with a class token even a rotary encoder is not blind to a shift
            of the image. ``"mean"`` reads the mean of the patches: blind to their order without an
            encoder, :eq:`eq-vit-bag`, and to a shift with a relative one, :eq:`eq-vit-shift`.
            Either way the scores are :eq:`eq-vit-read`.
        **options: Options of attention, for every block, such as ``weight`` or ``num_features``.

    A bias, and every weight but ``"toeplitz"``, counts tokens in reading order, the class token
    first: the end of one row and the start of the next are neighbours. The weight ``"toeplitz"``
    has a number for each offset in the plane, and so wants ``pool="mean"`` and the image size it
    was made for.

    Source:
        Dosovitskiy et al. 2021.

    Example:
        >>> model = ViT(image_size=32, patch_size=4, classes=10, channels=3, encoder="circulant")
        >>> model(torch.randn(8, 3, 32, 32)).shape
        torch.Size([8, 10])
    """

    @checked
    def __init__(
        self,
        image_size: int | Sequence[int],
        patch_size: int | Sequence[int],
        classes: int,
        dim: int = 64,
        depth: int = 2,
        heads: int = 4,
        encoder: RotaryEncoder | RelativeBias | str | None = None,
        attention: FeatureMap | str = "softmax",
        gate: str | None = None,
        *,
        channels: int = 1,
        hidden: int | None = None,
        mlp: str | None = "mlp",
        pool: Literal["cls", "mean"] = "cls",
        **options: Any,
    ) -> None:
        super().__init__()
        require_known(encoder)
        self.image_size, self.patch_size = _sizes(image_size, patch_size)
        self.grid = self._cells("image_size", self.image_size)
        self.axes = axes = len(self.grid)
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
        elif isinstance(encoder, str):
            if options.get("coord_dim", axes) != axes:
                raise ValueError(
                    f"coord_dim must be {axes}, as image_size has, got {options['coord_dim']}"
                )
            options["coord_dim"] = axes
        elif isinstance(encoder, RotaryEncoder) and encoder.coord_dim != axes:
            raise ValueError(
                f"encoder must read {axes} coordinates, as image_size has, got {encoder.coord_dim}"
            )
        self.toeplitz = options.get("weight") == "toeplitz"
        if self.toeplitz:
            options |= self._table(options)
        if self.cls is not None and options.get("causal"):
            raise ValueError(
                "pool must be 'mean' for causal attention, as a class token sees nothing, "
                f"got {pool!r}"
            )
        options |= {"encoder": encoder, "attention": attention, "gate": gate}
        self.blocks = nn.ModuleList(
            Block(dim, heads, mlp=mlp, hidden=hidden, **options) for _ in range(depth)
        )
        if isinstance(encoder, str):
            share_encoders(self.blocks)
        self.norm = nn.LayerNorm(dim)
        self.readout = nn.Linear(dim, classes)
        initialize(self, self.blocks)
        if self.cls is not None:
            nn.init.normal_(self.cls, std=dim**-0.5)

    @checked
    def patches(self, images: Floats[Tensor, "..."]) -> Tensor:
        """Return the patches in reading order; with the projection they make :eq:`eq-vit-patch`.

        Args:
            images: ``(batch, channels, *sizes)``.

        Returns:
            ``(batch, cells, channels * pixels of a patch)``.
        """
        if images.ndim != 2 + self.axes or images.shape[1] != self.channels:
            raise ValueError(
                f"images must have shape (batch, {self.channels} channels, {self.axes} sizes), "
                f"got {tuple(images.shape)}"
            )
        self._cells("images", tuple(images.shape[2:]))
        x = images
        for axis, pixels in enumerate(self.patch_size):
            x = x.unfold(2 + axis, pixels, pixels)
        return x.flatten(2 + self.axes).movedim(1, -2).flatten(-2).flatten(1, self.axes)

    @checked
    def forward(
        self,
        images: Floats[Tensor, "..."],
        positions: Positions[Tensor, "...p cells self.axes"] | None = None,
        *,
        key_mask: Tensor | None = None,
    ) -> Tensor:
        """Return a score of each class.

        Args:
            images: ``(batch, channels, *sizes)``, the sizes multiples of those of a patch.
            positions: Coordinates of the patches, ``(cells, axes)`` or ``(batch, cells, axes)``.
                If omitted they are :func:`~stringlib.positions.grid_positions`, counted in patches
                from 0. At twice the resolution, half of them keeps to the range of training
                (position interpolation). A learned table is read at given positions as they are;
                if they are omitted and the grid is another, it is stretched over that grid.
            key_mask: False for patches that are padding, ``(batch, cells)``: no token sees them,
                and the mean leaves them out. So images of several sizes, padded to one, are scored
                as each alone, where position is read from coordinates. A bias or a weight counts
                padding as it counts any token.

        Returns:
            ``(batch, classes)``, not normalised.

        Raises:
            ValueError: If a shape does not fit, or a learned table of offsets is for another size.
        """
        require_like_weight("images", images, self.embed)
        # under autocast a projection returns half precision: the tokens are summed in full
        x = self.embed(self.patches(images)).to(self.embed.weight.dtype)
        grid = self._cells("images", tuple(images.shape[2:]))
        if self.toeplitz and grid != self.grid:
            raise ValueError(
                f"images must have sizes {self.image_size} for weight 'toeplitz', "
                f"got {tuple(images.shape[2:])}"
            )
        if isinstance(self.absolute, GridTable) and positions is None:
            x = self.absolute(x, self.absolute.places(*grid))
        if positions is None:
            positions = grid_positions(*grid, device=images.device)
        else:
            require_same_tokens("images", x.unsqueeze(-3), "positions", positions)
            require_places("images", x, positions)
            if isinstance(self.absolute, GridTable):
                x = self.absolute(x, positions)
        if isinstance(self.absolute, GridSinusoidal):
            x = self.absolute(x, positions)
        if key_mask is not None:
            mask = per_head(key_mask, (x.shape[0], 1, x.shape[-2]), x.device)
            key_mask = mask.expand(x.shape[0], 1, -1)[:, 0]
        if self.cls is not None:
            x = torch.cat([self.cls.expand(x.shape[0], 1, -1), x], 1)
            if key_mask is not None:
                key_mask = nn.functional.pad(key_mask, (1, 0), value=True)
            positions = torch.cat([torch.zeros_like(positions[..., :1, :]), positions], -2)
        read = phases_of(self.blocks, positions, x)
        for block, places in zip(self.blocks, read, strict=True):
            x, _ = block(x, places, key_mask=key_mask)
        x = self.norm(x)
        return self.readout(x[:, 0] if self.cls is not None else _mean(x, key_mask))

    def _cells(self, name: str, sizes: tuple[int, ...]) -> tuple[int, ...]:
        """Return the number of patches along each axis, or say what does not fit."""
        if any(n % pixels for n, pixels in zip(sizes, self.patch_size, strict=True)):
            raise ValueError(
                f"{name} must have sizes that are multiples of patch_size {self.patch_size}, "
                f"got {sizes}"
            )
        return tuple(n // pixels for n, pixels in zip(sizes, self.patch_size, strict=True))

    def _table(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return what makes the weight "toeplitz" one of this grid."""
        if self.cls is not None:
            raise ValueError(
                "pool must be 'mean' for weight 'toeplitz', whose table has a number for each "
                f"offset between patches and none for a class token, got {self.pool!r}"
            )
        if len(self.grid) > 2:
            raise ValueError(
                f"image_size must have one or two axes for weight 'toeplitz', got {self.image_size}"
            )
        name, value = ("length", self.grid[0]) if len(self.grid) == 1 else ("grid", self.grid)
        if options.get(name, value) != value:
            raise ValueError(f"{name} must be {value}, as image_size has it, got {options[name]}")
        return {name: value}


def _mean(x: Tensor, key_mask: Tensor | None) -> Tensor:
    """Return the mean of the tokens that count, ``(batch, dim)``; 0 if there is none."""
    if key_mask is None:
        return x.mean(1)
    counted = key_mask[..., None]
    return x.masked_fill(~counted, 0).sum(1) / counted.sum(1).clamp(min=1)


def _sizes(
    image_size: int | Sequence[int], patch_size: int | Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return both as one number for each axis."""
    image = tuple(image_size) if isinstance(image_size, Sequence) else (image_size,) * 2
    patch = tuple(patch_size) if isinstance(patch_size, Sequence) else (patch_size,) * len(image)
    if len(image) not in (1, 2, 3):
        raise ValueError(f"image_size must have one to three axes, got {image}")
    if len(patch) != len(image):
        raise ValueError(f"patch_size must have {len(image)} axes like image_size, got {patch}")
    return image, patch
