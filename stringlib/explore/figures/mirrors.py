"""Two mirrors: a flag, its mirror image, and the image of that, which is the flag turned."""

from __future__ import annotations

import math

import plotly.graph_objects as go
import torch

from stringlib.explore.style import PALETTE, layout
from stringlib.reference.rope import householder_2d

__all__ = ["two_mirrors", "two_mirrors_text"]

FLAG = [[0.0, 0.0], [1.0, 0.0], [0.7, 0.2], [0.7, 0.0]]  # points right, with its cloth to the left
REACH = 1.25  # of the mirrors


def _arc(start: float, end: float, radius: float, text: str, colour: str) -> go.Scatter:
    """Return an arc between two angles in degrees, and a text outside, near its middle."""
    angles = [math.radians(start + (end - start) * k / 12) for k in range(13)]
    x = [round(radius * math.cos(a), 3) for a in angles]
    y = [round(radius * math.sin(a), 3) for a in angles]
    outside = 1 + 0.13 / radius
    return go.Scatter(
        x=[*x, None, round(outside * x[5], 3)],
        y=[*y, None, round(outside * y[5], 3)],
        text=[*[""] * 14, text],
        mode="lines+text",
        line={"color": colour, "width": 2.5, "dash": "dot"},
        showlegend=False,
    )


def two_mirrors(between: float, first: float = 45.0, point: float = 20.0) -> go.Figure:
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
    shapes = [
        ("flag", flag, "blue"),
        ("after one mirror", image, "grey"),
        ("after both", image @ two.mT, "red"),
    ]
    fig = go.Figure()
    for name, angle, dash in zip(
        ("first mirror", "second mirror"), mirrors.tolist(), ("solid", "dash"), strict=True
    ):
        x, y = round(REACH * math.cos(angle), 3), round(REACH * math.sin(angle), 3)
        line = {"color": PALETTE["brown"], "width": 2.5, "dash": dash}
        fig.add_scatter(x=[-x, x], y=[-y, y], mode="lines", line=line, name=name)
    for name, corners, colour in shapes:
        fig.add_scatter(
            x=[round(x, 3) for x in corners[:, 0].tolist()],  # a thousandth is below a pixel
            y=[round(y, 3) for y in corners[:, 1].tolist()],
            mode="lines",
            fill="toself",
            line={"color": PALETTE[colour], "width": 4},
            name=name,
        )
    fig.add_trace(_arc(first, first + between, 1.1, f"{between:g}°", PALETTE["brown"]))
    fig.add_trace(_arc(point, point + 2 * between, 0.5, f"{2 * between:g}°", PALETTE["red"]))
    fig.update_traces(hoverinfo="skip")
    axis = {"range": [-1.35, 1.35], "visible": False, "constrain": "domain"}
    title = f"mirrors {between:g}° apart turn the flag by {2 * between:g}°"
    return fig.update_layout(
        layout(
            height=430,
            margin={"l": 8, "r": 8, "t": 40, "b": 76},
            title_text=title,
            xaxis=axis,
            yaxis={**axis, "scaleanchor": "x"},
        )
    )


def two_mirrors_text(between: float, first: float = 45.0, point: float = 20.0) -> str:
    """Say what :func:`two_mirrors` shows in a state."""
    image = 2 * first - point
    return (
        f"A flag at {point:g} degrees and mirrors at {first:g} and {first + between:g} degrees. "
        f"After one mirror the flag stands at {image:g} degrees with its cloth on the other side. "
        f"After both it stands at {point + 2 * between:g} degrees, its cloth as at first."
    )
