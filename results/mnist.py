"""Train small vision transformers and Performers on 5,000 digits of MNIST.

    python results/mnist.py      # writes results/mnist.json
    python results/mnist.py --seeds 1 --steps 20 --only 'favor*' --output /tmp/try.json

4,000 digits of 28 × 28 pixels to train on and 1,000 to test on, in patches of 4 × 4: 49 tokens. All
models read the mean of the patches and train at the rate and with the batches of ``vision``.
Softmax attention has the main encoders; ReLU and FAVOR+ have them before the feature map, or one
learned number for each offset of the grid, ``toeplitz``, or both. ``unit`` gives queries and keys
one length, with a learned temperature, as Luo et al. ask of a model with such numbers.
"""

from __future__ import annotations

from typing import Any

import torch

from lab.tasks import make_task
from lab.train import Settings, fit
from lab.train.checkpoint import Checkpoint
from lab.train.study import Study
from results.vision import BATCH, RATE, measure
from stringlib.models import ViT

STEPS = 1200
ATTENTION: dict[str, dict[str, Any]] = {
    "softmax": {},
    "relu": {"attention": "relu"},
    "favor": {"attention": "favor", "num_features": 32},
}
BEFORE, TOEPLITZ = {"rotate": "before"}, {"weight": "toeplitz"}
POSITIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "learned": {"encoder": "learned"},
    "axial": {"encoder": "axial", **BEFORE},
    "mixed": {"encoder": "mixed", **BEFORE},
    "circulant": {"encoder": "circulant", **BEFORE},
}
"""Where positions enter, for every attention → options of the model."""

LINEAR: dict[str, dict[str, Any]] = {
    "toeplitz": TOEPLITZ,
    "circulant, toeplitz": {"encoder": "circulant", **BEFORE, **TOEPLITZ},
    "unit": {"normalize_qk": True},
    "unit, toeplitz": {"normalize_qk": True, **TOEPLITZ},
}
"""The same for attention with a feature map alone."""

MODELS = {
    f"{phi}: {name}": {**told, **options}
    for phi, told in ATTENTION.items()
    for name, options in {**POSITIONS, **({} if phi == "softmax" else LINEAR)}.items()
}
"""Name → options of the model."""


def run(seed: int, steps: int, keep: Checkpoint | None = None, **options: Any) -> dict[str, Any]:
    """Train one model; return its accuracy, and losses on the way."""
    made = make_task("mnist5k")
    torch.manual_seed(seed)
    model = made.model(pool="mean", **options)
    assert isinstance(model, ViT)
    settings = Settings(steps, BATCH, rate=RATE, warmup=steps // 20, seed=seed)
    return measure(made, model, fit(model, made, settings, keep=keep))


STUDY = Study(__file__, __doc__, MODELS, run, steps=STEPS)


if __name__ == "__main__":
    STUDY.main()
