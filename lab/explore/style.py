"""One style for every figure of the book, for plotly and matplotlib.

Each method has its colour in the whole book. Every colour has a contrast of at least 3 to 1 with a
white and with a near-black page. Within a family of methods, no two colours are confused by readers
with red-green colour blindness.
"""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from lab.explore.describe import describe
from lab.methods import METHODS

__all__ = [
    "COLOURS",
    "DIVERGING",
    "PALETTE",
    "SEQUENTIAL",
    "layout",
    "use_matplotlib_style",
]

PALETTE = {
    "blue": "#2f5fe8",
    "orange": "#da7b00",
    "teal": "#00a07f",
    "magenta": "#b8249e",
    "sky": "#2f9be0",
    "red": "#d0283c",
    "brown": "#846434",
    "grey": "#7f8a94",
}

COLOURS = {name: PALETTE[method.colour] for name, method in METHODS.items()}
"""Colour of each method, by name, in the whole book."""

DIVERGING = [
    [0.0, "#1f4fd8"],
    [0.25, "#86a5ee"],
    [0.5, "#f1f1ee"],
    [0.75, "#eda75a"],
    [1.0, "#b85c00"],
]
"""A plotly colour scale for values on both sides of zero (set ``zmid=0``)."""

SEQUENTIAL = [[0.0, "#14306f"], [0.35, "#2f5fe8"], [0.7, "#5fb6d9"], [1.0, "#f3e9b5"]]
"""A plotly colour scale for values from small to large."""


def layout(**overrides: Any) -> go.Layout:
    """Return the plotly layout of the book: small margins, a legend below the axes, no zooming.

    The layout does not set the colours of text, grid and background, because the page sets them for
    its light and its dark mode. Fonts without a size are smaller on a phone.

    Args:
        **overrides: As for ``plotly.graph_objects.Layout``, for example ``height=320`` or
            ``xaxis_title="distance"``.

    Returns:
        A layout for ``Figure(data, layout(...))`` or ``fig.update_layout(...)``.

    Raises:
        ValueError: If an override is not a property of a plotly layout.
    """
    base = go.Layout(
        height=380,
        margin={"l": 54, "r": 14, "t": 44, "b": 52},
        title={"x": 0.5, "xanchor": "center", "y": 0.98, "yanchor": "top"},
        legend={
            "orientation": "h",
            "yref": "container",
            "y": 0,
            "yanchor": "bottom",
            "x": 0.5,
            "xanchor": "center",
        },
        colorway=list(PALETTE.values()),
        hovermode="closest",
        dragmode=False,
    )
    base.update(overrides)
    if "<br>" in (base.title.text or ""):  # plotly.js sets the first of several lines higher
        base.title.y -= LIFTED / base.height
    return base


LIFTED = 10
"""Number of pixels by which plotly.js places the first line of a multi-line title too high."""
TEXT, MUTED, GRID = "#1f2328", "#5b6570", "#d9dde2"
"""Colours of text, axes and grid of an image. The page replaces them by its own colours."""


def use_matplotlib_style() -> None:
    """Set the colours and sizes of the book in matplotlib, and SVG as the format in a notebook.

    An image of the default width can be read on a phone, where its text is 10 pixels high. The
    background is white for Jupyter, and the page removes it. Two runs give the same bytes. A
    notebook saves each image with the text of :func:`~lab.explore.describe.describe`.
    """
    import matplotlib as mpl
    from cycler import cycler
    from IPython import get_ipython
    from matplotlib.figure import Figure
    from matplotlib_inline.backend_inline import set_matplotlib_formats

    def say(figure: Figure, printer: Any, cycle: bool) -> None:
        printer.text(describe(figure))

    # IPython's hook for its plain text; a formatter for Figure would be removed by its backend
    Figure._repr_pretty_ = say  # type: ignore[attr-defined]

    if get_ipython() is not None:
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        set_matplotlib_formats("svg", metadata=nothing, bbox_inches=None)
    mpl.rcParams.update(
        {
            "axes.prop_cycle": cycler(color=list(PALETTE.values())),
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "axes.axisbelow": True,
            "axes.edgecolor": MUTED,
            "axes.labelcolor": TEXT,
            "axes.labelsize": 11,
            "axes.titlesize": 12,
            "figure.constrained_layout.use": True,
            "figure.facecolor": "white",
            "figure.figsize": (5.2, 3.2),
            "font.size": 11,
            "grid.color": GRID,
            "grid.linewidth": 0.7,
            "legend.frameon": False,
            "lines.linewidth": 2.0,
            "savefig.facecolor": "white",
            "svg.fonttype": "none",  # text stays text: small, searchable, in the font of the page
            "svg.hashsalt": "stringlib",
            "text.color": TEXT,
            "xtick.color": MUTED,
            "xtick.labelcolor": TEXT,
            "ytick.color": MUTED,
            "ytick.labelcolor": TEXT,
        }
    )
