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

LESS_IS_BETTER = {"accuracy": False, "bits": True}
"""Known metric → whether less of it is better."""


class Task(ABC):
    """Examples, and how an answer is judged.

    A batch is a function of the generator alone, so that a run can be resumed at any step and
    several processes can each take their rows of the same batch.

    Raises:
        TypeError: If a class names a metric of its own and does not say whether less is better, or
            says of a known one what it is not.
    """

    metric = "accuracy"
    """``"accuracy"``, ``"bits"`` (bits a target), or a metric of your own, which comes with its
    ``score`` and ``chance``; it stands in the class."""

    less_is_better = False
    """Whether less of the metric is better; stated beside each metric of your own."""

    test_seed: int | None = None
    """What test sets are drawn from; None for a task whose test sets are not drawn."""

    def __init_subclass__(cls, **told: Any) -> None:
        """Know whether less is better, so that no choice is made in the wrong direction."""
        super().__init_subclass__(**told)
        stated = {"metric", "less_is_better"} & vars(cls).keys()
        if not stated:
            return
        known = LESS_IS_BETTER.get(cls.metric)
        less = cls.less_is_better if "less_is_better" in stated else known
        if not isinstance(less, bool) or known not in (None, less):
            raise TypeError(
                f"less_is_better of {cls.__name__} must be "
                f"{'True or False' if known is None else known} for the metric {cls.metric!r}, "
                f"got {less}. Define it in the class."
            )
        cls.less_is_better = less

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
        """Return the summed score of the targets that are not ``IGNORE``.

        Raises:
            NotImplementedError: If a metric of your own has no such method.
        """
        if self.metric not in LESS_IS_BETTER:
            raise NotImplementedError(f"{type(self).__name__} must define score() of {self.metric}")
        if self.metric == "bits":
            return self.loss(outputs, targets) / torch.log(torch.tensor(2.0))
        return (outputs.argmax(-1) == targets).sum()  # no class has the number IGNORE


def without_end(data: Tensor) -> tuple[Tensor, Tensor]:
    """Return training data without its end, and its end, a tenth, to choose with."""
    end = max(1, len(data) // 10)
    return data[:-end], data[-end:]
