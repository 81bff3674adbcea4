"""From the first column of a circulant matrix to the rotation that it generates."""

from __future__ import annotations

import math
from collections.abc import Sequence

import plotly.graph_objects as go
import torch
from torch import Tensor

from stringlib.algebra.circulant import circulant_eigenvalues
from stringlib.explore.style import PALETTE, heading, layout

__all__ = ["circulant_spectrum", "circulant_spectrum_text"]

COLOURS = [PALETTE[name] for name in ("orange", "blue", "teal", "magenta", "sky", "red", "brown")]
RADIUS = 1.5  # of the unit circle's panel


def _column(coefficients: dict[str, float]) -> Tensor:
    names = [f"c{m}" for m in range(len(coefficients))]
    if sorted(coefficients) != sorted(names):
        raise ValueError(
            f"coefficients: expected c0 to c{len(names) - 1}, got {list(coefficients)}"
        )
    return torch.tensor([coefficients[n] for n in names], dtype=torch.float64)


def _reach(values: Sequence[float]) -> int:
    """Return half the width of a panel that holds ``values``."""
    # the small step keeps rounding from deciding where a whole number falls
    return max(1, math.ceil(1.15 * max(abs(v) for v in values) - 1e-9))


def circulant_spectrum(r: float, **coefficients: float) -> go.Figure:
    r"""Draw c, the eigenvalues of C and of L = C − Cᵀ, and those of exp(rL).

    C has the first column c.  Its eigenvalues are the Fourier transform of c;
    L keeps twice their imaginary parts, and exp(rL) winds those around the unit
    circle.  A pair of conjugate
    eigenvalues has one colour; what is real, and so never turns, is grey.

    Args:
        r: The position.
        **coefficients: c0, c1, … to c(d−1).

    Returns:
        A figure with four panels.

    Raises:
        ValueError: If the coefficients are not named c0, c1, ….
    """
    c = _column(coefficients)
    d = len(c)
    skew = c - c.roll(-1).flip(0)  # the first column of L: c_m − c_{d−m}
    values = circulant_eigenvalues(c)
    turns = 2 * values.imag
    shown = list(range(d))
    colour = [PALETTE["grey"] if k in (0, d / 2) else COLOURS[min(k, d - k) - 1] for k in shown]
    points = {
        "mode": "markers+text",
        "text": [str(k) for k in shown],
        "marker": {"color": colour, "size": 10},
        "textfont": {"size": 10.5},
        "textposition": ["middle right" if k < d / 2 else "middle left" for k in shown],
    }
    angles = r * turns
    fig = go.Figure(
        [
            go.Bar(
                x=shown, y=c.tolist(), marker={"color": PALETTE["grey"]}, name="first column of C"
            ),
            go.Scatter(
                x=shown,
                y=skew.tolist(),
                mode="markers",
                marker={"color": PALETTE["blue"], "size": 10, "symbol": "diamond"},
                name="first column of L = C − Cᵀ",
            ),
            go.Scatter(
                x=values.real.tolist(), y=values.imag.tolist(), xaxis="x2", yaxis="y2", **points
            ),
            go.Scatter(x=[0.0] * d, y=turns.tolist(), xaxis="x3", yaxis="y3", **points),
            go.Scatter(
                x=angles.cos().tolist(), y=angles.sin().tolist(), xaxis="x4", yaxis="y4", **points
            ),
        ]
    )
    fig.update_traces(showlegend=False, selector=lambda trace: trace.xaxis is not None)
    fig.update_traces(hovertemplate="%{x:.2f}, %{y:.2f}<extra></extra>")
    plane = _reach([*values.real.tolist(), *values.imag.tolist()])
    line, bars = _reach(turns.tolist()), _reach([*c.tolist(), *skew.tolist()])
    left, right, low, high = [0, 0.45], [0.56, 1], [0, 0.43], [0.57, 1]
    heads = [
        ("c, and what L keeps of it", "x", "y"),
        ("eigenvalues of C", "x2", "y2"),
        ("eigenvalues of L", "x3", "y3"),
        (f"eigenvalues of exp({r:g} L)", "x4", "y4"),
    ]
    square = {"constrain": "domain", "nticks": 5}
    return fig.update_layout(
        layout(
            height=600,
            margin={"l": 36, "r": 14, "t": 34, "b": 64},
            xaxis={"domain": left, "anchor": "y", "dtick": 1},
            yaxis={"domain": high, "anchor": "x", "range": [-1.15 * bars, 1.15 * bars]},
            xaxis2={"domain": right, "anchor": "y2", "range": [-plane, plane], **square},
            yaxis2={
                "domain": high,
                "anchor": "x2",
                "range": [-plane, plane],
                "scaleanchor": "x2",
                **square,
            },
            xaxis3={"domain": left, "anchor": "y3", "range": [-line, line], **square},
            yaxis3={
                "domain": low,
                "anchor": "x3",
                "range": [-line, line],
                "scaleanchor": "x3",
                **square,
            },
            xaxis4={"domain": right, "anchor": "y4", "range": [-RADIUS, RADIUS], **square},
            yaxis4={
                "domain": low,
                "anchor": "x4",
                "range": [-RADIUS, RADIUS],
                "scaleanchor": "x4",
                **square,
            },
            shapes=[
                {
                    "type": "circle",
                    "xref": "x4",
                    "yref": "y4",
                    "x0": -1,
                    "x1": 1,
                    "y0": -1,
                    "y1": 1,
                    "layer": "below",
                    "line": {"width": 1},
                }
            ],
            annotations=[
                heading(text, xref=f"{x} domain", yref=f"{y} domain") for text, x, y in heads
            ],
        )
    )


def circulant_spectrum_text(r: float, **coefficients: float) -> str:
    """Say what :func:`circulant_spectrum` shows in a state."""
    c = _column(coefficients)
    turns = [2 * v for v in circulant_eigenvalues(c).imag.tolist()]
    first = ", ".join(f"{v:g}" for v in c.tolist())
    pairs = ", ".join(f"{abs(turns[k]):.2f}" for k in range(1, (len(turns) + 1) // 2))
    return (
        f"Four panels for the circulant matrix C with first column {first}: the column, the "
        "eigenvalues of C in the complex plane, those of L = C − Cᵀ on the imaginary axis at plus "
        f"and minus {pairs} and at 0, and those of exp({r:g} L) on the unit circle."
    )
