"""Associative recall: retrieve the value that followed a key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from lab.tasks.task import IGNORE, Task
from stringlib.models.language import LanguageModel
from stringlib.spec import at_least, require


class Recall(Task):
    """A list of pairs, followed by one of its keys: the model predicts the value of this key.

    With two pairs, keys ``a`` and ``b``, and values 0 to 7::

        inputs    b  5  a  2  b
        targets   .  .  .  .  5

    A sequence with ``pairs`` pairs has ``2 * pairs + 1`` tokens. The values are the tokens 0 …
    ``values − 1``, and the keys are the tokens after them. The keys of a sequence are all
    different. The values are random and may repeat. The pairs are new in each sequence, so the
    model cannot learn the values of keys by heart.

    Args:
        pairs: Number of pairs in a sequence.
        keys: Number of different keys. Default: ``pairs``.
        values: Number of different values.

    Raises:
        ValueError: If ``keys`` is smaller than ``pairs``.
    """

    test_seed = 10_000

    def __init__(self, pairs: int = 8, keys: int | None = None, values: int = 8) -> None:
        require("pairs", pairs, int)
        require("values", values, int)
        if keys is not None:
            require("keys", keys, at_least(pairs))
        self.pairs, self.keys, self.values = pairs, keys or pairs, values

    def batch(self, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return tokens and targets, both ``(size, 2 * pairs + 1)``."""
        require("size", size, int)
        keys = torch.rand(size, self.keys, generator=generator).argsort(-1)[:, : self.pairs]
        keys = keys + self.values
        values = torch.randint(self.values, (size, self.pairs), generator=generator)
        asked = torch.randint(self.pairs, (size, 1), generator=generator)
        tokens = torch.cat([torch.stack([keys, values], -1).flatten(1), keys.gather(1, asked)], 1)
        targets = torch.full_like(tokens, IGNORE)
        targets[:, -1:] = values.gather(1, asked)
        return tokens, targets

    def held_out(self) -> dict[str, Iterator[tuple[Tensor, Tensor]]]:
        """Return ``"test"``: 2,000 sequences."""
        generator = torch.Generator().manual_seed(self.test_seed)
        return {"test": iter([self.batch(500, generator) for _ in range(4)])}

    def chance(self) -> float:
        """Return the accuracy of predicting the most frequent value of each test sequence.

        For this prediction an average of the values is enough, so a model with no higher accuracy
        retrieves nothing. :func:`~lab.theory.capacity.guess_accuracy` gives the expected accuracy,
        0.32 for 8 pairs and 8 values.
        """
        right = count = 0
        for tokens, targets in self.held_out()["test"]:
            guess = tokens[:, 1:-1:2].mode(-1).values
            right += int((guess == targets[:, -1]).sum())
            count += len(tokens)
        return right / count

    def model(self, **options: Any) -> nn.Module:
        """Return a model with one layer of one head, 32 channels, and no feed-forward layer."""
        sizes = {"dim": 32, "depth": 1, "heads": 1, "mlp": None, "tied": False}
        sizes["length"] = 2 * self.pairs + 1
        return LanguageModel(self.values + self.keys, **{**sizes, **options})
