"""Copy text from 16 to 128 bytes back: what decides, attention, key, state, distance or training?

    python results/copy_distance.py      # writes results/copy_distance.json
    python results/copy_distance.py --seeds 1 --steps 20 --only 'softmax*' --output /tmp/try.json

The models and texts of ``results/copy_rates.py``, each at the rate that it chose. "first" and
"second" are bits per byte of the first two copies of pieces from the end of the text, of 16, 32, 64
and 128 bytes; "on the way" has them after each third of the steps. "one head" and "eight heads"
hold twice and a quarter of what two heads do, with as many parameters, at the rate of two heads.
"""

from __future__ import annotations

from typing import Any

import torch

from lab.train import Settings, fit
from lab.train.checkpoint import Checkpoint
from lab.train.study import Study
from results.copy_rates import BATCH, LENGTH, METHODS, RATES, WARMUP, Copies, make_model
from results.language_rates import chosen_rates

HEADS = {"one head": 1, "eight heads": 8}
SIZED = ("SSD, with the one before", "FAVOR+, RoPE, with the one before")
"""Those that are trained with other numbers of heads too."""

CHOSEN = {name: chosen_rates("copy_rates", [name], RATES[name])[name] for name in METHODS}
CELLS = {name: {**options, "rate": CHOSEN[name]} for name, options in METHODS.items()} | {
    f"{name}, {words}": {**METHODS[name], "rate": CHOSEN[name], "heads": heads}
    for name in SIZED
    for words, heads in HEADS.items()
}
"""Name → rate and options of the model."""


def run(
    seed: int, steps: int, rate: float, keep: Checkpoint | None = None, **options: Any
) -> dict[str, Any]:
    """Train one model; return its losses on the way, and bits per byte of each copy."""
    torch.manual_seed(seed)
    model, third = make_model(**options), max(1, steps // 3)
    settings = Settings(
        *(steps, BATCH, rate),
        warmup=min(WARMUP, steps // 8),
        seed=seed,
        log_every=50,
        evaluate_every=third,
    )
    history = fit(model, Copies(length=LENGTH), settings, keep=keep)
    return {
        "losses": [round(x, 4) for x in history.losses],
        "on the way": [_bits(x["scores"]) for x in history.evaluations if x["step"] < steps],
        "bits": _bits(history.scores),
    }


def _bits(scores: dict[str, float]) -> dict[str, float]:
    return {copy: round(bits, 5) for copy, bits in scores.items()}


STUDY = Study(__file__, __doc__, CELLS, run, steps=1200)


if __name__ == "__main__":
    STUDY.main()
