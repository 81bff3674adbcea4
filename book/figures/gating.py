"""One query, its weights, and what it says with and without a gate."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from book.figures.marks import axis, bars, dots, line, rounded, through
from lab.explore import PALETTE, Drawn, Panel, computed, panels

__all__ = ["gated_query"]

KEYS = ("a", "b", "c", "d", "e")
VALUES = [[0.5, 1.0], [1.5, 0.6], [1.3, 1.5], [0.7, 1.8], [1.25, 0.95]]  # away from 0
HULL = [0, 1, 2, 3]  # e lies inside
START_SCORE = 3.0


@computed
def _said(match: Tensor, first: Tensor, second: Tensor, start: bool) -> dict[str, Tensor]:
    """Return the weights, start token first, the output, the gates and the gated output."""
    others = torch.zeros(len(KEYS), dtype=torch.float64)
    others[KEYS.index("b")] = 1
    begin = torch.tensor([START_SCORE if start else -math.inf], dtype=torch.float64)
    weights = torch.cat([begin, match * others]).softmax(0)
    said = weights[1:] @ torch.tensor(VALUES, dtype=torch.float64)  # the start's value is 0
    gates = torch.stack([first, second]).sigmoid()
    path = torch.stack([said, gates * said], -1)
    return {"weights": weights, "gates": gates, "path": path}


def gated_query(match: float, first: float, second: float, start: bool = False) -> Drawn:
    r"""Draw a query's weights, its two gates, and its output before and after them.

    Five keys have values in the plane, all on one side of 0. Every key scores 0 but for b, and the
    start token, if there, whose value is 0: a sink, :eq:`eq-sink`. Without a gate the output is a
    mean of the values, :eq:`eq-convex-hull`; the gate multiplies its two channels, :eq:`eq-gate`.

    Args:
        match: Score of key b.
        first: Pre-activation of the gate of the first channel.
        second: Pre-activation of the gate of the second channel.
        start: Whether there is a start token, of score 3.

    Returns:
        A figure with three panels.
    """
    found = _said(match, first, second, start)
    weights, gates, path = found["weights"], found["gates"], found["path"]
    blue, red, grey = PALETTE["blue"], PALETTE["red"], PALETTE["grey"]
    hover = "%{x:.2f}, %{y:.2f}"
    shares = bars(["start", *KEYS], weights, blue, hover=hover)
    curve = [u / 4 for u in range(-24, 25)]
    sigmoid = [1 / (1 + math.exp(-u)) for u in curve]
    at = ["top left", "bottom right"]
    channels = dots(
        [first, second], gates, red, size=11, text=["1", "2"], textposition=at, hover=hover
    )
    corners = [VALUES[i] for i in HULL] + ([[0.0, 0.0]] if start else [])
    corners = [*corners, corners[0]]
    if not start:
        corners = [corners[0], *corners]  # as many as with a start token
    outline = line([x for x, _ in corners], [y for _, y in corners], grey, width=1, fill="toself")
    values = dots(
        [x for x, _ in VALUES],
        [y for _, y in VALUES],
        grey,
        size=8,
        text=list(KEYS),
        textposition=["middle left", "bottom right", "top right", "top center", "bottom left"],
        hover=hover,
    )
    ends = {"color": [blue, red], "symbol": ["circle", "diamond"], "size": 14}
    output = through(
        path,
        red,
        width=1.5,
        dash="dot",
        mode="lines+markers",
        marker=ends,
        hover=hover,
    )
    plane: dict[str, Any] = {"range": [-0.25, 2.15], "dtick": 1, "zerolinewidth": 2}
    fig = panels(
        [
            Panel([shares], "weights of the query", y=axis(low=0, high=1.05, dtick=0.5)),
            Panel(
                [line(curve, rounded(sigmoid, 4), grey, width=2, hover=hover), channels],
                "gates of channels 1 and 2",
                x=axis(low=-6.5, high=6.5, dtick=3),
                y=axis(low=-0.1, high=1.1, dtick=0.5),
            ),
        ],
        Panel(
            [outline, values, output],
            "output before ● and after ◆ the gate",
            x=axis("channel 1", **plane),
            y=axis("channel 2", **plane),
            square=True,
        ),
        heights=(0.31, 0.52),
        across=0.14,
        down=0.17,
        height=620,
        margin={"l": 36, "r": 14, "t": 34, "b": 56},
    )
    others = f"{weights[1]:.2f} for each other key"
    begin = f", {weights[0]:.2f} for the start token" if start else ""
    return Drawn(
        fig,
        f"A query whose match with key b scores {match:g}. Its weights are {weights[2]:.2f} for b, "
        f"{others}{begin}. The output before the gate is the point ({path[0][0]:.2f}, "
        f"{path[1][0]:.2f}), inside the hull of the values. Gates of {gates[0]:.2f} and "
        f"{gates[1]:.2f} move it to "
        f"({path[0][1]:.2f}, {path[1][1]:.2f}).",
    )
