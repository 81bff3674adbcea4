"""The Cayley transform on the circle, and how dense a sparse S makes its basis."""

from __future__ import annotations

import math

import plotly.graph_objects as go
import torch
from torch import Tensor

from stringlib.algebra.cayley import cayley
from stringlib.algebra.skew import connected_parts, sparse_skew
from stringlib.explore.style import COLOURS, PALETTE, SEQUENTIAL, heading, layout

__all__ = ["cayley_circle", "cayley_circle_text", "sparse_basis", "sparse_basis_text"]

REACH = 1.7  # of the circle's panel
SIZE = 32


def _head(text: str, axis: str) -> dict[str, object]:
    return heading(text, xref=f"x{axis} domain", yref=f"y{axis} domain")


def cayley_circle(t: float) -> go.Figure:
    r"""Draw the rotation that the Cayley transform makes of one number, beside the exponential.

    S has the entries t and −t. The line from −1 through :math:`\mathrm{i}\,t` meets the unit
    circle again at the eigenvalue :math:`e^{2 \mathrm{i} \arctan t}` of its transform; the
    exponential of −2S, equal to first order, turns by 2t.

    Args:
        t: The entry of S above the diagonal.

    Returns:
        A figure with two panels, the circle and the angles against t.
    """
    angle = 2 * math.atan(t)
    x, y = math.cos(angle), math.sin(angle)
    far = 4 / math.hypot(1, t)  # the ray goes on behind the circle
    grid = [i / 10 for i in range(-60, 61)]
    teal, brown, grey = COLOURS["cayley"], COLOURS["dense"], PALETTE["grey"]
    right = {"xaxis": "x2", "yaxis": "y2"}
    quiet = {"showlegend": False, "hoverinfo": "skip"}
    big = {"size": 12}
    fig = go.Figure(
        [
            go.Scatter(
                x=[-1, -1 + far], y=[0, far * t], mode="lines", line={"color": grey}, **quiet
            ),
            go.Scatter(
                x=[-1, 0],
                y=[0, t],
                mode="markers",
                marker={"color": grey, "size": 8, "symbol": ["x", "diamond"]},
                **quiet,
            ),
            go.Scatter(
                x=[0, x, None, 0, math.cos(2 * t)],
                y=[0, y, None, 0, math.sin(2 * t)],
                mode="lines",
                line={"color": grey, "width": 1},
                **quiet,
            ),
            go.Scatter(
                x=[x], y=[y], mode="markers",
                marker={"color": teal, **big}, name="Cayley: 2 arctan t",
            ),
            go.Scatter(
                x=[math.cos(2 * t)],
                y=[math.sin(2 * t)],
                mode="markers",
                marker={"color": brown, "symbol": "square", "size": 10},
                name="exponential: 2t",
            ),
            go.Scatter(
                x=grid,
                y=[round(2 * math.atan(v) / math.pi, 4) for v in grid],
                mode="lines",
                line={"color": teal, "width": 2.5},
                **quiet,
                **right,
            ),
            go.Scatter(
                x=grid,
                y=[round(2 * v / math.pi, 4) for v in grid],
                mode="lines",
                line={"color": brown, "dash": "dot", "width": 2.5},
                **quiet,
                **right,
            ),
            go.Scatter(
                x=[t], y=[angle / math.pi], mode="markers", marker={"color": teal, **big},
                **quiet, **right,
            ),
            go.Scatter(
                x=[t], y=[2 * t / math.pi], mode="markers",
                marker={"color": brown, "symbol": "square", "size": 10}, **quiet, **right,
            ),
        ]
    )  # fmt: skip
    square = {"range": [-REACH, REACH], "constrain": "domain", "dtick": 1}
    circle = {"type": "circle", "xref": "x", "yref": "y", "x0": -1, "x1": 1, "y0": -1, "y1": 1}
    slope = 2 / (1 + t * t)
    return fig.update_layout(
        layout(
            height=390,
            margin={"l": 36, "r": 12, "t": 46, "b": 76},
            xaxis={"domain": [0, 0.47], **square},
            yaxis={"scaleanchor": "x", **square},
            xaxis2={"domain": [0.58, 1], "anchor": "y2", "range": [-6, 6], "title": {"text": "t"}},
            yaxis2={"anchor": "x2", "range": [-2, 2], "dtick": 1, "ticksuffix": "π"},
            shapes=[
                {**circle, "layer": "below", "line": {"width": 1}},
                *(
                    {"type": "line", "xref": "x2 domain", "yref": "y2", "x0": 0, "x1": 1}
                    | {"y0": s, "y1": s, "line": {"width": 1, "dash": "dash", "color": grey}}
                    for s in (-1, 1)
                ),
            ],
            annotations=[
                _head(f"t = {t:g}: turned by {math.degrees(angle):.0f}°", ""),
                _head(f"angle<br>slope of Cayley {slope:.2f}", "2"),
            ],
        )
    )


def cayley_circle_text(t: float) -> str:
    """Say what :func:`cayley_circle` shows in a state."""
    turned = math.degrees(2 * math.atan(t))
    return (
        f"Left: a ray from −1 through {t:g} i on the imaginary axis meets the unit circle at "
        f"{turned:.0f} degrees, the Cayley transform; a square at {math.degrees(2 * t):.0f} "
        "degrees is the exponential. Right: the angles against t. The exponential's is a straight "
        "line that crosses π; twice the arc tangent levels off below π and above −π, and has the "
        f"slope {2 / (1 + t * t):.2f} here."
    )


def _sparse_pair(density: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return S with its first entries filled, in a fixed random order, its P and its support."""
    generator = torch.Generator().manual_seed(2)
    places = torch.triu_indices(SIZE, SIZE, offset=1)
    order = torch.randperm(places.shape[1], generator=generator)
    entries = torch.randn(places.shape[1], dtype=torch.float64, generator=generator)
    count = round(density * len(order))
    support = places[:, order[:count]]
    skew = sparse_skew(entries[:count], support, SIZE)
    return skew, cayley(skew), support


def _sparse_counts(density: float) -> tuple[float, float, int]:
    """Return which parts of S and of P are not 0, and how many connected parts S has."""
    skew, basis, support = _sparse_pair(density)
    parts = len(connected_parts(support, SIZE).unique())
    filled = [(m.abs() > 1e-12).double().mean().item() for m in (skew, basis)]
    return filled[0], filled[1], parts


def sparse_basis(density: float) -> go.Figure:
    """Draw the entries of a sparse S of 32 channels beside those of its Cayley transform P.

    Entries are filled in a fixed random order, so a higher density adds to a lower one.
    What is exactly 0 is left blank.

    Args:
        density: Which part of the entries above the diagonal is filled.

    Returns:
        A figure of two heat-maps with one colour scale.
    """
    skew, basis, _ = _sparse_pair(density)
    share_s, share_p, parts = _sparse_counts(density)
    fig = go.Figure()
    for axis, matrix in (("", skew), ("2", basis)):
        cells = [[round(v, 2) if v > 1e-12 else None for v in row] for row in matrix.abs().tolist()]
        fig.add_heatmap(
            z=cells,
            coloraxis="coloraxis",
            xgap=1,
            ygap=1,
            hoverongaps=False,
            hovertemplate="row %{y}, column %{x}: %{z:.2f}<extra></extra>",
            xaxis=f"x{axis}",
            yaxis=f"y{axis}",
        )
    blocks = "1 part" if parts == 1 else f"{parts} parts"
    title = {"text": "absolute value of an entry", "side": "bottom"}
    bar = {"orientation": "h", "y": -0.16, "yanchor": "top", "len": 0.8, "title": title}
    plain = {"constrain": "domain", "showgrid": False, "zeroline": False, "dtick": 8}
    low = {**plain, "range": [-0.5, SIZE - 0.5]}
    high = {**plain, "range": [SIZE - 0.5, -0.5]}
    return fig.update_layout(
        layout(
            height=390,
            margin={"l": 32, "r": 10, "t": 48, "b": 92},
            coloraxis={"colorscale": SEQUENTIAL, "cmin": 0, "cmax": 1, "colorbar": bar},
            xaxis={"domain": [0, 0.46], **low},
            xaxis2={"domain": [0.54, 1], "anchor": "y2", **low},
            yaxis={"scaleanchor": "x", **high},
            yaxis2={"scaleanchor": "x2", "anchor": "x2", **high},
            annotations=[
                _head(f"S: {share_s:.0%} filled,<br>{blocks}", ""),
                _head(f"P: {share_p:.0%} filled", "2"),
            ],
        )
    )


def sparse_basis_text(density: float) -> str:
    """Say what :func:`sparse_basis` shows in a state."""
    share_s, share_p, parts = _sparse_counts(density)
    groups = "one connected part" if parts == 1 else f"{parts} connected parts"
    return (
        f"Two 32 by 32 maps of absolute entries. Left the sparse matrix S, {share_s:.0%} filled, "
        f"which links its channels into {groups}. Right its Cayley transform P, "
        f"{share_p:.0%} filled."
    )
