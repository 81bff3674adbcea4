"""Output of a query with and without a gate, what sinks and gates depend on, runs with both."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
import torch
from torch import Tensor

from book.figures.marks import axis, bars, dots, line, rounded, through
from book.names import display, wrapped
from lab.explore import COLOURS, PALETTE, Drawn, Panel, computed, layout, panels, pick

__all__ = ["KINDS", "gate_and_sink", "gated_query", "gated_runs", "gated_token", "sink_of_keys"]

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
    begin = f" The start token gets the weight {weights[0]:.2f}." if start else ""
    hull = "the values and of the start token's value 0" if start else "the five values"
    return Drawn(
        fig,
        "Three panels show the output of a query with a gate. The upper left panel is a bar "
        f"chart of the attention weights of the query, whose score is {match:g} with key b and 0 "
        f"with each of the four other keys. Key b gets the weight {weights[2]:.2f}, and each of "
        f"the four other keys gets the weight {weights[1]:.2f}.{begin} The upper right panel is a "
        "line chart of a sigmoid. Two dots on its curve are the gates of channels 1 and 2, which "
        f"are {gates[0]:.2f} and {gates[1]:.2f}. The lower panel is the plane of the two channels "
        f"with dots for the values of the five keys and the convex hull of {hull}. A circle in "
        f"the hull at ({path[0][0]:.2f}, {path[1][0]:.2f}) is the output before the gates. A "
        "dotted line leads from the circle to the output after the gates, a diamond at "
        f"({path[0][1]:.2f}, {path[1][1]:.2f}).",
    )


COUNTS = [round(10 ** (i / 10)) for i in range(51)]


@computed
def _sunk(score: Tensor) -> dict[str, Tensor]:
    """Return the gate of a sink for all numbers of keys, and for 5 and 10,000."""
    counts = torch.tensor([*COUNTS, 5, 10_000], dtype=torch.float64)
    gates = (counts.log() - score).sigmoid()
    return {"gates": gates[:-2], "marked": gates[-2:]}


def sink_of_keys(score: float) -> Drawn:
    """Draw the gate that a sink is, :eq:`eq-sink`, against the number of keys, all of score 0.

    Args:
        score: Of the sink.

    Returns:
        A figure of one line; two numbers of keys are marked.
    """
    found = _sunk(score)
    few, many = found["marked"]
    drawn = [
        line(COUNTS, found["gates"], PALETTE["blue"], hover="%{x} keys: %{y:.3f}"),
        dots([5, 10_000], found["marked"], PALETTE["red"]),
    ]
    axes = layout(
        height=340,
        title_text=f"weight of 5 keys: {few:.2f}; of 10,000 keys: {many:.2f}",
        xaxis=axis("number of keys", 0, 5, type="log", dtick=1),
        yaxis=axis("total weight of the keys", -0.03, 1.05),
    )
    return Drawn(
        go.Figure(drawn, axes),
        "A line chart shows the total softmax weight of the keys against the number of keys, "
        "from 1 to 100,000 on a logarithmic axis, if every key has score 0 and a sink has score "
        f"{score:g}. The line rises. Two dots mark the total weight of 5 keys, which is "
        f"{few:.2f}, and that of 10,000 keys, which is {many:.2f}.",
    )


INPUTS = [round(0.1 * i, 1) for i in range(-30, 31)]


@computed
def _token(weight: Tensor) -> dict[str, Tensor]:
    """Return a gated number, its even part, its sum with the opposite one's at 1; 1 if bent."""
    x = torch.tensor(INPUTS, dtype=torch.float64)
    return {
        "said": (weight * x).sigmoid() * x,
        "even": x * (weight * x / 2).tanh() / 2,
        "sum": (weight / 2).tanh(),
        "bent": (weight > 0).double(),
    }


def gated_token(weight: float) -> Drawn:
    """Draw the output of a gated layer for a single token of one channel.

    Args:
        weight: That of the gate; the value is the token itself.

    Returns:
        A figure of three lines.
    """
    found = _token(weight)
    blue, grey, red = PALETTE["blue"], PALETTE["grey"], PALETTE["red"]
    drawn = [
        line(INPUTS, [x / 2 for x in INPUTS], grey, "x/2 (gate always ½)", dash="dash", width=2),
        line(INPUTS, found["said"], blue, "f(x)", hover="%{x}: %{y:.2f}"),
        line(INPUTS, found["even"], red, "(f(x) + f(−x)) / 2", width=2, hover="%{x}: %{y:.2f}"),
    ]
    total = found["sum"]
    shape = pick(
        found["bent"],
        "coincides with the dashed line, and its even part is 0 for every token.",
        "touches the dashed line at 0 and lies above this line for every other token. A third "
        "curve is the even part of the output, by which the output exceeds x/2.",
    )
    axes = layout(
        height=380,
        title_text=f"f(1) + f(−1) = {total:.2f}",
        xaxis=axis("token x", -3, 3, dtick=1),
        yaxis=axis(low=-1.6, high=3.1, dtick=1),
    )
    return Drawn(
        go.Figure(drawn, axes),
        "A line chart shows the output of a gated layer against a single token x of one channel, "
        f"from -3 to 3. The weight of the gate is {weight:g}. A dashed straight line shows x/2, "
        f"the output for a gate that is always one half. The curve of the output {shape} The "
        f"outputs for the tokens 1 and -1 sum to {total:.2f}. For a linear map this sum is 0.",
    )


SCORES = [round(0.2 * i, 1) for i in range(-10, 51)]


@computed
def _loud(sink: Tensor, gate: Tensor) -> dict[str, Tensor]:
    """Return the factors of a sink and of a gate, against the best key's score among eight."""
    best = torch.tensor([*SCORES, 0.0, 8.0], dtype=torch.float64)
    all_keys = (best.exp() + 7).log()
    sunk, gated = (all_keys - sink).sigmoid(), gate.sigmoid() + 0 * best
    return {
        "sunk": sunk[:-2],
        "gated": gated[:-2],
        "both": (sunk * gated)[:-2],
        "at": sunk[-2:],
        "gate": gated[0],
    }


def gate_and_sink(sink: float, gate: float) -> Drawn:
    """Draw by what a sink and a gate multiply the output, against the score of the best key.

    The other seven of the eight keys score 0. The sink is that of :eq:`eq-sink`, the gate that of
    :eq:`eq-gate`.

    Args:
        sink: Score of the sink.
        gate: Pre-activation of the gate, computed from the query's token.

    Returns:
        A figure of three lines.
    """
    found = _loud(sink, gate)
    blue, red, grey = PALETTE["blue"], PALETTE["red"], PALETTE["grey"]
    hover = "score %{x}: %{y:.2f}"
    drawn = [
        line(SCORES, found["sunk"], blue, "sink", hover=hover),
        line(SCORES, found["gated"], red, "gate", hover=hover),
        line(SCORES, found["both"], grey, "sink and gate", dash="dash", width=2, hover=hover),
    ]
    (low, high), through_gate = found["at"], found["gate"]
    axes = layout(
        height=360,
        title_text=f"sink: {low:.2f} at score 0, {high:.2f} at score 8; gate: {through_gate:.2f}",
        xaxis=axis("score of the best key", -2, 10, dtick=2),
        yaxis=axis("factor of the output", -0.03, 1.05),
    )
    return Drawn(
        go.Figure(drawn, axes),
        "A line chart shows factors that multiply the output of a head against the score of the "
        f"best of eight keys, from -2 to 10. The line of a sink of score {sink:g} rises with this "
        f"score. Its factor is {low:.2f} at score 0, where no key matches, and {high:.2f} at "
        f"score 8. The line of the gate is horizontal at {through_gate:.2f}. A dashed line shows "
        "the product of both factors.",
    )


KINDS = ("match", "no match", "mute")
RUNS_OF = {
    "softmax": (display("softmax"), "softmax"),
    "relu": (display("relu"), "relu"),
    "c-cosgate": (display("c-cosgate"), "favor-circulant"),
    "c-cosgate, ramp": (display("c-cosgate, ramp"), "ramp-squared"),
}  # attention in the record -> its name on the axis, the method that has its colour
MARKS = {"none": "square-open", "headwise": "circle", "elementwise": "diamond"}
LEAST = 1e-5

Seeds = Mapping[tuple[str, str, bool], Mapping[str, Sequence[Sequence[float]]]]
"""Attention, gate and start token → what was measured → a row per seed, a column per kind."""


def gated_runs(kind: str, start: bool, *, recorded: Seeds) -> Drawn:
    """Draw the errors of one kind of queries, and their weight on the start token.

    Args:
        kind: One of ``KINDS``.
        start: Whether the queries attend to a start token.
        recorded: The errors and the weights of all runs.

    Returns:
        A figure with two panels; a mark is a mean, a line is the range over the seeds.
    """
    grey, column = PALETTE["grey"], KINDS.index(kind)
    legend = [
        dots([None], [None], grey, f"{gate} gate".replace("none", "no"), size=9, symbol=symbol)
        for gate, symbol in MARKS.items()
    ]
    rows: dict[str, list[Any]] = {"error": [], "start": []}
    means: dict[str, dict[str, list[float]]] = {what: {a: [] for a in RUNS_OF} for what in rows}
    for what, least in (("error", LEAST), ("start", 0.0)):
        for side, (gate, symbol) in zip((-0.24, 0, 0.24), MARKS.items(), strict=True):
            seeds = [
                [max(seed[column], least) for seed in recorded[attention, gate, start][what]]
                for attention in RUNS_OF
            ]
            mean = [math.fsum(some) / len(some) for some in seeds]
            ends = {
                "array": [max(some) - m for some, m in zip(seeds, mean, strict=True)],
                "arrayminus": [m - min(some) for some, m in zip(seeds, mean, strict=True)],
                "color": grey,
                "thickness": 1.5,
                "width": 0,
            }
            colours = [COLOURS[method] for _, method in RUNS_OF.values()]
            at = [place + side for place in range(len(RUNS_OF))]
            rows[what].append(
                dots(at, mean, colours, size=10, symbol=symbol, error_y=ends,
                     marker_line_width=2 if gate == "none" else 0,
                     hover=f"{gate} gate: %{{y:.4f}}".replace("none", "no"))
            )  # fmt: skip
            for attention, value in zip(RUNS_OF, mean, strict=True):
                means[what][attention].append(value)
    x: dict[str, Any] = axis(None, -0.5, len(RUNS_OF) - 0.5, tickvals=list(range(len(RUNS_OF))),
                             showgrid=False, zeroline=False)  # fmt: skip
    names = [wrapped(name, 14) for name, _ in RUNS_OF.values()]
    sight = "a start token" if start else "no start token"
    fig = panels(
        Panel(
            [*legend, *rows["error"]],
            f"squared error: {kind}, {sight}",
            x={**x, "showticklabels": False},
            y=axis(None, math.log10(LEAST) - 0.2, 0.2, type="log", dtick=1, exponentformat="power"),
        ),
        Panel(
            rows["start"],
            "weight on the start token",
            x={**x, "ticktext": names},
            y=axis(None, -0.16, 1.16, dtick=0.5),
        ),
        heights=(0.62, 0.24),
        down=0.12,
        height=460,
        margin={"l": 46, "r": 14, "t": 30, "b": 84},
    )

    def errors(attention: str) -> str:
        plain, headwise, elementwise = means["error"][attention]
        name = RUNS_OF[attention][0]
        return (
            f"The mean error of {name} without a gate is {plain:.4f}. The mean error of {name} "
            f"is {headwise:.4f} with a headwise gate and {elementwise:.4f} with an elementwise one."
        )

    weights = [value for of_gates in means["start"].values() for value in of_gates]
    below = (
        "The lower plot shows attention weights on the start token, whose means lie "
        f"between {min(weights):.2f} and {max(weights):.2f}."
        if start
        else "In the lower plot all attention weights on the start token are 0, because there is "
        "no start token."
    )
    return Drawn(
        fig,
        f"Two dot plots show queries of the kind “{kind}” in runs with {sight}, in a column for "
        "each of four kinds of attention. A column has three marks: a hollow square without a "
        "gate, a dot with a headwise gate and a diamond with an elementwise gate. A mark is the "
        "mean over the seeds, and a vertical line is their range. The upper plot shows the "
        f"squared error on a logarithmic axis. {' '.join(map(errors, RUNS_OF))} {below}",
    )
