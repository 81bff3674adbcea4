"""Train generators that commute, and generators that need not, then move every position.

    python results/string_commuting.py      # writes results/string_commuting.json
    python results/string_commuting.py --seeds 2 --steps 50 --output /tmp/try.json

An 8 x 8 grid holds random symbols. Every cell whose target lies on the grid asks which symbol
stands 2 rows below it and 1 column to its left. One attention head of 16 channels answers, with
one of three rotations: learned frequencies in fixed planes (mixed), learned frequencies in a
learned basis (cayley), and the exponential of two free skew-symmetric matrices (liere). All three
start at the same rotation. Training uses the rows and columns 0 ... 7; the test moves every
position along the diagonal. As a control, the free matrices are also trained with every batch
moved by its own random shift of up to 16 in each coordinate.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from lab.one_head import OneHead
from lab.train.learn import Training
from lab.train.study import Study
from stringlib import CayleySTRING
from stringlib.algebra import planar_skew, skew
from stringlib.inputs import require_name
from stringlib.positions import grid_positions

METHODS = ("mixed", "cayley", "liere", "liere-moved")
SIDE, SYMBOLS, DOWN, LEFT = 8, 8, 2, 1
DIM, HEAD_DIM, BATCH = 32, 16, 16
RATE, ENCODER_RATE = 1e-2, 2e-2
MOVED = 16  # the largest shift that the control meets in training
SHIFTS = (0, 1, 2, 4, 8, 16, 32, 64)


class FreeGenerators(nn.Module):
    """LieRE: rotate by the exponential of two skew-symmetric matrices that need not commute.

    Args:
        omega: Frequencies of the rotation to start from, in neighbouring channels,
            ``(1, pairs, 2)``.
    """

    def __init__(self, omega: Tensor) -> None:
        super().__init__()
        start = planar_skew(omega[0].T, HEAD_DIM)
        rows, columns = torch.triu_indices(HEAD_DIM, HEAD_DIM, offset=1)
        self.entries = nn.Parameter(start[:, rows, columns].clone())

    def generators(self) -> Tensor:
        """Return both matrices, ``(1, 2, HEAD_DIM, HEAD_DIM)``."""
        return skew(self.entries)[None]

    def forward(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Rotate queries and keys, each ``(..., 1, seq, HEAD_DIM)``."""
        exponents = torch.einsum("nk,kij->nij", positions.to(q), self.generators()[0])
        turn = torch.matrix_exp(exponents)
        return (turn @ q[..., None])[..., 0], (turn @ k[..., None])[..., 0]


class Neighbour(OneHead):
    """One head over the whole grid.

    Args:
        method: One of ``METHODS``.
    """

    def __init__(self, method: str) -> None:
        require_name("method", method, METHODS)
        super().__init__(SYMBOLS, DIM, HEAD_DIM)
        omega = 0.3 * torch.randn(1, HEAD_DIM // 2, 2)
        if method.startswith("liere"):
            self.encoder: FreeGenerators | CayleySTRING = FreeGenerators(omega)
        else:  # density 0 leaves no entry of S to learn: the basis stays the identity
            cayley = CayleySTRING(HEAD_DIM, 2, density=float(method == "cayley"))
            nn.init.zeros_(cayley.entries)
            cayley.omega = nn.Parameter(omega)
            self.encoder = cayley

    def generators(self) -> Tensor:
        """Return the generators of the rotation, ``(2, HEAD_DIM, HEAD_DIM)``."""
        generators: Tensor = self.encoder.generators()[0]
        return generators


def asking_cells() -> tuple[Tensor, Tensor]:
    """Return the cells whose neighbour is on the grid, and that neighbour, in reading order."""
    rows, columns = grid_positions(SIDE, SIDE, dtype=torch.long).unbind(-1)
    asking = (rows + DOWN < SIDE) & (columns >= LEFT)
    cells = torch.arange(SIDE * SIDE)[asking]
    return cells, cells + DOWN * SIDE - LEFT


def batch(size: int, generator: torch.Generator) -> Tensor:
    """Return random grids, ``(size, SIDE * SIDE)``."""
    return torch.randint(SYMBOLS, (size, SIDE * SIDE), generator=generator)


def loss(model: Neighbour, generator: torch.Generator, method: str) -> Tensor:
    """Return the cross-entropy on random grids; only ``"liere-moved"`` moves them."""
    cells, neighbours = asking_cells()
    symbols, shift = batch(BATCH, generator), torch.zeros(2)
    if method == "liere-moved":
        shift = torch.randint(MOVED + 1, (2,), generator=generator)
    places = grid_positions(SIDE, SIDE) + shift
    guesses, answers = model(symbols, places)[:, cells], symbols[:, neighbours]
    return nn.functional.cross_entropy(guesses.flatten(0, 1), answers.flatten())


def rates(model: Neighbour) -> dict[str, float]:
    """Return the rate of the weights and that of the encoder."""
    return {"": RATE, "encoder": ENCODER_RATE}


@torch.no_grad()
def accuracy(model: Neighbour, shift: float, grids: int = 64) -> float:
    """Return how often the best guess is right when both coordinates are larger by ``shift``."""
    cells, neighbours = asking_cells()
    symbols = batch(grids, torch.Generator().manual_seed(10_000))
    guesses = model(symbols, grid_positions(SIDE, SIDE) + shift)[:, cells].argmax(-1)
    return (guesses == symbols[:, neighbours]).double().mean().item()


@torch.no_grad()
def commutator(model: Neighbour) -> float:
    """Return the norm of L₁L₂ − L₂L₁ over the product of the norms of the generators."""
    one, other = model.generators().detach()
    norms = [torch.linalg.matrix_norm(m) for m in (one @ other - other @ one, one, other)]
    return (norms[0] / norms[1] / norms[2]).item()


def measure(model: Neighbour) -> dict[str, Any]:
    """Return the accuracies over ``SHIFTS`` and the commutator."""
    accuracies = [round(accuracy(model, shift), 5) for shift in SHIFTS]
    return {"accuracy": accuracies, "commutator": round(commutator(model), 5)}


CELLS = {method: {"method": method} for method in METHODS}
TRAINING = Training(Neighbour, loss, measure, rates, cosine=True)
STUDY = Study(__file__, __doc__, CELLS, TRAINING, steps=400, seeds=10, beside={"shifts": SHIFTS})
train = TRAINING.train


if __name__ == "__main__":
    STUDY.main()
