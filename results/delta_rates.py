"""Try two more learning rates for decays of features: does one suit KDA better?

    python results/delta_rates.py      # writes results/delta_rates.json
    python results/delta_rates.py --seeds 1 --steps 50 --output /tmp/try.json

Tasks, models and measures are those of ``results/delta_rule.py``, whose models share the learning
rate 0.005. Here the delta rule with SSD's decay, KDA, and the sum with GLA's decay are trained with
half and with twice this rate, on the two tasks in which keys are rewritten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lab.train.checkpoint import Checkpoint
from lab.train.study import Study
from results.delta_rule import TRAINING

RATES = (2.5e-3, 1e-2)
CELLS = {
    f"{task}, {state}, rate {rate:g}": {"task": task, "state": state, "rate": rate}
    for task in ("rewritten", "crowded")
    for state in ("gla", "gated-delta", "kda")
    for rate in RATES
}


def run(
    seed: int, steps: int, rate: float, keep: Checkpoint | None = None, **cell: Any
) -> Mapping[str, Any]:
    """Train a model at a learning rate; return its accuracy."""
    return replace(TRAINING, rates=rate)(seed, steps, keep, **cell)


STUDY = Study(__file__, __doc__, CELLS, run, steps=800, seeds=5)


if __name__ == "__main__":
    STUDY.main()
