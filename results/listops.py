"""Train small models on ListOps: softmax against each kind of linear attention.

    python results/listops.py      # writes results/listops.json
    python results/listops.py --seeds 1 --steps 20 --only "softmax*" --output /tmp/try.json

Expressions of 5 to 31 tokens, at most two operators deep, after the generator of Long Range Arena,
whose own have 500 to 2,000 tokens and up to nine. A causal model of two layers of four heads with
64 channels reads one and names its value, a digit, at the last bracket. Every model has the same
sizes, steps, batches and learning rate. Recorded for each seed: the accuracy on expressions that
are not trained on, in all and by outermost operator; and what needs no model, the accuracy of
naming the commonest digit, and of naming the commonest digit for the outermost operator.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from lab.tasks.listops import OPERATORS, ListOps
from lab.train import Settings, fit
from lab.train.checkpoint import Checkpoint
from lab.train.study import Study

EXPRESSIONS = {"min_length": 4, "max_length": 32, "depth": 3}
BATCH, RATE, WARMUP = 64, 3e-3, 50

CELLS: dict[str, dict[str, Any]] = {
    "softmax, RoPE": {"encoder": "rope"},
    "softmax": {},
    "FAVOR+": {"attention": "favor"},
    "circulant": {"attention": "favor-circulant"},
    "circulant, RoPE": {"attention": "favor-circulant", "encoder": "rope"},
    "ReLU": {"attention": "relu"},
    "ReLU, cosine": {"attention": "relu", "weight": "cosine", "horizon": 32},
    "ELU, GLA": {"attention": "elu", "weight": "gla"},
    "ELU, SSD": {"attention": "elu", "weight": "ssd"},
}
"""Name → options of :class:`~stringlib.models.LanguageModel`."""


@torch.no_grad()
def by_operator(model: nn.Module, task: ListOps) -> dict[str, float]:
    """Return the test accuracy for each outermost operator."""
    right, count = torch.zeros(len(OPERATORS)), torch.zeros(len(OPERATORS))
    model.eval()
    for inputs, targets in task.held_out()["test"]:
        # a row has one target: its value, at the last token
        hit = ((model(inputs).argmax(-1) == targets) & (targets >= 0)).any(-1).float()
        operator = inputs[:, 0] - 10
        # an expression of one digit has no operator, but these are too short to be here
        right += torch.bincount(operator, hit, len(OPERATORS))
        count += torch.bincount(operator, minlength=len(OPERATORS))
    model.train()
    return dict(zip(OPERATORS, (right / count).tolist(), strict=True))


def run(seed: int, steps: int, keep: Checkpoint | None = None, **options: Any) -> dict[str, Any]:
    """Train one model; return its size, its loss on the way and its accuracies."""
    torch.manual_seed(seed)
    task = ListOps(**EXPRESSIONS)
    model = task.model(**options)
    warmup = min(WARMUP, steps // 8)
    settings = Settings(steps, BATCH, RATE, warmup=warmup, seed=seed, log_every=20)
    history = fit(model, task, settings, keep=keep)
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "losses": [round(x, 4) for x in history.losses],
        "accuracy": round(history.scores["test"], 5),
        "operators": {name: round(a, 5) for name, a in by_operator(model, task).items()},
        "commonest": round(task.chance(), 5),
        "outermost": round(task.outermost(), 5),
    }


STUDY = Study(__file__, __doc__, CELLS, run, steps=1000)


if __name__ == "__main__":
    STUDY.main()
