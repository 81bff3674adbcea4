"""The loop in which every model of the book learns."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from lab.train.hardware import one_process
from lab.train.keeper import Keeper


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
    """Minimise a loss, in place.

    Args:
        model: What learns.
        loss: Draws the batch of a step, counted from 0, and returns its loss, a scalar.
        optimizer: Of the model's parameters, with the largest rates that they have.
        steps: Number of updates.
        factor: The rates of a step, as a factor of the largest; always 1 if omitted.
        clip: Largest norm of the whole gradient.
        penalty: What is added to each loss.
        after: Called after each update with the step, its loss without the penalty, and the norm of
            the gradient before it was clipped.
        fabric: Where the model was set up; if omitted, on the CPU and by itself.
        keeper: Goes on where the run was left, and keeps it. What ``after`` collects is kept if it
            is a part.

    Raises:
        OSError: If a checkpoint cannot be written; the message says what is kept.
        Interrupted: A ``KeyboardInterrupt``: the run was asked to stop, and is kept.
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
