"""Paths on a sphere, planes that two coordinates rotate, and scores of pairs after a shift."""

from __future__ import annotations

import math
from typing import Any

import plotly.graph_objects as go
import torch
from torch import Tensor

from book.figures.marks import axis, circle, dots, line, rounded, through
from lab.explore import PALETTE, Drawn, Panel, computed, layout, panels, pick
from stringlib import STRING
from stringlib.algebra import haar_orthogonal, skew

__all__ = ["moving_pair", "sphere_walks", "turned_planes"]

POINTS = 12  # of a leg
TILT = math.radians(20)  # from how high the sphere is seen
START = (-15.0, -25.0)  # longitude and latitude of the vector, degrees
FARTHEST = 30  # the largest shift of a pair, in patches
PAIRS = {"pair 1": "blue", "pair 2": "orange", "pair 3": "teal"}
TABLE = [[2.0, -8.0], [1.0, -1.0]]  # Ω of A and A³, a row for each plane
ANGLES = ["2 r₁ − 8 r₂", "r₁ − r₂"]  # the same, in words
WALKS = {"right, then up": "blue", "up, then right": "orange", "both at once": "teal"}


def _on_sphere(longitude: Tensor, latitude: Tensor) -> Tensor:
    """Return unit vectors; longitude 0 faces the viewer, angles in degrees."""
    lon, lat = torch.deg2rad(longitude.double()), torch.deg2rad(latitude.double())
    return torch.stack([lon.sin() * lat.cos(), -lon.cos() * lat.cos(), lat.sin()], -1)


def _screen(points: Tensor) -> Tensor:
    """Return what the viewer sees of points ``(n, 3)``, to the right and up: ``(2, n)``."""
    x, y, z = points.unbind(-1)
    return torch.stack([x, y * math.sin(TILT) + z * math.cos(TILT)])


def _axes(between: Tensor) -> Tensor:
    """Return the axes of both rotations: upright, and tilted to the left by ``between`` degrees."""
    lean = between.deg2rad()
    upright = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
    return torch.stack([upright, torch.stack([-lean.sin(), 0 * lean, lean.cos()])])


@computed
def _walks(between: Tensor, distance: Tensor) -> dict[str, Tensor]:
    """Return both axes and the three paths as they are seen, and how far apart those end."""
    axes = _axes(between)
    x, y, z = axes.unbind(-1)
    nought = torch.zeros_like(x)
    turns = torch.stack([nought, -z, y, z, nought, -x, -y, x, nought], -1).view(2, 3, 3)
    start = _on_sphere(*torch.tensor(START))
    steps = distance * torch.arange(POINTS + 1)[:, None, None] / POINTS
    right, up, both = (torch.matrix_exp(steps * turn) for turn in (*turns, turns.sum(0)))
    walks = [
        torch.cat([right @ start, up[1:] @ (right[-1] @ start)]),
        torch.cat([up @ start, right[1:] @ (up[-1] @ start)]),
        both @ start,
    ]
    ends = torch.stack([walk[-1] for walk in walks])
    gap = (ends[:, None] - ends).square().sum(-1).sqrt().amax()  # of the two farthest arrivals
    apart = (gap > 1e-9).double() + (gap >= 0.005).double()
    lines = dict(zip(WALKS, map(_screen, walks), strict=True))
    seen = _screen(torch.cat([-1.25 * axes, 1.25 * axes])).unflatten(-1, (2, 2))
    return {**lines, "axes": seen.permute(2, 0, 1), "gap": gap, "apart": apart}


def sphere_walks(between: float, distance: float) -> Drawn:
    r"""Rotate a vector by :math:`\exp(r_1 L_1 + r_2 L_2)` along three paths to the same position.

    Both generators rotate a sphere, each about its own axis. The paths end at the same point if
    the axes are the same, which in three dimensions is what commuting means.

    Args:
        between: Angle between the axes, in degrees.
        distance: Length of each path, to the right and up, in radians.

    Returns:
        A figure of the sphere, both axes and the three paths.
    """
    found = _walks(between, distance)
    gap = found["gap"]
    rim = torch.linspace(-180, 180, 73).deg2rad()
    grey, brown = PALETTE["grey"], PALETTE["brown"]
    traces = [line(rounded(rim.cos()), rounded(rim.sin()), grey, width=1)]
    for latitude in (-30.0, 0.0, 30.0, 60.0):
        seen = _on_sphere(torch.linspace(-90, 90, 37), torch.full((37,), latitude))
        traces.append(through(rounded(_screen(seen)), grey, width=1, dash="dot"))
    named = {"axis of L₁ (right)": "solid", "axis of L₂ (up)": "dash"}
    for ends, (name, dash) in zip(found["axes"], named.items(), strict=True):
        traces.append(through(ends, brown, name, width=2, dash=dash))
    for name, colour in WALKS.items():
        sizes = [0] * (len(found[name][0]) - 1) + [13]  # a dot at the end alone
        head = {"size": sizes, "color": PALETTE[colour], "opacity": 1, "line": {"width": 0}}
        dash = "dot" if name.startswith("right") else "solid"
        look: dict[str, Any] = {"width": 4, "dash": dash, "mode": "lines+markers", "marker": head}
        traces.append(through(found[name], PALETTE[colour], name, **look))
    start = _on_sphere(*torch.tensor(START))[None]
    x, y = rounded(_screen(start))
    traces.append(dots(x, y, grey, "start", symbol="square"))
    unseen = {"range": [-1.35, 1.35], "visible": False, "constrain": "domain"}
    axes = layout(
        height=470,
        margin={"l": 8, "r": 8, "t": 40, "b": 84},
        title_text=f"end points: at most {gap:.2f} apart",
        xaxis=unseen,
        yaxis={**unseen, "scaleanchor": "x"},
    )
    where = pick(
        found["apart"], "at the same point", "almost at the same point", "at different points"
    )
    return Drawn(
        go.Figure(traces, axes),
        "A diagram shows paths of a vector on a sphere that is rotated about two axes. The axes "
        f"are drawn as a solid and a dashed line, with an angle of {between:g} degrees between "
        "them. One rotation moves the vector to the right, and the other moves it up, both by "
        f"{distance:g} radians. A square marks the start, and a dot marks the end of each path. "
        "The dotted path leads first right and then up. Of the two solid paths, one leads first "
        "up and then right, and the other leads in both directions at once. The three paths end "
        f"{where}. The largest distance between two of their end points is {gap:.2f}.",
    )


@computed
def _moved(mixing: Tensor, direction: Tensor) -> dict[str, Tensor]:
    """Return the scores of the shifted pairs, and the relative size of the commutator."""
    generator = torch.Generator().manual_seed(3)
    basis = haar_orthogonal(8, 1, generator=generator, dtype=torch.float64)
    omega = 0.4 * torch.randn(1, 4, 2, generator=generator, dtype=torch.float64)
    first, second = STRING(omega, basis).generators()[0].detach().clone()
    second = second + mixing * skew(torch.randn(28, generator=generator, dtype=torch.float64)) / 8
    tokens = torch.randn(3, 2, 8, generator=generator).double()
    q, k = torch.nn.functional.normalize(tokens, dim=-1).unbind(1)
    angle = torch.deg2rad(direction)
    away = torch.arange(FARTHEST + 1).double()[:, None, None]
    step = angle.cos() * first + angle.sin() * second
    at_query, at_key = (torch.matrix_exp(away * step + start * first) for start in (0.0, 3.0))
    scores = ((at_query @ q.mT) * (at_key @ k.mT)).sum(-2).mT
    drift = (scores.amax(-1) - scores.amin(-1)).amax()
    size = first.square().sum().sqrt() * second.square().sum().sqrt()
    return {
        "scores": scores,
        "part": (first @ second - second @ first).square().sum().sqrt() / size,
        "drifts": (drift > 1e-9).double(),
        "ends": torch.stack([scores[:, -1].amin(), scores[:, -1].amax()]),
    }


def moving_pair(mixing: float, direction: float) -> Drawn:
    """Draw the scores of three pairs of a query and a key that are shifted together.

    The key is three patches from its query along the first coordinate.

    Args:
        mixing: How much of a random matrix is added to the second of two commuting generators.
        direction: Direction of the shift, in degrees from the offset.

    Returns:
        A figure with one line per pair.
    """
    found = _moved(mixing, direction)
    scores, part = found["scores"], found["part"]
    hover = "shifted by %{x}: score %{y:.3f}"
    lines = [
        line(None, score, PALETTE[colour], name, hover=hover)
        for score, (name, colour) in zip(scores, PAIRS.items(), strict=True)
    ]
    axes = layout(
        height=380,
        margin={"l": 54, "r": 14, "t": 44, "b": 88},
        title_text=f"norm of the commutator / product of norms: {part:.2f}",
        xaxis=axis("shift of query and key (patches)", 0, FARTHEST),
        yaxis=axis("score", -1.1, 1.1, dtick=0.5),
    )
    least, most = found["ends"]
    how = pick(found["drifts"], "do not change with the shift", "change with the shift")
    return Drawn(
        go.Figure(lines, axes),
        "A line chart shows the scores of three pairs of a query and a key against the shift of "
        f"both, from 0 to {FARTHEST} patches. There is one line for each pair. The shift has an "
        f"angle of {direction:g} degrees to the offset. The value of mixing is {mixing:g}, and "
        f"the norm of the commutator is {part:.2f} times the product of the norms of the "
        f"generators. The three scores {how}. After a shift of {FARTHEST} patches the lowest "
        f"score is {least:.2f}, and the highest score is {most:.2f}.",
    )


@computed
def _planes(first: Tensor, second: Tensor) -> dict[str, Tensor]:
    """Return the angle of each plane, the hand there, and the arc that it has swept."""
    angles = torch.tensor(TABLE, dtype=torch.float64) @ torch.stack([first, second])
    swept = angles[:, None] * torch.arange(61).double() / 60
    arcs = (0.4 + swept.abs() / 60)[:, None] * torch.stack([swept.cos(), swept.sin()], 1)
    return {"angles": angles, "hands": torch.stack([angles.cos(), angles.sin()], -1), "arcs": arcs}


def turned_planes(first: float, second: float) -> Drawn:
    """Draw two planes of a STRING with two coordinates: :eq:`eq-string`, its Ω the example's.

    Args:
        first: r₁, the coordinate of A.
        second: r₂, that of A³.

    Returns:
        A figure with a dial for each plane.
    """
    found = _planes(first, second)
    unseen = axis(low=-1.1, high=1.1, visible=False)
    dials = []
    for name, angle, (x, y), arc in zip(
        ANGLES, found["angles"], found["hands"], found["arcs"], strict=True
    ):
        hand: dict[str, Any] = {"mode": "lines+markers", "marker": {"size": [0, 11], "opacity": 1}}
        dials.append(
            Panel(
                [
                    line([0, 1], [0, 0], PALETTE["grey"], width=1.5, dash="dot"),
                    through(arc, PALETTE["teal"], width=1.5),
                    line([0, x], [0, y], PALETTE["blue"], width=4, **hand),
                ],
                f"{name} = {angle:.2f}",
                x=unseen,
                y=unseen,
                shapes=[circle()],
                square=True,
            )
        )
    fig = panels(dials, height=300, margin={"l": 8, "r": 8, "t": 64, "b": 12})
    fig.update_layout(title_text=f"at the position ({first:g}, {second:g})")
    one, two = found["angles"]
    return Drawn(
        fig,
        "A diagram of two dials shows the angles by which two planes are rotated. Each dial is a "
        "circle with a dotted line for the angle 0, a hand, and the arc that the hand has swept "
        f"from the position (0, 0) to the position ({first:g}, {second:g}). There the angle of "
        f"the first plane, {ANGLES[0]}, is {one:.2f} radians. The angle of the second plane, "
        f"{ANGLES[1]}, is {two:.2f} radians.",
    )
