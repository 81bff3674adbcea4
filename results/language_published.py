"""Train small language models with RetNet's layer as published, and with its recurrence alone.

    python results/language_published.py      # writes results/language_published.json
    python results/language_published.py --seeds 1 --steps 20 --output /tmp/try.json

The models read the language reference that comes with Python in windows of 256 bytes, as in
``results/language_rates.py``, with the same split into training, validation and test, the same
steps, batches and seeds, and the learning rate that was best there for decays and the delta rule.
``RetNet layer`` has the rotation, norm and gate of its paper, and the sizes that are the defaults
of ``stringlib.make_layer``. Its attention has twice as many weights as that of softmax, so its
feed-forward layers have fewer hidden channels: the model has as many weights as the one with
softmax, to within a hundredth. ``ELU, RetNet`` is the decay of RetNet alone, with elu + 1 as
features, divided by the sum of the weights. Recorded for each seed: as in
``results/language_rates.py``, and the bits per byte of the second copy of a repeated text.
"""

from __future__ import annotations

from typing import Any

import torch

from lab.train import Settings, evaluate, fit
from lab.train.checkpoint import Checkpoint
from lab.train.study import Study
from results.language import BATCH, LENGTH, WARMUP, context_task, second_copy, text_task

RATE = 1e-2
CELLS: dict[str, dict[str, Any]] = {
    "RetNet layer": {"layer": "retnet"},
    "ELU, RetNet": {"attention": "elu", "weight": "retnet"},
}
"""Name → options of the model."""


def size(**options: Any) -> int:
    """Return the number of weights of a model of the study."""
    return sum(p.numel() for p in text_task().model(**options).parameters())


def hidden(**options: Any) -> int:
    """Return the hidden channels with which a model has as many weights as one of softmax."""
    wanted, first, second = size(), size(hidden=100, **options), size(hidden=101, **options)
    return 100 + round((wanted - first) / (second - first))


def run(seed: int, steps: int, keep: Checkpoint | None = None, **options: Any) -> dict[str, Any]:
    """Train one model; return its size, its losses on the way, and bits per byte."""
    own = {"hidden": hidden(**options), **options} if "layer" in options else options
    torch.manual_seed(seed)
    model, task = text_task().model(**own), text_task().validation()
    warmup = min(WARMUP, steps // 8)
    settings = Settings(steps, BATCH, RATE, warmup=warmup, seed=seed, log_every=max(1, steps // 40))
    history = fit(model, task, settings, keep=keep)
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "losses": [round(x, 4) for x in history.losses],
        "chosen by": round(history.scores[str(LENGTH)], 5),
        "bits": round(evaluate(model, text_task())[str(LENGTH)], 5),
        "context": {n: round(b, 5) for n, b in evaluate(model, context_task()).items()},
        "second copy": round(second_copy(model, text_task().test), 5),
        "tokens_per_s": round(steps * BATCH * LENGTH / history.wall_s),
    }


STUDY = Study(__file__, __doc__, CELLS, run, steps=1000)


if __name__ == "__main__":
    STUDY.main()
