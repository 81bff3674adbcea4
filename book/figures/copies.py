"""Repeated text: bits per byte of a second copy, by attention, key and a head of softmax."""

from __future__ import annotations

import plotly.graph_objects as go

from book import names
from book.cells import coloured
from book.figures.marks import axis, dots, line
from book.measures import copied
from lab.explore import COLOURS, Drawn, layout
from lab.theory.spread import mean
from results.copy_rates import BESIDE, KINDS, METHODS, PERIODS

__all__ = ["LAYERS", "STEPS", "copied_pieces", "drawn_as"]

LAYERS = {
    "keys of one byte": "{}, alone",
    "keys of two bytes": "{}, with the one before",
    "a head of softmax": f"{{}} {BESIDE}, alone",
}
"""What is drawn → the cell of a kind of attention."""
STEPS = ("400", "800", "1,200")


def drawn_as(cell: str) -> str:
    """Return the method whose colour a cell of the study has."""
    return coloured(cell, "copy_distance")


def copied_pieces(layer: str, step: str) -> Drawn:
    """Draw the bits per byte of the second copy of a piece, against the length of the piece.

    Args:
        layer: One of ``LAYERS``.
        step: Training steps after which the model is tested: one of ``STEPS``.

    Returns:
        A figure with a line for each kind of attention, and a dot for each seed.
    """
    found = copied(STEPS.index(step) + 1)
    traces, ends = [], {}
    for kind in KINDS:
        cell = LAYERS[layer].format(kind)
        if cell not in METHODS:  # softmax beside softmax
            cell = f"{kind}, alone"
        runs = [found[f"{cell}, {period}"] for period in PERIODS]
        means = [round(mean(row), 3) for row in runs]
        places = [period for period, row in zip(PERIODS, runs, strict=True) for _ in row]
        seeds = [round(bits, 3) for row in runs for bits in row]
        name, colour = names.display(kind), COLOURS[names.drawn_as(kind)]
        dash = "dot" if kind.startswith("simplex") else None  # FAVOR+ has its colour
        traces += [
            dots(places, seeds, colour, size=4, opacity=0.4),
            line(PERIODS, means, colour, name, dash=dash,
                 hover="%{x} bytes: %{y:.2f} bits per byte"),
        ]  # fmt: skip
        ends[name] = means[-1]
    axes = layout(
        height=480,
        margin={"l": 54, "r": 18, "t": 44, "b": 180},
        title_text=f"{layer}, after {step} steps",
        xaxis=axis("length of the piece, bytes", 1.15, 2.16, type="log", tickvals=list(PERIODS)),
        yaxis=axis("bits per byte, second copy", 0, 3.4),
    )
    told = " ".join(
        f"At {PERIODS[-1]} bytes the line of {kind} is at {bits:.2f}."
        for kind, bits in ends.items()
    )
    return Drawn(
        go.Figure(traces, axes),
        "A line chart shows the bits per byte of the second copy of a piece against the length "
        f"of the piece, from {PERIODS[0]} to {PERIODS[-1]} bytes on a logarithmic axis, after "
        f"{step} training steps. There is one line for each of {len(ends)} kinds of layers with "
        f"{layer}. A line joins the means, and small dots are the seeds. {told}",
    )
