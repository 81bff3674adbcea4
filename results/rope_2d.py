"""Train an attention head to read diagonal neighbours on a grid, with four ways to turn.

    python results/rope_2d.py            # writes results/rope_2d.json
    python results/rope_2d.py --seeds 2 --steps 50 --output /tmp/try.json

Tasks on grids of random symbols. "one": which of 8 symbols stands one row down and one column to
the left? "two": of the cells one step away along the falling diagonal, (-1, -1) and (1, 1), how
many hold a 1? In both, scores depend on positions alone: queries and keys are the same in every
cell. "two-content" is "two" with queries and keys made from the symbols, as usual. Positions
reach the head as RoPE along the raster index, or as axial RoPE, mixed RoPE or Circulant-STRING on
rows and columns. As a control, axial RoPE also gets two heads. Training uses 8 x 8 grids at the
origin; the tests are on such grids, on the same grids moved by (40, 23), and on 12 x 12 grids.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from stringlib import AxialRoPE, CirculantSTRING, MixedRoPE, RoPE, RotaryEncoder
from stringlib.positions import grid_positions
from stringlib.records import record_study

METHODS = ("rope", "axial", "mixed", "circulant", "axial-2")  # the last one has two heads
DIAGONAL = [(-1, -1), (1, 1)]
TASKS = {"one": [(1, -1)], "two": DIAGONAL, "two-content": DIAGONAL}  # (rows, columns) that decide
SYMBOLS = {"one": 8, "two": 2, "two-content": 2}
PLACES = {"trained": (8, 0, 0), "moved": (8, 40, 23), "larger": (12, 0, 0)}  # side, first cell
DIM, HEAD_DIM = 32, 16
RATES = {
    "one": 3e-2,
    "two": 3e-2,
    "two-content": 1e-2,
}  # with content, 3e-2 leaves most runs at guessing
FREQUENCY_RATE = 5e-2


class Head(nn.Module):
    """Embedding, one or two heads of attention over the whole grid, and a readout.

    Args:
        method: One of ``METHODS``.
        task: One of ``TASKS``.
    """

    def __init__(self, method: str, task: str) -> None:
        super().__init__()
        self.method, self.task = method, task
        self.embed = nn.Embedding(SYMBOLS[task], DIM)
        self.heads = 2 if method == "axial-2" else 1
        self.to_q = nn.Linear(DIM, self.heads * HEAD_DIM)
        self.to_k = nn.Linear(DIM, self.heads * HEAD_DIM)
        self.readout = nn.Linear(self.heads * DIM, 8 if task == "one" else 3)
        encoders: dict[str, RotaryEncoder] = {
            "rope": RoPE(HEAD_DIM),
            "axial": AxialRoPE(HEAD_DIM, 2),
            "mixed": MixedRoPE(HEAD_DIM, 2, 1),
            "circulant": CirculantSTRING(HEAD_DIM, 2),
        }
        self.encoder = encoders[method.removesuffix("-2")]

    def positions(self, side: int, row: int = 0, column: int = 0) -> Tensor:
        """Return what the encoder is told of a square grid whose first cell is given."""
        cells = grid_positions(side, side) + torch.tensor([row, column])
        return cells if self.method != "rope" else (cells @ torch.tensor([[side], [1.0]]))

    def forward(self, symbols: Tensor, positions: Tensor) -> Tensor:
        """Return a score for each possible answer of each cell.

        Args:
            symbols: Integers in reading order, ``(batch, cells)``.
            positions: ``(cells, coord_dim)``.

        Returns:
            ``(batch, cells, answers)``.
        """
        x = self.embed(symbols)
        seen = x if self.task == "two-content" else torch.zeros_like(x)  # only biases are left
        q, k = (
            f(seen).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.to_q, self.to_k)
        )
        q, k = self.encoder(q, k, positions)
        found = (q @ k.mT / math.sqrt(HEAD_DIM)).softmax(-1) @ x.unsqueeze(1)
        return self.readout(found.transpose(1, 2).flatten(2))


def asking_cells(side: int) -> Tensor:
    """Return the inner cells, whose eight neighbours are all on the grid, in reading order."""
    return torch.arange(side * side).view(side, side)[1:-1, 1:-1].flatten()


def batch(task: str, side: int, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return random grids ``(size, side * side)`` and the answers of the asking cells."""
    symbols = torch.randint(SYMBOLS[task], (size, side * side), generator=generator)
    asking = asking_cells(side)
    read = [symbols[:, asking + row * side + column] for row, column in TASKS[task]]
    return symbols, torch.stack(read).sum(0)


def train(method: str, task: str, seed: int, steps: int = 300) -> Head:
    """Train on random 8 x 8 grids at the origin.

    Args:
        method: One of ``METHODS``.
        task: One of ``TASKS``.
        seed: Of the weights and the grids.
        steps: Batches of 16 grids.
    """
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = Head(method, task).double()  # so that another processor's rounding changes no figure
    learned = list(model.encoder.parameters())
    others = [p for name, p in model.named_parameters() if not name.startswith("encoder.")]
    # a frequency of a circulant is a sum of coefficients with weights of norm sqrt(2d)
    scale = math.sqrt(2 * HEAD_DIM) if method == "circulant" else 1.0
    optimizer = torch.optim.Adam(
        [{"params": others, "lr": RATES[task]}, {"params": learned, "lr": FREQUENCY_RATE / scale}]
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    side, *_ = PLACES["trained"]
    positions, asking = model.positions(side), asking_cells(side)
    for _ in range(steps):
        symbols, answers = batch(task, side, 16, generator)
        guesses = model(symbols, positions)[:, asking]
        loss = nn.functional.cross_entropy(guesses.flatten(0, 1), answers.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model


@torch.no_grad()
def accuracy(model: Head, place: str, grids: int = 64) -> float:
    """Return how often the best guess is right on new grids at one of ``PLACES``."""
    side, row, column = PLACES[place]
    symbols, answers = batch(model.task, side, grids, torch.Generator().manual_seed(10_000))
    guesses = model(symbols, model.positions(side, row, column))[:, asking_cells(side)]
    return (guesses.argmax(-1) == answers).double().mean().item()


def commonest(task: str, place: str, grids: int = 64) -> float:
    """Return the accuracy of always naming the commonest answer: no position used."""
    _, answers = batch(task, PLACES[place][0], grids, torch.Generator().manual_seed(10_000))
    return (answers == answers.flatten().mode().values).double().mean().item()


def study(seeds: Sequence[int], steps: int) -> dict[str, Any]:
    """Return for each task, method and place the accuracy of each seed, and that of guessing."""
    found: dict[str, Any] = {task: {} for task in TASKS}
    for task in TASKS:
        for method in METHODS:
            models = [train(method, task, seed, steps) for seed in seeds]
            found[task][method] = {p: [round(accuracy(m, p), 5) for m in models] for p in PLACES}
    guessing = {task: {p: round(commonest(task, p), 5) for p in PLACES} for task in TASKS}
    return {"steps": steps, "commonest": guessing, "accuracy": found}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the study and write its record."""
    assert __doc__
    data = record_study(Path(__file__), __doc__, study, seeds=10, steps=300, argv=argv)
    for task, methods in data["accuracy"].items():
        for method, places in methods.items():
            shown = (
                f"{p} {sum(a) / len(a):.2f} ({min(a):.2f} to {max(a):.2f})"
                for p, a in places.items()
            )
            print(f"{task} {method:>9}:", *shown)


if __name__ == "__main__":
    main()
