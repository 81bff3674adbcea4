"""Random features against the exponential that they estimate: errors, and what makes them."""

from __future__ import annotations

import math
from functools import cache

import plotly.graph_objects as go
import torch
from torch import Tensor

from book.figures.marks import axis, bars, dots, line, rounded, significant, upright
from lab.explore import COLOURS, PALETTE, Drawn, Panel, panels
from lab.theory.variance import optimal_mse, orthogonal_mse, positive_mse
from stringlib.attention.features import FavorFeatures, optimal_alpha

__all__ = ["FAVOR_KINDS", "favor_error"]

DIM, DRAWS, SIZES = 64, 1000, (16, 32, 64, 128, 256)
BINS = [0.1 * i for i in range(31)]  # of the estimate over the truth; the last holds all beyond
FAVOR_KINDS = ("iid", "orthogonal", "circulant", "hyperbolic", "optimal")  # the last: iid rows
NAMES = {
    "iid": "favor-iid",
    "orthogonal": "favor",
    "circulant": "favor-circulant",
    "hyperbolic": "hyperbolic",
    "optimal": "favor-optimal",
}


@cache
def _along(projection: str) -> tuple[Tensor, Tensor]:
    """Return ωᵀz for a fixed z of length 1, and ‖ω‖²: each ``(DRAWS, 256)``, float64."""
    phi = FavorFeatures(
        DIM, SIZES[-1], projection, heads=DRAWS, generator=torch.Generator().manual_seed(0)
    )
    z = torch.randn(DIM, generator=torch.Generator().manual_seed(1))
    rows = phi.projection_matrix()
    return (rows @ (z / z.norm())).double(), rows.square().sum(-1).double()


@cache
def _estimates(kind: str, square: float, size: int) -> Tensor:
    """Return estimates of the exponential with ``size`` features, over the truth."""
    if kind == "hyperbolic":  # both signs of half as many rows
        exponents = math.sqrt(square) * _along("orthogonal")[0][:, : size // 2]
        return (exponents.cosh() * math.exp(-square / 2)).mean(-1)
    alpha = optimal_alpha(square, DIM) if kind == "optimal" else 0.0
    along, squares = (x[:, :size] for x in _along("iid" if kind == "optimal" else kind))
    exponents = 2 * alpha * squares + math.sqrt((1 - 4 * alpha) * square) * along
    return (exponents - square / 2).exp().mean(-1) * (1 - 4 * alpha) ** (DIM / 2)


def _theory(kind: str, square: float, size: int) -> float | None:
    """Return the root of the mean squared error, where this chapter has a formula for it."""
    x = torch.tensor(square, dtype=torch.float64)
    if kind == "circulant":
        return None
    if kind == "hyperbolic":
        return orthogonal_mse(x, size // 2, DIM, hyperbolic=True).sqrt().item()
    if kind == "optimal":
        return optimal_mse(x, size, DIM, optimal_alpha(square, DIM)).sqrt().item()
    mse = positive_mse(x, size) if kind == "iid" else orthogonal_mse(x, size, DIM)
    return mse.sqrt().item()


def _shares(estimates: Tensor) -> list[float]:
    """Return the share of the estimates in each bin, in percent."""
    place = (estimates / BINS[1]).floor().long().clamp(max=len(BINS) - 1)
    return rounded(100 * torch.bincount(place, minlength=len(BINS)) / len(estimates), 2)


def favor_error(length: float, size: int, kind: str) -> Drawn:
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
    square, colour, grey = length**2, COLOURS[NAMES[kind]], PALETTE["grey"]
    sizes = list(SIZES)
    draws = {m: _estimates(kind, square, m) for m in SIZES}
    measured = {m: (e - 1).square().mean().sqrt().item() for m, e in draws.items()}
    chosen = draws[size]
    median = chosen.median().item()
    hover = "%{x:.2f}, %{y:.3g}"

    def curve(of: str, colour: str, name: str, dash: str = "solid") -> go.Scatter:
        error = significant([_theory(of, square, m) for m in SIZES])
        return line(sizes, error, colour, name, width=2, dash=dash, hover=hover)

    errors = [
        curve("iid", grey, "independent rows, formula", "dash"),
        curve(kind, colour, "its formula"),
        dots(
            sizes,
            significant(measured.values()),
            colour,
            "measured",
            size=[15 if m == size else 8 for m in SIZES],
            hover=hover,
        ),
    ]
    middles = rounded([b + BINS[1] / 2 for b in BINS], 2)
    shares = bars(middles, _shares(chosen), colour, hover=hover)
    middle = line([round(median, 2)] * 2, [0, 60], grey, "median", width=2, dash="dot", hover=hover)
    fig = panels(
        Panel(
            errors,
            x=axis("number of features m", type="log", tickvals=sizes),
            y=axis("relative error", -2.2, 1.6, type="log", tickvals=[0.01, 0.1, 1, 10]),
        ),
        Panel(
            [shares, middle],
            x=axis("estimate / truth (last bar: all above 3)", 0, 3.1),
            y=axis("% of draws", 0, 60),
            shapes=[upright(1, width=1.5)],
        ),
        heights=(0.42, 0.38),
        down=0.2,
        height=560,
        margin={"l": 54, "r": 14, "t": 34, "b": 92},
        bargap=0.05,
    )
    return Drawn(
        fig,
        f"Two panels for {kind} features and a z of length {length:g}. Above, the relative error "
        f"falls as one over the root of the number of features; at {size} features it is "
        f"{measured[size]:.2g}. Below, the estimates of 1,000 draws over the truth: their median "
        f"is {median:.2f}, and the truth is 1.",
    )
