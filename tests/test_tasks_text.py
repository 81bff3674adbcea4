"""Text as bytes: what is asked in which window, so that lengths can be compared."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from lab.tasks.task import IGNORE
from lab.tasks.text import Text
from tests.draws import generator


def numbered(count: int) -> bytes:
    """Return a text in which two bytes that follow each other say where they are."""
    return bytes(b for i in range(count // 2 + 1) for b in (i // 256, i % 256))[:count]


def windows(task: Text, length: int) -> tuple[Tensor, Tensor]:
    inputs, targets = zip(*task.held_out()[str(length)], strict=True)
    return torch.cat(inputs), torch.cat(targets)


def asked_places(task: Text, length: int) -> list[int]:
    """Return which bytes of the test text are asked for, found by looking for each window."""
    text, found = bytes(task.test.tolist()), []
    for inputs, targets in zip(*windows(task, length), strict=True):
        whole = bytes([*inputs.tolist(), targets[-1].item()])
        start = text.find(whole)
        assert start >= 0
        assert text.count(whole) == 1, "the text must tell where a window is"
        for place, target in enumerate(targets.tolist()):
            if target != IGNORE:
                assert target == text[start + place + 1]
                found.append(start + place + 1)
    return found


def test_a_training_window_is_followed_by_its_targets() -> None:
    text = numbered(4000)
    task = Text(text, length=16, share=0.5)
    inputs, targets = task.batch(3000, generator())
    assert inputs.shape == targets.shape == (3000, 16)
    for row, wanted in zip(inputs.tolist(), targets.tolist(), strict=True):
        start = text.find(bytes(row))
        assert bytes(wanted) == text[start + 1 : start + 17]
        assert start + 17 <= 2000, "a byte to test on was trained on"


@pytest.mark.parametrize("size", [18, 33, 100])
def test_the_last_possible_window_is_drawn_and_no_later_one(size: int) -> None:
    text = bytes(range(size))
    task = Text(text, length=16, test=bytes(17))
    last = task.batch(5000, generator())[1][:, -1]
    assert last.min() == 16
    assert last.max() == size - 1


@pytest.mark.parametrize("lengths", [(8,), (8, 16, 64), (16, 128), (64, 8)])
def test_every_length_is_asked_for_the_same_bytes_once(lengths: tuple[int, ...]) -> None:
    task = Text(numbered(3000), 8, lengths, share=0.8)
    longest = max(lengths)
    # all of the test text that fills windows of the longest length
    expected = list(range(1, 599 // longest * longest + 1))
    assert list(task.held_out()) == [str(n) for n in lengths]
    for length in lengths:
        assert asked_places(task, length) == expected
        assert (windows(task, length)[1] != IGNORE).all()


@pytest.mark.parametrize("last", [1, 8, 5])
def test_with_last_only_the_context_differs_between_lengths(last: int) -> None:
    lengths = (8, 16, 64)
    task = Text(numbered(2000), 8, lengths, share=0.8, last=last)
    blocks = (400 - 1 - (64 - last)) // last
    for length in lengths:
        inputs, targets = windows(task, length)
        assert inputs.shape == (blocks, length)
        assert (targets[:, : length - last] == IGNORE).all()
        assert (targets[:, length - last :] != IGNORE).all()
        found = asked_places(task, length)
        assert found == list(range(64 - last + 1, 64 - last + 1 + blocks * last))


@pytest.mark.parametrize("last", [None, 8])
def test_few_windows_are_spread_over_the_test_text(last: int | None) -> None:
    text, lengths = numbered(20_000), (16, 64)
    whole = Text(text, 8, lengths, share=0.5, last=last)
    some = Text(text, 8, lengths, share=0.5, last=last, windows=5)
    block = last or 64
    for length in lengths:
        found = asked_places(some, length)
        assert len(found) == len(set(found)) == 5 * block
        assert set(found) < set(asked_places(whole, length))
        assert min(found) < 100
        assert max(found) > 9_900
        starts = found[::block]
        gaps = [b - a for a, b in pairwise(starts)]
        assert max(gaps) - min(gaps) <= block
    assert asked_places(some, 16) == asked_places(some, 64)
    many = Text(text, 8, lengths, share=0.5, last=last, windows=10_000)
    assert asked_places(many, 64) == asked_places(whole, 64)
