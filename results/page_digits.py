"""Train the vision transformers that run in the page: digits anywhere on a canvas.

    python results/page_digits.py      # writes results/page_digits.json
    python results/page_digits.py --seeds 1 --steps 20 --only 'axial*' --output /tmp/try.json

Digits of 20 × 20 pixels stand at places of a canvas of 40 × 40, a pixel apart, cut into patches of
4 × 4. Training uses the 121 places of the upper left quarter; "moved" are the 320 others. The
weights of every seed are kept in the record, in half precision.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from lab.tasks.images import Images, mnist5k
from lab.train import Settings, fit
from lab.train.checkpoint import Checkpoint
from lab.train.study import Study
from lab.weights import packed

SIDE, CANVAS, PATCH, BATCH, RATE = 20, 40, 4, 32, 3e-3
MARGIN = 4
"""MNIST's digits fill 20 of their 28 pixels; the others are cut off."""

CELLS: dict[str, dict[str, Any]] = {
    "no position": {},
    "learned table": {"encoder": "learned"},
    "axial RoPE": {"encoder": "axial"},
    "Circulant-STRING": {"encoder": "circulant"},
    "ReLU, Circulant-STRING": {"encoder": "circulant", "attention": "relu", "rotate": "before"},
    "FAVOR+, axial RoPE": {
        "encoder": "axial",
        "attention": "favor",
        "num_features": 32,
        "rotate": "before",
    },
}
"""Name → options of the model."""


def task() -> Images:
    """Return the digits and their places."""
    whole = mnist5k()
    cut = slice(MARGIN, MARGIN + SIDE)
    train, test = (
        (images[:, :, cut, cut].contiguous(), labels)
        for images, labels in (whole.train, whole.test)
    )
    return Images(train, test, canvas=CANVAS, step=1, patch=PATCH, views=2)


def make_model(made: Images, **options: Any) -> nn.Module:
    """Return a model of the study, two layers of three heads with 48 channels."""
    return made.model(pool="mean", **options)


def run(seed: int, steps: int, keep: Checkpoint | None = None, **options: Any) -> dict[str, Any]:
    """Train one model; return its losses, its accuracy here and there, and its weights."""
    made = task()
    torch.manual_seed(seed)
    model = make_model(made, **options)
    settings = Settings(steps, BATCH, RATE, warmup=steps // 20, seed=seed, log_every=50)
    history = fit(model, made, settings, keep=keep)
    return {
        "losses": [round(x, 4) for x in history.losses],
        "scores": {name: round(score, 4) for name, score in history.scores.items()},
        "weights": packed(model),
    }


STUDY = Study(__file__, __doc__, CELLS, run, steps=2000, seeds=3)


if __name__ == "__main__":
    STUDY.main()
