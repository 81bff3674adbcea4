"""One query, its weights, and what it says with and without a gate."""

from __future__ import annotations

import math

import plotly.graph_objects as go
import torch

from stringlib.explore.style import PALETTE, heading, layout

__all__ = ["gated_query", "gated_query_text"]

KEYS = ("a", "b", "c", "d", "e")
VALUES = [[0.5, 1.0], [1.5, 0.6], [1.3, 1.5], [0.7, 1.8], [1.25, 0.95]]  # away from 0
HULL = [0, 1, 2, 3]  # e lies inside
START_SCORE = 3.0


def _said(
    match: float, first: float, second: float, start: bool
) -> tuple[list[float], list[float], list[float], list[float]]:
    """Return the weights, start token first, the output, the gates and the gated output."""
    scores = [START_SCORE if start else -math.inf, *(0.0 for _ in KEYS)]
    scores[1 + KEYS.index("b")] = match
    weights = torch.tensor(scores, dtype=torch.float64).softmax(0)
    said = weights[1:] @ torch.tensor(VALUES, dtype=torch.float64)  # the start's value is 0
    gates = torch.tensor([first, second], dtype=torch.float64).sigmoid()
    return weights.tolist(), said.tolist(), gates.tolist(), (gates * said).tolist()


def gated_query(match: float, first: float, second: float, start: bool = False) -> go.Figure:
    r"""Draw a query's weights, its two gates, and its output before and after them.

    Five keys have values in the plane, all on one side of 0. Every key scores 0 but for b, and the
    start token, if there, whose value is 0. Without a gate the output is a mean of the values,
    :eq:`eq-convex-hull`; the gate multiplies its two channels, :eq:`eq-gate`.

    Args:
        match: Score of key b.
        first: Pre-activation of the gate of the first channel.
        second: Pre-activation of the gate of the second channel.
        start: Whether there is a start token, of score 3.

    Returns:
        A figure with three panels.
    """
    weights, said, gates, gated = _said(match, first, second, start)
    curve = [u / 4 for u in range(-24, 25)]
    corners = [VALUES[i] for i in HULL] + ([[0.0, 0.0]] if start else [])
    corners = [*corners, corners[0]]
    if not start:
        corners = [corners[0], *corners]  # as many as with a start token
    blue, red = PALETTE["blue"], PALETTE["red"]
    dots = {"size": 11, "line": {"width": 0}}
    fig = go.Figure(
        [
            go.Bar(
                x=["start", *KEYS],
                y=[round(w, 3) for w in weights],
                marker={"color": blue},
            ),
            go.Scatter(
                x=curve,
                y=[round(1 / (1 + math.exp(-u)), 4) for u in curve],
                mode="lines",
                line={"color": PALETTE["grey"], "width": 2},
                xaxis="x2",
                yaxis="y2",
            ),
            go.Scatter(
                x=[first, second],
                y=[round(g, 3) for g in gates],
                mode="markers+text",
                text=["1", "2"],
                textposition=["top left", "bottom right"],
                marker={"color": red, **dots},
                xaxis="x2",
                yaxis="y2",
            ),
            go.Scatter(
                x=[c[0] for c in corners],
                y=[c[1] for c in corners],
                mode="lines",
                fill="toself",
                line={"color": PALETTE["grey"], "width": 1},
                xaxis="x3",
                yaxis="y3",
                hoverinfo="skip",
            ),
            go.Scatter(
                x=[v[0] for v in VALUES],
                y=[v[1] for v in VALUES],
                mode="markers+text",
                text=list(KEYS),
                textposition=[
                    "middle left",
                    "bottom right",
                    "top right",
                    "top center",
                    "bottom left",
                ],
                marker={"color": PALETTE["grey"], "size": 8},
                xaxis="x3",
                yaxis="y3",
            ),
            go.Scatter(
                x=[round(said[0], 3), round(gated[0], 3)],
                y=[round(said[1], 3), round(gated[1], 3)],
                mode="lines+markers",
                line={"color": red, "width": 1.5, "dash": "dot"},
                marker={"color": [blue, red], "symbol": ["circle", "diamond"], "size": 14},
                xaxis="x3",
                yaxis="y3",
            ),
        ]
    )
    fig.update_traces(showlegend=False, hovertemplate="%{x:.2f}, %{y:.2f}<extra></extra>")
    heads = [
        ("weights of the query", "x", "y"),
        ("gates of channels 1 and 2", "x2", "y2"),
        ("output before ● and after ◆ the gate", "x3", "y3"),
    ]
    left, right, low, high = [0, 0.43], [0.57, 1], [0, 0.52], [0.69, 1]
    plane = {"range": [-0.25, 2.15], "constrain": "domain", "dtick": 1, "zerolinewidth": 2}
    return fig.update_layout(
        layout(
            height=620,
            margin={"l": 36, "r": 14, "t": 34, "b": 56},
            xaxis={"domain": left, "anchor": "y"},
            yaxis={"domain": high, "anchor": "x", "range": [0, 1.05], "dtick": 0.5},
            xaxis2={"domain": right, "anchor": "y2", "range": [-6.5, 6.5], "dtick": 3},
            yaxis2={"domain": high, "anchor": "x2", "range": [-0.1, 1.1], "dtick": 0.5},
            xaxis3={"domain": [0, 1], "anchor": "y3", "title": {"text": "channel 1"}, **plane},
            yaxis3={
                "domain": low,
                "anchor": "x3",
                "title": {"text": "channel 2"},
                "scaleanchor": "x3",
                **plane,
            },
            annotations=[
                heading(text, xref=f"{x} domain", yref=f"{y} domain") for text, x, y in heads
            ],
        )
    )


def gated_query_text(match: float, first: float, second: float, start: bool = False) -> str:
    """Say what :func:`gated_query` shows in a state."""
    weights, said, gates, gated = _said(match, first, second, start)
    others = f"{weights[1]:.2f} for each other key"
    begin = f", {weights[0]:.2f} for the start token" if start else ""
    return (
        f"A query whose match with key b scores {match:g}. Its weights are {weights[2]:.2f} for b, "
        f"{others}{begin}. The output before the gate is the point ({said[0]:.2f}, {said[1]:.2f}), "
        f"inside the hull of the values. Gates of {gates[0]:.2f} and {gates[1]:.2f} move it to "
        f"({gated[0]:.2f}, {gated[1]:.2f})."
    )
