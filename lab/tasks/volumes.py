"""Volumes: predict the direction from one mark to another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from lab.tasks.task import Task
from stringlib.models.vit import ViT
from stringlib.spec import Count0, at_least, require

MARKS = 3
"""Number of channels of a volume, for mark a, mark b and distractors."""


class Volumes(Task):
    """Two marks on a line along an axis: the model predicts the direction from a to b.

    A volume is a cube of cells. Each cell is empty or contains a mark. Channel 0 is 1 at mark a,
    channel 1 at mark b, and channel 2 at distractors, which have no meaning. Class ``2 * axis``
    means that b has a larger coordinate along this axis than a, and ``2 * axis + 1`` that b has a
    smaller one. All six classes are equally frequent, and so are all distances.

    In training, a and b are in the first ``region`` cells of each axis. In the test set ``"test"``
    they are in this region too. There, the position of one mark already contains information: if a
    mark is at the edge, the other mark is further inside. In the test set ``"moved"``, a and b are
    in the last ``region`` cells. If the two regions do not overlap, the positions of the marks in
    ``"moved"`` do not occur in training, so what a model has learned about absolute positions does
    not help. The offset from a to b still determines the class. Distractors can be in any cell, so
    every cell contains marks in training.

    Args:
        size: Number of cells along each axis.
        region: Number of cells along each axis in which a and b are in training. Default: half of
            ``size``.
        others: Number of distractors.
    """

    test_seed = 10_000

    def __init__(self, size: int = 6, region: int | None = None, others: int = 8) -> None:
        require("size", size, at_least(2))
        if region is not None:
            require("region", region, at_least(2))
        self.size, self.region, self.others = size, region or max(2, size // 2), others
        if self.region > size:
            raise ValueError(f"region must be at most size = {size}, got {region}")
        require("others", others, Count0)
        if others > size**3 - 2:
            raise ValueError(f"others must be at most size³ − 2 = {size**3 - 2}, got {others}")

    def batch(self, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return volumes, ``(size, 3, *3 sizes)``, and directions, ``(size,)``."""
        require("size", size, int)
        return self._drawn(size, 0, generator)

    def chance(self) -> float:
        """Return the accuracy of always predicting the same one of the six directions."""
        return 1 / 6

    def held_out(self) -> dict[str, Iterator[tuple[Tensor, Tensor]]]:
        """Return ``"test"`` and ``"moved"``: 2,000 volumes each."""
        return {"test": self._batches(0), "moved": self._batches(self.size - self.region)}

    def _batches(self, first: int) -> Iterator[tuple[Tensor, Tensor]]:
        generator = torch.Generator().manual_seed(self.test_seed)
        for _ in range(8):
            yield self._drawn(250, first, generator)

    def _drawn(self, count: int, first: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return volumes whose marks a and b are ``region`` cells from ``first`` on."""
        labels = torch.randint(6, (count,), generator=generator)
        axes, back = labels // 2, labels % 2
        rows = torch.arange(count)
        low = torch.randint(self.region, (count, 3), generator=generator)
        far = torch.randint(1, self.region, (count,), generator=generator)
        # along the axis, the nearer of the two starts where the further one still fits
        share = torch.rand(count, generator=generator)
        low[rows, axes] = (share * (self.region - far)).long()
        high = low.clone()
        high[rows, axes] += far
        a, b = torch.where(back[:, None] == 1, torch.stack([high, low]), torch.stack([low, high]))
        strides = torch.tensor([self.size**2, self.size, 1])
        cells = torch.stack([((place + first) * strides).sum(-1) for place in (a, b)], -1)
        order = torch.rand(count, self.size**3, generator=generator).scatter_(1, cells, -1)
        noise = order.topk(self.others).indices
        volumes = torch.zeros(count, MARKS, self.size**3)
        volumes[:, :2].scatter_(2, cells[:, :, None], 1)
        volumes[:, 2].scatter_(1, noise, 1)
        return volumes.unflatten(-1, (self.size,) * 3), labels

    def model(self, **options: Any) -> nn.Module:
        """Return a transformer of two layers of two heads with 48 channels and one token per cell.

        The readout is the average of the tokens. A class token would not be suitable, because it is
        not rotated. So with a class token, even a relative encoder gives access to absolute
        positions.
        """
        sizes = {"dim": 48, "depth": 2, "heads": 2, "hidden": 96, "channels": MARKS, "pool": "mean"}
        return ViT((self.size,) * 3, **{"patch_size": 1, "classes": 6, **sizes, **options})
