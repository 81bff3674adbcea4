"""The training loop, on Lightning Fabric."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import nn

from stringlib.tasks.task import IGNORE, Task
from stringlib.train.optimizer import make_optimizer, penalty, set_rate
from stringlib.train.settings import Settings


@dataclass
class History:
    """What a run left."""

    steps: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    scores: dict[str, float] = field(default_factory=dict)
    wall_s: float = 0.0


def fit(
    model: nn.Module,
    task: Task,
    settings: Settings,
    *,
    fabric: Fabric | None = None,
    on_log: Callable[[History], Any] | None = None,
) -> History:
    """Train a model in place and return its history, with the scores at the end."""
    fabric = fabric or Fabric(accelerator="cpu", devices=1)
    start, history = time.perf_counter(), History()
    optimizer: torch.optim.Optimizer = make_optimizer(model, settings)
    wrapped, optimizer = fabric.setup(model, optimizer)
    world, rank = fabric.world_size, fabric.global_rank
    for step in range(settings.steps):
        # a batch depends on seed and step alone: whoever resumes here sees the same
        generator = torch.Generator().manual_seed(settings.seed * 1_000_003 + step)
        inputs, targets = task.batch(settings.batch_size, generator)
        count = (targets != IGNORE).sum().item()
        inputs, targets = (fabric.to_device(t[rank::world]) for t in (inputs, targets))
        loss = task.loss(wrapped(inputs), targets) * (world / count)
        set_rate(optimizer, step, settings)
        optimizer.zero_grad()
        added = penalty(model) if settings.penalty else None
        fabric.backward(loss if added is None else loss + settings.penalty * added)
        if settings.clip is not None:
            fabric.clip_gradients(wrapped, optimizer, max_norm=settings.clip)
        optimizer.step()
        if step % settings.log_every == 0 or step == settings.steps - 1:
            history.steps.append(step)
            history.losses.append(loss.item())
            if on_log is not None:
                on_log(history)
    history.scores = evaluate(wrapped, task)
    history.wall_s = time.perf_counter() - start
    return history


@torch.no_grad()
def evaluate(model: nn.Module, task: Task) -> dict[str, float]:
    """Return the mean score on each test set."""
    model.eval()
    scores = {}
    for name, batches in task.held_out().items():
        total, count = 0.0, 0.0
        for inputs, targets in batches:
            total += task.score(model(inputs), targets).item()
            count += (targets != IGNORE).sum().item()
        scores[name] = total / count
    model.train()
    return scores
