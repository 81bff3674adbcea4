"""Train with short sequences, read longer ones: forget gates, and local layers beside NoPE layers.

    python results/extrapolation_layers.py      # writes results/extrapolation_layers.json
    python results/extrapolation_layers.py --seeds 1 --steps 20 --output /tmp/try.json

Tasks, sizes, steps and measures are those of ``results/extrapolation.py``. ``fox`` is softmax with
the forget gates of FoX and no rotation, in the models of that study. ``local and none`` has two
layers: the first rotates with RoPE and attends only to a window of 16 tokens, the second attends to
all tokens and encodes no position. The models of the needle task have one layer in that study, so
models with two layers of RoPE, or of softmax without positions, are trained here too.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from lab.tasks import make_task
from lab.train import Settings, fit
from lab.train.checkpoint import Checkpoint
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
from stringlib import MultiHeadAttention

WINDOW, HEADS = 16, 4
METHODS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "rope": ({"encoder": "rope"}, {"encoder": "rope"}),
    "none": ({}, {}),
    "fox": ({"position_bias": "fox"}, {"position_bias": "fox"}),
    "local and none": ({"encoder": "rope", "window": WINDOW}, {}),
}
"""Name → the options of the first and the second layer."""

CELLS = {
    "text fox": {"task": "text", "method": "fox", "depth": 2},
    "text local and none": {"task": "text", "method": "local and none", "depth": 2},
    "needle fox": {"task": "needle", "method": "fox", "depth": 1},
    **{
        f"needle, two layers, {method}": {"task": "needle", "method": method, "depth": 2}
        for method in ("rope", "none", "local and none")
    },
}


def make_model(task: str, method: str, depth: int) -> nn.Module:
    """Return a model of the study."""
    what = Needle(LENGTH) if task == "needle" else make_task("text", length=LENGTH, windows=1)
    model = what.model(heads=HEADS, depth=depth)
    for block, options in zip(model.blocks, METHODS[method][:depth], strict=True):
        block.attention = MultiHeadAttention(64, HEADS, causal=True, **options)
    return model


def run(
    seed: int, steps: int, task: str, method: str, depth: int, keep: Checkpoint | None = None
) -> dict[str, Any]:
    """Train one model; return its loss on the way and what it reads at each length.

    On text ``window`` is what it costs to read the same long windows with ``LENGTH`` at a time.
    """
    torch.manual_seed(seed)
    model = make_model(task, method, depth)
    what = Needle(LENGTH) if task == "needle" else make_task("text", length=LENGTH, windows=1)
    settings = Settings(steps, BATCH, rate=5e-3, warmup=steps // 10, seed=seed)
    history = fit(model, what, settings, keep=keep)
    found: dict[str, Any] = {"losses": [round(x, 4) for x in history.losses]}
    if task == "needle":
        return found | {"read": {method: read_needle(always(model))}}
    found["window"] = by_place(sliding(model, *long_windows()))
    return found | {"read": {method: read_text(always(model))}}


STUDY = Study(__file__, __doc__, CELLS, run, steps=STEPS)


if __name__ == "__main__":
    STUDY.main()
