"""Random features against the exponential that they estimate: errors, and what makes them."""

from __future__ import annotations

import math
from functools import cache

import plotly.graph_objects as go
import torch
from torch import Tensor

from stringlib.attention.features import FavorFeatures
from stringlib.explore.style import COLOURS, PALETTE, layout
from stringlib.theory.variance import orthogonal_mse, positive_mse

__all__ = ["FAVOR_KINDS", "favor_error", "favor_error_text"]

DIM, DRAWS, SIZES = 64, 1000, (16, 32, 64, 128, 256)
BINS = [0.1 * i for i in range(31)]  # of the estimate over the truth; the last holds all beyond
FAVOR_KINDS = ("iid", "orthogonal", "circulant", "hyperbolic")
NAMES = {
    "iid": "favor-iid",
    "orthogonal": "favor",
    "circulant": "favor-circulant",
    "hyperbolic": "hyperbolic",
}


@cache
def _along(projection: str) -> Tensor:
    """Return ωᵀz for a fixed z of length 1: ``(DRAWS, 256)``, float64."""
    phi = FavorFeatures(
        DIM, SIZES[-1], projection, heads=DRAWS, generator=torch.Generator().manual_seed(0)
    )
    z = torch.randn(DIM, generator=torch.Generator().manual_seed(1))
    return (phi.projection_matrix() @ (z / z.norm())).double()


@cache
def _estimates(kind: str, square: float, size: int) -> Tensor:
    """Return estimates of the exponential with ``size`` features, over the truth."""
    if kind == "hyperbolic":  # both signs of half as many rows
        exponents = math.sqrt(square) * _along("orthogonal")[:, : size // 2]
        return (exponents.cosh() * math.exp(-square / 2)).mean(-1)
    exponents = math.sqrt(square) * _along(kind)[:, :size]
    return (exponents - square / 2).exp().mean(-1)


def _theory(kind: str, square: float, size: int) -> float | None:
    """Return the root of the mean squared error, where this chapter has a formula for it."""
    x = torch.tensor(square, dtype=torch.float64)
    if kind == "circulant":
        return None
    if kind == "hyperbolic":
        return orthogonal_mse(x, size // 2, DIM, hyperbolic=True).sqrt().item()
    mse = positive_mse(x, size) if kind == "iid" else orthogonal_mse(x, size, DIM)
    return mse.sqrt().item()


def _bars(estimates: Tensor) -> list[float]:
    """Return the share of the estimates in each bin, in percent."""
    place = (estimates / BINS[1]).floor().long().clamp(max=len(BINS) - 1)
    return (
        (100 * torch.bincount(place, minlength=len(BINS)) / len(estimates))
        .round(decimals=2)
        .tolist()
    )


def favor_error(length: float, size: int, kind: str) -> go.Figure:
    """Draw the error of random features against their number, and the estimates themselves.

    Above: the root mean squared error of an estimate of exp(xᵀy), over the truth, for every number
    of features; lines are formulas, dots 1,000 draws of W.  Below: those estimates over the
    truth, for the chosen number of features.

    Args:
        length: The length of z = x + y.
        size: Number of features m.
        kind: One of ``FAVOR_KINDS``.

    Returns:
        A figure with two panels.
    """
    square, colour = length**2, COLOURS[NAMES[kind]]
    draws = {m: _estimates(kind, square, m) for m in SIZES}
    measured = [(e - 1).square().mean().sqrt().item() for e in draws.values()]
    independent = [positive_mse(torch.tensor(square), m).sqrt().item() for m in SIZES]
    theory = [_theory(kind, square, m) for m in SIZES]
    chosen = draws[size]
    median = chosen.median().item()
    fig = go.Figure(
        [
            go.Scatter(
                x=SIZES,
                y=_short(independent),
                mode="lines",
                line={"color": PALETTE["grey"], "dash": "dash"},
                name="independent rows, formula",
            ),
            go.Scatter(
                x=SIZES, y=_short(theory), mode="lines", line={"color": colour}, name="its formula"
            ),
            go.Scatter(
                x=SIZES,
                y=_short(measured),
                mode="markers",
                marker={
                    "color": colour,
                    "size": [15 if m == size else 8 for m in SIZES],
                },
                name="measured",
            ),
            go.Bar(
                x=[round(b + BINS[1] / 2, 2) for b in BINS],
                y=_bars(chosen),
                marker={"color": colour},
                xaxis="x2",
                yaxis="y2",
                showlegend=False,
            ),
            go.Scatter(
                x=[round(median, 2)] * 2,
                y=[0, 60],
                mode="lines",
                line={"color": PALETTE["grey"], "dash": "dot"},
                xaxis="x2",
                yaxis="y2",
                name="median",
            ),
        ]
    )
    fig.update_traces(hovertemplate="%{x:.2f}, %{y:.3g}<extra></extra>")
    return fig.update_layout(
        layout(
            height=560,
            margin={"l": 54, "r": 14, "t": 34, "b": 92},
            bargap=0.05,
            xaxis={
                "type": "log",
                "anchor": "y",
                "title": "number of features m",
                "tickvals": list(SIZES),
            },
            yaxis={
                "type": "log",
                "domain": [0.58, 1],
                "range": [-2.2, 1.6],
                "tickvals": [0.01, 0.1, 1, 10],
                "title": "relative error",
            },
            xaxis2={
                "anchor": "y2",
                "range": [0, 3.1],
                "title": "estimate / truth (last bar: all above 3)",
            },
            yaxis2={"domain": [0, 0.38], "range": [0, 60], "title": "% of draws"},
            shapes=[
                {
                    "type": "line",
                    "xref": "x2",
                    "yref": "y2 domain",
                    "x0": 1,
                    "x1": 1,
                    "y0": 0,
                    "y1": 1,
                    "line": {"width": 1.5},
                }
            ],
        )
    )


def favor_error_text(length: float, size: int, kind: str) -> str:
    """Say what :func:`favor_error` shows in a state."""
    estimates = _estimates(kind, length**2, size)
    error = (estimates - 1).square().mean().sqrt().item()
    return (
        f"Two panels for {kind} features and a z of length {length:g}. Above, the relative error "
        f"falls as one over the root of the number of features; at {size} features it is "
        f"{error:.2g}. Below, the estimates of 1,000 draws over the truth: their median is "
        f"{estimates.median().item():.2f}, and the truth is 1."
    )


def _short(values: list[float | None] | list[float]) -> list[float | None]:
    return [None if v is None else float(f"{v:.3g}") for v in values]
