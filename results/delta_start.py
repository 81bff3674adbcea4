"""Start the delta rule at other rates: does it pay to begin at the rate that the formula gives?

    python results/delta_start.py      # writes results/delta_start.json
    python results/delta_start.py --seeds 2 --steps 50 --output /tmp/try.json

Tasks, model and training are those of ``results/delta_rule.py``, whose rates begin near 1. The keys
of "distinct" come once, with a load of 1 in the middle; there 0.3 is the best rate for random keys.
Those of "crowded" come again. Each model is trained for a quarter of the steps, and for all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from lab.theory.capacity import best_delta_rate
from lab.train.checkpoint import Checkpoint
from lab.train.learn import Training
from lab.train.study import Study
from results.delta_rule import LENGTHS, Memory, batch, loss, measure

TASKS = ("distinct", "crowded")
STARTS = {"1": 1.0, "best": round(best_delta_rate(1), 3), "a third of it": 0.1}
"""Name → rate: the default, the one that the formula gives for a load of 1, and less."""
SHARES = {"a quarter": 0.25, "all": 1.0}


class Started(Memory):
    """A memory by the delta rule whose rates begin at a number, give or take."""

    def __init__(self, task: str, start: float) -> None:
        super().__init__("delta", task)
        with torch.no_grad():  # the rate is 2 σ(x W + b)
            self.weight.to_rate.bias.add_(math.log(start / (2 - start)))


@torch.no_grad()
def rate(model: Memory, task: str) -> float:
    """Return the mean rate on new sequences."""
    tokens, _ = batch(task, 64, LENGTHS[task], torch.Generator().manual_seed(10_000))
    x = torch.cat([part(tokens[..., i]) for i, part in enumerate(model.embed)], -1)
    return float(model.weight(x).beta.mean())


def both(model: Memory, task: str) -> dict[str, float]:
    """Return the accuracy, and the mean rate that was learned."""
    return {**measure(model, task), "rate": round(rate(model, task), 4)}


TRAINING = Training(Started, loss, both, rates=5e-3, cosine=True, clip=1.0, every=20)


def run(
    seed: int,
    steps: int,
    task: str,
    start: float,
    share: float,
    keep: Checkpoint | None = None,
) -> Mapping[str, Any]:
    """Train one model for a share of the steps; return what :func:`both` does, and its losses."""
    return TRAINING(seed, round(share * steps), keep, task=task, start=start)


CELLS = {
    f"{task}, from {name}, {said} of the steps": {"task": task, "start": start, "share": share}
    for task in TASKS
    for name, start in STARTS.items()
    for said, share in SHARES.items()
}
STUDY = Study(__file__, __doc__, CELLS, run, steps=800)


if __name__ == "__main__":
    STUDY.main()
