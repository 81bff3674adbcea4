"""What a task is to the training loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

IGNORE = -100
"""The target of a place where nothing is asked."""


class Task(ABC):
    """Examples, and how an answer is judged.

    A batch is a function of the generator alone, so that a run can be resumed at any step and
    several processes can each take their rows of the same batch.
    """

    metric = "accuracy"
    """What the score is, ``"accuracy"`` or ``"bits"`` (bits a target, the fewer the better)."""

    @abstractmethod
    def batch(self, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return inputs, ``(size, ...)``, and targets, ``(size, ...)``, to train on."""

    @abstractmethod
    def held_out(self) -> dict[str, Iterator[tuple[Tensor, Tensor]]]:
        """Return for each named test set its batches, the same every time."""

    @abstractmethod
    def model(self, **options: Any) -> nn.Module:
        """Return a new model that fits the task."""

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the summed cross-entropy, in nats, of the targets that are not ``IGNORE``."""
        return nn.functional.cross_entropy(
            outputs.flatten(0, -2).float(), targets.flatten(), ignore_index=IGNORE, reduction="sum"
        )

    def score(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the summed score of the targets that are not ``IGNORE``."""
        if self.metric == "bits":
            return self.loss(outputs, targets) / torch.log(torch.tensor(2.0))
        return (outputs.argmax(-1) == targets).sum()  # no class has the number IGNORE
