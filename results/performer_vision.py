"""Train small vision Performers with every encoder, before and behind the feature map.

    python results/performer_vision.py      # writes results/performer_vision.json
    python results/performer_vision.py --seeds 1 --steps 20 --only '*relu*' --output /tmp/try.json

The tasks, sizes and steps are those of ``vision``: ``digits``, tested at twice the resolution too,
and ``moved``, trained at nine places of a canvas and tested at all twenty-five. All models read the
mean of the patches. The maps are ReLU and 32 positive random features, with orthogonal or
unit-circulant rows. An encoder turns queries and keys ``before`` the map, or features ``after`` it,
in the numerator alone. ``turned`` is before, and multiplies by a random turn too, drawn anew for
each batch, in training and in testing: attention is then relative in law. A turn drawn once would
be a part of the projections, whose start has the same law with it and without.

``toeplitz`` is one learned number for each offset of the grid. Its table has one size: such models
are not tested at another. Rolled features are missing, as a roll reads one coordinate. A Cayley
transform behind RoPE is missing too: it is Cayley-STRING with other projections.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from lab.tasks import make_task
from lab.train import Settings, fit
from lab.train.checkpoint import Checkpoint
from lab.train.study import Study
from results.vision import BATCH, RATE, STEPS, measure
from stringlib.encoders.rotary import Phases, RotaryEncoder
from stringlib.models import ViT
from stringlib.models.blocks import Block

FAVOR = {"num_features": 32}
MAPS: dict[str, dict[str, Any]] = {
    "relu": {"attention": "relu"},
    "favor": {"attention": "favor", **FAVOR},
    "favor-unit-circulant": {"attention": "favor-unit-circulant", **FAVOR},
}
ENCODERS = ("axial", "mixed", "circulant", "cayley")
WAYS: dict[str, dict[str, Any]] = {
    "before": {"rotate": "before"},
    "turned": {"rotate": "before", "turned": True},
    "after": {"rotate": "after"},
}
BIASED: dict[str, dict[str, Any]] = {
    "toeplitz": {"weight": "toeplitz"},
    "toeplitz, circulant": {"weight": "toeplitz", "encoder": "circulant", "rotate": "before"},
}
POSITIONS: dict[str, dict[str, Any]] = {
    "none": {},
    **{f"{e} {way}": {"encoder": e, **told} for way, told in WAYS.items() for e in ENCODERS},
    **BIASED,
}
"""Where positions enter → options of the model."""

TASKS: dict[str, tuple[str, dict[str, int]]] = {
    "digits": ("digits", {"scale": 2}),
    "digits, one size": ("digits", {}),
    "moved": ("moved-digits", {"views": 1}),
}
CELLS = {
    f"{task} {phi}: {name}": {
        "task": "digits, one size" if task == "digits" and name in BIASED else task,
        **MAPS[phi],
        **told,
    }
    for task in ("digits", "moved")
    for phi in MAPS
    for name, told in POSITIONS.items()
}


class Turned(RotaryEncoder):
    """An encoder times a random turn, :eq:`eq-torus-turn`, a new one whenever it reads positions.

    Args:
        encoder: What is turned, and what learns.
    """

    def __init__(self, encoder: RotaryEncoder) -> None:
        super().__init__(
            encoder.head_dim, encoder.coord_dim, heads=encoder.heads, layout=encoder.layout
        )
        self.encoder = encoder

    def frequencies(self) -> Tensor:
        """Return Ω: float64, ``(heads, pairs, coord_dim)``."""
        return self.encoder.frequencies()

    def basis(self) -> Tensor:
        """Return P: float64, ``(heads, head_dim, head_dim)``."""
        return self.encoder.basis()

    def phases(self, positions: Tensor) -> Phases:
        """Return the phases of the encoder, those of each plane further by one random angle."""
        cos_sin, basis = self.encoder.phases(positions)
        shares = torch.rand(cos_sin.shape[-4], 1, cos_sin.shape[-2], dtype=cos_sin.dtype)
        angles = 2 * math.pi * shares.to(cos_sin.device)
        turn = torch.polar(torch.ones_like(angles), angles)
        rotated = torch.view_as_complex(cos_sin.contiguous()) * turn
        return Phases(torch.view_as_real(rotated), basis)

    def rotate(self, x: Tensor, positions: Tensor | Phases) -> Tensor:
        """Return BR(r)x, in the dtype of ``x``."""
        at = positions if isinstance(positions, Phases) else self.phases(positions)
        return self.encoder.rotate(x, at)


def with_turns(model: ViT) -> ViT:
    """Let a random turn follow the encoder of every block; return the same model."""
    for block in model.blocks:
        assert isinstance(block, Block)
        encoder = block.attention.encoder
        assert isinstance(encoder, RotaryEncoder)
        block.attention.encoder = Turned(encoder)
    return model


def run(
    seed: int,
    steps: int,
    task: str,
    turned: bool = False,
    keep: Checkpoint | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Train one model; return what ``vision`` measures."""
    name, told = TASKS[task]
    made = make_task(name, **told)
    torch.manual_seed(seed)
    model = made.model(pool="mean", **options)
    assert isinstance(model, ViT)
    if turned:
        with_turns(model)
    settings = Settings(steps, BATCH, rate=RATE, warmup=steps // 20, seed=seed)
    return measure(made, model, fit(model, made, settings, keep=keep))


STUDY = Study(__file__, __doc__, CELLS, run, steps=STEPS)


if __name__ == "__main__":
    STUDY.main()
