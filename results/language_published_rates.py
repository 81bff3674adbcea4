"""Train small language models with layers as published, and with FoX, at three learning rates.

    python results/language_published_rates.py      # writes results/language_published_rates.json
    python results/language_published_rates.py --steps 20 --only "GLA*" --output /tmp/try.json

The models read the language reference that comes with Python in windows of 256 bytes, as in
``results/language_rates.py``, with the same split into training, validation and test, and the same
steps and batches. Five models have one of the layers that ``stringlib.make_layer`` returns, with
its default sizes. These layers have more weights than the attention of softmax, or fewer. So the
feed-forward layers have fewer or more hidden channels: each model has as many weights as the one
with softmax, to within a hundredth. The sixth has softmax with the forget gates of FoX, and no
rotation. Recorded for each seed: as in ``results/language_rates.py``,
and the bits per byte of the second copy of a repeated text.
"""

from __future__ import annotations

from typing import Any

import torch

from lab.train import Settings, evaluate, fit
from lab.train.checkpoint import Checkpoint
from lab.train.study import Study
from results.language import BATCH, LENGTH, WARMUP, context_task, second_copy, text_task
from results.language_rates import RATES

MODELS: dict[str, dict[str, Any]] = {
    "RetNet layer": {"layer": "retnet"},
    "GLA layer": {"layer": "gla"},
    "Mamba-2 layer": {"layer": "mamba2"},
    "Gated DeltaNet layer": {"layer": "gated-deltanet"},
    "KDA layer": {"layer": "kda"},
    "softmax, FoX": {"position_bias": "fox"},
}
"""Name → options of the model."""

CELLS = {
    f"{name}, rate {rate:g}": {**options, "rate": rate}
    for name, options in MODELS.items()
    for rate in RATES
}


def size(**options: Any) -> int:
    """Return the number of weights of a model of the study."""
    return sum(p.numel() for p in text_task().model(**options).parameters())


def hidden(**options: Any) -> int:
    """Return the hidden channels with which a model has as many weights as one of softmax."""
    wanted, first, second = size(), size(hidden=100, **options), size(hidden=101, **options)
    return 100 + round((wanted - first) / (second - first))


def run(
    seed: int, steps: int, rate: float, keep: Checkpoint | None = None, **options: Any
) -> dict[str, Any]:
    """Train one model; return its size, its losses on the way, and bits per byte."""
    own = {"hidden": hidden(**options), **options} if "layer" in options else options
    torch.manual_seed(seed)
    model, task = text_task().model(**own), text_task().validation()
    warmup = min(WARMUP, steps // 8)
    settings = Settings(steps, BATCH, rate, warmup=warmup, seed=seed, log_every=max(1, steps // 40))
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


STUDY = Study(__file__, __doc__, CELLS, run, steps=1000, seeds=1)


if __name__ == "__main__":
    STUDY.main()
