"""Two mirrors: a flag, its mirror image, and the image of that, which is the flag turned."""

from __future__ import annotations

import math

import plotly.graph_objects as go
import torch

from book.figures.marks import line, rounded
from lab.explore import PALETTE, Drawn, layout
from stringlib.reference.rope import householder_2d

__all__ = ["two_mirrors"]

FLAG = [[0.0, 0.0], [1.0, 0.0], [0.7, 0.2], [0.7, 0.0]]  # points right, with its cloth to the left
REACH = 1.25  # of the mirrors


def _arc(start: float, end: float, radius: float, text: str, colour: str) -> go.Scatter:
    """Return an arc between two angles in degrees, and a text outside, near its middle."""
    angles = [math.radians(start + (end - start) * k / 12) for k in range(13)]
    x = [radius * math.cos(a) for a in angles]
    y = [radius * math.sin(a) for a in angles]
    outside = 1 + 0.13 / radius
    return line(
        rounded([*x, None, outside * x[5]]),
        rounded([*y, None, outside * y[5]]),
        colour,
        dash="dot",
        text=[*[""] * 14, text],
        mode="lines+text",
    )


def two_mirrors(between: float, first: float = 45.0, point: float = 20.0) -> Drawn:
    r"""Reflect a flag in one mirror, and the image in another, :eq:`eq-reflection-rotation`.

    The first image has its cloth on the other side; the second one is the flag itself, turned by
    twice the angle between the mirrors. All angles are in degrees.

    Args:
        between: Angle from the first mirror to the second.
        first: Angle of the first mirror; the second one moves with it.
        point: Angle of the flag.

    Returns:
        A figure with the two mirrors, the flag, its two images, and arcs with their angles.
    """
    mirrors = torch.deg2rad(torch.tensor([first, first + between], dtype=torch.float64))
    a = math.radians(point)
    turn = torch.tensor([[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]])
    flag = torch.tensor(FLAG, dtype=torch.float64) @ turn.double().mT
    one, two = householder_2d(mirrors + math.pi / 2)  # a normal stands upright on its mirror
    image = flag @ one.mT
    looks = {"first mirror": "solid", "second mirror": "dash"}
    traces = []
    for (name, dash), angle in zip(looks.items(), mirrors.tolist(), strict=True):
        x, y = rounded([REACH * math.cos(angle), REACH * math.sin(angle)])
        traces.append(line([-x, x], [-y, y], PALETTE["brown"], name, dash=dash))
    flags = {
        "flag": (flag, "blue"),
        "after one mirror": (image, "grey"),
        "after both": (image @ two.mT, "red"),
    }
    for name, (corners, colour) in flags.items():
        x, y = rounded(corners.mT)
        traces.append(line(x, y, PALETTE[colour], name, width=4, fill="toself"))
    traces += [
        _arc(first, first + between, 1.1, f"{between:g}°", PALETTE["brown"]),
        _arc(point, point + 2 * between, 0.5, f"{2 * between:g}°", PALETTE["red"]),
    ]
    unseen = {"range": [-1.35, 1.35], "visible": False, "constrain": "domain"}
    axes = layout(
        height=430,
        margin={"l": 8, "r": 8, "t": 40, "b": 76},
        title_text=f"mirrors {between:g}° apart turn the flag by {2 * between:g}°",
        xaxis=unseen,
        yaxis={**unseen, "scaleanchor": "x"},
    )
    return Drawn(
        go.Figure(traces, axes),
        f"A flag at {point:g} degrees and mirrors at {first:g} and {first + between:g} degrees. "
        f"After one mirror the flag stands at {2 * first - point:g} degrees with its cloth on the "
        f"other side. After both it stands at {point + 2 * between:g} degrees, its cloth as at "
        "first.",
    )
