"""How the mean wave of RoPE falls with distance, beside the integral that it starts as."""

from __future__ import annotations

import math

import plotly.graph_objects as go
import torch
from torch import Tensor

from stringlib.explore.style import COLOURS, PALETTE, layout
from stringlib.positions import geometric_frequencies
from stringlib.theory import rope_decay

__all__ = ["decay_curves", "decay_curves_text"]

LARGEST, POINTS = 7, 211  # distances up to 10^7, 30 a decade
LOWEST, HIGHEST = 3e-4, 1.6


def _distances() -> Tensor:
    """Return whole distances from 1, evenly spread on a logarithmic axis."""
    return torch.logspace(0, LARGEST, POINTS, dtype=torch.float64).round().unique()


def decay_curves(dim: int, base: float) -> go.Figure:
    r"""Draw :math:`|S(t)|` and :math:`|I(t)|` against distance, with both laws of the integral.

    Args:
        dim: Channels d of a head: d/2 waves in the sum.
        base: The base b of the frequencies.

    Returns:
        A figure with logarithmic axes.
    """
    t = _distances()
    total = rope_decay.phase_sum(t, geometric_frequencies(dim // 2, base)).abs()
    early, late = rope_decay.regimes(t, base)
    floor, leaves = (dim / 2) ** -0.5, rope_decay.horizon(dim // 2, base)
    dash = {"color": PALETTE["teal"], "width": 2, "dash": "dash"}
    dots = {"color": PALETTE["magenta"], "width": 2, "dash": "dot"}
    fig = go.Figure(
        [
            _line(t, total, "sum |S|", {"color": COLOURS["rope"], "width": 1.2}),
            _line(
                t,
                rope_decay.phase_integral(t, base).abs(),
                "integral |I|",
                {"color": PALETTE["orange"], "width": 3},
            ),
            _line(t, torch.where(early > LOWEST, early, torch.nan), "(ln(b/t) − γ)/ln b", dash),
            _line(t, torch.where(late < HIGHEST, late, torch.nan), "b/(t ln b)", dots),
            go.Scatter(
                x=[1, 10**LARGEST],
                y=[floor, floor],
                mode="lines",
                name="1/√(d/2)",
                line={"color": PALETTE["grey"], "width": 1.5},
                hoverinfo="skip",
            ),
        ]
    )
    return fig.update_layout(
        layout(
            height=430,
            margin={"l": 54, "r": 14, "t": 44, "b": 110},
            title_text=f"horizon πd/ln b = {leaves:.0f} tokens",
            xaxis={"type": "log", "range": [0, LARGEST], "dtick": 1, "exponentformat": "power",
                   "title": {"text": "distance t (tokens)", "standoff": 4}},
            yaxis={"type": "log", "range": [math.log10(LOWEST), math.log10(HIGHEST)], "dtick": 1,
                   "exponentformat": "power"},
            shapes=[
                {"type": "line", "x0": leaves, "x1": leaves, "y0": 0, "y1": 1, "yref": "paper",
                 "line": {"color": PALETTE["grey"], "width": 1.5, "dash": "dot"}}
            ],
        )
    )  # fmt: skip


def _line(x: Tensor, y: Tensor, name: str, line: dict[str, object]) -> go.Scatter:
    # four digits are more than a reader sees, and the page is smaller for it
    shown = [float(f"{v:.4g}") for v in y.tolist()]
    return go.Scatter(
        x=x.tolist(),
        y=shown,
        mode="lines",
        name=name,
        line=line,
        hovertemplate="t = %{x}: %{y:.3g}<extra>" + name + "</extra>",
    )


def decay_curves_text(dim: int, base: float) -> str:
    """Say what :func:`decay_curves` shows in a state."""
    leaves = rope_decay.horizon(dim // 2, base)
    return (
        f"Both axes logarithmic: distances from 1 to ten million, d = {dim}, base {base:g}. The "
        f"sum follows the integral up to about {leaves:.0f} tokens; then it scatters about "
        f"{(dim / 2) ** -0.5:.3f} for ever. The integral falls slowly, like a logarithm, to about "
        f"the distance {base:g}, and from there as one over the distance."
    )
