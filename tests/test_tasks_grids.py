"""Images at places of a canvas, and volumes: what is shown where."""

from __future__ import annotations

import hashlib
from collections import Counter

import pytest
import torch
from torch import Tensor

from lab.tasks import make_task
from lab.tasks.images import Digits, Images
from lab.tasks.volumes import Volumes
from tests.draws import generator

DIGITS = "f67d6a29d0e1f70e7f0cd9dcf25816b694881f4b8f27f5cc1db59551f0499fb8"


def together(task: Images | Volumes, name: str) -> tuple[Tensor, Tensor]:
    """Return a whole test set."""
    inputs, targets = zip(*task.held_out()[name], strict=True)
    return torch.cat(inputs), torch.cat(targets)


def find(shown: Tensor, image: Tensor) -> list[tuple[int, int]]:
    """Return the places where an image stands on a canvas that is empty but for it."""
    side, room = image.shape[-1], shown.shape[-1] - image.shape[-1]
    found = []
    for row in range(room + 1):
        for column in range(room + 1):
            empty = torch.zeros_like(shown)
            empty[:, row : row + side, column : column + side] = image
            if torch.equal(empty, shown):
                found.append((row, column))
    return found


# --- images ---


def test_the_digits_are_those_of_their_source_each_once() -> None:
    task = Digits()
    (train, _), (test, others) = task.train, task.test
    assert (len(train), len(test)) == (1347, 450)
    rows = [torch.cat([x.flatten(1), y[:, None]], 1).tolist() for x, y in (task.train, task.test)]
    ours = sorted(bytes(row) for part in rows for row in part)
    assert hashlib.sha256(b"".join(ours)).hexdigest() == DIGITS, "as scikit-learn's load_digits"
    assert len(set(ours)) == 1797, "a digit stands in both parts"
    assert (others.bincount(minlength=10) > 30).all()


def test_moved_digits_are_trained_at_nine_places_and_tested_at_sixteen_others() -> None:
    task = make_task("moved-digits", views=1)
    assert task.canvas == 16
    known = {tuple(place) for place in task.places.tolist()}
    other = {tuple(place) for place in task.other_places.tolist()}
    assert known == {(r, c) for r in (0, 2, 4) for c in (0, 2, 4)}
    assert other == {(r, c) for r in range(0, 9, 2) for c in range(0, 9, 2)} - known
    for name, places in {"test": known, "moved": other}.items():
        images, _ = together(task, name)
        seen = Counter()
        for shown, image in zip(images, task.test[0].float() / 16, strict=True):
            found = set(find(shown, image)) & places
            assert found, f"a digit of {name} is not where it should be"
            seen.update(found)
        assert set(seen) == places, "a place is never shown"
    images, labels = task.batch(40, generator())
    rows = torch.randint(1347, (40,), generator=generator())
    assert torch.equal(labels, task.train[1][rows])
    for shown, image in zip(images, task.train[0][rows].float() / 16, strict=True):
        assert set(find(shown, image)) & known


def test_a_finer_image_is_interpolated_between_pixels() -> None:
    task = Digits(scale=2)
    fine, labels = together(task, "fine")
    coarse, _ = together(task, "test")
    assert fine.shape == (450, 1, 16, 16)
    assert torch.equal(labels, task.test[1])
    # pixel centres of the finer grid lie a quarter from the nearest centre of the coarser
    near, below = coarse[:, 0, 3, 3:5], coarse[:, 0, 4, 3:5]
    rows = 0.75 * near + 0.25 * below
    expected = 0.75 * rows[:, 0] + 0.25 * rows[:, 1]
    torch.testing.assert_close(fine[:, 0, 7, 7], expected)
    torch.testing.assert_close(fine[:, :, ::15, ::15], coarse[:, :, ::7, ::7])  # corners stay
    model = task.model(encoder="axial")
    assert model(fine[:2]).shape == (2, 10)


def test_colours_go_with_their_pixels() -> None:
    pixels = torch.arange(2 * 3 * 4 * 4).view(2, 3, 4, 4).to(torch.uint8)
    labels = torch.tensor([1, 0])
    task = Images((pixels, labels), (pixels, labels), classes=2, canvas=8, patch=4, views=1)
    assert task.places.tolist() == [[0, 0]]
    assert task.other_places.tolist() == [[0, 4], [4, 0], [4, 4]]
    images, found = together(task, "test")
    assert torch.equal(images[:, :, :4, :4], pixels / 255)
    assert images[:, :, 4:].abs().max() == images[:, :, :, 4:].abs().max() == 0
    assert torch.equal(found, labels)
    assert task.model()(images).shape == (2, 2)


# --- volumes ---


def places(volumes: Tensor) -> Tensor:
    """Return where marks a and b are, ``(2, count, 3)``; each is there once."""
    assert (volumes[:, :2].sum((2, 3, 4)) == 1).all()
    return torch.stack([volumes[:, mark].nonzero()[:, 1:] for mark in (0, 1)])


def by_offset(offset: list[int]) -> int:
    """Return the class that the definition gives to an offset."""
    (axis,) = [i for i in range(3) if offset[i]]
    return 2 * axis + (offset[axis] < 0)


@pytest.mark.parametrize(
    "options", [{}, {"size": 4}, {"size": 5, "region": 3, "others": 0}, {"size": 2, "others": 6}]
)
def test_the_offset_says_everything(options: dict) -> None:
    task = Volumes(**options)
    size, region, others = task.size, task.region, task.others
    for name, first in (("train", 0), ("test", 0), ("moved", size - region)):
        volumes, labels = task.batch(500, generator()) if name == "train" else together(task, name)
        assert volumes.shape[1:] == (3, size, size, size)
        a, b = places(volumes)
        assert [by_offset(o) for o in (b - a).tolist()] == labels.tolist()
        for place in (a, b):
            assert place.min() >= first
            assert place.max() < first + region
        assert (volumes.sum(1) <= 1).all(), "two marks share a cell"
        assert (volumes[:, 2].sum((1, 2, 3)) == others).all()
        assert set(volumes.unique().tolist()) == {0.0, 1.0}


def test_directions_and_distances_are_equally_frequent_and_places_are_all_used() -> None:
    task = Volumes(size=6, region=4)
    volumes, labels = task.batch(6000, generator())
    a, b = places(volumes)
    assert (labels.bincount(minlength=6) - 1000).abs().max() < 5 * 1000**0.5
    distances = (b - a).abs().sum(-1).bincount(minlength=4)[1:]
    assert (distances - 2000).abs().max() < 5 * 2000**0.5
    for place in (a, b):
        assert len({tuple(p) for p in place.tolist()}) == 4**3
    # the other marks are anywhere: each cell has one with the same chance, a and b apart
    seen = volumes[:, 2].sum(0)[4:].flatten()
    mean = 6000 * 8 / (6**3 - 2)
    assert (seen - mean).abs().max() < 5 * mean**0.5
