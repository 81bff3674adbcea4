"""Text as bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from stringlib.models.configs import make_language_model
from stringlib.tasks.task import Task


def python_topics() -> bytes:
    """Return the language reference that comes with Python (``pydoc_data.topics``)."""
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name] for name in sorted(topics)).encode()


class Text(Task):
    """Name the next byte."""

    metric = "bits"

    def __init__(
        self,
        text: bytes | None = None,
        length: int = 128,
        test_lengths: Sequence[int] = (),
        share: float = 0.9,
    ) -> None:
        data = torch.frombuffer(bytearray(text or python_topics()), dtype=torch.uint8)
        cut = int(share * len(data))
        self.train, self.test = data[:cut], data[cut:]
        self.length, self.test_lengths = length, tuple(test_lengths) or (length,)

    def batch(self, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return bytes, ``(size, length)``, and those that follow them."""
        start = torch.randint(len(self.train) - self.length, (size, 1), generator=generator)
        window = self.train[start + torch.arange(self.length + 1)].long()
        return window[:, :-1], window[:, 1:]

    def held_out(self) -> dict[str, Iterator[tuple[Tensor, Tensor]]]:
        """Return the end of the text in windows, for each test length."""
        return {str(n): self._windows(n) for n in self.test_lengths}

    def _windows(self, length: int) -> Iterator[tuple[Tensor, Tensor]]:
        count = (len(self.test) - 1) // length
        inputs = self.test[: count * length].long().view(count, length)
        targets = self.test[1 : count * length + 1].long().view(count, length)
        size = max(1, 8192 // length)
        yield from zip(inputs.split(size), targets.split(size), strict=True)

    def model(self, size: str = "tiny", **options: Any) -> nn.Module:
        """Return a language model of a named size."""
        return make_language_model(size, 256, **{"length": max(self.test_lengths), **options})
