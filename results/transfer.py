"""Add Circulant-STRING to a vision transformer that was trained without it, and train on.

    python results/transfer.py      # writes results/transfer.json
    python results/transfer.py --seeds 1 --steps 20 --only 'digits*' --output /tmp/try.json

A model is trained with no positions or with a learned table: on ``digits`` with a class token, on
``moved`` (nine places of a larger canvas) with the mean of the patches. From the same trained model
five copies are trained on for half as many steps, with the same batches: ``without`` anything new,
and with a Circulant-STRING in every block that starts at 0 or as small noise, at the rate of the
model or at 1e-4.

Recorded beside the scores: by how much the zero start changes a logit; the gradient of the
coefficients at 0 on the test images alone, on these and the same with the patches in reverse order,
and on these and the same turned by half a turn, pixel by pixel; and how far the frequencies went.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from lab.tasks import make_task
from lab.train import Settings, evaluate, fit
from lab.train.study import Study
from stringlib import CirculantSTRING
from stringlib.models import ViT
from stringlib.models.blocks import Block
from stringlib.positions import grid_positions

STEPS, BATCH, RATE, TUNING_RATE, SLOW = 400, 32, 3e-3, 1e-3, 1e-4
TASKS: dict[str, tuple[str, dict[str, int], str]] = {
    "digits": ("digits", {}, "cls"),
    "moved": ("moved-digits", {"views": 1}, "mean"),
}
BASES = ("none", "learned")
CELLS = {f"{task} {base}": {"task": task, "base": base} for task in TASKS for base in BASES}
STARTS: dict[str, tuple[str | None, float | None]] = {
    "without": (None, None),
    "zero": ("zero", None),
    "noise": ("noise", None),
    "zero, 1e-4": ("zero", SLOW),
    "noise, 1e-4": ("noise", SLOW),
}
"""How a copy is trained on: the start of its Circulant-STRING, and the rate of the coefficients."""


def with_string(model: ViT, start: str) -> ViT:
    """Return a copy with a new Circulant-STRING in every block.

    Args:
        model: Trained without a rotary encoder.
        start: ``"zero"``, or ``"noise"``: frequencies with a standard deviation of 0.1.
    """
    model = copy.deepcopy(model)
    for block in model.blocks:
        assert isinstance(block, Block)
        layer = block.attention
        layer.encoder = CirculantSTRING(layer.head_dim, len(model.grid), heads=layer.heads)
        if start == "zero":
            nn.init.zeros_(layer.encoder.coefficients)
    return model


def encoders(model: nn.Module) -> list[CirculantSTRING]:
    """Return the model's Circulant-STRINGs."""
    return [m for m in model.modules() if isinstance(m, CirculantSTRING)]


def frequencies(model: nn.Module) -> Tensor:
    """Return all frequencies of all blocks, in radians per patch, in one row."""
    return torch.cat([e.frequencies().detach().flatten() for e in encoders(model)])


def gradients(model: ViT, images: Tensor, labels: Tensor) -> dict[str, float]:
    """Return the norm of the gradient of all coefficients on three populations.

    ``"plain"``: the images. ``"patches mirrored"``: also the same patches in reverse order, each as
    it is. ``"pixels mirrored"``: also the images turned by half a turn.
    """
    model = copy.deepcopy(model).double()
    images, places = images.double(), grid_positions(*model.grid)
    shown = {
        "plain": [(images, places)],
        "patches mirrored": [(images, places), (images, places.flip(0))],
        "pixels mirrored": [(images, places), (images.flip(-1, -2), places)],
    }
    norms = {}
    for name, parts in shown.items():
        loss = torch.stack(
            [nn.functional.cross_entropy(model(x, at), labels) for x, at in parts]
        ).mean()
        found = torch.autograd.grad(loss, [e.coefficients for e in encoders(model)])
        norms[name] = torch.cat([g.flatten() for g in found]).norm().item()
    return norms


@torch.no_grad()
def largest_change(model: ViT, other: ViT, images: Tensor) -> float:
    """Return the largest difference between logits of two models."""
    return (model.eval()(images) - other.eval()(images)).abs().max().item()


def pretrain(task: str, base: str, seed: int, steps: int) -> tuple[Any, ViT]:
    """Return the task and a model trained without STRING.

    Args:
        task: One of ``TASKS``.
        base: ``"none"`` or ``"learned"``, where the model knows places from.
        seed: Of the weights and the batches.
        steps: Batches of 32 examples.
    """
    name, told, pool = TASKS[task]
    made = make_task(name, **told)
    torch.manual_seed(seed)
    model = made.model(pool=pool, encoder=None if base == "none" else base)
    assert isinstance(model, ViT)
    fit(model, made, Settings(steps, BATCH, rate=RATE, warmup=steps // 20, seed=seed))
    return made, model


def run(seed: int, steps: int, task: str, base: str) -> dict[str, Any]:
    """Train one model, train its copies on, and return what is recorded."""
    made, model = pretrain(task, base, seed, steps)
    images, labels = next(made.held_out()["test"])
    still = with_string(model, "zero")
    found: dict[str, Any] = {
        "before": {name: round(a, 4) for name, a in evaluate(model, made).items()},
        "no-op": largest_change(model, still, images),
        "gradient": gradients(still, images, labels),
        "tuned": {},
    }
    tuning = max(1, steps // 2)
    for name, (start, rate) in STARTS.items():
        torch.manual_seed(1000 + seed)
        copied = copy.deepcopy(model) if start is None else with_string(model, start)
        began = frequencies(copied) if start else None
        settings = Settings(
            tuning, BATCH, rate=TUNING_RATE, encoder_rate=rate, seed=1000 + seed, log_every=10
        )
        history = fit(copied, made, settings)
        found["tuned"][name] = {
            "scores": {n: round(a, 4) for n, a in history.scores.items()},
            "losses": [round(x, 4) for x in history.losses],
        }
        if began is not None:
            ended = frequencies(copied)
            sizes = {"start": began, "end": ended, "way": ended - began}
            found["tuned"][name]["frequencies"] = {
                n: round(x.square().mean().sqrt().item(), 5) for n, x in sizes.items()
            }
    return found


STUDY = Study(
    __file__,
    __doc__,
    CELLS,
    run,
    steps=STEPS,
    steps_are="training steps before STRING is added; half as many follow",
)


if __name__ == "__main__":
    STUDY.main()
