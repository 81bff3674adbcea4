"""Lookups after a long gap: the bytes that a layer keeps, and the values that it retrieves."""

from __future__ import annotations

import plotly.graph_objects as go

from book.figures.marks import axis, dots, line, listed
from book.measures import looked_up
from book.names import display
from lab.explore import COLOURS, PALETTE, Drawn, layout
from lab.theory.spread import mean
from results.lookup import METHODS, kept_bytes

__all__ = ["lookup_frontier"]

HEADS = ("{}", "{}, four heads", "{}, eight heads")
SERIES = {
    "softmax": (["softmax"], COLOURS["softmax"], "circle"),
    "half softmax, half gated delta rule": (
        ["half softmax, half gated delta rule"],
        COLOURS["softmax"],
        "diamond",
    ),
    "half window, half gated delta rule": (
        ["half window, half gated delta rule"],
        COLOURS["softmax"],
        "diamond-open",
    ),
    "window": (["window"], COLOURS["softmax"], "circle-open"),
    "ELU": ([name.format("ELU") for name in HEADS], COLOURS["elu"], "circle"),
    "FAVOR+": (["FAVOR+, m = 32", "FAVOR+, m = 128"], COLOURS["favor"], "circle"),
    "SSD": (["SSD"], COLOURS["ssd"], "square"),
    "GLA": (["GLA"], COLOURS["gla"], "square"),
    "delta rule": ([name.format("delta rule") for name in HEADS], COLOURS["delta"], "triangle-up"),
    "gated delta rule": (
        [name.format("gated delta rule") for name in HEADS[:2]],
        COLOURS["gated-delta"],
        "square",
    ),
}
"""Method → cells of the record, colour and mark."""
GUESS = 1 / 16


def lookup_frontier(distance: int) -> Drawn:
    """Draw the share of values retrieved against the bytes that a layer keeps.

    Args:
        distance: Tokens between the pairs and the questions.

    Returns:
        A figure with a mark for each method, at the best of its rates, and one for each seed.
    """
    right, distance = looked_up(), int(distance)
    traces: list[go.Scatter] = [
        line([1e3, 2e6], [GUESS, GUESS], PALETTE["grey"], "guessing", width=1.5, dash="dot")
    ]
    told = []
    for name, (cells, colour, symbol) in SERIES.items():
        kept = [kept_bytes(distance, **METHODS[cell]) for cell in cells]
        found = [right[f"{cell}, {distance}"] for cell in cells]
        runs = [(x, share) for x, row in zip(kept, found, strict=True) for share in row]
        seeds = dots([x for x, _ in runs], [y for _, y in runs], colour, size=5, opacity=0.4)
        means = [round(mean(row), 3) for row in found]
        marks = dots(
            kept, means, colour, display(name), symbol=symbol, hover="%{x:,} bytes: %{y:.2f} right"
        )
        if len(kept) > 1:
            marks.update(mode="lines+markers", line={"color": colour, "width": 1.5})
        traces += [seeds, marks]
        told.append(
            f"{display(name)} retrieves {listed([f'{x:.2f}' for x in means])} of the values and "
            f"keeps {listed([f'{x:,}' for x in kept])} bytes."
        )
    axes = layout(
        height=500,
        margin={"b": 200},
        title_text=f"{distance:,} tokens between pairs and questions",
        xaxis=axis("bytes that the layer keeps", 3, 6.3, type="log", dtick=1),
        yaxis=axis("share of values retrieved", 0, 1.04),
    )
    return Drawn(
        go.Figure(traces, axes),
        f"A scatter plot shows the share of values retrieved {distance:,} tokens after the pairs, "
        "against the bytes that a layer keeps, on a logarithmic axis. Large marks are the means "
        "of a method, small dots are its seeds, and a line joins the means if there are several. "
        f"A dotted horizontal line marks the share of guessing, {GUESS:.2f}. {' '.join(told)}",
    )
