"""Associative recall: name the value that stood behind a key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from stringlib.models.language import LanguageModel
from stringlib.tasks.task import IGNORE, Task


class Recall(Task):
    """k1 v1 k2 v2 … k: the model names the value of the last key."""

    def __init__(self, pairs: int = 8, keys: int | None = None, values: int = 8) -> None:
        self.pairs, self.keys, self.values = pairs, keys or pairs, values

    def batch(self, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return tokens, ``(size, 2 * pairs + 1)``; keys are the tokens from ``values`` on."""
        keys = torch.rand(size, self.keys, generator=generator).argsort(-1)[:, : self.pairs]
        keys = keys + self.values
        values = torch.randint(self.values, (size, self.pairs), generator=generator)
        asked = torch.randint(self.pairs, (size, 1), generator=generator)
        tokens = torch.cat([torch.stack([keys, values], -1).flatten(1), keys.gather(1, asked)], 1)
        targets = torch.full_like(tokens, IGNORE)
        targets[:, -1:] = values.gather(1, asked)
        return tokens, targets

    def held_out(self) -> dict[str, Iterator[tuple[Tensor, Tensor]]]:
        """Return 2,000 sequences."""
        generator = torch.Generator().manual_seed(10_000)
        return {"test": iter([self.batch(500, generator) for _ in range(4)])}

    def model(self, **options: Any) -> nn.Module:
        """Return one layer of one head with 32 channels."""
        sizes = {"dim": 32, "depth": 1, "heads": 1, "mlp": None, "tied": False}
        return LanguageModel(self.values + self.keys, **{**sizes, **options})
