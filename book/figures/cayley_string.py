"""The Cayley transform on the circle, and how dense a sparse S makes its basis."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from book.figures.marks import (
    CELLS,
    axis,
    circle,
    colour_axis,
    dots,
    downwards,
    heat,
    level,
    line,
    rounded,
    segments,
)
from lab.explore import COLOURS, PALETTE, Drawn, Panel, panels
from lab.explore.style import SEQUENTIAL
from stringlib.algebra.skew import cayley, connected_parts, sparse_skew

__all__ = ["cayley_circle", "sparse_basis"]

REACH = 1.7  # of the circle's panel
SIZE = 32


def cayley_circle(t: float) -> Drawn:
    r"""Draw the rotation that the Cayley transform makes of one number, beside the exponential.

    S has the entries t and −t. The line from −1 through :math:`\mathrm{i}\,t` meets the unit
    circle again at the eigenvalue :math:`e^{2 \mathrm{i} \arctan t}` of its transform; the
    exponential of −2S, equal to first order, turns by 2t.

    Args:
        t: The entry of S above the diagonal.

    Returns:
        A figure with two panels, the circle and the angles against t.
    """
    angle, slope = 2 * math.atan(t), 2 / (1 + t * t)
    turned = math.degrees(angle)
    transform = math.cos(angle), math.sin(angle)
    exponential = math.cos(2 * t), math.sin(2 * t)
    far = 4 / math.hypot(1, t)  # the ray goes on behind the circle
    teal, brown, grey = COLOURS["cayley"], COLOURS["dense"], PALETTE["grey"]
    square: dict[str, Any] = {"symbol": "square", "size": 10}
    plane = axis(low=-REACH, high=REACH, dtick=1)
    on_circle = Panel(
        [
            line([-1, -1 + far], [0, far * t], grey, width=2),
            dots([-1, 0], [0, t], grey, size=8, symbol=["x", "diamond"]),
            segments([((0, 0), transform), ((0, 0), exponential)], grey, width=1),
            dots([transform[0]], [transform[1]], teal, "Cayley: 2 arctan t"),
            dots([exponential[0]], [exponential[1]], brown, "exponential: 2t", **square),
        ],
        f"t = {t:g}: turned by {turned:.0f}°",
        x=plane,
        y=plane,
        shapes=[{**circle(), "layer": "below"}],
        square=True,
    )
    grid = [i / 10 for i in range(-60, 61)]
    curve = [2 * math.atan(v) / math.pi for v in grid]
    against_t = Panel(
        [
            line(grid, rounded(curve, 4), teal),
            line(grid, rounded([2 * v / math.pi for v in grid], 4), brown, dash="dot"),
            dots([t], [angle / math.pi], teal),
            dots([t], [2 * t / math.pi], brown, **square),
        ],
        f"angle<br>slope of Cayley {slope:.2f}",
        x=axis("t", -6, 6),
        y=axis(low=-2, high=2, dtick=1, ticksuffix="π"),
        shapes=[level(bound, width=1, dash="dash", color=grey) for bound in (-1, 1)],
        width=0.9,
    )
    return Drawn(
        panels(
            [on_circle, against_t],
            across=0.11,
            height=390,
            margin={"l": 36, "r": 12, "t": 46, "b": 76},
        ),
        f"Left: a ray from −1 through {t:g} i on the imaginary axis meets the unit circle at "
        f"{turned:.0f} degrees, the Cayley transform; a square at {math.degrees(2 * t):.0f} "
        "degrees is the exponential. Right: the angles against t. The exponential's is a straight "
        "line that crosses π; twice the arc tangent levels off below π and above −π, and has the "
        f"slope {slope:.2f} here.",
    )


def _sparse_pair(density: float) -> tuple[Tensor, Tensor, int]:
    """Return S with its first entries filled, in a fixed random order, its P and its parts."""
    generator = torch.Generator().manual_seed(2)
    places = torch.triu_indices(SIZE, SIZE, offset=1)
    order = torch.randperm(places.shape[1], generator=generator)
    entries = torch.randn(places.shape[1], dtype=torch.float64, generator=generator)
    count = round(density * len(order))
    support = places[:, order[:count]]
    skew = sparse_skew(entries[:count], support, SIZE)
    return skew, cayley(skew), len(connected_parts(support, SIZE).unique())


def sparse_basis(density: float) -> Drawn:
    """Draw the entries of a sparse S of 32 channels beside those of its Cayley transform P.

    Entries are filled in a fixed random order, so a higher density adds to a lower one.
    What is exactly 0 is left blank.

    Args:
        density: Which part of the entries above the diagonal is filled.

    Returns:
        A figure of two heat-maps with one colour scale.
    """
    skew, basis, parts = _sparse_pair(density)
    filled = [f"{(m.abs() > 1e-12).double().mean().item():.0%} filled" for m in (skew, basis)]
    blocks = "1 part" if parts == 1 else f"{parts} parts"

    def entries(matrix: Tensor, head: str) -> Panel:
        cells = [[v if v > 1e-12 else None for v in row] for row in matrix.abs().tolist()]
        hover = "row %{y}, column %{x}: %{z:.2f}"
        drawn = heat(rounded(cells, 2), hover=hover, xgap=1, ygap=1, hoverongaps=False)
        columns = axis(low=-0.5, high=SIZE - 0.5, dtick=8, **CELLS)
        return Panel([drawn], head, x=columns, y=downwards(SIZE, dtick=8), square=True)

    groups = "one connected part" if parts == 1 else f"{parts} connected parts"
    return Drawn(
        panels(
            [entries(skew, f"S: {filled[0]},<br>{blocks}"), entries(basis, f"P: {filled[1]}")],
            across=0.08,
            height=390,
            margin={"l": 32, "r": 10, "t": 48, "b": 92},
            coloraxis=colour_axis(SEQUENTIAL, 0, 1, y=-0.16, title="absolute value of an entry"),
        ),
        f"Two 32 by 32 maps of absolute entries. Left the sparse matrix S, {filled[0]}, "
        f"which links its channels into {groups}. Right its Cayley transform P, "
        f"{filled[1]}.",
    )
