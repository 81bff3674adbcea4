"""The interface between a task and the training loop."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Self

import torch
from torch import Tensor, nn

IGNORE = -100
"""Target of a token at which the model has nothing to predict."""

LESS_IS_BETTER = {"accuracy": False, "bits": True}
"""Known metric → whether a lower score is better."""


class Task(ABC):
    """Base class of tasks: batches for training, test sets, loss and score.

    A batch depends only on the generator. So a run can be continued at any step, and each of
    several processes can use some rows of the same batch.

    Raises:
        TypeError: If a class defines a metric of its own without ``less_is_better``, or if
            ``less_is_better`` is wrong for a known metric.
    """

    metric = "accuracy"
    """``"accuracy"``, ``"bits"`` (bits per target), or a metric of your own.

    For a metric of your own, also define ``score`` and ``chance``. Define the metric in the class.
    """

    less_is_better = False
    """Whether a lower score is better. Define it together with a metric of your own."""

    test_seed: int | None = None
    """Seed of the test sets. None for a task whose test sets are not drawn at random."""

    def __init_subclass__(cls, **told: Any) -> None:
        """Set ``less_is_better``, so that the best score is chosen in the right direction."""
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
        """Return inputs, ``(size, ...)``, and targets, ``(size, ...)``, for training."""

    @abstractmethod
    def held_out(self) -> dict[str, Iterator[tuple[Tensor, Tensor]]]:
        """Return the batches of each test set, by its name. They are the same in every call."""

    def validation(self) -> Self:
        """Return the same task with other test sets, for example to choose a learning rate.

        The test sets of this task are not used. If test sets are drawn at random, new ones are
        drawn. If there are fixed data, the last tenth of the training data is the test set.

        Raises:
            NotImplementedError: If a task of your own defines neither this method nor
                ``test_seed``.
        """
        if self.test_seed is None:
            raise NotImplementedError(
                f"{type(self).__name__} must define validation() or test_seed"
            )
        other = copy.copy(self)
        other.test_seed = self.test_seed + 1
        return other

    def chance(self) -> float | None:
        """Return the score of a random guess on each test set, or None if it is not known."""
        return None

    @abstractmethod
    def model(self, **options: Any) -> nn.Module:
        """Return a new model for the task."""

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the summed cross-entropy, in nats, of the targets that are not ``IGNORE``."""
        return nn.functional.cross_entropy(
            outputs.flatten(0, -2).float(), targets.flatten(), ignore_index=IGNORE, reduction="sum"
        )

    def score(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the summed score of the targets that are not ``IGNORE``.

        Raises:
            NotImplementedError: If a task with a metric of your own does not define this method.
        """
        if self.metric not in LESS_IS_BETTER:
            raise NotImplementedError(f"{type(self).__name__} must define score() of {self.metric}")
        if self.metric == "bits":
            return self.loss(outputs, targets) / torch.log(torch.tensor(2.0))
        return (outputs.argmax(-1) == targets).sum()  # no class has the number IGNORE


def without_end(data: Tensor) -> tuple[Tensor, Tensor]:
    """Return training data without their last tenth, and this tenth as validation data."""
    end = max(1, len(data) // 10)
    return data[:-end], data[-end:]
