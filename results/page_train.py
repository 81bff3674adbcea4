"""Train the layer that the page trains, with and without a token shift, and keep the curves.

    python results/page_train.py      # writes results/page_train.json
    python results/page_train.py --seeds 1 --steps 50 --only 'shift' --output /tmp/try.json

Task and model are those of ``results/recall.py`` with eight pairs and softmax. The learning rate is
the smallest of ``results/recall_success.py``, so that one can watch the accuracy rise. The curves
have an entry every ten steps, from the first to the last: "losses" of the batches, "accuracies" on
2,000 new sequences.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from lab.tasks.recall import Recall
from lab.train import Settings, evaluate, fit
from lab.train.checkpoint import Checkpoint
from lab.train.study import Study
from results.recall import EIGHT

RATE, EVERY = 1e-3, 10
CELLS: dict[str, dict[str, Any]] = {"shift": {"shift": True}, "no shift": {"shift": False}}


def settings(seed: int, steps: int) -> Settings:
    """Return how the models are trained."""
    return Settings(steps, rate=RATE, seed=seed, log_every=EVERY, evaluate_every=EVERY)


def make_model(**options: Any) -> nn.Module:
    """Return a model of the study."""
    return Recall(**EIGHT).model(attention="softmax", **options)


def run(seed: int, steps: int, keep: Checkpoint | None = None, **options: Any) -> dict[str, Any]:
    """Train one model; return its accuracy, and the curves of loss and accuracy."""
    torch.manual_seed(seed)
    model, task = make_model(**options), Recall(**EIGHT)
    first = evaluate(model, task)["test"]
    history = fit(model, task, settings(seed, steps), keep=keep)
    later = [one["scores"]["test"] for one in history.evaluations]
    return {
        "scores": {name: round(score, 4) for name, score in history.scores.items()},
        "losses": [round(x, 4) for x in history.losses],
        "accuracies": [round(x, 4) for x in (first, *later)],
    }


STUDY = Study(__file__, __doc__, CELLS, run, steps=400)


if __name__ == "__main__":
    STUDY.main()
