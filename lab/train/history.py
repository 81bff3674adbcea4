"""The history of a run, its metrics as JSON lines, and an error if a loss is not finite."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lab.files import append, read_lines, whole
from lab.train.hardware import first_writes, over_all
from lab.train.settings import Settings

if TYPE_CHECKING:  # importing Lightning takes seconds
    from lightning_fabric import Fabric

THEN = (
    "the run is kept up to its last checkpoint; free some disk space and start it again to continue"
)
NEVER = 2**31 - 1


@dataclass
class History:
    """Results of a run. Each list has one entry per logged step.

    Attributes:
        steps: The logged steps, counted from 0.
        losses: Loss of the whole batch before the update of the step.
        rates: Learning rate of the step.
        norms: Norm of the gradient before it was clipped.
        evaluations: Scores during the training:
            ``[{"step": number of updates, "scores": {name: score}}]``.
        scores: Score on each test set at the end.
        wall_s: Duration of the run in seconds, summed over its parts if the run was continued.
        made: Commit, hardware and versions of each part of the run that differs in these from the
            part before, see :func:`~lab.records.stamp`. Empty if nothing is saved.
    """

    steps: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    scores: dict[str, float] = field(default_factory=dict)
    wall_s: float = 0.0
    made: list[dict[str, Any]] = field(default_factory=list, compare=False)


class Log:
    """Writes the history of a run. Only the first process writes files and calls loggers.

    The log is a part of the run that is saved in checkpoints. It is saved only while all losses are
    finite.

    Attributes:
        history: The history to which entries are added.

    Args:
        settings: Settings of the training, which define how often to log.
        fabric: The processes.
        folder: Folder for ``metrics.jsonl``, with one line per entry, or None.
        on_log: Function that is called with the history after each entry.
    """

    def __init__(
        self,
        settings: Settings,
        fabric: Fabric,
        folder: Path | None,
        on_log: Callable[[History], Any] | None,
    ) -> None:
        self.history, self.settings, self.fabric = History(), settings, fabric
        self.on_log = on_log if fabric.is_global_zero else None
        self.path = folder / "metrics.jsonl" if folder else None
        # the first step that went wrong stays on the device: to look is to wait for it
        self.broken = torch.tensor(NEVER, device=fabric.device)
        self._restart()

    def begin(self, step: int) -> None:
        """Begin or continue at a step."""
        if self.path is not None:
            first_writes(self.fabric, partial(_begin, self.path, step))
        self._restart()

    def state_dict(self) -> dict[str, Any]:
        """Return the history.

        Raises:
            FloatingPointError: If a loss or gradient was not finite, so that this state is not
                saved.
        """
        self.check()
        return asdict(self.history)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a history.

        Raises:
            TypeError: If the state is not that of a history.
        """
        history = History(**state)
        for name, value in asdict(History()).items():
            if not isinstance(getattr(history, name), type(value)):
                raise TypeError(name)
        self.history = history

    def is_due(self, step: int) -> bool:
        """Return whether a step is logged."""
        return step % self.settings.log_every == 0 or step == self.settings.steps - 1

    def count(self, inputs: Tensor) -> None:
        """Count the examples and tokens of a batch, for the logged speed."""
        self.examples += self.settings.batch_size
        if not inputs.is_floating_point():
            self.tokens += inputs.numel() * self.fabric.world_size

    def see(self, step: int, loss: Tensor, norm: Tensor, rate: float) -> None:
        """Record an update, and log it if the step is to be logged.

        Args:
            step: Index of the update, counted from 0.
            loss: The share of this process in the loss, times the number of processes.
            norm: Norm of the whole gradient.
            rate: The learning rate.

        Raises:
            FloatingPointError: If a loss or gradient since the last check was not finite.
        """
        # the scaler of 16-bit floats tries gradients that are too large, and leaves them out
        scaled = self.fabric.strategy.precision.precision == "16-mixed"
        well = loss.isfinite() if scaled else loss.isfinite() & norm.isfinite()
        self.broken = torch.where(well, self.broken, self.broken.clamp(max=step))
        if self.is_due(step):
            self.check()
            self._entry(step, over_all(self.fabric, loss, "mean").item(), norm.item(), rate)

    def check(self) -> None:
        """Raise an error in all processes if a loss or gradient was not finite.

        Raises:
            FloatingPointError: The message names the step.
        """
        first = int(over_all(self.fabric, self.broken, "min"))
        if first < NEVER:
            raise FloatingPointError(
                f"the loss and its gradient must be finite, but in step {first} they were not. Try "
                "a smaller learning rate, a longer warmup or a smaller clip."
            )

    def scores(self, updates: int, scores: dict[str, float], final: bool) -> None:
        """Log the scores after a number of updates."""
        self.history.evaluations.append({"step": updates, "scores": scores})
        if final:
            self.history.scores = scores
        told = {name: score if isfinite(score) else None for name, score in scores.items()}
        self._write(step=updates, scores=told)
        self._tell(updates, {f"score/{name}": score for name, score in scores.items()})
        self._restart()

    def _entry(self, step: int, loss: float, norm: float, rate: float) -> None:
        history, seconds = self.history, time.perf_counter() - self.since
        history.steps.append(step)
        history.losses.append(loss)
        history.rates.append(rate)
        history.norms.append(norm)
        speed = {"examples_per_s": round(self.examples / seconds, 1)}
        if self.tokens:
            speed["tokens_per_s"] = round(self.tokens / seconds, 1)
        told = {"loss": loss, "rate": rate, "norm": norm, **speed}
        self._write(step=step, **told)
        self._tell(step, told)
        if self.on_log is not None:
            self.on_log(history)
        self._restart()

    def _restart(self) -> None:
        self.examples, self.tokens, self.since = 0, 0, time.perf_counter()

    def _tell(self, step: int, told: dict[str, float]) -> None:
        """Tell the loggers of Fabric, if it has some."""
        if self.fabric.is_global_zero:
            self.fabric.log_dict(told, step)

    def _write(self, **line: Any) -> None:
        """Add one line to the file, at once; a number that is not finite is null."""
        if self.path is None:
            return
        line = {k: None if isinstance(v, float) and not isfinite(v) else v for k, v in line.items()}
        text = json.dumps(line, allow_nan=False) + "\n"
        first_writes(self.fabric, partial(append, self.path, text, THEN))


def _begin(path: Path, start: int) -> None:
    """Take out of a file of metrics what is not before the step at which a run goes on.

    Lines from there on, and one that was cut off: the steps are done again.
    """
    lines = read_lines(path) if start else []
    # scores belong to the model after so many updates, a loss to the model before its step
    kept = [x for x in lines if x["step"] < start or (x["step"] == start and "scores" in x)]
    with whole(path, THEN) as part:
        part.write_text("".join(json.dumps(x) + "\n" for x in kept), encoding="utf8")
