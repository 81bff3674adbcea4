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
from typing import Any

import torch
from torch import Tensor, nn

from lab.train.learn import Training
from lab.train.study import Study
from stringlib import AxialRoPE, CirculantSTRING, MixedRoPE, RoPE, RotaryEncoder
from stringlib.inputs import require_name
from stringlib.positions import grid_positions

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
        require_name("method", method, METHODS)
        require_name("task", task, TASKS)
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
            "mixed": MixedRoPE(HEAD_DIM, 2, heads=1),
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


def loss(model: Head, generator: torch.Generator, task: str) -> Tensor:
    """Return the cross-entropy on 16 random 8 x 8 grids at the origin."""
    side, *_ = PLACES["trained"]
    symbols, answers = batch(task, side, 16, generator)
    guesses = model(symbols, model.positions(side))[:, asking_cells(side)]
    return nn.functional.cross_entropy(guesses.flatten(0, 1), answers.flatten())


def rates(model: Head) -> dict[str, float]:
    """Return the rate of the weights and that of the frequencies."""
    # a frequency of a circulant is a sum of coefficients with weights of norm sqrt(2d)
    scale = math.sqrt(2 * HEAD_DIM) if model.method == "circulant" else 1.0
    return {"": RATES[model.task], "encoder": FREQUENCY_RATE / scale}


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


def measure(model: Head) -> dict[str, Any]:
    """Return the accuracy at each place."""
    return {"accuracy": {place: round(accuracy(model, place), 5) for place in PLACES}}


def guessing() -> dict[str, dict[str, float]]:
    """Return the accuracy of naming the commonest answer in each task, at each place."""
    return {task: {place: round(commonest(task, place), 5) for place in PLACES} for task in TASKS}


CELLS = {f"{task} {m}": {"task": task, "method": m} for task in TASKS for m in METHODS}
TRAINING = Training(Head, loss, measure, rates, cosine=True)
STUDY = Study(
    __file__, __doc__, CELLS, TRAINING, steps=300, seeds=10, beside={"commonest": guessing}
)
train = TRAINING.train


if __name__ == "__main__":
    STUDY.main()
