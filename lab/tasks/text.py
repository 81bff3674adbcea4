"""Text as bytes: predict the next byte."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from lab.tasks.download import load
from lab.tasks.task import IGNORE, Task, without_end
from stringlib.models.configs import make_language_model
from stringlib.spec import Positive, require


def python_topics() -> bytes:
    """Return the language reference that comes with Python (``pydoc_data.topics``).

    The topics are in alphabetical order, with an empty line between them. The text and its length
    differ a little between versions of Python; in Python 3.11 it has about 466,000 bytes. Bits per
    byte can be compared only for the same text, so the record of a study contains the version.
    """
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name] for name in sorted(topics)).encode()


class Text(Task):
    """Predict each next byte; the score is in bits per byte, :eq:`eq-bits-per-byte`.

    The end of the text is the test set. It is read in windows. For each of ``test_lengths`` there
    is a test set with the length as its name (``"128"``). The same bytes are predicted at every
    length, as many as fill windows of the longest length. So lengths that divide the longest length
    are compared on exactly the same text.

    Without ``last``, every byte of a window is predicted, and windows do not overlap. The first
    bytes of a window are hard to predict, because little context precedes them. A longer window has
    a smaller share of such bytes, so its score is better for this reason alone. With ``last``, only
    the final ``last`` bytes of each window are predicted, and each window begins ``last`` bytes
    after the one before. At length n, each byte is then predicted from at least ``n - last`` bytes
    before it, so only the context differs between lengths.

    Args:
        text: The text. Default: :func:`python_topics`.
        length: Number of bytes of a training window.
        test_lengths: Numbers of bytes of the test windows. Default: ``length``.
        share: Share of the text for training.
        test: A separate test text. All of ``text`` is then used for training, and ``share`` is
            ignored.
        last: Number of bytes at the end of a test window that are predicted. Default: all.
        windows: Largest number of windows of the longest length, or of blocks of ``last`` bytes,
            which are spread evenly over the test text. Default: all. Long windows that overlap take
            much time.

    Raises:
        TypeError: If ``text`` is neither bytes nor a string, or if a number is not an integer.
        ValueError: If a number is out of range, or if a text is shorter than a window.
    """

    metric = "bits"

    def __init__(
        self,
        text: bytes | str | None = None,
        length: int = 128,
        test_lengths: Sequence[int] = (),
        share: float = 0.9,
        *,
        test: bytes | str | None = None,
        last: int | None = None,
        windows: int | None = None,
    ) -> None:
        require("length", length, int)
        if not isinstance(test_lengths, Sequence):
            raise TypeError(f"test_lengths must be a sequence of integers, got {test_lengths!r}")
        for n in test_lengths:
            require("test_lengths", n, int)
        self.length, self.test_lengths = length, tuple(test_lengths) or (length,)
        if last is not None:
            require("last", last, int)
            if last > min(self.test_lengths):
                raise ValueError(
                    f"last must be at most the shortest test length {min(self.test_lengths)}, "
                    f"got {last}"
                )
        if windows is not None:
            require("windows", windows, int)
        require("share", share, Positive)
        if share >= 1:
            raise ValueError(f"share must be between 0 and 1, got {share}")
        self.last, self.windows = last, windows
        data = _bytes("text", python_topics() if text is None else text)
        if test is None:
            cut = int(share * len(data))
            self.train, self.test = data[:cut], data[cut:]
        else:
            self.train, self.test = data, _bytes("test", test)
        self._require_windows()

    def batch(self, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return bytes, ``(size, length)``, and for each byte the byte that follows it."""
        require("size", size, int)
        start = torch.randint(len(self.train) - self.length, (size, 1), generator=generator)
        window = self.train[start + torch.arange(self.length + 1)].long()
        return window[:, :-1], window[:, 1:]

    def validation(self) -> Self:
        """Return the task with the end of the training text as the test set.

        Raises:
            ValueError: If a part of the text is then shorter than a window.
        """
        other = copy.copy(self)
        other.train, other.test = without_end(self.train)
        other._require_windows()
        return other

    def held_out(self) -> dict[str, Iterator[tuple[Tensor, Tensor]]]:
        """Return windows of the test text for each test length, by its name."""
        return {str(n): self._windows(n) for n in self.test_lengths}

    def _require_windows(self) -> None:
        for name, part, least in (
            ("train", self.train, self.length),
            ("test", self.test, max(self.test_lengths)),
        ):
            if len(part) <= least:
                raise ValueError(
                    f"text must have more than {least} bytes in its part {name!r}, got "
                    f"{len(part)}. Pass a longer text or smaller lengths."
                )

    def _windows(self, length: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield windows that ask for the bytes of ``_asked``, ``length`` at a time or fewer."""
        ends = self._ends(length)
        asked = self.last or length
        for some in ends.split(max(1, 8192 // length)):
            window = self.test[some[:, None] + torch.arange(-length, 1)].long()
            inputs, targets = window[:, :-1], window[:, 1:].clone()
            targets[:, : length - asked] = IGNORE
            yield inputs, targets

    def _ends(self, length: int) -> Tensor:
        """Return the place of the last byte that each window of a length asks for."""
        longest = max(self.test_lengths)
        block = self.last or longest
        # blocks of targets, common to all lengths; the first has the longest window before it
        first = longest - block + 1
        count = (len(self.test) - first) // block
        starts = first + block * torch.arange(count)
        if self.windows is not None and count > self.windows:
            starts = starts[torch.linspace(0, count - 1, self.windows).long()]
        if self.last is not None:
            return starts + block - 1
        steps = torch.arange(length, block + 1, length)
        return (starts[:, None] + steps - 1).flatten()

    def model(self, size: str = "tiny", **options: Any) -> nn.Module:
        """Return a language model of a named size."""
        longest = max(self.length, *self.test_lengths)
        return make_language_model(size, 256, **{"length": longest, **options})


def wikitext(path: str | Path | None = None, **options: Any) -> Text:
    """Return WikiText-103 as raw bytes: 540 MB for training, and a test set of 1.3 MB.

    Args:
        path: Folder with the parquet files of the data set. Default: None, which downloads the
            files once.
        **options: Options of :class:`Text` except ``text`` and ``test``.

    Raises:
        ImportError: If the package ``datasets`` is missing.
        ConnectionError: If the data are not on this machine and cannot be downloaded.

    Source:
        Merity et al. 2017.
    """
    found = load("Salesforce/wikitext", "wikitext-103-raw-v1", path)
    train, test = ("".join(found[part]["text"][:]) for part in ("train", "test"))
    return Text(train, test=test, **options)


def _bytes(name: str, text: bytes | str) -> Tensor:
    if isinstance(text, str):
        text = text.encode()
    if not isinstance(text, bytes):
        raise TypeError(f"{name} must be bytes or a string, got {type(text).__name__}")
    # frombuffer refuses an empty buffer
    return torch.frombuffer(bytearray(text) or bytearray(1), dtype=torch.uint8)[: len(text)]
