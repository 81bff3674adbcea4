"""Walks on a sphere, in two orders and straight; and scores of pairs of tokens that move off."""

from __future__ import annotations

import math
from typing import Any

import plotly.graph_objects as go
import torch
from torch import Tensor

from book.figures.marks import axis, dots, line, rounded
from lab.explore import PALETTE, Drawn, layout
from stringlib import STRING
from stringlib.algebra import haar_orthogonal, skew
from stringlib.reference.string import liere_matrix

__all__ = ["moving_pair", "sphere_walks"]

POINTS = 12  # of a leg
TILT = math.radians(20)  # from how high the sphere is seen
START = (-15.0, -25.0)  # longitude and latitude of the vector, degrees
FARTHEST = 30  # patches a pair moves
PAIRS = {"pair 1": "blue", "pair 2": "orange", "pair 3": "teal"}
WALKS = {"right, then up": "blue", "up, then right": "orange", "straight": "teal"}


def _on_sphere(longitude: Tensor, latitude: Tensor) -> Tensor:
    """Return unit vectors; longitude 0 faces the viewer, angles in degrees."""
    lon, lat = torch.deg2rad(longitude.double()), torch.deg2rad(latitude.double())
    return torch.stack([lon.sin() * lat.cos(), -lon.cos() * lat.cos(), lat.sin()], -1)


def _screen(points: Tensor) -> tuple[list[float], list[float]]:
    """Return what the viewer sees of points ``(n, 3)``, to the right and up."""
    x, y, z = points.unbind(-1)
    return rounded(x), rounded(y * math.sin(TILT) + z * math.cos(TILT))


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


def sphere_walks(between: float, distance: float) -> Drawn:
    r"""Turn one vector by :math:`\exp(r_1 L_1 + r_2 L_2)` along three walks to the same position.

    Both generators turn a sphere, each about an axis of its own. The walks end at one place if the
    axes are the same, which in three dimensions is what commuting means.

    Args:
        between: Angle between the axes, in degrees.
        distance: How far the walks go, to the right and up, in radians.

    Returns:
        A figure of the sphere, both axes and the three walks.
    """
    walks = _walks(between, distance)
    ends = torch.stack([walk[-1] for walk in walks])
    gap = (ends[:, None] - ends).norm(dim=-1).max().item()  # of the two farthest arrivals
    rim = torch.linspace(-180, 180, 73).deg2rad()
    grey, brown = PALETTE["grey"], PALETTE["brown"]
    traces = [line(rounded(rim.cos()), rounded(rim.sin()), grey, width=1)]
    for latitude in (-30.0, 0.0, 30.0, 60.0):
        seen = _on_sphere(torch.linspace(-90, 90, 37), torch.full((37,), latitude))
        traces.append(line(*_screen(seen), grey, width=1, dash="dot"))
    named = {"axis of L₁, right": "solid", "axis of L₂, up": "dash"}
    for turned_about, (name, dash) in zip(_axes(between), named.items(), strict=True):
        both = torch.stack([-1.25 * turned_about, 1.25 * turned_about])
        traces.append(line(*_screen(both), brown, name, width=2, dash=dash))
    for (name, colour), walk in zip(WALKS.items(), walks, strict=True):
        sizes = [0] * (len(walk) - 1) + [13]  # a dot at the end alone
        head = {"size": sizes, "color": PALETTE[colour], "opacity": 1, "line": {"width": 0}}
        dash = "dot" if name.startswith("right") else "solid"
        look: dict[str, Any] = {"width": 4, "dash": dash, "mode": "lines+markers", "marker": head}
        traces.append(line(*_screen(walk), PALETTE[colour], name, **look))
    start = _on_sphere(*torch.tensor(START))[None]
    traces.append(dots(*_screen(start), grey, "start", symbol="square"))
    unseen = {"range": [-1.35, 1.35], "visible": False, "constrain": "domain"}
    axes = layout(
        height=470,
        margin={"l": 8, "r": 8, "t": 40, "b": 84},
        title_text=f"arrivals up to {gap:.2f} apart",
        xaxis=unseen,
        yaxis={**unseen, "scaleanchor": "x"},
    )
    where = "at one place" if gap < 0.005 else "at three places"
    return Drawn(
        go.Figure(traces, axes),
        f"A vector on a sphere and two axes {between:g} degrees apart. The vector walks "
        f"{distance:g} radians to the right about one axis and as far up about the other, in both "
        f"orders and straight. It ends {where}, up to {gap:.2f} apart.",
    )


def moving_pair(mixing: float, direction: float) -> Drawn:
    """Draw the scores of three queries and keys that move off together.

    The key stands three patches from its query along the first coordinate.

    Args:
        mixing: How much of a random matrix is added to the second of two commuting generators.
        direction: Where the pairs move, in degrees from the offset.

    Returns:
        A figure with one line a pair.
    """
    generator = torch.Generator().manual_seed(3)
    basis = haar_orthogonal(8, 1, generator=generator, dtype=torch.float64)
    speeds = 0.4 * torch.randn(1, 4, 2, generator=generator, dtype=torch.float64)
    generators = STRING(speeds, basis).generators()[0].detach().clone()
    generators[1] += mixing * skew(torch.randn(28, generator=generator, dtype=torch.float64)) / 8
    tokens = torch.randn(3, 2, 8, generator=generator).double()
    tokens = torch.nn.functional.normalize(tokens, dim=-1)
    angle = torch.deg2rad(torch.tensor(direction).double())
    away = torch.arange(FARTHEST + 1).double()[:, None] * torch.stack([angle.cos(), angle.sin()])
    at_query = liere_matrix(away, generators)
    at_key = liere_matrix(away + torch.tensor([3.0, 0.0]), generators)
    first, second = generators
    part = (first @ second - second @ first).norm() / (first.norm() * second.norm())
    scores = [((at_query @ q) * (at_key @ k)).sum(-1) for q, k in tokens]
    hover = "moved by %{x}: score %{y:.3f}"
    lines = [
        line(None, rounded(score), PALETTE[colour], name, hover=hover)
        for score, (name, colour) in zip(scores, PAIRS.items(), strict=True)
    ]
    drift = max((score.max() - score.min()).item() for score in scores)
    axes = layout(
        height=380,
        margin={"l": 54, "r": 14, "t": 44, "b": 88},
        title_text=f"commutator: {part:.2f} of the product of norms",
        xaxis=axis("distance moved (patches)", 0, FARTHEST),
        yaxis=axis("score", -1.1, 1.1, dtick=0.5),
    )
    ends = ", ".join(f"{score[-1]:.2f}" for score in scores)
    how = "The lines are level" if drift < 1e-9 else "The lines drift and wander"
    return Drawn(
        go.Figure(lines, axes),
        f"Scores of three pairs of tokens that move off at {direction:g} degrees from their "
        f"offset, mixing {mixing:g}, commutator {part:.2f} of the product of norms. {how}; "
        f"{FARTHEST} patches away they are at {ends}.",
    )
