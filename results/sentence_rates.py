"""Attend to the current sentence: do two more learning rates change what positions can do?

    python results/sentence_rates.py      # writes results/sentence_rates.json
    python results/sentence_rates.py --seeds 1 --steps 50 --output /tmp/try.json

Task, model and measures are those of ``results/sentences.py``, whose models share the learning rate
0.01. Here the four methods whose accuracy is below 0.95 there, at 64 or at 256 tokens, are trained
with a third and with three times this rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lab.train.checkpoint import Checkpoint
from lab.train.study import Study
from results.sentences import TRAINING

RATES = (3e-3, 3e-2)
CELLS = {
    f"{method}, rate {rate:g}": {"method": method, "rate": rate}
    for method in ("none", "ALiBi", "RoPE", "RoPE, learned steps")
    for rate in RATES
}


def run(
    seed: int, steps: int, rate: float, keep: Checkpoint | None = None, **cell: Any
) -> Mapping[str, Any]:
    """Train a model at a learning rate; return its accuracies."""
    return replace(TRAINING, rates=rate)(seed, steps, keep, **cell)


STUDY = Study(__file__, __doc__, CELLS, run, steps=400, seeds=5)


if __name__ == "__main__":
    STUDY.main()
