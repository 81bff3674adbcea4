"""A vision transformer for images and volumes, with any encoder and any attention."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from stringlib.models.blocks import Block, initialize
from stringlib.positions import grid_positions


class ViT(nn.Module):
    """Patches, a class token, blocks, and a score for each class."""

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
        mlp: str = "mlp",
        pool: str = "cls",
        **options: Any,
    ) -> None:
        super().__init__()
        self.image_size = (image_size,) * 2 if isinstance(image_size, int) else tuple(image_size)
        axes = len(self.image_size)
        self.patch_size = (patch_size,) * axes if isinstance(patch_size, int) else tuple(patch_size)
        self.pool = pool
        self.embed = nn.Linear(channels * math.prod(self.patch_size), dim)
        self.cls = nn.Parameter(torch.zeros(dim)) if pool == "cls" else None
        if isinstance(encoder, str):
            from stringlib.encoders.registry import make_encoder

            encoders: list[Any] = [
                make_encoder(encoder, dim // heads, axes, heads) for _ in range(depth)
            ]
        else:
            encoders = [encoder] * depth
        self.blocks = nn.ModuleList(
            Block(
                dim,
                heads,
                mlp=mlp,
                hidden=hidden or 4 * dim,
                encoder=one,
                attention=attention,
                gate=gate,
                **options,
            )
            for one in encoders
        )
        self.norm = nn.LayerNorm(dim)
        self.readout = nn.Linear(dim, classes)
        initialize(self)

    def patches(self, images: Tensor) -> Tensor:
        """Return ``(batch, cells, channels * patch)`` of ``(batch, channels, *sizes)``."""
        x = images
        for axis, p in enumerate(self.patch_size):
            x = x.unfold(2 + axis, p, p)
        axes = len(self.patch_size)
        return x.flatten(2 + axes).movedim(1, -2).flatten(-2).flatten(1, axes)

    def forward(self, images: Tensor, positions: Tensor | None = None) -> Tensor:
        """Return scores, ``(batch, classes)``."""
        x = self.embed(self.patches(images))
        if positions is None:
            sizes = [n // p for n, p in zip(images.shape[2:], self.patch_size, strict=True)]
            positions = grid_positions(*sizes).to(images.device)
        if self.cls is not None:
            x = torch.cat([self.cls.expand(len(x), 1, -1), x], 1)
            positions = torch.cat([torch.zeros_like(positions[..., :1, :]), positions], -2)
        for block in self.blocks:
            x = block(x, positions)
        x = self.norm(x)
        return self.readout(x[:, 0] if self.cls is not None else x.mean(1))
