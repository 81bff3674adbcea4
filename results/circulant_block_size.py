"""Train one attention layer to find a neighbour on a grid, with circulant blocks of each size.

    python results/circulant_block_size.py      # writes results/circulant_block_size.json
    python results/circulant_block_size.py --seeds 2 --steps 50 --output /tmp/try.json

A 12 x 12 grid holds random symbols. Every cell whose target lies on the grid asks which symbol
stands 3 rows below it and 2 columns to its left. The only position encoding is Circulant-STRING,
with blocks of size 1, 2, 4, 8 or 16 on the diagonal of a head of 16 channels. A control learns
the frequencies of the full block directly, in the same basis and from the same start.

Adam moves every parameter by about its learning rate. A frequency is a sum of the coefficients
with a row of M as weights, and that row has the norm sqrt(2B): so the coefficients get the rate
of the frequencies divided by sqrt(2B), and a step turns the planes alike for every B.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from lab.one_head import OneHead
from lab.train.learn import Training
from lab.train.study import Study
from stringlib import CirculantSTRING, RotaryEncoder
from stringlib.inputs import require_name
from stringlib.positions import grid_positions

METHODS = ("1", "2", "4", "8", "16", "direct")  # block sizes, and the control
SIDE, SYMBOLS, DOWN, LEFT = 12, 8, 3, 2
DIM, HEAD_DIM = 32, 16
RATE, FREQUENCY_RATE = 1e-2, 5e-2


class DirectFrequencies(RotaryEncoder):
    """The planes of a circulant encoder, with the frequencies themselves as parameters."""

    def __init__(self, start: CirculantSTRING) -> None:
        super().__init__(start.head_dim, start.coord_dim, heads=start.heads)
        self.rates = nn.Parameter(start.frequencies().detach().float())
        self.register_buffer("matrix_p", start.basis(), persistent=False)

    def frequencies(self) -> Tensor:
        """Return Ω: float64, ``(heads, pairs, coord_dim)``."""
        return self.rates.double()

    def basis(self) -> Tensor:
        """Return P: float64, ``(heads, head_dim, head_dim)``."""
        return self.matrix_p


class Neighbour(OneHead):
    """One head over the whole grid.

    Args:
        method: One of ``METHODS``.
    """

    def __init__(self, method: str) -> None:
        require_name("method", method, METHODS)
        super().__init__(SYMBOLS, DIM, HEAD_DIM)
        block = HEAD_DIM if method == "direct" else int(method)
        circulant = CirculantSTRING(HEAD_DIM, coord_dim=2, block_size=block)
        self.encoder: RotaryEncoder = circulant
        self.encoder_rate = FREQUENCY_RATE / math.sqrt(2 * block)
        if method == "direct":
            self.encoder, self.encoder_rate = DirectFrequencies(circulant), FREQUENCY_RATE

    def forward(self, symbols: Tensor) -> Tensor:
        """Return a score for each symbol that may be the answer, in reading order."""
        return super().forward(symbols, grid_positions(SIDE, SIDE))


def asking_cells() -> tuple[Tensor, Tensor]:
    """Return the cells whose neighbour is on the grid, and that neighbour, in reading order."""
    rows, columns = grid_positions(SIDE, SIDE, dtype=torch.long).unbind(-1)
    asking = (rows + DOWN < SIDE) & (columns >= LEFT)
    cells = torch.arange(SIDE * SIDE)[asking]
    return cells, cells + DOWN * SIDE - LEFT


def batch(size: int, generator: torch.Generator) -> Tensor:
    """Return random grids, ``(size, SIDE * SIDE)``."""
    return torch.randint(SYMBOLS, (size, SIDE * SIDE), generator=generator)


def loss(model: Neighbour, generator: torch.Generator) -> Tensor:
    """Return the cross-entropy on 8 random grids."""
    cells, neighbours = asking_cells()
    symbols = batch(8, generator)
    guesses, answers = model(symbols)[:, cells], symbols[:, neighbours]
    return nn.functional.cross_entropy(guesses.flatten(0, 1), answers.flatten())


def rates(model: Neighbour) -> dict[str, float]:
    """Return the rate of the weights and that of the encoder."""
    return {"": RATE, "encoder": model.encoder_rate}


@torch.no_grad()
def accuracy(model: Neighbour, grids: int = 128) -> float:
    """Return how often the best guess is right on new grids."""
    cells, neighbours = asking_cells()
    symbols = batch(grids, torch.Generator().manual_seed(10_000))
    return (model(symbols)[:, cells].argmax(-1) == symbols[:, neighbours]).double().mean().item()


def commonest(grids: int = 128) -> float:
    """Return the accuracy of always naming the commonest symbol of the grid: no position used."""
    symbols = batch(grids, torch.Generator().manual_seed(10_000))
    guesses = symbols.mode(-1).values[:, None]
    return (guesses == symbols[:, asking_cells()[1]]).double().mean().item()


def measure(model: Neighbour) -> dict[str, float]:
    """Return the accuracy."""
    return {"accuracy": round(accuracy(model), 5)}


CELLS = {method: {"method": method} for method in METHODS}
TRAINING = Training(Neighbour, loss, measure, rates)
STUDY = Study(
    __file__,
    __doc__,
    CELLS,
    TRAINING,
    steps=300,
    seeds=12,
    beside={"commonest": lambda: round(commonest(), 5)},
)
train = TRAINING.train


if __name__ == "__main__":
    STUDY.main()
