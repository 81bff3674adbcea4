"""A vision transformer for series, images and volumes, with any position encoding and attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from stringlib.attention.features import FeatureMap
from stringlib.encoders.registry import BIASES, ENCODERS, make_bias
from stringlib.encoders.relative_bias import RelativeBias
from stringlib.encoders.rotary import RotaryEncoder
from stringlib.inputs import per_head, require_like_weight, require_places, require_same_tokens
from stringlib.models.absolute import GridSinusoidal, GridTable
from stringlib.models.blocks import (
    Block,
    Blocks,
    block_options,
    initialize,
    phases_of,
    require_known,
    share_encoders,
)
from stringlib.options import FIXED, known_options
from stringlib.positions import grid_positions
from stringlib.spec import Floats, Positions, Share, checked


class ViT(Blocks):
    """Vision transformer: a projection of patches, blocks, and a logit for each class.

    The position of patch (i, j) is (i, j) for images of any size. Coordinates are not divided by
    the size of the image.

    Biases, and all position weights except ``"toeplitz"``, use the index of a token in row-major
    order, with the class token first. In this order the end of one row and the start of the next
    row are neighbours. The weight ``"toeplitz"`` has one number for each offset between two patches
    of the grid. This weight therefore requires ``pool="mean"`` and images of ``image_size``.

    Args:
        image_size: Number of pixels along each axis. An integer means a square image. A sequence of
            one, two or three integers means a series, an image or a volume. The model also accepts
            images of other sizes, except with the weight ``"toeplitz"``.
        patch_size: Number of pixels of a patch along each axis; must divide ``image_size``. An
            integer is used for all axes.
        classes: Number of classes.
        dim: Number of channels of a token.
        depth: Number of blocks.
        heads: Number of heads of each block; must divide ``dim``.
        encoder: Position encoding.

            - A name in :data:`~stringlib.encoders.registry.ENCODERS`: each block has its own rotary
              encoder of the coordinates; if the encoder has no parameters, all blocks share one.
            - ``"selective-rope"``: RoPE whose angles are computed from the tokens, by steps that
              each block learns (``position_steps``).
            - A name in :data:`~stringlib.encoders.registry.BIASES`: all blocks share one relative
              bias.
            - ``"sinusoidal"`` or ``"learned"``: a vector is added to each patch.
            - A module: all blocks share this rotary encoder or relative bias.
            - None (default): the model ignores the order of the patches, unless it has a position
              weight, a key shift, a window or a causal mask.
        attention: ``"softmax"`` (default), the name of a feature map in
            :data:`~stringlib.attention.registry.FEATURES`, or a feature map of your own.
        gate: Output gate: None (default), ``"headwise"`` or ``"elementwise"``; see
            :class:`~stringlib.attention.gate.Gate`.
        channels: Number of channels of an image. Default: 1.
        hidden: Number of hidden channels of the feed-forward layers. Default: ``4 * dim`` for
            ``"mlp"``, and ``8 * dim // 3`` for ``"swiglu"``.
        mlp: Feed-forward layers: ``"mlp"`` (default), ``"swiglu"``, or None for blocks of attention
            alone.
        residual_dropout: Dropout probability in training. Dropout is applied to the outputs of
            attention and of the feed-forward layers, before these outputs are added to the tokens.
            Default: 0.
        pool: Token from which the logits are computed, :eq:`eq-vit-read`. ``"cls"`` (default) uses
            a learned class token before the patches, ``"mean"`` the mean of the patches.
            The class token has coordinate 0 and is not rotated. Its attention logit for a patch
            therefore depends on the absolute position of the patch, :eq:`eq-vit-cls`. So with a
            class token, shifting all positions changes the output even with a rotary encoder. With
            ``"mean"`` and a relative encoder, the output does not change when all positions are
            shifted, :eq:`eq-vit-shift`. With ``"mean"`` and nothing that uses positions, the output
            does not depend on the order of the patches, :eq:`eq-vit-bag`.
        **options: Further arguments of
            :class:`~stringlib.attention.multihead.MultiHeadAttention`, the same for every block,
            such as ``weight`` or ``num_features``. If one of them is a module, all blocks share
            this module. A name gives each block its own module.

    Raises:
        TypeError: If an option is not an argument of the model.
        ValueError: If a name is unknown, or arguments do not fit together.

    Source:
        Dosovitskiy et al. 2021.

    Example:
        >>> model = ViT(image_size=32, patch_size=4, classes=10, channels=3, encoder="circulant")
        >>> model(torch.randn(8, 3, 32, 32)).shape
        torch.Size([8, 10])
    """

    @known_options(block_options, FIXED)
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
        residual_dropout: Share = 0.0,
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
        self.absolute: Any = None
        # asked here, because a wrapper around the table or the vectors hides their type
        self.learned = encoder == "learned"
        if encoder == "sinusoidal":
            self.absolute, encoder = GridSinusoidal(dim, axes), None
        elif encoder == "learned":
            self.absolute, encoder = GridTable(self.grid, dim), None
        elif isinstance(encoder, str) and encoder in BIASES:
            encoder = make_bias(encoder, heads)
        elif isinstance(encoder, str) and encoder in ENCODERS:
            if options.get("coord_dim", axes) != axes:
                raise ValueError(
                    f"coord_dim must be {axes}, the number of axes of image_size, got "
                    f"{options['coord_dim']}"
                )
            options["coord_dim"] = axes
        elif (
            isinstance(encoder, RotaryEncoder)
            and encoder.coord_dim != axes
            and options.get("position_steps") is None
        ):
            raise ValueError(
                f"encoder must have coord_dim={axes}, the number of axes of image_size, got "
                f"{encoder.coord_dim}"
            )
        if options.get("rotate") == "roll" and axes > 1:
            raise ValueError(
                "rotate must not be 'roll' for images with several axes, got 'roll' for "
                f"image_size {self.image_size}. A roll uses one coordinate. Use a rotary encoder "
                "with rotate='before' or 'after'."
            )
        self.toeplitz = options.get("weight") == "toeplitz"
        if self.toeplitz:
            options |= self._table(options)
        if self.cls is not None and options.get("causal"):
            raise ValueError(
                f"pool must be 'mean' for causal attention, got {pool!r}. The class token comes "
                "first and would attend only to itself. Pass pool='mean'."
            )
        options |= {"encoder": encoder, "attention": attention, "gate": gate}
        self.blocks = nn.ModuleList(
            Block(dim, heads, mlp=mlp, hidden=hidden, residual_dropout=residual_dropout, **options)
            for _ in range(depth)
        )
        if isinstance(encoder, str):
            share_encoders(self.blocks)
        self.norm = nn.LayerNorm(dim)
        self.readout = nn.Linear(dim, classes)
        initialize(self)
        if self.cls is not None:
            nn.init.normal_(self.cls, std=dim**-0.5)

    @checked
    def patches(self, images: Floats[Tensor, "..."]) -> Tensor:
        """Return the pixels of each patch, with the patches in row-major order.

        The projection of these vectors gives the tokens, :eq:`eq-vit-patch`.

        Args:
            images: ``(batch, channels, *sizes)``.

        Returns:
            ``(batch, patches, channels * pixels of a patch)``.
        """
        if images.ndim != 2 + self.axes or images.shape[1] != self.channels:
            raise ValueError(
                f"images must have {self.axes + 2} dimensions (batch, channels and one for each "
                f"axis) with channels = {self.channels}, got shape {tuple(images.shape)}"
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
        """Return the logits of the classes.

        Args:
            images: ``(batch, channels, *sizes)``. The sizes must be multiples of ``patch_size``.
            positions: Coordinates of the patches, ``(patches, axes)`` or
                ``(batch, patches, axes)``. Default: :func:`~stringlib.positions.grid_positions`,
                the row and column of each patch, counted from 0. For images of twice the resolution
                of the training images, these coordinates times ½ stay in the range of training
                (position interpolation). The table of the encoder ``"learned"`` is interpolated at
                given positions. If ``positions`` is omitted and the grid has another size than the
                table, the table is stretched over the grid.
            key_mask: False for patches that are padding, ``(batch, patches)``. No token attends to
                padding, and the mean excludes padding. With a rotary or sinusoidal encoding of the
                coordinates, images that are padded to a common size therefore get the same logits
                as without padding. A relative bias or a position weight counts padding like any
                other token, so that padding can change the logits. Default: None, no padding.

        Returns:
            ``(batch, classes)``, not normalised.

        Raises:
            ValueError: If a shape does not fit. With the weight ``"toeplitz"``, also if the images
                have another size than ``image_size``.
        """
        require_like_weight("images", images, self.embed)
        # Under autocast the projection returns half precision; the blocks add to full precision.
        # The dtype is that of the norm, because the weight of a quantised projection is int8.
        x = self.embed(self.patches(images)).to(self.norm.weight.dtype)
        grid = self._cells("images", tuple(images.shape[2:]))
        if self.toeplitz and grid != self.grid:
            raise ValueError(
                f"images must have the sizes image_size = {self.image_size} for weight 'toeplitz', "
                f"got {tuple(images.shape[2:])}"
            )
        table = self.absolute if self.learned else None
        if table is not None and positions is None:
            x = table(x, table.places(*grid, device=x.device))
        if positions is None:
            # integers, which a roll of features needs
            positions = grid_positions(*grid, dtype=torch.int64, device=images.device)
        else:
            require_same_tokens("images", x.unsqueeze(-3), "positions", positions)
            require_places("images", x, positions)
            if table is not None:
                x = table(x, positions)
        if self.absolute is not None and not self.learned:
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
        for block, block_positions in zip(self.blocks, read, strict=True):
            x, _ = block(x, block_positions, key_mask=key_mask)
        x = self.norm(x)
        return self.readout(x[:, 0] if self.cls is not None else _mean(x, key_mask))

    def _cells(self, name: str, sizes: tuple[int, ...]) -> tuple[int, ...]:
        """Return the number of patches along each axis.

        Raises:
            ValueError: If a size is not a multiple of the size of a patch. The message begins with
                ``name``.
        """
        if any(n % pixels for n, pixels in zip(sizes, self.patch_size, strict=True)):
            raise ValueError(
                f"{name} must have sizes that are multiples of patch_size {self.patch_size}, "
                f"got {sizes}"
            )
        return tuple(n // pixels for n, pixels in zip(sizes, self.patch_size, strict=True))

    def _table(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return the argument that gives the weight ``"toeplitz"`` the size of the grid.

        Raises:
            ValueError: If the weight ``"toeplitz"`` does not fit the other arguments.
        """
        if self.cls is not None:
            raise ValueError(
                f"pool must be 'mean' for weight 'toeplitz', got {self.pool!r}. A class token "
                "has no offset to the patches. Pass pool='mean'."
            )
        if len(self.grid) > 2:
            raise ValueError(
                f"image_size must have one or two axes for weight 'toeplitz', got {self.image_size}"
            )
        name, value = ("length", self.grid[0]) if len(self.grid) == 1 else ("grid", self.grid)
        if options.get(name, value) != value:
            raise ValueError(
                f"{name} must be {value}, the number of patches along each axis, got "
                f"{options[name]}. It follows from image_size. Leave out {name}."
            )
        return {name: value}


def _mean(x: Tensor, key_mask: Tensor | None) -> Tensor:
    """Return the mean of all tokens except padding, ``(batch, dim)``, 0 if all are padding."""
    if key_mask is None:
        return x.mean(1)
    counted = key_mask[..., None]
    return x.masked_fill(~counted, 0).sum(1) / counted.sum(1).clamp(min=1)


def _sizes(
    image_size: int | Sequence[int], patch_size: int | Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the image size and the patch size as tuples of one integer per axis.

    Raises:
        ValueError: If there are more than three axes, or the sizes differ in their number of axes.
    """
    image = tuple(image_size) if isinstance(image_size, Sequence) else (image_size,) * 2
    patch = tuple(patch_size) if isinstance(patch_size, Sequence) else (patch_size,) * len(image)
    if len(image) not in (1, 2, 3):
        raise ValueError(f"image_size must have one, two or three axes, got {image}")
    if len(patch) != len(image):
        raise ValueError(
            f"patch_size must have as many axes as image_size, {len(image)}, got {patch}"
        )
    return image, patch
