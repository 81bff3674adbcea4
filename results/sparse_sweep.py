"""Train a sparse Cayley-STRING with every share of the entries of S.

    python results/sparse_sweep.py      # writes results/sparse_sweep.json
    python results/sparse_sweep.py --seeds 1 --steps 20 --only 'f = 0*' --output /tmp/try.json

The digits of ``moved`` in ``vision``, with its rate and batches, softmax attention, read by the
mean of the patches. A share f of the entries above the diagonal of S is learned, in every head and
block; their places are drawn for each model. With f = 0 the basis is the identity, and what is left
is RoPE-Mixed. Models of a seed start with the same weights. ``times`` are the milliseconds of a
batch forward and of a step's loss and gradients, medians of 9 rounds in which all shares take
turns; there, "steps" mean nothing.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch
from torch import nn

from lab.tasks import make_task
from lab.tasks.images import Images
from lab.train import Settings, fit
from lab.train.checkpoint import Checkpoint
from lab.train.study import Study
from results.vision import BATCH, RATE, STEPS, measure
from stringlib import CayleySTRING
from stringlib.models import ViT
from stringlib.models.blocks import Block

SHARES, ROUNDS = (0.0, 0.05, 0.1, 0.25, 0.5, 1.0), 9
CELLS: dict[str, dict[str, Any]] = {f"f = {f:g}": {"share": f} for f in SHARES}
CELLS["times"] = {"share": None}


def sparse(task: Images, share: float) -> ViT:
    """Return a new model with a Cayley-STRING of that share in every block."""
    model = task.model(pool="mean")
    assert isinstance(model, ViT)
    for block in model.blocks:
        assert isinstance(block, Block)
        layer = block.attention
        layer.rotate = "before"
        layer.encoder = CayleySTRING(layer.head_dim, 2, heads=layer.heads, density=share)
    return model


def parameters(model: ViT) -> int:
    """Return how many parameters the model's encoders have."""
    encoders = [m for m in model.modules() if isinstance(m, CayleySTRING)]
    return sum(p.numel() for encoder in encoders for p in encoder.parameters())


def times(task: Images) -> dict[str, dict[str, float]]:
    """Return milliseconds of each share, forward and with gradients."""
    images, labels = task.batch(BATCH, torch.Generator().manual_seed(0))
    models = {f"{share:g}": sparse(task, share) for share in SHARES}
    taken: dict[str, dict[str, list[float]]] = {
        mode: {name: [] for name in models} for mode in ("forward", "gradients")
    }
    for _ in range(ROUNDS):
        for name, model in models.items():
            for mode, rows in taken.items():
                model.zero_grad()
                start = time.perf_counter()
                with torch.set_grad_enabled(mode == "gradients"):
                    loss = nn.functional.cross_entropy(model(images), labels)
                    if mode == "gradients":
                        loss.backward()
                rows[name].append(1e3 * (time.perf_counter() - start))
    return {
        mode: {name: round(statistics.median(row), 3) for name, row in rows.items()}
        for mode, rows in taken.items()
    }


def run(
    seed: int, steps: int, share: float | None, keep: Checkpoint | None = None
) -> dict[str, Any]:
    """Train one model; return what ``vision`` measures, and the parameters. Or return times."""
    made = make_task("moved-digits", views=1)
    assert isinstance(made, Images)
    torch.manual_seed(seed)
    if share is None:
        return times(made)
    model = sparse(made, share)
    settings = Settings(steps, BATCH, rate=RATE, warmup=steps // 20, seed=seed)
    history = fit(model, made, settings, keep=keep)
    return {**measure(made, model, history), "parameters": parameters(model)}


STUDY = Study(__file__, __doc__, CELLS, run, steps=STEPS, seeds=10, jobs=1)


if __name__ == "__main__":
    STUDY.main()
