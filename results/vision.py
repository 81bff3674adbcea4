"""Train small vision transformers with every encoder, and test them where they were not trained.

    python results/vision.py      # writes results/vision.json
    python results/vision.py --seeds 1 --steps 20 --only 'digits*' --output /tmp/try.json

``digits`` are 8 × 8 pixels in patches of 2 × 2, read by a class token, and tested at twice the
resolution too: with the patches counted, and with their places interpolated. ``moved`` are the
same digits on a canvas of 16 × 16, trained at nine places and tested at all twenty-five, read by a
class token or by the mean of the patches. ``volumes`` have three coordinates; the direction from
one mark to another is asked for. ``performer`` is ``moved``, read by the mean, with the maps of
linear attention; "unit" gives queries and keys one length, with a learned temperature. ``longer``
are some of both, trained four times as long: is what fell behind worse, or only slower?

Models of a seed share their batches, of 32 examples.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from lab.tasks import make_task
from lab.tasks.images import Images
from lab.train import Settings, fit
from lab.train.checkpoint import Checkpoint
from lab.train.study import Study
from stringlib.models import ViT
from stringlib.positions import grid_positions

STEPS, BATCH, RATE = 400, 32, 3e-3
ABSOLUTE = ("none", "sinusoidal", "learned")
ROTARY = ("axial", "mixed", "reflection", "circulant", "cayley", "cayley-sparse")
ENCODERS = ABSOLUTE + ROTARY
WITH_CLS = ("none", "learned", "axial", "mixed", "circulant")
TASKS: dict[str, tuple[str, dict[str, int]]] = {
    "digits": ("digits", {"scale": 2}),
    "moved": ("moved-digits", {"views": 1}),
    "volumes": ("volumes", {"size": 4}),
}
"""Name in this study → name and options of the task."""

MEAN, FAVOR = {"pool": "mean"}, {"attention": "favor", "num_features": 32}
PERFORMERS: dict[str, dict[str, Any]] = {
    "relu": {"attention": "relu"},
    "relu, toeplitz": {"attention": "relu", "weight": "toeplitz"},
    "relu, axial": {"attention": "relu", "encoder": "axial", "rotate": "before"},
    "favor": FAVOR,
    "favor, toeplitz": {**FAVOR, "weight": "toeplitz"},
    "favor, axial": {**FAVOR, "encoder": "axial"},
    "favor, unit": {**FAVOR, "normalize_qk": True},
    "favor, unit, toeplitz": {**FAVOR, "normalize_qk": True, "weight": "toeplitz"},
}


def _encoder(name: str) -> dict[str, str]:
    return {} if name == "none" else {"encoder": name}


CELLS: dict[str, dict[str, Any]] = {
    **{f"digits {e}": {"task": "digits", **_encoder(e)} for e in ENCODERS},
    **{f"moved {e}": {"task": "moved", **MEAN, **_encoder(e)} for e in ENCODERS},
    **{f"moved cls {e}": {"task": "moved", **_encoder(e)} for e in WITH_CLS},
    **{f"volumes {e}": {"task": "volumes", **_encoder(e)} for e in ENCODERS},
    **{f"performer {n}": {"task": "moved", **MEAN, **told} for n, told in PERFORMERS.items()},
}
LONGER = ("performer favor", "performer favor, toeplitz")
CELLS |= {f"longer {name}": {**CELLS[name], "longer": 4} for name in LONGER}


@torch.no_grad()
def accuracy(
    model: nn.Module, images: Tensor, labels: Tensor, positions: Tensor | None = None
) -> float:
    """Return the share of images whose class the model names.

    Args:
        model: A trained ViT.
        images: ``(count, channels, *sizes)``.
        labels: ``(count,)``.
        positions: Coordinates of the patches, ``(patches, axes)``; counted if omitted.
    """
    model.eval()
    found = torch.cat([model(some, positions).argmax(-1) for some in images.split(90)])
    model.train()
    return (found == labels).double().mean().item()


def at_places(model: nn.Module, task: Images) -> list[list[float]]:
    """Return the accuracy on all test digits at every place of the canvas, rows from the top."""
    images, labels = task.test
    room = task.canvas - task.side
    steps = range(0, room + 1, task.patch)
    shown = images.float() / task.white
    return [
        [
            round(accuracy(model, nn.functional.pad(shown, (c, room - c, r, room - r)), labels), 4)
            for c in steps
        ]
        for r in steps
    ]


def finer(model: ViT, task: Images) -> dict[str, float]:
    """Return the accuracy at twice the resolution, with two ideas of where the patches are.

    ``"counted"``: neighbours are 1 apart, as ever, and there are more of them. ``"interpolated"``:
    the centres of the patches keep their places in the picture, so neighbours are ½ apart.
    """
    images, labels = (torch.cat(part) for part in zip(*task.held_out()["fine"], strict=True))
    counted = grid_positions(*(task.scale * n for n in model.grid))
    between = (counted + 0.5) / task.scale - 0.5
    return {
        "counted": accuracy(model, images, labels, counted),
        "interpolated": accuracy(model, images, labels, between),
    }


def train(
    task: str,
    seed: int,
    steps: int,
    on_log: Any = None,
    keep: Checkpoint | None = None,
    **options: Any,
) -> tuple[Any, ViT, Any]:
    """Return the task, a trained model and the history of its training.

    Args:
        task: One of ``TASKS``.
        seed: Of the weights and the batches.
        steps: Batches of 32 examples.
        on_log: As for :func:`lab.train.fit`.
        keep: As for :func:`lab.train.fit`.
        **options: Of the model.
    """
    name, told = TASKS[task]
    made = make_task(name, **told)
    torch.manual_seed(seed)
    model = made.model(**options)
    assert isinstance(model, ViT)
    settings = Settings(steps, BATCH, rate=RATE, warmup=steps // 20, seed=seed)
    return made, model, fit(model, made, settings, on_log=on_log, keep=keep)


def measure(made: Any, model: ViT, history: Any) -> dict[str, Any]:
    """Return scores, losses on the way, and accuracies where the model was not trained.

    Args:
        made: The task. With a finer test set the model is tested on two ideas of its places, and
            with a larger canvas at every place.
        model: Trained on it.
        history: Of the training.
    """
    found: dict[str, Any] = {
        "scores": {name: round(score, 4) for name, score in history.scores.items()},
        "losses": [round(x, 4) for x in history.losses],
    }
    if isinstance(made, Images) and made.scale > 1:
        found["scores"] |= {name: round(a, 4) for name, a in finer(model, made).items()}
    if isinstance(made, Images) and made.canvas > made.side:
        found["places"] = at_places(model, made)
    return found


def run(
    seed: int,
    steps: int,
    task: str,
    longer: int = 1,
    keep: Checkpoint | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Train one model, ``longer`` times as many steps; return what :func:`measure` does."""
    return measure(*train(task, seed, longer * steps, keep=keep, **options))


STUDY = Study(__file__, __doc__, CELLS, run, steps=STEPS)


if __name__ == "__main__":
    STUDY.main()
