"""Train small language models whose random features are drawn anew on the way, or learned.

    python results/language_redraw.py      # writes results/language_redraw.json
    python results/language_redraw.py --seeds 1 --steps 20 --only "fixed" --output /tmp/try.json

Circulant FAVOR+ with RoPE and 32 features per head, on the text of ``results/language.py``. "every
10" draws all rows anew after each tenth step, and once more for the test, as such a model does not
belong to a draw; "fixed" rows are those of the start, "learned" ones are trained.
"""

from __future__ import annotations

from typing import Any

import torch

from lab.train import Settings, evaluate, fit
from lab.train.study import Study
from results.language import BATCH, CIRCULANT, LENGTH, RATE, ROPE, WARMUP, text_task
from results.recall_redraw import ROWS, Redraw


def run(seed: int, steps: int, every: int | None = None, **options: Any) -> dict[str, Any]:
    """Train one model; return its losses on the way and bits per byte, with other rows as well."""
    task = text_task()
    torch.manual_seed(seed)
    model = task.model(**{**CIRCULANT, **ROPE, **options})
    redraw = Redraw(model, seed, every)
    warmup = min(WARMUP, steps // 8)
    settings = Settings(steps, BATCH, RATE, warmup=warmup, seed=seed, log_every=1)
    history = fit(model, task, settings, on_log=redraw)
    found: dict[str, Any] = {"losses": [round(loss, 4) for loss in history.losses[::25]]}
    found["bits"] = round(history.scores[str(LENGTH)], 5)
    if options.get("attention") != "favor-learned":
        redraw.now()
        found["redrawn"] = round(evaluate(model, task)[str(LENGTH)], 5)
    return found


STUDY = Study(__file__, __doc__, ROWS, run, steps=1000)


if __name__ == "__main__":
    STUDY.main()
