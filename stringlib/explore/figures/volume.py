"""A query in the middle of a volume, and the slices of its scores."""

from __future__ import annotations

import plotly.graph_objects as go
import torch
from torch import Tensor

from stringlib import STRING, AxialRoPE
from stringlib.explore.style import DIVERGING, heading, layout
from stringlib.positions import grid_positions
from stringlib.theory.offsets import offset_scores

__all__ = ["volume_kernel", "volume_kernel_text"]

DIM, REACH, BASE = 64, 6, 10.0
# an orthogonal matrix in thirds: the directions of a mixed head at its start
TURN = torch.tensor([[2.0, 2, 1], [-2, 1, 2], [1, -2, 2]], dtype=torch.float64) / 3
AXES = ("", "2")


def _slices(time: float) -> dict[str, Tensor]:
    """Return the scores of equal vectors over rows and columns, so many steps later."""
    axial = AxialRoPE(DIM, 3, BASE)
    encoders = {"axial": axial, "mixed, one head": STRING(axial.frequencies() @ TURN)}
    ones = torch.full((1, DIM), DIM**-0.5, dtype=torch.float64)
    window = grid_positions(2 * REACH + 1, 2 * REACH + 1, dtype=torch.float64) - REACH
    offsets = torch.nn.functional.pad(window, (1, 0), value=time)
    shape = (2 * REACH + 1, 2 * REACH + 1)
    return {n: offset_scores(e, ones, ones, offsets).view(shape) for n, e in encoders.items()}


def volume_kernel(time: float) -> go.Figure:
    """Draw one slice in time of the scores around a query, in three coordinates.

    Query and key are equal and constant, the base is 10.  Left axial RoPE, right a
    head of mixed RoPE at its start.

    Args:
        time: Steps in time from the query to the keys of the slice.

    Returns:
        A figure of two heat-maps over rows and columns.
    """
    slices, span = _slices(time), list(range(-REACH, REACH + 1))
    fig = go.Figure(
        [
            go.Heatmap(
                x=span,
                y=span,
                z=scores.round(decimals=2).tolist(),
                coloraxis="coloraxis",
                hovertemplate="%{y} down, %{x} right: %{z:.2f}<extra></extra>",
                xaxis=f"x{axis}",
                yaxis=f"y{axis}",
            )
            for axis, scores in zip(AXES, slices.values(), strict=True)
        ]
    )
    fig.update_layout(
        layout(
            height=350,
            margin={"l": 40, "r": 10, "t": 48, "b": 92},
            coloraxis={
                "colorscale": DIVERGING,
                "cmin": -1,
                "cmax": 1,
                "colorbar": {
                    "orientation": "h",
                    "y": -0.2,
                    "yanchor": "top",
                    "len": 0.8,
                    "title": {"text": "score", "side": "bottom"},
                },
            },
            annotations=[
                heading(
                    f"{name}<br>from {scores.min():.2f} to {scores.max():.2f}",
                    xref=f"x{axis} domain",
                    yref=f"y{axis} domain",
                )
                for axis, (name, scores) in zip(AXES, slices.items(), strict=True)
            ],
        )
    )
    for axis, domain in zip(AXES, ([0, 0.47], [0.55, 1]), strict=True):
        square = {
            "constrain": "domain",
            "showgrid": False,
            "zeroline": False,
            "dtick": 3,
            "ticks": "",
        }
        fig.update_layout(
            {
                f"xaxis{axis}": {
                    **square,
                    "domain": domain,
                    "anchor": f"y{axis}",
                    "title": {"text": "columns right", "standoff": 4},
                },
                f"yaxis{axis}": {
                    **square,
                    "anchor": f"x{axis}",
                    "scaleanchor": f"x{axis}",
                    "range": [REACH + 0.5, -REACH - 0.5],
                    "constraintoward": "top",
                },
            }
        )
    return fig.update_layout(yaxis_title={"text": "rows down", "standoff": 4})


def volume_kernel_text(time: float) -> str:
    """Say what :func:`volume_kernel` shows in a state."""
    parts = []
    for name, scores in _slices(time).items():
        # several cells may share the highest score, to within rounding: name the first
        row, column = (scores > scores.max() - 1e-9).nonzero()[0].tolist()
        parts.append(f"{name}, highest, {scores.max():.2f}, at ({row - REACH}, {column - REACH})")
    return (
        f"Two heat-maps of the scores at time offset {time:g}, over rows and columns from "
        f"-{REACH} to {REACH}. {'; '.join(parts)}."
    )
