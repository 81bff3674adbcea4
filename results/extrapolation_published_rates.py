"""Choose a learning rate for each layer as published, on the two tasks about longer texts.

    python results/extrapolation_published_rates.py      # writes its record beside it
    python results/extrapolation_published_rates.py --steps 9 --output /tmp/try.json

Tasks, steps and batches are those of ``results/extrapolation.py``, and so is the smallest of the
three rates. Five models have a layer that ``stringlib.make_layer`` returns, with its default sizes;
two have softmax, with KERPLE's logarithmic bias or with FoX. On text, the feed-forward layers have
so many hidden channels that each model has as many weights as one of softmax, to within a
hundredth. The models of the needle task have no feed-forward layers, so there the sizes differ.
Recorded for each seed: bits of held-out targets that the other studies do not test on.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from lab.tasks import Task, make_task
from lab.tasks.task import IGNORE
from lab.train import Settings, fit
from lab.train.checkpoint import Checkpoint
from lab.train.study import Study
from results.extrapolation import BATCH, LENGTH, STEPS, Needle, bits
from results.language_rates import RATES

HEADS = 4
MODELS: dict[str, dict[str, Any]] = {
    "retnet": {"layer": "retnet"},
    "gla layer": {"layer": "gla"},
    "mamba2": {"layer": "mamba2"},
    "gated-deltanet": {"layer": "gated-deltanet"},
    "kda": {"layer": "kda"},
    "fox": {"position_bias": "fox"},
    "kerple-log": {"encoder": "kerple-log"},
}
"""Name → options of the model."""

CELLS = {
    f"{task} {name}, rate {rate:g}": {"task": task, "name": name, "rate": rate}
    for task in ("text", "needle")
    for name in MODELS
    for rate in RATES
}


def make(task: str) -> Task:
    """Return a task at the training length."""
    return Needle(LENGTH) if task == "needle" else make_task("text", length=LENGTH, windows=1)


def make_model(task: str, name: str) -> nn.Module:
    """Return a model of the study; on text, with as many weights as one of softmax."""
    what, options = make(task), MODELS[name]
    if task == "needle" or "layer" not in options:
        return what.model(heads=HEADS, **options)

    def size(**more: Any) -> int:
        return sum(p.numel() for p in what.model(heads=HEADS, **more).parameters())

    first, second = (size(hidden=channels, **options) for channels in (100, 101))
    hidden = 100 + round((size() - first) / (second - first))
    return what.model(heads=HEADS, hidden=hidden, **options)


def validated(model: nn.Module, task: str) -> float:
    """Return the bits of a target of the validation text, or of a question about new needles."""
    if task == "needle":
        tokens, targets = Needle(LENGTH).batch(256, torch.Generator().manual_seed(20_000))
    else:
        batches = make("text").validation().held_out()[str(LENGTH)]
        tokens, targets = (torch.cat(part) for part in zip(*batches, strict=True))
    return bits(model, tokens, targets)[targets != IGNORE].mean().item()


def run(
    seed: int, steps: int, task: str, name: str, rate: float, keep: Checkpoint | None = None
) -> dict[str, Any]:
    """Train one model; return its size, its losses on the way, and the bits to choose by."""
    torch.manual_seed(seed)
    model = make_model(task, name)
    what = make(task) if task == "needle" else make(task).validation()
    settings = Settings(steps, BATCH, rate=rate, warmup=steps // 10, seed=seed)
    history = fit(model, what, settings, keep=keep)
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "losses": [round(x, 4) for x in history.losses],
        "chosen by": round(validated(model, task), 5),
    }


STUDY = Study(__file__, __doc__, CELLS, run, steps=STEPS, seeds=1)


if __name__ == "__main__":
    STUDY.main()
