"""Scores of a model on the test sets of a task."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from lab.tasks.task import IGNORE, Task
from lab.train.hardware import one_process, over_all

if TYPE_CHECKING:  # importing Lightning takes seconds
    from lightning_fabric import Fabric


@torch.no_grad()
def evaluate(model: nn.Module, task: Task, fabric: Fabric | None = None) -> dict[str, float]:
    """Return the mean score on each test set.

    Args:
        model: The model itself, not the module that Fabric makes from it, because several processes
            may call the model a different number of times.
        task: The task, which defines the test sets and the score.
        fabric: Distributes the batches over its processes, and sets the precision.

    Raises:
        ValueError: If a test set has no target.
    """
    fabric = fabric or one_process()
    device = next(model.parameters()).device
    rank, world = fabric.global_rank, fabric.world_size
    training = model.training
    sums: dict[str, tuple[float, int]] = {}
    model.eval()
    try:
        for name, batches in task.held_out().items():
            total, count = 0.0, 0
            for number, (inputs, targets) in enumerate(batches):
                if number % world != rank:
                    continue
                with fabric.autocast():
                    outputs = model(inputs.to(device))
                total += task.score(outputs, targets.to(device)).item()
                count += int((targets != IGNORE).sum())
            sums[name] = total, count
    finally:
        model.train(training)
    if world > 1:
        mine = torch.tensor(list(sums.values()), dtype=torch.float64, device=fabric.device)
        sums = dict(zip(sums, over_all(fabric, mine, "sum").tolist(), strict=True))
    empty = [name for name, (_, count) in sums.items() if not count]
    if empty:
        raise ValueError(f"test set {empty[0]!r} must have at least one target, got none")
    return {name: total / count for name, (total, count) in sums.items()}
