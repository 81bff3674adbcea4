"""The training loop of all models of the book."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from lab.train.hardware import one_process
from lab.train.keeper import Keeper

if TYPE_CHECKING:  # importing Lightning takes seconds
    from lightning_fabric import Fabric


def minimise(
    model: nn.Module,
    loss: Callable[[int], Tensor],
    optimizer: torch.optim.Optimizer,
    steps: int,
    *,
    factor: Callable[[int], float] | None = None,
    clip: float | None = None,
    penalty: Callable[[], Tensor] | None = None,
    after: Callable[[int, Tensor, Tensor], Any] | None = None,
    fabric: Fabric | None = None,
    keeper: Keeper | None = None,
) -> None:
    """Train a model in place by minimising a loss.

    Args:
        model: The model.
        loss: Function that draws the batch of a step, counted from 0, and returns its loss, a
            scalar.
        optimizer: Optimiser of the parameters, with their largest learning rates.
        steps: Number of updates.
        factor: Function that returns the factor of the learning rates in a step. Default: always 1.
        clip: Largest norm of the whole gradient.
        penalty: Function that returns a term to be added to each loss.
        after: Function that is called after each update with the step, its loss without the
            penalty, and the norm of the gradient before it was clipped.
        fabric: Fabric with which the model was set up. Default: this process alone, on the CPU.
        keeper: Loads the checkpoint of the run, and saves the run. What ``after`` collects is saved
            if it is a part of the keeper.

    Raises:
        OSError: If a checkpoint cannot be written. The message says what is kept.
        Interrupted: If the run was asked to stop. The run is then saved. This error is a
            ``KeyboardInterrupt``.
    """
    fabric = fabric or one_process()
    keeper = keeper or Keeper(None, {})
    largest = math.inf if clip is None else clip
    for group in optimizer.param_groups:  # a checkpoint has it too
        group.setdefault("initial_lr", group["lr"])
    with keeper.watching():
        for step in range(keeper.done, steps):
            value = loss(step)
            for group in optimizer.param_groups:
                group["lr"] = group["initial_lr"] * (1 if factor is None else factor(step))
            optimizer.zero_grad()
            fabric.backward(value if penalty is None else value + penalty())
            norm = fabric.clip_gradients(
                model, optimizer, max_norm=largest, error_if_nonfinite=False
            )
            assert norm is not None
            optimizer.step()
            if after is not None:
                after(step, value.detach(), norm)
            keeper.after(step + 1, steps)
