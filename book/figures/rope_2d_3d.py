"""Queries on a grid and in a volume: how each scores the cells around it, at every resolution."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from book.figures.marks import CELLS, axis, colour_axis, dots, downwards, heat, line
from lab.explore import COLOURS, PALETTE, Drawn, Panel, computed, panels, pick
from lab.explore.style import DIVERGING
from lab.theory.offsets import offset_scores
from stringlib import STRING, AxialRoPE, RoPE, RotaryEncoder
from stringlib.kernels.rotation import geometric_frequencies
from stringlib.positions import grid_positions

__all__ = [
    "GRID_ENCODERS",
    "RESOLUTION_CONVENTIONS",
    "grid_kernel",
    "resolution_scores",
    "volume_kernel",
]

DIM = 64
SIDE = TRAINED = 14  # patches in a row, in the image and in training
BASE = 10.0  # one for all that see two coordinates or three, so that only directions differ
TURN = math.pi / 6  # of the mixed head's directions
GOLDEN = math.pi * (3 - math.sqrt(5))  # spreads any number of directions evenly
MOST = 56  # patches in a row
REACH = 6  # of the volume
# an orthogonal matrix in thirds: the initial directions of a mixed head in three coordinates
THIRDS = torch.tensor([[2.0, 2, 1], [-2, 1, 2], [1, -2, 2]], dtype=torch.float64) / 3


def _scores(encoder: RotaryEncoder, offsets: Tensor) -> Tensor:
    """Return the score of equal, constant unit vectors at each offset."""
    ones = torch.full((1, DIM), DIM**-0.5, dtype=torch.float64)
    return offset_scores(encoder, ones, ones, offsets)[0]


def _raster() -> RotaryEncoder:
    """RoPE of the index in reading order: one row is SIDE columns."""
    theta = RoPE(DIM).frequencies()
    return STRING(theta @ torch.tensor([[SIDE, 1.0]], dtype=torch.float64))


def _equal() -> RotaryEncoder:
    theta = geometric_frequencies(DIM // 2, BASE)
    return STRING(theta[None, :, None].expand(1, -1, 2))


def _mixed_head() -> RotaryEncoder:
    """A head at initialisation: axial RoPE in rotated coordinates."""
    cos, sin = math.cos(TURN), math.sin(TURN)
    turn = torch.tensor([[cos, sin], [-sin, cos]], dtype=torch.float64)
    return STRING(AxialRoPE(DIM, 2, base=BASE).frequencies() @ turn)


def _many_directions() -> RotaryEncoder:
    angle = GOLDEN * torch.arange(DIM // 2, dtype=torch.float64)
    theta = geometric_frequencies(DIM // 2, BASE)
    return STRING((theta[:, None] * torch.stack([angle.cos(), angle.sin()], -1))[None])


GRID_ENCODERS: dict[str, Callable[[], RotaryEncoder]] = {
    "raster index": _raster,
    "equal frequencies": _equal,
    "axial": lambda: AxialRoPE(DIM, 2, base=BASE),
    "mixed, one head": _mixed_head,
    "mixed, many directions": _many_directions,
}
"""Name of a way to encode two coordinates → its encoder."""


@computed
def _around(row: Tensor, column: Tensor, encoder: str) -> dict[str, Tensor]:
    """Return the scores of all cells with a query, and how many are 1 and above a half."""
    offsets = grid_positions(SIDE, SIDE, dtype=torch.float64) - torch.stack([row, column])
    # the vectors are constant: a score is the mean of the cosines of the pairs
    scores = (offsets @ GRID_ENCODERS[encoder]().frequencies()[0].double().mT).cos().mean(-1)
    counts = torch.stack([scores > 1 - 1e-9, scores > 0.5]).double().sum(-1)
    return {
        "scores": scores.view(SIDE, SIDE),
        "counts": counts,
        "alone": (counts == 1).double(),
    }


def grid_kernel(encoder: str, row: float, column: float) -> Drawn:
    r"""Draw the score of one query with an equal key in each of 14 x 14 cells.

    The vectors are constant, 64 channels, so the score is the mean over all pairs
    of :math:`\cos \omega_i^\top \delta`, with the offset :math:`\delta` from query to key.
    The base is 10, and 10000 for the raster index.

    Args:
        encoder: One of ``GRID_ENCODERS``.
        row: Row of the query, from 0 at the top.
        column: Column of the query.

    Returns:
        A heat-map with the query marked; it may be between cells.
    """
    found = _around(row, column, encoder)
    same, high = (
        f"{count:.0f} cell{pick(alone, 's', '')}"
        for count, alone in zip(found["counts"], found["alone"], strict=True)
    )
    ring: dict[str, Any] = {"symbol": "circle-open", "size": 17, "marker_line_width": 3}
    cells = Panel(
        [
            heat(found["scores"], hover="row %{y}, column %{x}: %{z:.2f}"),
            dots([column], [row], PALETTE["blue"], **ring),
        ],
        f"{encoder}<br>score 1 in {same}, above 0.5 in {high}",
        x=axis("column of the key", -0.5, SIDE - 0.5, dtick=2, **CELLS),
        y=axis("row of the key", **downwards(SIDE, dtick=2, constraintoward="top")),
        square=True,
    )
    shape = {
        "raster index": "stripes along the rows, and the row of the query has the highest scores",
        "equal frequencies": "a ridge through the query, from the lower left to the upper right",
        "axial": "a plus, with one ridge along the row of the query and one along its column",
        "mixed, one head": "a plus whose arms are rotated by 30 degrees",
        "mixed, many directions": "a round hill around the query",
    }[encoder]
    said = {
        "raster index": "RoPE on the raster index",
        "equal frequencies": "equal frequencies in both coordinates",
        "axial": "axial RoPE",
        "mixed, one head": "one head of RoPE-Mixed",
        "mixed, many directions": "an encoder with many directions",
    }[encoder]
    return Drawn(
        panels(
            cells,
            height=470,
            margin={"l": 44, "r": 8, "t": 48, "b": 104},
            coloraxis=colour_axis(DIVERGING, -1, 1, y=-0.17, title="score"),
        ),
        f"A heat map shows the score of a query with an equal key at each patch of a {SIDE} by "
        f"{SIDE} grid, for {said}. A ring marks the query in row {row:g} and column {column:g}. "
        f"The high scores form {shape}. The score is 1 in {same} and above 0.5 in {high}.",
    )


RESOLUTION_CONVENTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "count patches": lambda side: 0 * side + 1,
    "scale": lambda side: TRAINED / side,
    "pin the corners": lambda side: (TRAINED - 1) / (side - 1),
}
"""Name of a convention → the coordinate of one patch, when a row has ``side`` of them."""
CONVENTIONS_SAID = {
    "count patches": "neighbouring patches are one unit apart, as in training",
    "scale": "coordinates are scaled so that the image has the same width as in training",
    "pin the corners": "coordinates are scaled so that the corner patches have the same "
    "coordinates as in training",
}


@computed
def _resolved(side: Tensor, convention: str) -> dict[str, Tensor]:
    """Return the score along a row of patches and where it is, and how much it changes."""
    theta = AxialRoPE(DIM, 2).frequencies()[0]
    # a row does not rotate the pairs that serve columns
    offsets = torch.arange(MOST, dtype=torch.float64)
    step = RESOLUTION_CONVENTIONS[convention](side)

    def along(columns: Tensor) -> Tensor:
        return (columns[:, None] * theta[:, 1]).cos().mean(-1)

    widths = torch.linspace(0, 1 - 1 / TRAINED, 53, dtype=torch.float64)
    both = (offsets < side) & (offsets < TRAINED)
    by_patch = (along(offsets * step) - along(offsets)).abs() * both
    by_width = (along(side * widths * step) - along(TRAINED * widths)).abs()
    there = torch.where(offsets < side, offsets, math.nan)
    changes = torch.stack([by_patch.amax(), by_width.amax()])
    return {
        "patches": there,
        "widths": there / side,
        "scores": along(there * step),
        "changes": changes,
        "differ": (changes > 5e-4).double(),
    }


def resolution_scores(convention: str, side: int) -> Drawn:
    """Draw the score along a row, in training and with another number of patches.

    Query and key are equal and constant, the encoder is axial RoPE with its usual
    base.  Left the offset is counted in patches, right in widths of the image.

    Args:
        convention: One of ``RESOLUTION_CONVENTIONS``.
        side: Number of patches in a row at the test; 14 in training.

    Returns:
        A figure with two panels; their titles say how much the scores change.
    """
    found = _resolved(side, convention)
    by_patch, by_width = found["changes"]
    told = [
        f"{pick(differ, 'coincide', 'differ')} (largest difference {change:.3f})"
        for differ, change in zip(found["differ"], found["changes"], strict=True)
    ]
    trained = _resolved(float(TRAINED), "count patches")
    rows = (
        (f"{TRAINED} patches, trained", trained, COLOURS["none"], 6.0),
        (f"{side:g} patches", found, COLOURS["axial"], 2.5),
    )
    left, right = [], []
    for name, row, colour, width in rows:
        look: dict[str, Any] = {"width": width, "hover": "%{x:.3g}: %{y:.3f}"}
        left.append(line(row["patches"], row["scores"], colour, name, **look))
        right.append(line(row["widths"], row["scores"], colour, **look))
    upright = axis(low=0.4, high=1.02, dtick=0.1)
    fig = panels(
        [
            Panel(
                left,
                f"offset in patches:<br>curves differ by {by_patch:.3f}",
                x=axis("offset (patches)", 0, TRAINED),
                y=upright,
            ),
            Panel(
                right,
                f"offset in image widths:<br>curves differ by {by_width:.3f}",
                x=axis("offset (image widths)", 0, 1),
                y=upright,
            ),
        ],
        across=0.1,
        height=370,
        margin={"l": 40, "r": 12, "t": 44, "b": 88},
    )
    return Drawn(
        fig,
        "Two line charts show the score of a query and an equal key in the same row of patches. "
        f"In each chart, a wide line is for rows of {TRAINED} patches, as in training, and a thin "
        f"line is for rows of {side:g} patches. In rows of {side:g} patches, "
        f"{CONVENTIONS_SAID[convention]}. In the left chart, against the offset in patches, the "
        f"two lines {told[0]}. In the right chart, against the offset in widths of the image, the "
        f"two lines {told[1]}.",
    )


@computed
def _slice(time: Tensor) -> dict[str, Tensor]:
    """Return the scores of one slice for both heads, their ends, and where the highest is."""
    axial = AxialRoPE(DIM, 3, base=BASE).frequencies()[0]
    size = 2 * REACH + 1
    window = grid_positions(size, size, dtype=torch.float64) - REACH
    offsets = torch.cat([time.expand(len(window), 1), window], -1)
    scores = torch.stack([(offsets @ w.mT).cos().mean(-1) for w in (axial, axial @ THIRDS)])
    high, low = scores.amax(-1), scores.amin(-1)
    # several cells may share the highest score, to within rounding: name the first
    shares = (scores > high[:, None] - 1e-9).double()
    first = (shares.cumsum(-1) == 0).double().sum(-1)
    row = (first / size).floor()
    return {
        "scores": scores.view(2, size, size),
        "ends": torch.stack([low, high], -1),
        "place": torch.stack([row - REACH, first - size * row - REACH], -1),
    }


def volume_kernel(time: float) -> Drawn:
    """Draw one slice in time of the scores around a query, in three coordinates.

    Query and key are equal and constant, the base is 10.  Left axial RoPE, right a
    head of mixed RoPE at initialisation.

    Args:
        time: Steps in time from the query to the keys of the slice.

    Returns:
        A figure of two heat-maps over rows and columns.
    """
    found, span = _slice(time), list(range(-REACH, REACH + 1))
    maps, highest = [], []
    for number, name in enumerate(("axial", "mixed, one head")):
        (low, high), (row, column) = found["ends"][number], found["place"][number]
        said = {"axial": "axial RoPE", "mixed, one head": "one head of RoPE-Mixed"}[name]
        highest.append(
            f"With {said} the scores lie between {low:.2f} and {high:.2f}, and the highest is at "
            f"row offset {row:.0f} and column offset {column:.0f}."
        )
        hover = "%{y} down, %{x} right: %{z:.2f}"
        maps.append(
            Panel(
                [heat(found["scores"][number], hover=hover, x=span, y=span)],
                f"{name}<br>from {low:.2f} to {high:.2f}",
                x=axis("columns to the right", dtick=3, **CELLS),
                y=axis(low=REACH + 0.5, high=-REACH - 0.5, constraintoward="top", dtick=3, **CELLS),
                square=True,
            )
        )
    fig = panels(
        maps,
        across=0.08,
        height=350,
        margin={"l": 40, "r": 10, "t": 48, "b": 92},
        coloraxis=colour_axis(DIVERGING, -1, 1, y=-0.2, title="score"),
    )
    return Drawn(
        fig.update_layout(yaxis_title={"text": "rows down", "standoff": 4}),
        f"Two heat maps show the scores of a query with equal keys at time offset {time:g}, for "
        f"row offsets and column offsets from -{REACH} to {REACH}. In the left map, the high "
        "scores of axial RoPE form a plus around the middle of the map. The right map is for one "
        f"head of RoPE-Mixed. {' '.join(highest)}",
    )
