"""Panels lie side by side and below each other, each with its own axes, head and shapes."""

from __future__ import annotations

import plotly.graph_objects as go
import pytest

from lab.explore import Panel, panels


def dot(x: float) -> go.Scatter:
    return go.Scatter(x=[x], y=[x])


def example() -> go.Figure:
    return panels(
        [Panel([dot(1), dot(2)], "left", width=3), Panel([dot(3)], "right", square=True)],
        Panel([dot(4)], x={"title": {"text": "below"}}, y={"range": [0, 1]}),
        heights=(0.2, 0.6),
        across=0.2,
        down=0.1,
        height=500,
    )


def test_rows_and_columns_share_the_figure() -> None:
    shown = example().layout
    domains = [(shown[f"xaxis{n}"].domain, shown[f"yaxis{n}"].domain) for n in ("", "2", "3")]
    wanted = [((0, 0.6), (0.775, 1)), ((0.8, 1), (0.775, 1)), ((0, 1), (0, 0.675))]
    for found, expected in zip(domains, wanted, strict=True):
        for one, other in zip(found, expected, strict=True):
            assert one == pytest.approx(other)
    anchors = [(shown[f"xaxis{n}"].anchor, shown[f"yaxis{n}"].anchor) for n in ("", "2", "3")]
    assert anchors == [("y", "x"), ("y2", "x2"), ("y3", "x3")]
    assert shown.height == 500


def test_traces_heads_and_axes_stay_with_their_panel() -> None:
    fig = example()
    assert [(t.x[0], t.xaxis, t.yaxis) for t in fig.data] == [
        (1, "x", "y"), (2, "x", "y"), (3, "x2", "y2"), (4, "x3", "y3"),
    ]  # fmt: skip
    heads = [(a.text, a.xref, a.yref) for a in fig.layout.annotations]
    assert heads == [("left", "x domain", "y domain"), ("right", "x2 domain", "y2 domain")]
    assert fig.layout.xaxis3.title.text == "below"
    assert fig.layout.yaxis3.range == (0, 1)
    assert (fig.layout.yaxis2.scaleanchor, fig.layout.yaxis.scaleanchor) == ("x2", None)


def test_shapes_stand_on_their_panel() -> None:
    line = {"type": "line", "x0": 1, "x1": 1, "y0": 0, "y1": 1}
    shown = [line, {**line, "yref": "domain"}, {**line, "xref": "domain"}]
    fig = panels([Panel([dot(1)]), Panel([dot(2)], shapes=shown)])
    assert [(s.xref, s.yref) for s in fig.layout.shapes] == [
        ("x2", "y2"), ("x2", "y2 domain"), ("x2 domain", "y2"),
    ]  # fmt: skip


def test_one_height_for_each_row() -> None:
    with pytest.raises(ValueError, match="heights must be one for each of 1 rows, got 2"):
        panels(Panel([dot(1)]), heights=(1, 2))
