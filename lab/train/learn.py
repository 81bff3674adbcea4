"""How the small models of a study learn."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from lab.train.checkpoint import Checkpoint
from lab.train.keeper import Generators, Keeper
from lab.train.loop import minimise
from lab.train.settings import half_cosine

Rates = Mapping[str, float]


def adam(model: nn.Module, rates: float | Rates) -> torch.optim.Adam:
    """Return Adam for all parameters that learn.

    Args:
        model: What learns.
        rates: The learning rate; or the first part of a parameter's name → its rate, and ``""`` →
            that of all others.

    Raises:
        ValueError: If the model has no part of such a name.
    """
    if not isinstance(rates, Mapping):
        rates = {"": rates}
    unknown = [part for part in rates if part and not hasattr(model, part)]
    if unknown:
        raise ValueError(f"rates must name parts of the model, got {unknown[0]!r}")
    groups: dict[str, list[nn.Parameter]] = {part: [] for part in rates}
    for name, parameter in model.named_parameters():
        part = name.split(".")[0]
        if parameter.requires_grad:
            groups[part if part in rates else ""].append(parameter)
    return torch.optim.Adam(
        [{"params": found, "lr": rates[part]} for part, found in groups.items()]
    )


@dataclass(frozen=True)
class Training:
    """How one model of a study is trained and measured: the ``run`` of a study.

    Each function is told of its cell what it has parameters for.

    Args:
        model: ``model(**cell)`` draws a model.
        loss: ``loss(model, generator, **cell)`` draws a batch and returns its loss.
        measure: ``measure(model, **cell)`` returns what is recorded.
        rates: As :func:`adam` takes them, or a function of the model that returns such.
        cosine: Whether the rates fall to 0 as half a cosine.
        clip: Largest norm of the whole gradient.
        wide: Whether in float64, so that another processor's rounding changes no figure.
    """

    model: Callable[..., nn.Module]
    loss: Callable[..., Tensor]
    measure: Callable[..., Mapping[str, Any]]
    rates: float | Callable[[Any], Rates]
    cosine: bool = False
    clip: float | None = None
    wide: bool = True

    def __call__(
        self, seed: int, steps: int, keep: Checkpoint | None = None, **cell: Any
    ) -> Mapping[str, Any]:
        """Train a model and return what is measured."""
        model = self.train(seed=seed, steps=steps, keep=keep, **cell)
        with torch.no_grad():
            return _told(self.measure, cell)(model)

    def train(self, *, seed: int, steps: int, keep: Checkpoint | None = None, **cell: Any) -> Any:
        """Return a trained model.

        Args:
            seed: Of the weights and the batches.
            steps: Number of updates.
            keep: Where the run is kept on its way, and goes on from; nowhere if omitted.
            **cell: What the study tells its models.
        """
        torch.manual_seed(seed)
        generator = torch.Generator().manual_seed(seed)
        model = _told(self.model, cell)()
        if self.wide:
            model = model.double()
        optimizer = adam(model, self.rates(model) if callable(self.rates) else self.rates)
        loss = partial(_told(self.loss, cell), model, generator)
        random = Generators(generator)
        keeper = Keeper(keep, {"model": model, "optimizer": optimizer, "random": random})
        keeper.load()
        minimise(
            model,
            lambda _: loss(),
            optimizer,
            steps,
            factor=partial(half_cosine, steps=steps, warmup=0) if self.cosine else None,
            clip=self.clip,
            keeper=keeper,
        )
        return model


def _told(function: Callable[..., Any], cell: Mapping[str, Any]) -> Callable[..., Any]:
    known = inspect.signature(function).parameters
    return partial(function, **{name: value for name, value in cell.items() if name in known})
