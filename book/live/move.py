"""The instrument "Move a digit": six vision transformers read a digit anywhere on a canvas."""

from __future__ import annotations

import base64
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from book.names import display
from lab.explore.style import COLOURS
from lab.program import Traced, traced
from lab.records import read_record
from lab.weights import unpack
from results import page_digits as study

HALF, RUNS = True, study.STUDY.seeds
ALT = {
    "": "A handwritten 3 is at the lower right of a canvas, outside the square of the training "
    "positions. Beside the canvas are the predictions of six vision transformers, each with a map "
    "of the positions at which the model is right. Axial RoPE, Circulant-STRING, and ReLU "
    "features with Circulant-STRING predict 3. The model without positions and the model with a "
    "learned embedding predict 7, and FAVOR+ with axial RoPE predicts 2.",
}
"""Alternative texts of the posters, by the state of the instrument."""
RECORD = Path(study.__file__).with_suffix(".json")
OF_A_CLASS = 4
"""Number of digits of each class on the page. They are the first of the test set."""

NOTES = {
    "no position": "no order of the patches",
    "learned table": "a vector for each position",
    "axial RoPE": "rotation by row and column",
    "Circulant-STRING": "learned rotation",
}
START = (4, 4)
"""Initial position of the digit: row and column of its upper left corner."""


class Seen(nn.Module):
    """The scores of a model for an image, and the attention weights of its layers."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        """Return the ``scores`` of one image, ``(classes,)``, and a map for each layer.

        The maps are named ``layer 1``, ``layer 2`` and so on. Each map is the mean of the attention
        weights over the heads, ``(patches, patches)``.
        """
        found: dict[str, Tensor] = {}

        def look(layer: Any, args: tuple[Tensor, Any], _: dict[str, Any]) -> None:
            found[f"layer {len(found) + 1}"] = layer.attention_weights(*args)[0].mean(0)

        blocks: Any = self.model.blocks
        hooks = [b.attention.register_forward_pre_hook(look, with_kwargs=True) for b in blocks]
        scores = self.model(images)[0]
        for hook in hooks:
            hook.remove()
        return {"scores": scores, **found}


task = cache(study.task)


@cache
def models(run: int = 0) -> dict[str, nn.Module]:
    """Return the trained models of one run of the record, by name."""
    cells, made = read_record(RECORD)["data"]["cells"], task()
    found = {}
    for name, options in study.CELLS.items():
        model = study.make_model(made, **options)
        unpack(model, cells[name]["runs"][run]["weights"])
        found[name] = model.eval()
    return found


def programs(run: int = 0) -> dict[str, Traced]:
    """Return the programs that the page runs, for one run of the record, by name of the method."""
    image = torch.zeros(1, 1, study.CANVAS, study.CANVAS)
    return {name: traced(Seen(model), images=image) for name, model in models(run).items()}


def digits() -> tuple[Tensor, Tensor]:
    """Return the digits of the page, ``(count, side, side)`` of bytes, and their classes."""
    images, labels = task().test
    first = [(labels == k).nonzero()[:OF_A_CLASS, 0] for k in range(10)]
    return images[torch.cat(first), 0], labels[torch.cat(first)]


def at(images: Tensor, row: int, column: int) -> Tensor:
    """Return images ``(count, side, side)`` at a position on the canvas, as input of a model."""
    shown = torch.zeros(len(images), 1, study.CANVAS, study.CANVAS)
    shown[:, 0, row : row + study.SIDE, column : column + study.SIDE] = images.float() / 255
    return shown


@cache
@torch.no_grad()
def told_apart() -> tuple[int, int, int]:
    """Return a digit and a new position for which the methods differ most clearly.

    At the initial position, all models except the one without positions should be right. At the
    new position, all models that rotate queries and keys should be right, except FAVOR+. The
    function chooses a digit and a position for which most of these conditions hold, and among
    those the ones for which the models give the most certain predictions.
    """
    images, labels = digits()
    bag, lost = {"no position"}, {"learned table", "FAVOR+, axial RoPE"}
    corners = range(0, study.CANVAS - study.SIDE + 1, study.PATCH)
    new = [(r, c) for r in corners for c in corners if min(r, c) > corners[-1] // 2]

    def as_wished(place: tuple[int, int], wrong: set[str]) -> Tensor:
        found = torch.zeros(len(images))
        for name, model in models().items():
            shares = model(at(images, *place)).softmax(-1)
            right, sure = shares.argmax(-1) == labels, shares[range(len(labels)), labels]
            found += (right != (name in wrong)) + (1 - sure if name in wrong else sure) / 100
        return found

    best = torch.stack([as_wished(place, bag | lost) for place in new]) + as_wished(START, bag)
    where, digit = divmod(int(best.argmax()), len(images))
    return digit, *new[where]


def data() -> dict[str, Any]:
    """Return the constants of the page: digits, methods and their accuracies."""
    record, (images, labels) = read_record(RECORD), digits()
    shown, row, column = told_apart()
    methods = {}
    for name, options in study.CELLS.items():
        scores = [run["scores"] for run in record["data"]["cells"][name]["runs"]]
        methods[name] = {
            "title": display(name),
            "note": NOTES.get(name) or f"rotation {options['rotate']} φ",
            "colour": COLOURS[options.get("encoder", "none")],
            "linear": "attention" in options,
            **{
                test: [extreme(score[test] for score in scores) for extreme in (min, max)]
                for test in ("test", "moved")
            },
        }
    return {
        "canvas": study.CANVAS,
        "side": study.SIDE,
        "patch": study.PATCH,
        "runs": RUNS,
        "methods": methods,
        "digits": base64.b64encode(images.numpy().tobytes()).decode(),
        "labels": labels.tolist(),
        "shown": shown,
        "start": START,
        "end": [row, column],
    }
