"""Ptolemy's theorem as the cosine weight: two products of sides add up to a diagonal."""

from __future__ import annotations

import math

import plotly.graph_objects as go

from stringlib.explore.style import COLOURS, PALETTE, heading, layout

__all__ = ["ptolemy_circle", "ptolemy_circle_text"]

COSINES, SINES, WEIGHT = PALETTE["orange"], PALETTE["blue"], COLOURS["cosine"]
Point = tuple[float, float]


def _angle(name: str, position: float, horizon: int) -> float:
    if not 0 <= position <= horizon:
        raise ValueError(f"{name} must lie between 0 and the horizon {horizon}, got {position}")
    return math.pi / 2 * position / horizon


def _corners(a: float, b: float) -> dict[str, Point]:
    """Return the corners, on the circle of diameter 1: AB = cos a, CD = cos b, AC = 1."""
    return {
        "A": (-0.5, 0.0),
        "B": (math.cos(2 * a) / 2, math.sin(2 * a) / 2),  # sees AC at a right angle
        "C": (0.5, 0.0),
        "D": (-math.cos(2 * b) / 2, -math.sin(2 * b) / 2),  # opposite to the point of the key
    }


def _lines(
    corners: dict[str, Point], pairs: str, name: str, colour: str, width: float
) -> go.Scatter:
    """Return one trace of line segments, for instance ``pairs="AB CD"``."""
    x: list[float | None] = []
    y: list[float | None] = []
    for one, other in map(tuple, pairs.split()):
        x += [corners[one][0], corners[other][0], None]
        y += [corners[one][1], corners[other][1], None]
    line = {"color": colour, "width": width}
    return go.Scatter(x=x, y=y, mode="lines", name=name, line=line, hoverinfo="skip")


def ptolemy_circle(query: float, key: float, horizon: int = 12) -> go.Figure:
    r"""Draw the quadrilateral of a query and a key above the weights of all keys.

    On a circle of diameter 1 the position i of the query puts B at the angle
    :math:`2a = \pi i/M` above the diameter AC, the position j of the key puts D
    opposite to the angle :math:`2b`.  Then AB and CD are the cosines of a and b,
    BC and AD their sines, and BD is :math:`\cos(a-b)`: the cosine weight.

    Args:
        query: Position i, from 0 to the horizon.
        key: Position j, from 0 to the horizon.
        horizon: M.

    Returns:
        A figure with two panels. One is the circle, the other shows for each key the two
        products as areas on top of each other.

    Raises:
        ValueError: If a position lies outside.
    """
    a, b = _angle("query", query, horizon), _angle("key", key, horizon)
    corners = _corners(a, b)
    keys = [horizon * step / 48 for step in range(49)]
    angles = [_angle("key", j, horizon) for j in keys]
    first = [math.cos(a) * math.cos(x) for x in angles]
    whole = [math.cos(a - x) for x in angles]
    below = {"xaxis": "x2", "yaxis": "y2", "showlegend": False, "mode": "lines"}
    weight = math.cos(a - b)
    # letters stand outside of the circle
    rim = {name: (1.17 * x, 1.17 * y) for name, (x, y) in corners.items()}
    fig = go.Figure(
        [
            _lines(corners, "AC", "AC = 1", PALETTE["grey"], 1.5),
            _lines(corners, "AB CD", "AB, CD: cosines", COSINES, 4),
            _lines(corners, "BC AD", "BC, AD: sines", SINES, 4),
            _lines(corners, "BD", "BD: the weight", WEIGHT, 4),
            go.Scatter(
                x=[x for x, _ in rim.values()],
                y=[y for _, y in rim.values()],
                text=["A", "B (query)", "C", "D (key)"],
                mode="text",
                showlegend=False,
                hoverinfo="skip",
            ),
            go.Scatter(
                x=keys, y=first, fill="tozeroy", line={"color": COSINES, "width": 1}, **below
            ),
            go.Scatter(x=keys, y=whole, fill="tonexty", line={"color": SINES, "width": 1}, **below),
            go.Scatter(
                x=[key, key],
                y=[0, weight],
                xaxis="x2",
                yaxis="y2",
                mode="lines+markers",
                line={"color": WEIGHT, "width": 4},
                marker={"size": [0, 12], "opacity": 1, "line": {"width": 0}},
                showlegend=False,
                hoverinfo="skip",
            ),
        ]
    )
    fig.update_traces(
        hovertemplate="key %{x:.1f}: %{y:.2f}<extra></extra>",
        selector={"xaxis": "x2", "mode": "lines"},
    )
    parts = math.cos(a) * math.cos(b), math.sin(a) * math.sin(b)
    heads = [
        (f"AB·CD + BC·AD = {parts[0]:.2f} + {parts[1]:.2f} = BD = {weight:.2f}", 1),
        (f"weight of each key for the query at {query:g}", 0.34),
    ]
    return fig.update_layout(
        layout(
            height=600,
            margin={"l": 44, "r": 14, "t": 34, "b": 96},
            xaxis={"range": [-0.72, 0.72], "visible": False, "constrain": "domain"},
            yaxis={
                "range": [-0.64, 0.64],
                "domain": [0.44, 1],
                "visible": False,
                "scaleanchor": "x",
                "constrain": "domain",
            },
            xaxis2={
                "range": [0, horizon],
                "anchor": "y2",
                "dtick": 2,
                "title": {"text": f"position of the key (horizon M = {horizon})", "standoff": 6},
            },
            yaxis2={"range": [0, 1.1], "domain": [0, 0.34], "anchor": "x2", "dtick": 0.5},
            shapes=[
                {
                    "type": "circle",
                    "x0": -0.5,
                    "x1": 0.5,
                    "y0": -0.5,
                    "y1": 0.5,
                    "line": {"width": 1},
                }
            ],
            annotations=[heading(text, y=y) for text, y in heads],
        )
    )


def ptolemy_circle_text(query: float, key: float, horizon: int = 12) -> str:
    """Say what :func:`ptolemy_circle` shows in a state."""
    a, b = _angle("query", query, horizon), _angle("key", key, horizon)
    return (
        f"A circle of diameter 1 with a quadrilateral ABCD, AC a diameter. B stands for the query "
        f"at position {query:g}, D for the key at position {key:g}, with a horizon of {horizon}. "
        f"The sides AB = {math.cos(a):.2f} and CD = {math.cos(b):.2f} are cosines, "
        f"BC = {math.sin(a):.2f} and AD = {math.sin(b):.2f} sines; "
        f"the diagonal BD = {math.cos(a - b):.2f} is the weight. Below, the weight of every key "
        f"as the sum of the two products, largest at {query:g}."
    )
