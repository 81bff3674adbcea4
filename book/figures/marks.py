"""What the figures of all chapters draw with: lines, dots, maps, frames, and short numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
import torch
from torch import Tensor

__all__ = [
    "CELLS",
    "at_one_place",
    "axis",
    "bars",
    "box",
    "broken",
    "circle",
    "colour_axis",
    "dots",
    "downwards",
    "heat",
    "level",
    "line",
    "listed",
    "pin",
    "rounded",
    "segments",
    "significant",
    "through",
    "tokens_axis",
    "upright",
    "won",
]

CELLS: dict[str, Any] = {"showgrid": False, "zeroline": False, "ticks": ""}
"""An axis along the cells of a map."""

Point = Sequence[float | str]
"""A place on an axis is a number, or a name where the axis has names."""


def rounded(values: Any, decimals: int = 3) -> list[Any]:
    """Return numbers as lists: a thousandth is below a pixel, and the page is smaller for it."""
    plain = values.tolist() if isinstance(values, Tensor) else values
    return [
        v if v is None else rounded(v, decimals) if isinstance(v, list) else round(v, decimals)
        for v in plain
    ]


def significant(values: Any, digits: int = 3) -> list[float | None]:
    """Return numbers with so many digits, for an axis that is logarithmic."""
    plain = values.tolist() if isinstance(values, Tensor) else values
    return [v if v is None else float(f"{v:.{digits}g}") for v in plain]


def listed(words: Sequence[str]) -> str:
    """Return words as a sentence lists them: "a", "a and b", "a, b and c"."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _said(name: str | None, hover: str | None) -> dict[str, Any]:
    """Return what a trace says in the legend and under the pointer: nothing unless given."""
    label = {"name": name} if name else {"showlegend": False}
    if hover is None:
        return {**label, "hoverinfo": "skip"}
    return {**label, "hovertemplate": hover if name else f"{hover}<extra></extra>"}


def line(
    x: Any,
    y: Any,
    colour: str,
    name: str | None = None,
    *,
    width: float = 2.5,
    dash: str | None = None,
    hover: str | None = None,
    **more: Any,
) -> go.Scatter:
    """Return a line; with a name it is in the legend, with ``hover`` it answers the pointer."""
    look = {"color": colour, "width": width, "dash": dash}
    return go.Scatter(x=x, y=y, **{"mode": "lines", "line": look, **_said(name, hover), **more})


def through(points: Sequence[Any], colour: str, name: str | None = None, **more: Any) -> go.Scatter:
    """Return a line through points, their x and their y."""
    x, y = points
    return line(x, y, colour, name, **more)


def dots(
    x: Any,
    y: Any,
    colour: Any,
    name: str | None = None,
    *,
    size: Any = 12,
    symbol: Any = None,
    hover: str | None = None,
    **more: Any,
) -> go.Scatter:
    """Return dots, with ``text`` beside them if given."""
    mode = "markers+text" if "text" in more else "markers"
    look = {"color": colour, "size": size, "symbol": symbol}
    return go.Scatter(x=x, y=y, mode=mode, marker=look, **_said(name, hover), **more)


def at_one_place(
    x: Any, place: Any, looks: Mapping[str, str], curves: Any, here: Any, hover: str
) -> list[go.Scatter]:
    """Return a line for each name with its colour, and behind it its dot at one place."""
    traces = []
    for (name, colour), curve, value in zip(looks.items(), curves, here, strict=True):
        traces += [
            line(x, curve, colour, name, hover=hover),
            dots([place], [value], colour, hover=hover),
        ]
    return traces


def won(
    sizes: Sequence[int],
    curves: Mapping[str, Sequence[float]],
    least: Mapping[str, int | None],
    colours: Mapping[str, str],
    hover: str,
) -> go.Scatter:
    """Return a diamond on each curve that has won, at the least size from which on it has."""
    ends = [m and curves[name][sizes.index(m)] for name, m in least.items()]
    return dots(
        [*least.values()],
        significant(ends),
        [colours[name] for name in least],
        size=13,
        symbol="diamond",
        hover=hover,
    )


def bars(
    x: Any, y: Any, colour: Any, name: str | None = None, *, hover: str | None = None, **more: Any
) -> go.Bar:
    """Return bars; with a name they are in the legend, with ``hover`` they answer the pointer."""
    return go.Bar(x=x, y=y, marker={"color": colour}, **_said(name, hover), **more)


def segments(
    ends: Iterable[tuple[Point, Point]],
    colour: str,
    name: str | None = None,
    *,
    width: float = 2.5,
) -> go.Scatter:
    """Return one trace of straight pieces, each from one point to another."""
    x: list[float | str | None] = []
    y: list[float | str | None] = []
    for start, end in ends:
        x += [start[0], end[0], None]
        y += [start[1], end[1], None]
    return line(x, y, colour, name, width=width)


def broken(starts: Tensor, ends: Tensor) -> Tensor:
    """Return x and y, ``(2, 3 · pieces)``, of one line through pieces ``(pieces, 2)`` with gaps."""
    gaps = torch.full_like(ends, math.nan)
    return torch.stack([starts.expand_as(ends), ends, gaps], 1).flatten(0, 1).mT


def pin(x: float, y: float, colour: str, width: float = 2) -> go.Scatter:
    """Return a line from the axis up to a dot."""
    head = {"size": [0, 12], "opacity": 1, "line": {"width": 0}}
    return line([x, x], [0, y], colour, width=width, mode="lines+markers", marker=head)


def heat(
    z: Any,
    scale: tuple[Any, float, float] | None = None,
    hover: str | None = None,
    **more: Any,
) -> go.Heatmap:
    """Return a map of cells.

    Args:
        z: The numbers, row by row.
        scale: Colours, and the numbers at their ends; the figure's :func:`colour_axis` unless
            given.
        hover: What a cell answers to the pointer.
        **more: As for ``plotly.graph_objects.Heatmap``.
    """
    look: dict[str, Any] = {"coloraxis": "coloraxis"}
    if scale is not None:
        colours, low, high = scale
        look = {"colorscale": colours, "zmin": low, "zmax": high, "showscale": False}
    said = _said(None, hover)
    del said["showlegend"]
    return go.Heatmap(z=z, **look, **said, **more)


def colour_axis(
    colours: Any, low: float, high: float, y: float, title: str | None = None
) -> dict[str, Any]:
    """Return the colours that several maps share, with their bar below the figure at ``y``."""
    bar: dict[str, Any] = {"orientation": "h", "y": y, "yanchor": "top", "len": 0.8}
    if title is not None:
        bar["title"] = {"text": title, "side": "bottom"}
    return {"colorscale": colours, "cmin": low, "cmax": high, "colorbar": bar}


def axis(
    title: str | None = None, low: float | None = None, high: float | None = None, **more: Any
) -> dict[str, Any]:
    """Return an axis with its title close to it, from ``low`` to ``high`` if given."""
    named = {"title": {"text": title, "standoff": 4}} if title else {}
    return {**named, **({} if high is None else {"range": [low, high]}), **more}


def tokens_axis(ticks: Sequence[int], low: float, high: float) -> dict[str, Any]:
    """Return a logarithmic axis of numbers of tokens, from 10^low to 10^high."""
    texts = [f"{n:,}" for n in ticks]
    return axis("tokens n", low, high, type="log", tickvals=ticks, ticktext=texts)


def downwards(count: int, **more: Any) -> dict[str, Any]:
    """Return an axis along so many rows of cells, the first one on top."""
    return axis(low=count - 0.5, high=-0.5, **CELLS, **more)


def circle(x: float = 0, y: float = 0, radius: float = 1) -> dict[str, Any]:
    """Return the shape of a thin circle."""
    ends = {"x0": x - radius, "x1": x + radius, "y0": y - radius, "y1": y + radius}
    return {"type": "circle", **ends, "line": {"width": 1}}


def box(left: float, right: float, low: float, high: float, **look: Any) -> dict[str, Any]:
    """Return the shape of a frame."""
    return {"type": "rect", "x0": left, "x1": right, "y0": low, "y1": high, "line": look}


def upright(x: float, **look: Any) -> dict[str, Any]:
    """Return the shape of a line from the bottom to the top of a panel."""
    return {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "domain", "line": look}


def level(y: float, **look: Any) -> dict[str, Any]:
    """Return the shape of a line from the left to the right of a panel."""
    return {"type": "line", "x0": 0, "x1": 1, "y0": y, "y1": y, "xref": "domain", "line": look}
