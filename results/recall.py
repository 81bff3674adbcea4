"""Train one layer of attention on associative recall: every feature map, with and without shift.

python results/recall.py      # writes results/recall.json
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from stringlib.tasks import make_task
from stringlib.train import Settings, fit
from stringlib.train.sweep import record_sweep

CELLS = {"8 pairs softmax": {"pairs": 8, "attention": "softmax"}}


def run(seed: int, steps: int, pairs: int, attention: str) -> dict[str, Any]:
    """Train one model; return its loss on the way and its scores."""
    torch.manual_seed(seed)
    task = make_task("recall", pairs=pairs)
    history = fit(task.model(attention=attention), task, Settings(steps, rate=1e-2, seed=seed))
    return {"scores": history.scores, "losses": [round(x, 4) for x in history.losses]}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the study and write its record."""
    assert __doc__
    record_sweep(Path(__file__), __doc__, CELLS, run, steps=400, argv=argv)


if __name__ == "__main__":
    main()
