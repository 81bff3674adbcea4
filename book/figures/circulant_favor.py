"""How alike the rows of a signed circulant look to one vector, and what averaging them brings."""

from __future__ import annotations

import math
from typing import Any

import plotly.graph_objects as go
import torch
from torch import Tensor

from book.figures.marks import axis, bars, line, rounded
from lab.explore import COLOURS, PALETTE, Drawn, Panel, panels
from lab.theory.structured_variance import (
    circulant_mean_mse,
    circulant_mse,
    cyclic_autocorrelation,
)

__all__ = ["CIRCULANT_SIGNS", "CIRCULANT_VECTORS", "row_correlation"]

SIZE = 16
TICKS = (0.03, 0.1, 0.3, 1, 3, 10, 30)  # of the error: plotly's own are too many, without zeros
CIRCULANT_VECTORS = ("constant", "smooth", "random", "one channel")
"""The vectors z that :func:`row_correlation` knows."""
CIRCULANT_SIGNS = ("no signs", "signs 1", "signs 2", "signs 3")
"""The choices of s that :func:`row_correlation` knows."""


def _vector(name: str, square: float) -> Tensor:
    n = torch.arange(SIZE, dtype=torch.float64)
    draw = torch.Generator().manual_seed(4)
    shapes = {
        "constant": torch.ones_like(n),
        "smooth": torch.exp(-(((n - 6) / 3) ** 2)),
        "random": torch.randn(SIZE, generator=draw, dtype=torch.float64),
        "one channel": (n == 5).double(),
    }
    if name not in shapes:
        raise ValueError(f"vector must be one of {CIRCULANT_VECTORS}, got {name!r}")
    return shapes[name] / shapes[name].norm() * math.sqrt(square)


def _signs(name: str) -> Tensor:
    if name not in CIRCULANT_SIGNS:
        raise ValueError(f"signs must be one of {CIRCULANT_SIGNS}, got {name!r}")
    number = CIRCULANT_SIGNS.index(name)
    if number == 0:
        return torch.ones(SIZE, dtype=torch.float64)
    bits = torch.randint(2, (SIZE,), generator=torch.Generator().manual_seed(number))
    return (2 * bits - 1).double()


def row_correlation(vector: str, signs: str, square: float) -> Drawn:
    r"""Draw s ⊙ z, its cyclic autocorrelation, and the error of m circulant rows.

    Above: the 16 channels of s ⊙ z, and :math:`A_\delta`, the covariance of the
    projections onto two rows that are δ apart.  Below: the relative error of the
    mean of m features, for independent rows, for a circulant with these signs, and
    for a circulant on average over all signs.

    Args:
        vector: One of ``CIRCULANT_VECTORS``.
        signs: One of ``CIRCULANT_SIGNS``.
        square: The squared length of z.

    Returns:
        A figure with three panels.

    Raises:
        ValueError: If a name is unknown.
    """
    z, s = _vector(vector, square), _signs(signs)
    correlation = cyclic_autocorrelation(s * z)
    rows = list(range(1, SIZE + 1))
    independent = [math.expm1(square) / m for m in rows]
    average = [circulant_mean_mse(z, m).item() for m in rows]
    errors = [circulant_mse(z, s, m).item() for m in rows]
    purple = COLOURS["favor-circulant"]

    def channels(head: str, heights: Tensor, colour: str, reach: float, title: str) -> Panel:
        drawn = bars(list(range(SIZE)), rounded(heights, 4), colour, hover="%{x}: %{y:.3f}")
        y = axis(low=-1.1 * reach, high=1.1 * reach, nticks=5)
        return Panel([drawn], head, x=axis(title, dtick=5), y=y)

    def error(values: list[float], colour: str, name: str, **look: Any) -> go.Scatter:
        return line(rows, rounded(values, 5), colour, name, hover="m = %{x}: %{y:.3f}", **look)

    low, high = 0.5 * independent[-1], 1.6 * independent[0]
    curves = Panel(
        [
            error(independent, COLOURS["favor-iid"], "independent rows", width=2, dash="dash"),
            error(average, purple, "circulant, all signs", width=2, dash="dot"),
            error(errors, purple, "circulant, these signs", width=3),
        ],
        "error of the mean of m features",
        x=axis("rows m", 0.5, SIZE + 0.5),
        y=axis(low=math.log10(low), high=math.log10(high), type="log", tickvals=TICKS),
    )
    fig = panels(
        [
            channels("s ⊙ z", s * z, PALETTE["grey"], math.sqrt(square), "channel n"),
            channels("Aδ: rows δ apart", correlation, purple, square, "δ"),
        ],
        curves,
        heights=(0.36, 0.42),
        across=0.13,
        down=0.22,
        height=560,
        margin={"l": 44, "r": 14, "t": 34, "b": 92},
    )
    return Drawn(
        fig,
        f"A {vector} vector of 16 channels and squared length {square:g}, {signs}: its entries, "
        f"its cyclic autocorrelation, at most {correlation[1:].abs().max():.2f} in size away from "
        f"0, and the error of the mean of 1 to 16 features. It starts at {independent[0]:.2f} and "
        f"at 16 rows is {independent[-1]:.3f} for independent rows, {errors[-1]:.3f} for the "
        f"circulant with these signs and {average[-1]:.3f} for a circulant on average over all "
        "signs.",
    )
