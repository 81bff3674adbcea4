"""What a task is to the training loop."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Self

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

    test_seed: int | None = None
    """What test sets are drawn from; None for a task whose test sets are not drawn."""

    @abstractmethod
    def batch(self, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return inputs, ``(size, ...)``, and targets, ``(size, ...)``, to train on."""

    @abstractmethod
    def held_out(self) -> dict[str, Iterator[tuple[Tensor, Tensor]]]:
        """Return for each named test set its batches, the same every time."""

    def validation(self) -> Self:
        """Return the same task to choose with, a learning rate for instance.

        What this task tests on is not touched. Where test sets are drawn, they are drawn anew;
        where there are data, the last tenth of what this task trains on is tested on instead.

        Raises:
            NotImplementedError: If a task of your own has no such method, nor a ``test_seed``.
        """
        if self.test_seed is None:
            raise NotImplementedError(
                f"{type(self).__name__} must define validation() or test_seed"
            )
        other = copy.copy(self)
        other.test_seed = self.test_seed + 1
        return other

    def chance(self) -> float | None:
        """Return the score of a guess without thought, on each test set; None if none is known."""
        return None

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


def without_end(data: Tensor) -> tuple[Tensor, Tensor]:
    """Return training data without its end, and its end, a tenth, to choose with."""
    end = max(1, len(data) // 10)
    return data[:-end], data[-end:]
