"""Train Circulant-STRING in every recommended way, one change at a time.

    python results/circulant_training.py      # writes results/circulant_training.json
    python results/circulant_training.py --seeds 1 --steps 20 --only 'block*' --output /tmp/try.json

A 10 × 10 grid holds random symbols. Every cell asks for two others, three rows down and two columns
to the left, and one row up and four columns to the right, as far as they lie on the grid. The model
is one layer of softmax attention with two heads of 64 channels, and Circulant-STRING is all that
tells it the places.

``base`` has blocks of 16, coefficients of its own for each head, a start at which frequencies have
a standard deviation of 0.1, the rate of the model, gradients clipped at a norm of 5, no penalty and
no decay. Each other cell changes one of these. Rates are those of blocks of 16: a frequency is a
sum of coefficients with a row of M as weights, of norm sqrt(2B), so other blocks get the rate times
sqrt(16/B), and a step of Adam turns the planes alike for every B. ``penalty`` is λ of λ Σ c²,
``decay`` AdamW's on the coefficients alone.

Recorded: the accuracy, losses on the way, the root mean square of the frequencies at the end, and
of the inert part of the coefficients, the even one, which no rotation sees; and the share of steps
that were clipped.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from lab.train.loop import minimise
from lab.train.study import Study
from stringlib import CirculantSTRING
from stringlib.attention import MultiHeadAttention
from stringlib.positions import grid_positions

SIDE, SYMBOLS, OFFSETS = 10, 8, ((3, -2), (-1, 4))
HEADS, HEAD_DIM, RATE, BATCH, EVERY = 2, 64, 3e-3, 8, 10
BASE: dict[str, Any] = {
    "block": 16,
    "start": "noise",
    "shared": False,
    "penalty": 0.0,
    "decay": 0.0,
    "clip": 5.0,
    "rate": RATE,
}
CHANGES: dict[str, tuple[Any, ...]] = {
    "block": (4, 8, 32, 64),
    "start": ("zero", "normal", "uniform"),
    "shared": (True,),
    "penalty": (1e-6, 1e-4, 1e-2),
    "decay": (1e-5, 1e-2, 1.0),
    "clip": (None, 1.0, 0.1),
    "rate": (1e-4, 1e-3, 1e-2, 1e-1),
}
"""What is changed → to what, one at a time."""

CELLS = {
    "base": BASE,
    **{f"{name} {to}": {**BASE, name: to} for name, values in CHANGES.items() for to in values},
}


def encoder(block: int, start: str, shared: bool) -> CirculantSTRING:
    """Return a new encoder.

    Args:
        block: Size B of the circulant blocks.
        start: ``"noise"``, as the package has it; ``"zero"``; ``"normal"`` with the variance 1/B;
            or ``"uniform"`` up to ±√(3/B). The latter two leave out the first of each column.
        shared: Whether both heads have one set of coefficients.
    """
    made = CirculantSTRING(HEAD_DIM, 2, heads=1 if shared else HEADS, block_size=block)
    with torch.no_grad():
        c = made.coefficients
        if start == "zero":
            c.zero_()
        elif start == "normal":
            c.normal_(std=block**-0.5)[..., 0] = 0
        elif start == "uniform":
            c.uniform_(-((3 / block) ** 0.5), (3 / block) ** 0.5)[..., 0] = 0
    return made


class Neighbours(nn.Module):
    """One layer of attention over the grid, and a readout of both answers.

    Args:
        encoder: What tells the places.
    """

    def __init__(self, encoder: CirculantSTRING) -> None:
        super().__init__()
        dim = HEADS * HEAD_DIM
        self.embed = nn.Embedding(SYMBOLS, dim)
        self.attention = MultiHeadAttention(dim, HEADS, encoder, bias=True)
        self.readout = nn.Linear(dim, len(OFFSETS) * SYMBOLS)

    def forward(self, symbols: Tensor) -> Tensor:
        """Return scores of the symbols that may be the answers, ``(batch, cells, 2, SYMBOLS)``."""
        mixed = self.attention(self.embed(symbols), grid_positions(SIDE, SIDE))
        return self.readout(mixed).unflatten(-1, (len(OFFSETS), SYMBOLS))


def asked() -> tuple[Tensor, Tensor, Tensor]:
    """Return who asks, for which of the two answers, and which cell holds it, in three rows."""
    places = grid_positions(SIDE, SIDE, dtype=torch.long)
    targets = places[:, None] + torch.tensor(OFFSETS)
    cells, answers = ((targets >= 0) & (targets < SIDE)).all(-1).nonzero(as_tuple=True)
    rows, columns = targets[cells, answers].unbind(-1)
    return cells, answers, rows * SIDE + columns


def batch(size: int, generator: torch.Generator) -> Tensor:
    """Return random grids, ``(size, SIDE * SIDE)``."""
    return torch.randint(SYMBOLS, (size, SIDE * SIDE), generator=generator)


def loss(model: Neighbours, generator: torch.Generator) -> Tensor:
    """Return the cross-entropy on random grids."""
    cells, answers, where = asked()
    symbols = batch(BATCH, generator)
    scores = model(symbols)[:, cells, answers]
    return nn.functional.cross_entropy(scores.flatten(0, 1), symbols[:, where].flatten())


@torch.no_grad()
def accuracy(model: Neighbours, grids: int = 64) -> float:
    """Return how often the best guess is right on new grids."""
    cells, answers, where = asked()
    symbols = batch(grids, torch.Generator().manual_seed(10_000))
    right = model(symbols)[:, cells, answers].argmax(-1) == symbols[:, where]
    return right.double().mean().item()


def inert(coefficients: Tensor) -> Tensor:
    """Return the even part of each column c, (c_m + c_-m)/2, which adds nothing to C - C^T."""
    return (coefficients + coefficients.roll(-1, -1).flip(-1)) / 2


def run(
    seed: int,
    steps: int,
    penalty: float,
    decay: float,
    clip: float | None,
    rate: float,
    **told: Any,
) -> dict[str, Any]:
    """Train one model; return what is recorded."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = Neighbours(encoder(**told))
    c = model.attention.encoder.coefficients
    others = [p for p in model.parameters() if p is not c]
    own = {"params": [c], "lr": rate * math.sqrt(BASE["block"] / told["block"])}
    groups = [{"params": others, "weight_decay": 0.0}, {**own, "weight_decay": decay}]
    losses, clipped = [], []

    def note(step: int, value: Tensor, norm: Tensor) -> None:
        losses.append(value.item())
        clipped.append(clip is not None and norm.item() > clip)

    minimise(
        model,
        lambda step: loss(model, generator),
        torch.optim.AdamW(groups, lr=RATE),
        steps,
        clip=clip,
        penalty=(lambda: penalty * c.square().sum()) if penalty else None,
        after=note,
    )
    parts = {"frequencies": model.attention.encoder.frequencies(), "inert": inert(c)}
    sizes = {name: x.detach().square().mean().sqrt().item() for name, x in parts.items()}
    curve = [
        sum(losses[n : n + EVERY]) / len(losses[n : n + EVERY]) for n in range(0, steps, EVERY)
    ]
    return {
        "accuracy": round(accuracy(model), 5),
        "losses": [round(x, 4) for x in curve],
        "sizes": {name: round(x, 5) for name, x in sizes.items()},
        "clipped": round(sum(clipped) / steps, 4),
    }


STUDY = Study(__file__, __doc__, CELLS, run, steps=300, seeds=12, beside={"every": EVERY})


if __name__ == "__main__":
    STUDY.main()
