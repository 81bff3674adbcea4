"""Continue a model of two coordinates with a third one, whose generator starts at 0.

    python results/transfer_3d.py      # writes results/transfer_3d.json
    python results/transfer_3d.py --seeds 1 --steps 20 --only 'mixed*' --output /tmp/try.json

``volumes`` of ``vision`` ask for the direction from one mark to another among 4 × 4 × 4 cells. A
model with an encoder of two coordinates is trained on flat pictures, the slices in which both marks
lie: four of the six directions. Then its encoder gets a third coordinate, and it is trained on
volumes for as many steps. The third generator starts at ``zero``, so that depth means nothing at
first; or as the encoder ``drawn`` anew has it. ``scratch`` is trained on volumes alone.

Recorded beside the scores: the accuracy on flat pictures, that on volumes before training on them,
and by how much depths change a score there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from lab.tasks.task import Task
from lab.tasks.volumes import MARKS, Volumes
from lab.train import Settings, evaluate, fit
from lab.train.study import Study
from stringlib.models import ViT
from stringlib.positions import grid_positions

STEPS, BATCH, RATE, SIZE = 400, 32, 3e-3, 4
ENCODERS, STARTS = ("mixed", "circulant", "cayley"), ("scratch", "zero", "drawn")
CELLS = {f"{e} {start}": {"encoder": e, "start": start} for e in ENCODERS for start in STARTS}


class Slices(Task):
    """The slice of a volume in which both marks lie, where their line has no depth.

    Args:
        volumes: What slices are cut from.
    """

    def __init__(self, volumes: Volumes) -> None:
        self.volumes = volumes

    def batch(self, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return pictures, ``(size, 3, *2 sizes)``, and directions below 4, ``(size,)``."""
        pictures, labels = _sliced(*self.volumes.batch(4 * size, generator))
        return pictures[:size], labels[:size]  # two thirds of all lines have no depth

    def held_out(self) -> dict[str, Iterator[tuple[Tensor, Tensor]]]:
        """Return the slices of the volumes' test sets."""
        found = self.volumes.held_out()
        return {name: (_sliced(*some) for some in batches) for name, batches in found.items()}

    def model(self, **options: Any) -> nn.Module:
        """Return the model of the volumes, for two coordinates."""
        sizes = {"dim": 48, "depth": 2, "heads": 2, "hidden": 96, "channels": MARKS, "pool": "mean"}
        return ViT((self.volumes.size,) * 2, **{"patch_size": 1, "classes": 6, **sizes, **options})


def _sliced(volumes: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    rows = (labels < 4).nonzero().squeeze(-1)
    depths = volumes[rows, 0].sum((1, 2)).argmax(-1)
    return volumes[rows, :, :, :, depths], labels[rows]


@torch.no_grad()
def deepen(flat: ViT, model: ViT, start: str) -> None:
    """Give a model of three coordinates what one of two has learned, in place.

    Args:
        flat: A model of pictures.
        model: One of volumes, newly drawn.
        start: ``"zero"`` sets the third generator to 0, ``"drawn"`` leaves it.
    """
    learned = flat.state_dict()
    for name, values in model.state_dict().items():
        (axis,) = [n for n, size in enumerate(values.shape) if size != learned[name].shape[n]] or [
            None
        ]
        if axis is None:
            values.copy_(learned[name])
            continue
        values.narrow(axis, 0, 2).copy_(learned[name])
        if start == "zero":
            values.narrow(axis, 2, 1).zero_()


@torch.no_grad()
def effect_of_depth(model: ViT, volumes: Tensor) -> float:
    """Return the largest difference between scores, and scores if all cells had one depth."""
    places = grid_positions(*model.grid)
    flat = places * torch.tensor([1, 1, 0])
    return (model.eval()(volumes, places) - model.eval()(volumes, flat)).abs().max().item()


def run(seed: int, steps: int, encoder: str, start: str) -> dict[str, Any]:
    """Train one model; return its scores, and losses on the way."""
    settings = Settings(steps, BATCH, rate=RATE, warmup=steps // 20, seed=seed)
    volumes, found = Volumes(SIZE), {}
    torch.manual_seed(seed)
    model = volumes.model(encoder=encoder)
    assert isinstance(model, ViT)
    if start != "scratch":
        slices = Slices(volumes)
        flat = slices.model(encoder=encoder)
        assert isinstance(flat, ViT)
        scores = fit(flat, slices, settings).scores
        deepen(flat, model, start)
        before = evaluate(model, volumes)
        found = {
            "flat": {name: round(score, 4) for name, score in scores.items()},
            "before": {name: round(score, 4) for name, score in before.items()},
            "depth": effect_of_depth(model, next(volumes.held_out()["test"])[0]),
        }
    history = fit(model, volumes, settings)
    return {
        **found,
        "scores": {name: round(score, 4) for name, score in history.scores.items()},
        "losses": [round(x, 4) for x in history.losses],
    }


STUDY = Study(__file__, __doc__, CELLS, run, steps=STEPS, seeds=10)


if __name__ == "__main__":
    STUDY.main()
