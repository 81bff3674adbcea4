"""Recall with random features that are drawn anew during training, against fixed and learned rows.

    python results/recall_redraw.py      # writes results/recall_redraw.json
    python results/recall_redraw.py --seeds 1 --steps 50 --only "8*m = 32*" --output /tmp/try.json

Task and model are those of ``results/recall.py``, with a shift. "every 10" draws all rows of
circulant FAVOR+ anew after each tenth step, and once more for the test, as such a model does not
belong to a draw; "fixed" rows are those of the start, "learned" ones are trained. "unit" gives
queries and keys one length, with a learned temperature.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from lab.tasks.recall import Recall
from lab.train import Settings, evaluate, fit
from lab.train.history import History
from lab.train.study import Study
from results.recall import EIGHT, MANY, RATE
from stringlib.attention.favor import FavorFeatures

ROWS: dict[str, dict[str, Any]] = {
    "fixed": {},
    "learned": {"attention": "favor-learned"},
    **{f"every {steps}": {"every": steps} for steps in (10, 50, 200)},
}
NORMS = {"free": {}, "unit": {"normalize_qk": True}}
SIZES = {"8 pairs": (EIGHT, (32, 64, 128, 256)), "32 pairs": (MANY, (32, 128))}
CELLS: dict[str, dict[str, Any]] = {
    f"{pairs}, {norm}, m = {m}, {rows}": {**task, **options, "num_features": m, **told}
    for pairs, (task, counts) in SIZES.items()
    for norm, options in NORMS.items()
    for m in counts
    for rows, told in ROWS.items()
}


class Redraw:
    """Draws all random features of a model anew after every so many steps of its training.

    Args:
        model: The model.
        seed: Of the draws.
        every: Steps between two draws; none on the way if omitted.
    """

    def __init__(self, model: nn.Module, seed: int, every: int | None) -> None:
        self.model, self.every = model, every
        self.generator = torch.Generator().manual_seed(30_000 + seed)

    def __call__(self, history: History) -> None:
        """Draw if it is time, after a step."""
        if self.every is not None and (history.steps[-1] + 1) % self.every == 0:
            self.now()

    def now(self) -> None:
        """Draw now."""
        for module in self.model.modules():
            if isinstance(module, FavorFeatures):
                module.redraw(self.generator)


def run(
    seed: int,
    steps: int,
    pairs: int,
    keys: int,
    attention: str = "favor-circulant",
    every: int | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Train one model; return its losses on the way and its accuracy, with other rows as well."""
    task = Recall(pairs, keys)
    torch.manual_seed(seed)
    model = task.model(attention=attention, shift=True, **options)
    redraw = Redraw(model, seed, every)
    settings = Settings(steps, rate=RATE, seed=seed, log_every=1)
    history = fit(model, task, settings, on_log=redraw)
    found: dict[str, Any] = {"losses": [round(loss, 4) for loss in history.losses[::50]]}
    found["accuracy"] = round(history.scores["test"], 4)
    if attention != "favor-learned":
        redraw.now()
        found["redrawn"] = round(evaluate(model, task)["test"], 4)
    return found


STUDY = Study(__file__, __doc__, CELLS, run, steps=400, seeds=10)


if __name__ == "__main__":
    STUDY.main()
