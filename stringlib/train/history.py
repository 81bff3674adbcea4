"""What a run leaves: its history, and the same as lines of JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

from stringlib.files import append, read_lines, whole

THEN = "the run is kept up to its last checkpoint; make room, and start it again to go on"


@dataclass
class History:
    """What a run left; the lists have one entry for each logged step.

    Attributes:
        steps: The logged steps, counted from 0.
        losses: Loss of the whole batch, before the update of that step.
        rates: Learning rate of that step.
        norms: Norm of the gradient before it was clipped.
        evaluations: Scores on the way: ``[{"step": updates made, "scores": {name: score}}]``.
        scores: Score on each test set, at the end.
        wall_s: Seconds, over all parts of a run that was resumed.
        made: Commit, hardware and versions of each part that differs from the one before it, see
            :func:`~stringlib.records.stamp`; empty where nothing is kept.
    """

    steps: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    scores: dict[str, float] = field(default_factory=dict)
    wall_s: float = 0.0
    made: list[dict[str, Any]] = field(default_factory=list, compare=False)


class MetricsFile:
    """Lines of JSON, one for each logged step or evaluation.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def begin(self, start: int) -> None:
        """Take out what is not before the step at which the run begins or goes on.

        Lines from there on, and one that was cut off: the steps are done again.
        """
        lines = read_lines(self.path) if start else []
        # scores belong to the model after so many updates, a loss to the model before its step
        kept = [x for x in lines if x["step"] < start or (x["step"] == start and "scores" in x)]
        with whole(self.path, THEN) as part:
            part.write_text("".join(json.dumps(x) + "\n" for x in kept), encoding="utf8")

    def write(self, **line: Any) -> None:
        """Add one line, at once; a number that is not finite is null."""
        line = {k: None if isinstance(v, float) and not isfinite(v) else v for k, v in line.items()}
        append(self.path, json.dumps(line, allow_nan=False) + "\n", THEN)
