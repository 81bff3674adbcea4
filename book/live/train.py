"""The instrument "Train a layer": the sizes of the recall task, and recorded training curves."""

from __future__ import annotations

from typing import Any

from book.recorded import about, measured, score
from book.recorded import data as recorded
from lab.explore.style import COLOURS
from lab.program import Traced
from lab.tasks.recall import Recall
from lab.theory.capacity import guess_accuracy, guess_loss
from lab.theory.spread import mean
from results import page_train as study
from results.recall import EIGHT

HALF = False
ALT = {
    "": "Two plots of recorded training runs over 400 steps. With a token shift, the accuracy "
    "rises to 1 within 150 steps and the loss falls to almost 0. Without a token shift, the "
    "accuracy stays below the bound of 0.325 and the loss above the bound of 1.56.",
}
"""Alternative texts of the posters, by the state of the instrument."""
TITLES = {
    "shift": ("With a token shift", "softmax"),
    "no shift": ("Without a token shift", "uniform"),
}
"""Name of a cell → its title and the name of its colour.

Without a token shift the colour is that of uniform weights, which reach the bound.
"""
TESTED, TEST_SEED = 1000, 10_000
"""Number of new sequences on which the page tests its model, and the seed of these sequences."""


def programs() -> dict[str, Traced]:
    """Return no programs, because the page computes everything in JavaScript."""
    return {}


def curves(cell: str) -> dict[str, list[float]]:
    """Return the means of the curves over all seeds, one entry per ``study.EVERY`` steps."""
    runs = recorded("page_train")["cells"][cell]["runs"]
    return {
        name: [round(mean(values), 4) for values in zip(*(run[key] for run in runs), strict=True)]
        for name, key in (("accuracy", "accuracies"), ("loss", "losses"))
    }


def sizes() -> dict[str, Any]:
    """Return the sizes of the task, the model and the training."""
    task, settings = Recall(**EIGHT), study.settings(seed=0, steps=study.STUDY.steps)
    model: Any = study.make_model(shift=False)
    return {
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "dim": model.embed.embedding_dim,
        "pairs": task.pairs,
        "keys": task.keys,
        "values": task.values,
        "batch": settings.batch_size,
        "steps": settings.steps,
        "rate": settings.rate,
        "betas": settings.betas,
        "clip": settings.clip,
    }


def data() -> dict[str, Any]:
    """Return the constants of the page: sizes, bounds and the recorded curves."""
    told = sizes()
    scores = measured("page_train", score("test"))
    return told | {
        "every": study.EVERY,
        "tested": TESTED,
        "testSeed": TEST_SEED,
        "seeds": len(scores["shift"]),
        "mostAccurate": float(guess_accuracy(told["pairs"], told["values"])),
        "leastLoss": guess_loss(told["pairs"], told["values"]),
        "settings": {
            name: {"title": title, "colour": COLOURS[colour], "told": about(scores[name])}
            | curves(name)
            for name, (title, colour) in TITLES.items()
        },
    }
