"""Train with RoPE, drop the rotation and train a little more: can the model read longer texts?

    python results/extrapolation_dropped.py      # writes results/extrapolation_dropped.json
    python results/extrapolation_dropped.py --seeds 1 --steps 20 --output /tmp/try.json

This is the recipe of DroPE on the tasks of ``results/extrapolation.py``, with its sizes and
measures. Three quarters of the steps have RoPE. Then the rotation is removed, and the last quarter
is trained at the same length, with a new warmup and a new optimiser. The models of that study have
as many steps in all, with RoPE or without positions from the first step to the last.
"""

from __future__ import annotations

from typing import Any

import torch

from lab.tasks import make_task
from lab.train import Settings, fit
from lab.train.study import Study
from results.extrapolation import (
    BATCH,
    LENGTH,
    STEPS,
    Needle,
    always,
    by_place,
    long_windows,
    read_needle,
    read_text,
    sliding,
)
from stringlib.models import LanguageModel

CELLS = {f"{task} dropped": {"task": task} for task in ("text", "needle")}


def run(seed: int, steps: int, task: str) -> dict[str, Any]:
    """Train one model in two parts; return its losses on the way and what it reads.

    On text ``window`` is what it costs to read the same long windows with ``LENGTH`` at a time.
    """
    torch.manual_seed(seed)
    what = Needle(LENGTH) if task == "needle" else make_task("text", length=LENGTH, windows=1)
    model = what.model(heads=4, encoder="rope")
    assert isinstance(model, LanguageModel)
    first = 3 * steps // 4
    losses = []
    for count, start in ((first, seed), (steps - first, 1000 + seed)):
        settings = Settings(count, BATCH, rate=5e-3, warmup=count // 10, seed=start)
        losses.append([round(x, 4) for x in fit(model, what, settings).losses])
        for block in model.blocks:
            block.attention.encoder = None
    found: dict[str, Any] = {"losses": losses}
    if task == "needle":
        return found | {"read": {"dropped": read_needle(always(model))}}
    found["window"] = by_place(sliding(model, *long_windows()))
    return found | {"read": {"dropped": read_text(always(model))}}


STUDY = Study(__file__, __doc__, CELLS, run, steps=STEPS)


if __name__ == "__main__":
    STUDY.main()
