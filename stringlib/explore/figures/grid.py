"""A query on a grid of patches, and how it scores a key in every other cell."""

from __future__ import annotations

import math

import plotly.graph_objects as go
import torch
from torch import Tensor

from stringlib import STRING, AxialRoPE, RoPE, RotaryEncoder
from stringlib.explore.style import DIVERGING, PALETTE, heading, layout
from stringlib.positions import geometric_frequencies, grid_positions
from stringlib.theory.offsets import offset_scores

__all__ = ["GRID_ENCODERS", "grid_kernel", "grid_kernel_text"]

SIDE, DIM = 14, 64
BASE = 10.0  # one for all that see two coordinates, so that only directions differ
TURN = math.pi / 6  # of the mixed head's directions
GOLDEN = math.pi * (3 - math.sqrt(5))  # spreads any number of directions evenly


def _raster() -> RotaryEncoder:
    """RoPE of the index in reading order: one row is SIDE columns."""
    theta = RoPE(DIM).frequencies()
    return STRING(theta @ torch.tensor([[SIDE, 1.0]], dtype=torch.float64))


def _equal() -> RotaryEncoder:
    theta = geometric_frequencies(DIM // 2, BASE)
    return STRING(theta[None, :, None].expand(1, -1, 2))


def _mixed_head() -> RotaryEncoder:
    """A head at its start: axial RoPE in turned coordinates."""
    cos, sin = math.cos(TURN), math.sin(TURN)
    turn = torch.tensor([[cos, sin], [-sin, cos]], dtype=torch.float64)
    return STRING(AxialRoPE(DIM, 2, BASE).frequencies() @ turn)


def _many_directions() -> RotaryEncoder:
    angle = GOLDEN * torch.arange(DIM // 2, dtype=torch.float64)
    theta = geometric_frequencies(DIM // 2, BASE)
    return STRING((theta[:, None] * torch.stack([angle.cos(), angle.sin()], -1))[None])


GRID_ENCODERS = {
    "raster index": _raster,
    "equal frequencies": _equal,
    "axial": lambda: AxialRoPE(DIM, 2, BASE),
    "mixed, one head": _mixed_head,
    "mixed, many directions": _many_directions,
}
"""Name of a way to turn two coordinates → its encoder."""


def _scores(encoder: str, row: float, column: float) -> Tensor:
    """Return the score of equal unit vectors, the query in one cell, ``(SIDE, SIDE)``."""
    ones = torch.full((1, DIM), DIM**-0.5, dtype=torch.float64)
    query = torch.tensor([row, column], dtype=torch.float64)
    offsets = grid_positions(SIDE, SIDE, dtype=torch.float64) - query
    return offset_scores(GRID_ENCODERS[encoder](), ones, ones, offsets).view(SIDE, SIDE)


def _counts(scores: Tensor) -> tuple[int, int]:
    return int((scores > 1 - 1e-9).sum()), int((scores > 0.5).sum())


def _cells(count: int) -> str:
    return "1 cell" if count == 1 else f"{count} cells"


def grid_kernel(encoder: str, row: float, column: float) -> go.Figure:
    r"""Draw the score of one query with an equal key in each of 14 x 14 cells.

    The vectors are constant, 64 channels, so the score is the mean over all pairs
    of :math:`\cos \omega_i^\top \delta`, with the offset :math:`\delta` from query to key.
    The base is 10, and 10000 for the raster index.

    Args:
        encoder: One of ``GRID_ENCODERS``.
        row: Row of the query, from 0 at the top.
        column: Column of the query.

    Returns:
        A heat-map with the query's cell marked.
    """
    scores = _scores(encoder, row, column)
    same, high = _counts(scores)
    fig = go.Figure(
        [
            go.Heatmap(
                z=scores.tolist(),
                zmin=-1,
                zmax=1,
                colorscale=DIVERGING,
                colorbar={
                    "orientation": "h",
                    "y": -0.17,
                    "yanchor": "top",
                    "len": 0.8,
                    "thickness": 14,
                    "title": {"text": "score", "side": "bottom"},
                },
                hovertemplate="row %{y}, column %{x}: %{z:.2f}<extra></extra>",
            ),
            go.Scatter(
                x=[column],
                y=[row],
                mode="markers",
                marker={
                    "symbol": "circle-open",
                    "size": 17,
                    "color": PALETTE["blue"],
                    "line": {"width": 3},
                },
                showlegend=False,
                hoverinfo="skip",
            ),
        ]
    )
    square = {"constrain": "domain", "showgrid": False, "zeroline": False, "dtick": 2, "ticks": ""}
    return fig.update_layout(
        layout(
            height=470,
            margin={"l": 44, "r": 8, "t": 48, "b": 104},
            annotations=[
                heading(
                    f"{encoder}<br>score 1 in {_cells(same)}, above 0.5 in {_cells(high)}",
                    yref="y domain",
                )
            ],
            xaxis={
                **square,
                "range": [-0.5, SIDE - 0.5],
                "title": {"text": "column of the key", "standoff": 4},
            },
            yaxis={
                **square,
                "range": [SIDE - 0.5, -0.5],
                "scaleanchor": "x",
                "constraintoward": "top",
                "title": {"text": "row of the key", "standoff": 4},
            },
        )
    )


def grid_kernel_text(encoder: str, row: float, column: float) -> str:
    """Say what :func:`grid_kernel` shows in a state."""
    scores = _scores(encoder, row, column)
    same, high = _counts(scores)
    shape = {
        "raster index": "stripes along the rows, slightly tilted",
        "equal frequencies": "a ridge along the rising diagonal through the query",
        "axial": "a plus of one ridge along the row and one along the column of the query",
        "mixed, one head": "the same plus, turned by 30 degrees",
        "mixed, many directions": "a round hill about the query",
    }[encoder]
    return (
        f"Heat-map of the score of a query in row {row:g}, column {column:g} of a {SIDE} by {SIDE} "
        f"grid with an equal key in every cell; {encoder}: {shape}. The score is 1 in "
        f"{_cells(same)} and above 0.5 in {_cells(high)}."
    )
