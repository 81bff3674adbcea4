"""What is said of a run while it goes: history, metrics file, and an alarm for a loss gone bad."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor

from stringlib.train.hardware import first_writes, over_all
from stringlib.train.history import History, MetricsFile
from stringlib.train.settings import Settings

NEVER = 2**31 - 1


class Log:
    """Follows a run; only the first process writes and calls.

    Args:
        history: Where the entries go.
        start: The step at which the run begins or goes on.
        settings: Say how often to log.
        fabric: The processes.
        folder: Where ``metrics.jsonl`` goes; nowhere if None.
        on_log: Called with the history after each entry.
    """

    def __init__(
        self,
        history: History,
        start: int,
        settings: Settings,
        fabric: Fabric,
        folder: Path | None,
        on_log: Callable[[History], Any] | None,
    ) -> None:
        self.history, self.settings, self.fabric = history, settings, fabric
        self.on_log = on_log if fabric.is_global_zero else None
        self.file = MetricsFile(folder / "metrics.jsonl") if folder else None
        if self.file is not None:
            first_writes(fabric, partial(self.file.begin, start))
        self.earlier_s, self.began = history.wall_s, time.perf_counter()
        self.examples, self.tokens, self.since = 0, 0, self.began
        # the first step that went wrong stays on the device: to look is to wait for it
        self.broken = torch.tensor(NEVER, device=fabric.device)

    def is_due(self, step: int) -> bool:
        """Return whether a step is logged."""
        return step % self.settings.log_every == 0 or step == self.settings.steps - 1

    def see(self, step: int, loss: Tensor, norm: Tensor, rate: float, inputs: Tensor) -> None:
        """Take note of an update, and log it if it is due.

        Args:
            step: The number of the update, from 0.
            loss: This process's share of the loss, times the number of processes.
            norm: The norm of the whole gradient.
            rate: The learning rate.
            inputs: The rows of this process.

        Raises:
            FloatingPointError: If a loss since the last look, or a gradient, was not finite.
        """
        # the scaler of 16-bit floats tries gradients that are too large, and leaves them out
        scaled = self.fabric.strategy.precision.precision == "16-mixed"
        well = loss.isfinite() if scaled else loss.isfinite() & norm.isfinite()
        self.broken = torch.where(well, self.broken, self.broken.clamp(max=step))
        self.examples += self.settings.batch_size
        if not inputs.is_floating_point():
            self.tokens += inputs.numel() * self.fabric.world_size
        if self.is_due(step):
            self.check()
            self._entry(step, over_all(self.fabric, loss, "mean").item(), norm.item(), rate)

    def check(self) -> None:
        """Stop a run that went wrong, in all processes.

        Raises:
            FloatingPointError: It names the step.
        """
        first = int(over_all(self.fabric, self.broken, "min"))
        if first < NEVER:
            raise FloatingPointError(
                f"the loss or its gradient must be finite, but was not in step {first}; a smaller "
                "rate, a longer warmup or a smaller clip may help"
            )

    def scores(self, updates: int, scores: dict[str, float], final: bool) -> None:
        """Log the scores after so many updates."""
        self.history.evaluations.append({"step": updates, "scores": scores})
        if final:
            self.history.scores = scores
        if self.file is not None:
            first_writes(self.fabric, partial(self.file.write, step=updates, scores=scores))
        self._restart()

    def clock(self) -> None:
        """Bring the history's wall time up to now."""
        self.history.wall_s = self.earlier_s + time.perf_counter() - self.began

    def _entry(self, step: int, loss: float, norm: float, rate: float) -> None:
        history, seconds = self.history, time.perf_counter() - self.since
        history.steps.append(step)
        history.losses.append(loss)
        history.rates.append(rate)
        history.norms.append(norm)
        if self.file is not None:
            speed = {"examples_per_s": round(self.examples / seconds, 1)}
            if self.tokens:
                speed["tokens_per_s"] = round(self.tokens / seconds, 1)
            line = {"step": step, "loss": loss, "rate": rate, "norm": norm, **speed}
            first_writes(self.fabric, partial(self.file.write, **line))
        if self.on_log is not None:
            self.on_log(history)
        self._restart()

    def _restart(self) -> None:
        self.examples, self.tokens, self.since = 0, 0, time.perf_counter()
