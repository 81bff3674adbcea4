"""Walks on a sphere: right then up, up then right, and straight there."""

from __future__ import annotations

import math

import plotly.graph_objects as go
import torch
from torch import Tensor

from stringlib.explore.style import PALETTE, layout
from stringlib.reference.string import liere_matrix

__all__ = ["sphere_walks", "sphere_walks_text"]

POINTS = 12  # of a leg
TILT = math.radians(20)  # from how high the sphere is seen
START = (-15.0, -25.0)  # longitude and latitude of the vector, degrees
WALKS = {"right, then up": "blue", "up, then right": "orange", "straight": "teal"}


def _on_sphere(longitude: Tensor, latitude: Tensor) -> Tensor:
    """Return unit vectors; longitude 0 faces the viewer, angles in degrees."""
    lon, lat = torch.deg2rad(longitude.double()), torch.deg2rad(latitude.double())
    return torch.stack([lon.sin() * lat.cos(), -lon.cos() * lat.cos(), lat.sin()], -1)


def _screen(points: Tensor) -> dict[str, list[float]]:
    """Return what the viewer sees of points ``(n, 3)``: three decimals are below a pixel."""
    x, y, z = points.unbind(-1)
    up = y * math.sin(TILT) + z * math.cos(TILT)
    return {"x": [round(v, 3) for v in x.tolist()], "y": [round(v, 3) for v in up.tolist()]}


def _axes(between: float) -> Tensor:
    """Return the axes of both turns: upright, and leaning to the left by ``between`` degrees."""
    lean = math.radians(between)
    return torch.tensor([[0.0, 0.0, 1.0], [-math.sin(lean), 0.0, math.cos(lean)]]).double()


def _walks(between: float, distance: float) -> list[Tensor]:
    """Return the points of the three walks, each ``(n, 3)``."""
    x, y, z = _axes(between).unbind(-1)
    nought = torch.zeros_like(x)
    turns = torch.stack([nought, -z, y, z, nought, -x, -y, x, nought], -1).view(2, 3, 3)
    start = _on_sphere(*torch.tensor(START))
    steps = torch.linspace(0, distance, POINTS + 1, dtype=torch.float64)[:, None]
    right, up = (liere_matrix(steps * unit, turns) for unit in torch.eye(2).double())
    both = liere_matrix(steps.expand(-1, 2), turns)
    return [
        torch.cat([right @ start, up[1:] @ (right[-1] @ start)]),
        torch.cat([up @ start, right[1:] @ (up[-1] @ start)]),
        both @ start,
    ]


def _gap(between: float, distance: float) -> float:
    """Return the largest distance between two of the three arrivals."""
    ends = torch.stack([walk[-1] for walk in _walks(between, distance)])
    return (ends[:, None] - ends).norm(dim=-1).max().item()


def sphere_walks(between: float, distance: float) -> go.Figure:
    r"""Turn one vector by :math:`\exp(r_1 L_1 + r_2 L_2)` along three walks to the same position.

    Both generators turn a sphere, each about an axis of its own. The walks end at one place if the
    axes are the same, which in three dimensions is what commuting means.

    Args:
        between: Angle between the axes, in degrees.
        distance: How far the walks go, to the right and up, in radians.

    Returns:
        A figure of the sphere, both axes and the three walks.
    """
    fig = go.Figure()
    circle = torch.linspace(-180, 180, 73)
    rim = {"x": circle.deg2rad().cos().tolist(), "y": circle.deg2rad().sin().tolist()}
    rim = {name: [round(v, 3) for v in values] for name, values in rim.items()}
    thin = {"color": PALETTE["grey"], "width": 1}
    fig.add_scatter(**rim, mode="lines", line=thin, showlegend=False)
    for latitude in (-30.0, 0.0, 30.0, 60.0):
        seen = _on_sphere(torch.linspace(-90, 90, 37), torch.full((37,), latitude))
        fig.add_scatter(
            **_screen(seen), mode="lines", line={**thin, "dash": "dot"}, showlegend=False
        )
    for axis, name in zip(_axes(between), ("axis of L₁, right", "axis of L₂, up"), strict=True):
        dash = "solid" if name.endswith("right") else "dash"
        line = {"color": PALETTE["brown"], "width": 2, "dash": dash}
        ends = _screen(torch.stack([-1.25 * axis, 1.25 * axis]))
        fig.add_scatter(**ends, mode="lines", line=line, name=name)
    for (name, colour), walk in zip(WALKS.items(), _walks(between, distance), strict=True):
        sizes = [0] * (len(walk) - 1) + [13]
        fig.add_scatter(
            **_screen(walk),
            mode="lines+markers",
            line={
                "color": PALETTE[colour],
                "width": 4,
                "dash": "dot" if "right, t" in name else "solid",
            },
            marker={"size": sizes, "color": PALETTE[colour], "opacity": 1, "line": {"width": 0}},
            name=name,
        )
    start = _on_sphere(*torch.tensor(START))[None]
    mark = {"size": 12, "color": PALETTE["grey"], "symbol": "square"}
    fig.add_scatter(**_screen(start), mode="markers", marker=mark, name="start")
    fig.update_traces(hoverinfo="skip")
    axis = {"range": [-1.35, 1.35], "visible": False, "constrain": "domain"}
    title = f"arrivals up to {_gap(between, distance):.2f} apart"
    return fig.update_layout(
        layout(
            height=470,
            margin={"l": 8, "r": 8, "t": 40, "b": 84},
            title_text=title,
            xaxis=axis,
            yaxis={**axis, "scaleanchor": "x"},
        )
    )


def sphere_walks_text(between: float, distance: float) -> str:
    """Say what :func:`sphere_walks` shows in a state."""
    where = "at one place" if _gap(between, distance) < 0.005 else "at three places"
    return (
        f"A vector on a sphere and two axes {between:g} degrees apart. The vector walks "
        f"{distance:g} radians to the right about one axis and as far up about the other, in both "
        f"orders and straight. It ends {where}, up to {_gap(between, distance):.2f} apart."
    )
