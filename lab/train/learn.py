"""The training of the small models of a study."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from lab.theory.spread import mean
from lab.train.checkpoint import Checkpoint
from lab.train.keeper import Generators, Keeper
from lab.train.loop import minimise
from lab.train.settings import half_cosine

Rates = Mapping[str, float]


def adam(model: nn.Module, rates: float | Rates) -> torch.optim.Adam:
    """Return Adam for all parameters that require a gradient.

    Args:
        model: The model.
        rates: The learning rate, or a dictionary from parts of the model (first parts of the names
            of parameters) to learning rates. The key ``""`` stands for all other parts.

    Raises:
        ValueError: If the model has no part of a given name.
    """
    if not isinstance(rates, Mapping):
        rates = {"": rates}
    unknown = [part for part in rates if part and not hasattr(model, part)]
    if unknown:
        raise ValueError(f"rates must have parts of the model as keys, got {unknown[0]!r}")
    groups: dict[str, list[nn.Parameter]] = {part: [] for part in rates}
    for name, parameter in model.named_parameters():
        part = name.split(".")[0]
        if parameter.requires_grad:
            groups[part if part in rates else ""].append(parameter)
    return torch.optim.Adam(
        [{"params": found, "lr": rates[part]} for part, found in groups.items()]
    )


class Curve:
    """The losses of a run, as a part of the run that is saved in checkpoints.

    Args:
        every: Number of steps whose mean loss is one point.
    """

    def __init__(self, every: int) -> None:
        self.every, self.losses = every, list[float]()

    def note(self, step: int, loss: Tensor, norm: Tensor) -> None:
        """Record the loss of an update."""
        self.losses.append(loss.item())

    def points(self) -> list[float]:
        """Return the mean losses in order."""
        starts = range(0, len(self.losses), self.every)
        return [round(mean(self.losses[at : at + self.every]), 4) for at in starts]

    def state_dict(self) -> dict[str, list[float]]:
        """Return the losses so far."""
        return {"losses": self.losses}

    def load_state_dict(self, state: Mapping[str, list[float]]) -> None:
        """Load losses."""
        self.losses = list(state["losses"])


@dataclass(frozen=True)
class Training:
    """The training and measurement of one model of a study, used as its ``run``.

    Each of the three functions gets those arguments of a cell for which it has parameters.

    Args:
        model: ``model(**cell)`` returns a model with random weights.
        loss: ``loss(model, generator, **cell)`` draws a batch and returns its loss.
        measure: ``measure(model, **cell)`` returns the results to record.
        rates: Learning rates as :func:`adam` takes them, or a function that returns them for a
            model.
        cosine: Whether the learning rates fall to 0 as half a cosine.
        clip: Largest norm of the whole gradient. Larger gradients are scaled down.
        wide: Whether to train in float64, so that the rounding of another processor does not change
            the printed digits.
        every: Number of steps whose mean loss is one point of the recorded curve. Default: None, no
            curve.
    """

    model: Callable[..., nn.Module]
    loss: Callable[..., Tensor]
    measure: Callable[..., Mapping[str, Any]]
    rates: float | Callable[[Any], Rates]
    cosine: bool = False
    clip: float | None = None
    wide: bool = True
    every: int | None = None

    def __call__(
        self, seed: int, steps: int, keep: Checkpoint | None = None, **cell: Any
    ) -> Mapping[str, Any]:
        """Train a model, and return the results and, if ``every`` is set, the loss curve."""
        curve = None if self.every is None else Curve(self.every)
        model = self.train(seed=seed, steps=steps, keep=keep, curve=curve, **cell)
        with torch.no_grad():
            found = _told(self.measure, cell)(model)
        return found if curve is None else {**found, "losses": curve.points()}

    def train(
        self,
        *,
        seed: int,
        steps: int,
        keep: Checkpoint | None = None,
        curve: Curve | None = None,
        **cell: Any,
    ) -> Any:
        """Return a trained model.

        Args:
            seed: Seed of the weights and the batches.
            steps: Number of updates.
            keep: Checkpoint from which the run continues and in which it is saved. Default: None,
                nothing is saved.
            curve: Object that records the losses.
            **cell: Arguments that the study defines for this cell.
        """
        torch.manual_seed(seed)
        generator = torch.Generator().manual_seed(seed)
        model = _told(self.model, cell)()
        if self.wide:
            model = model.double()
        optimizer = adam(model, self.rates(model) if callable(self.rates) else self.rates)
        loss = partial(_told(self.loss, cell), model, generator)
        parts = {"model": model, "optimizer": optimizer, "random": Generators(generator)}
        keeper = Keeper(keep, parts if curve is None else {**parts, "curve": curve})
        keeper.load()
        minimise(
            model,
            lambda _: loss(),
            optimizer,
            steps,
            factor=partial(half_cosine, steps=steps, warmup=0) if self.cosine else None,
            clip=self.clip,
            after=None if curve is None else curve.note,
            keeper=keeper,
        )
        return model


def _told(function: Callable[..., Any], cell: Mapping[str, Any]) -> Callable[..., Any]:
    known = inspect.signature(function).parameters
    return partial(function, **{name: value for name, value in cell.items() if name in known})
