"""Figures with several panels. A panel defines its contents, and a function arranges the panels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import plotly.graph_objects as go

from lab.explore.style import layout

__all__ = ["Panel", "panels"]

HEAD = {"yanchor": "bottom", "showarrow": False}


@dataclass(frozen=True)
class Panel:
    """The contents of one panel of a figure.

    Args:
        traces: What is drawn in the panel.
        head: Title of the panel.
        x: The horizontal axis, as ``plotly.graph_objects.layout.XAxis`` takes it.
        y: The vertical axis.
        shapes: Lines and areas in the form of plotly, on the axes of the panel. With
            ``"yref": "domain"`` the panel has height 1, and with ``"xref": "domain"`` width 1.
        square: Whether a unit has the same length on both axes.
        width: Width relative to the other panels of the row.
    """

    traces: list[Any]
    head: str = ""
    x: dict[str, Any] = field(default_factory=dict)
    y: dict[str, Any] = field(default_factory=dict)
    shapes: list[dict[str, Any]] = field(default_factory=list)
    square: bool = False
    width: float = 1


def panels(
    *rows: Panel | Sequence[Panel],
    heights: Sequence[float] = (),
    across: float = 0.12,
    down: float = 0.16,
    **overrides: Any,
) -> go.Figure:
    """Arrange panels in rows, from the top. The panels of a row fill its width.

    Args:
        *rows: The panels of each row from the left, or the only panel of a row.
        heights: Relative heights of the rows. Default: equal heights.
        across: Gap between two panels of a row, as a share of the width of the figure.
        down: Gap between two rows, as a share of the height of the figure.
        **overrides: As for :func:`~lab.explore.style.layout`.

    Returns:
        A figure with the traces in the order of their panels, which are numbered in reading order.
        The first panel has the axes ``x`` and ``y``, the second ``x2`` and ``y2``.

    Raises:
        ValueError: If the number of heights is not the number of rows.
    """
    if heights and len(heights) != len(rows):
        raise ValueError(f"heights must have {len(rows)} numbers, one per row, got {len(heights)}")
    traces: list[Any] = []
    heads: list[dict[str, Any]] = []
    shapes: list[dict[str, Any]] = []
    axes: dict[str, dict[str, Any]] = {}
    bands = _shares(heights or [1] * len(rows), down)
    for (top, bottom), row in zip(bands, rows, strict=True):
        beside = [row] if isinstance(row, Panel) else row
        spans = _shares([panel.width for panel in beside], across)
        for (left, right), panel in zip(spans, beside, strict=True):
            number = "" if not axes else str(len(axes) // 2 + 1)
            x, y = f"x{number}", f"y{number}"
            traces += [trace.update(xaxis=x, yaxis=y) for trace in panel.traces]
            own = {"xref": f"{x} domain", "yref": f"{y} domain"}
            if panel.head:
                heads.append({"text": panel.head, "x": 0.5, "y": 1, **own, **HEAD})
            for shape in panel.shapes:
                within = {ref: own[ref] for ref in own if shape.get(ref) == "domain"}
                shapes.append({**shape, "xref": x, "yref": y, **within})
            square_x = {"constrain": "domain"} if panel.square else {}
            square_y = {**square_x, "scaleanchor": x} if panel.square else {}
            axes[f"xaxis{number}"] = {"domain": [left, right], "anchor": y, **square_x, **panel.x}
            axes[f"yaxis{number}"] = {
                "domain": [round(1 - bottom, 4), round(1 - top, 4)],
                "anchor": x,
                **square_y,
                **panel.y,
            }
    return go.Figure(traces, layout(annotations=heads, shapes=shapes, **axes, **overrides))


def _shares(parts: Sequence[float], gap: float) -> list[tuple[float, float]]:
    """Return where each part of 0 to 1 begins and ends, with a gap between neighbours."""
    unit = (1 - gap * (len(parts) - 1)) / sum(parts)
    ends = [sum(parts[: n + 1]) * unit + gap * n for n in range(len(parts))]
    return [
        (round(end - part * unit, 4), round(end, 4)) for end, part in zip(ends, parts, strict=True)
    ]
