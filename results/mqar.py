"""Train one layer with a shift to recall many values of one sequence: maps and decays.

    python results/mqar.py      # writes results/mqar.json
    python results/mqar.py --seeds 1 --steps 20 --only relu --output /tmp/try.json

Multi-query associative recall: 16 pairs of different keys and values out of a vocabulary of 128,
then each key once more at a random place of the other 32, most of them soon; at each the model
names its value. One layer of one head with 32 channels, keys that take in the key before them, no
position, no feed-forward part. The decays forget: retnet at a fixed rate, ssd and gla at a rate
that the token sets, gla for each feature. "unit" gives all queries and keys one length.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from stringlib.tasks.mqar import MQAR
from stringlib.train import Settings, fit
from stringlib.train.sweep import record_sweep

PAIRS, LENGTH, VOCAB, RATE = 16, 64, 128, 1e-2
CELLS: dict[str, dict[str, Any]] = {
    "softmax": {"attention": "softmax"},
    "relu": {"attention": "relu"},
    "elu": {"attention": "elu"},
    "favor, unit": {"attention": "favor", "normalize_qk": True},
    "favor-circulant, unit": {"attention": "favor-circulant", "normalize_qk": True},
    "retnet": {"attention": "elu", "weight": "retnet"},
    "ssd": {"attention": "elu", "weight": "ssd"},
    "gla": {"attention": "elu", "weight": "gla"},
}


def run(seed: int, steps: int, **options: Any) -> dict[str, Any]:
    """Train one model; return its losses on the way and its scores."""
    task = MQAR(PAIRS, LENGTH, VOCAB)
    torch.manual_seed(seed)
    model = task.model(dim=32, depth=1, heads=1, shift=True, **options)
    history = fit(model, task, Settings(steps, rate=RATE, seed=seed, log_every=50))
    scores = {name: round(score, 4) for name, score in history.scores.items()}
    return {"scores": scores, "losses": [round(x, 4) for x in history.losses]}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the study and write its record."""
    assert __doc__
    record_sweep(Path(__file__), __doc__, CELLS, run, steps=400, argv=argv)


if __name__ == "__main__":
    main()
