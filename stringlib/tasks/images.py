"""Small images."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from stringlib.models.vit import ViT
from stringlib.tasks.task import Task


class Digits(Task):
    """The 8 x 8 digits of scikit-learn, on a canvas of their size or at places of a larger one."""

    def __init__(self, canvas: int = 8) -> None:
        from sklearn.datasets import load_digits

        found = load_digits()
        images = torch.tensor(found.images, dtype=torch.float32)[:, None] / 16
        labels = torch.tensor(found.target)
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
        images, labels = images[order], labels[order]
        self.train, self.test = (images[:1347], labels[:1347]), (images[1347:], labels[1347:])
        self.canvas = canvas

    def batch(self, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return images, ``(size, 1, canvas, canvas)``, and labels."""
        images, labels = self.train
        rows = torch.randint(len(images), (size,), generator=generator)
        return self._place(images[rows], 0), labels[rows]

    def held_out(self) -> dict[str, Iterator[tuple[Tensor, Tensor]]]:
        """Return test images at the places of training and, on a larger canvas, elsewhere."""
        images, labels = self.test
        found = {"test": iter([(self._place(images, 0), labels)])}
        if self.canvas > 8:
            found["moved"] = iter([(self._place(images, self.canvas - 8), labels)])
        return found

    def _place(self, images: Tensor, at: int) -> Tensor:
        canvas = images.new_zeros(len(images), 1, self.canvas, self.canvas)
        canvas[:, :, at : at + 8, at : at + 8] = images
        return canvas

    def model(self, **options: Any) -> nn.Module:
        """Return a small vision transformer."""
        sizes = {"patch_size": 2, "dim": 48, "depth": 2, "heads": 3, "hidden": 96}
        return ViT(self.canvas, classes=10, **{**sizes, **options})
