"""Train vision transformers on small pictures, then go on for a tenth of the steps on large ones.

    python results/resolution.py      # writes results/resolution.json
    python results/resolution.py --seeds 1 --steps 20 --only 'axial*' --output /tmp/try.json

MNIST's digits at 14 × 14 pixels (means of four) are 7 × 7 patches of 2 × 2, at 28 × 28 they are
14 × 14 patches: four times as many tokens, each of a quarter of the area. Patches of the larger
picture are "counted", neighbours 1 apart as ever, or keep their places in the "picture", ½ apart; a
learned table is stretched over them, linearly, and trained on as a table of the larger grid.
Recorded are accuracies on 1,000 test digits: after the small pictures, at once on the large ones,
after a tenth of the steps on them, and of a model that saw only large ones, for all of the steps;
and the losses of all three trainings.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from lab.tasks.images import Images, mnist5k
from lab.train import Settings, evaluate, fit
from lab.train.study import Study
from stringlib.models import ViT
from stringlib.models.absolute import GridTable
from stringlib.positions import grid_positions

SMALL, LARGE, PATCH, BATCH, RATE, TUNING_RATE = 14, 28, 2, 32, 3e-3, 1e-3
TENTH = 10
CELLS: dict[str, dict[str, Any]] = {
    "no position": {"encoder": None},
    "learned table": {"encoder": "learned"},
    "sinusoidal": {"encoder": "sinusoidal"},
    "axial RoPE": {"encoder": "axial"},
    "RoPE-Mixed": {"encoder": "mixed"},
    "Circulant-STRING": {"encoder": "circulant"},
}


class At(nn.Module):
    """A vision transformer whose patches stand at given places."""

    def __init__(self, model: ViT, positions: Tensor) -> None:
        super().__init__()
        self.model, self.positions = model, positions

    def forward(self, images: Tensor) -> Tensor:
        """Return a score of each class."""
        return self.model(images, self.positions)


def tasks() -> tuple[Images, Images]:
    """Return the digits small and large."""
    large = mnist5k(patch=PATCH)
    halves = [
        (nn.functional.avg_pool2d(images.float(), 2), labels)
        for images, labels in (large.train, large.test)
    ]
    return Images(*halves, patch=PATCH), large


def make_model(side: int, encoder: str | None) -> ViT:
    """Return a model of the study for pictures of a size."""
    sizes = {"dim": 48, "depth": 2, "heads": 3, "hidden": 96}
    return ViT(side, PATCH, classes=10, pool="mean", encoder=encoder, **sizes)


def readings(model: ViT) -> dict[str, nn.Module]:
    """Return copies of a model for large pictures, by where they say that patches stand."""
    cells = LARGE // PATCH
    if isinstance(model.absolute, GridTable):
        stretched = copy.deepcopy(model)
        stretched.absolute = table = GridTable((cells, cells), model.absolute.dim)
        with torch.no_grad():
            nothing = table.weight.new_zeros(cells**2, table.dim)
            read = model.absolute(nothing, model.absolute.places(cells, cells))
            table.weight.copy_(read.view_as(table.weight))
        return {"picture": At(stretched, grid_positions(cells, cells))}
    counted = grid_positions(cells, cells)
    places = {"picture": (counted + 0.5) * SMALL / LARGE - 0.5, "counted": counted}
    return {name: At(copy.deepcopy(model), at) for name, at in places.items()}


def run(seed: int, steps: int, encoder: str | None) -> dict[str, Any]:
    """Train on small pictures and go on with large ones; return accuracies and losses."""
    small, large = tasks()
    losses: dict[str, list[float]] = {}

    def trained(name: str, model: nn.Module, task: Images, count: int, rate: float) -> float:
        settings = Settings(count, BATCH, rate, warmup=count // 20, seed=seed)
        history = fit(model, task, settings)
        losses[name] = [round(x, 4) for x in history.losses]
        return round(history.scores["test"], 4)

    torch.manual_seed(seed)
    model = make_model(SMALL, encoder)
    found: dict[str, Any] = {"small": trained("small", model, small, steps, RATE)}
    found |= {"at once": {}, "then": {}}
    for name, copied in readings(model).items():
        found["at once"][name] = round(evaluate(copied, large)["test"], 4)
        tuning = max(1, steps // TENTH)
        found["then"][name] = trained(name, copied, large, tuning, TUNING_RATE)
    torch.manual_seed(seed)
    alone = make_model(LARGE, encoder)
    found["large alone"] = trained("large alone", alone, large, steps, RATE)
    return {**found, "losses": losses}


STUDY = Study(
    __file__,
    __doc__,
    CELLS,
    run,
    steps=600,
    steps_are="training steps on small pictures; a tenth as many follow on large ones",
)


if __name__ == "__main__":
    STUDY.main()
