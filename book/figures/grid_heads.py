"""What one head of a grid can weigh, and what the mean over many heads sees."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from book.figures.marks import CELLS, axis, downwards, heat, line, rounded
from lab.explore import COLOURS, PALETTE, Drawn, Panel, computed, panels
from lab.explore.style import SEQUENTIAL
from stringlib.positions import geometric_frequencies

__all__ = ["mean_of_heads", "separable_weights"]

REACH, WAVES, HEADS = 13, 12, 8  # patches to either side; magnitudes of 48 channels; heads
RING = 10  # patches away, where directions are compared
DISTANCES = [round(0.25 * i, 2) for i in range(4 * REACH + 1)]


@computed
def _mean(spread: Tensor) -> dict[str, Tensor]:
    """Return the mean score over heads that are turned evenly: on a map, and along two directions.

    And the least and the largest on a ring around the query.
    """
    first = torch.arange(HEADS, dtype=torch.float64) / HEADS * spread.deg2rad()
    turn = torch.stack([first, first + math.pi / 2])  # the two directions of each head
    theta = geometric_frequencies(WAVES, 10.0)

    def score(row: Tensor, column: Tensor) -> Tensor:
        along = row[..., None, None] * turn.cos() + column[..., None, None] * turn.sin()
        waves = torch.stack([(along * speed).cos() for speed in theta]).mean(0)
        return waves.mean((-1, -2))

    steps = torch.arange(-REACH, REACH + 1, dtype=torch.float64)
    far = torch.tensor(DISTANCES, dtype=torch.float64)
    lines = [score(far, 0 * far), score(far * 0.5**0.5, far * 0.5**0.5)]
    around = torch.linspace(0, math.pi / 2, 31, dtype=torch.float64)
    ring = score(RING * around.cos(), RING * around.sin())
    return {
        "map": score(steps[:, None], steps),
        "lines": torch.stack(lines),
        "ends": torch.stack([ring.amin(-1), ring.amax(-1)]),
    }


def mean_of_heads(spread: float) -> Drawn:
    """Draw the mean score over heads with perpendicular directions, each head turned further.

    Every head starts as :eq:`eq-grid-start`; the mean goes to a mean of Bessel functions.

    Args:
        spread: Degrees over which their directions are turned evenly; 90 are all there are.

    Returns:
        A figure of a map of offsets, and of the score along a row and along a diagonal.
    """
    found = _mean(spread)
    low, high = found["ends"]
    far = torch.tensor(DISTANCES, dtype=torch.float64)
    law = torch.special.bessel_j0(far[:, None] * geometric_frequencies(WAVES, 10.0)).mean(-1)
    colour, hover = COLOURS["mixed"], "distance %{x}: %{y:.2f}"
    square = {**CELLS, "tickvals": [REACH - RING, REACH, REACH + RING],
              "ticktext": [f"−{RING}", "0", f"{RING}"]}  # fmt: skip
    fig = panels(
        Panel(
            [heat(found["map"], (SEQUENTIAL, -0.1, 0.9), "score %{z:.2f}")],
            f"{RING} away: {low:.2f} to {high:.2f}, by direction",
            x=square,
            y=downwards(2 * REACH + 1, **{k: square[k] for k in ("tickvals", "ticktext")}),
            square=True,
        ),
        Panel(
            [
                line(DISTANCES, found["lines"][0], colour, "along a row", hover=hover),
                line(DISTANCES, found["lines"][1], PALETTE["orange"], "diagonally", hover=hover),
                line(DISTANCES, rounded(law), PALETTE["grey"], "law", width=2, dash="dot"),
            ],
            x=axis("distance (patches)", 0, REACH),
            y=axis("score", -0.15, 1.05, dtick=0.5),
        ),
        heights=(0.62, 0.28),
        down=0.1,
        height=560,
        margin={"l": 48, "r": 12, "t": 30, "b": 84},
    )
    return Drawn(
        fig,
        f"The mean score over {HEADS} heads on a map of offsets, their directions turned evenly "
        f"over {spread:g} degrees: a hill about the query, with arms at 0 and none at 90. {RING} "
        f"patches away it lies between {low:.2f} and "
        f"{high:.2f}, by the direction. Below, along a row and diagonally, beside the law that "
        "knows the distance alone.",
    )


@computed
def _product(rows: Tensor, columns: Tensor) -> dict[str, Tensor]:
    """Return the weights of the four diagonal neighbours, and their sums on either diagonal."""
    row, column = (torch.stack([p, 0 * p, 1 - p]) for p in (rows, columns))
    weights = row[:, None] * column
    return {
        "weights": weights,
        "sums": torch.stack([weights[0, 0] + weights[2, 2], weights[0, 2] + weights[2, 0]]),
        "wanted": torch.stack([weights[0, 0], weights[2, 2]]),
    }


def separable_weights(rows: float, columns: float) -> Drawn:
    """Draw what an axial head can give its diagonal neighbours: a product, :eq:`eq-grid-separable`.

    A score that is a sum over coordinates makes weights that are products, here of two shares.

    Args:
        rows: Share of the row above; the row below has the rest.
        columns: Share of the column on the left; the right one has the rest.

    Returns:
        A figure of the nine weights around the query.
    """
    found = _product(rows, columns)
    (right, wrong), (first, second) = found["sums"], found["wanted"]
    ticks: dict[str, Any] = {"tickvals": [0, 1, 2], "ticktext": ["−1", "0", "1"]}
    texts = [[f"{w:.2f}" if (i != 1 and j != 1) else "" for j, w in enumerate(row)]
             for i, row in enumerate(found["weights"])]  # fmt: skip
    fig = panels(
        Panel(
            [
                heat(found["weights"], (SEQUENTIAL, 0, 1), text=texts, texttemplate="%{text}",
                     xgap=2, ygap=2, textfont={"size": 15})
            ],
            f"asked diagonal {right:.2f}, the other {wrong:.2f}",
            x=axis("column", **CELLS, **ticks),
            y=downwards(3, **ticks, title="row"),
            square=True,
        ),
        height=330,
        margin={"l": 54, "r": 12, "t": 30, "b": 48},
    )  # fmt: skip
    return Drawn(
        fig,
        f"Weights of the cells around the query. Above it is the share {rows:g}, on the left "
        f"{columns:g}; a weight is a product. The neighbours at (−1, −1) and (1, 1) get "
        f"{first:.2f} and {second:.2f}, together {right:.2f}, the other diagonal {wrong:.2f}.",
    )
