"""Train layers as published with short sequences, then read longer ones.

    python results/extrapolation_published.py      # writes results/extrapolation_published.json
    python results/extrapolation_published.py --seeds 1 --steps 20 --output /tmp/try.json

Tasks, steps, batches and measures are those of ``results/extrapolation.py``; models and learning
rates are those of ``results/extrapolation_published_rates.py``. Each model has the rate that was
best for it on its task.
"""

from __future__ import annotations

from typing import Any

import torch

from lab.train import Settings, fit
from lab.train.checkpoint import Checkpoint
from lab.train.study import Study
from results.extrapolation import (
    BATCH,
    STEPS,
    always,
    by_place,
    long_windows,
    read_needle,
    read_text,
    sliding,
)
from results.extrapolation_published_rates import MODELS, make, make_model
from results.language_rates import RATES, chosen_rates

NAMES = [f"{task} {name}" for task in ("text", "needle") for name in MODELS]
CELLS: dict[str, dict[str, Any]] = {
    cell: {"task": cell.split(" ", 1)[0], "name": cell.split(" ", 1)[1], "rate": rate}
    for cell, rate in chosen_rates("extrapolation_published_rates", NAMES, RATES).items()
}


def run(
    seed: int, steps: int, task: str, name: str, rate: float, keep: Checkpoint | None = None
) -> dict[str, Any]:
    """Train one model; return its loss on the way and what it reads at each length.

    On text ``window`` is what it costs to read the same long windows with ``LENGTH`` at a time.
    """
    torch.manual_seed(seed)
    model = make_model(task, name)
    settings = Settings(steps, BATCH, rate=rate, warmup=steps // 10, seed=seed)
    history = fit(model, make(task), settings, keep=keep)
    found: dict[str, Any] = {
        "parameters": sum(p.numel() for p in model.parameters()),
        "losses": [round(x, 4) for x in history.losses],
    }
    if task == "needle":
        return found | {"read": {name: read_needle(always(model))}}
    found["window"] = by_place(sliding(model, *long_windows()))
    return found | {"read": {name: read_text(always(model))}}


STUDY = Study(__file__, __doc__, CELLS, run, steps=STEPS)


if __name__ == "__main__":
    STUDY.main()
