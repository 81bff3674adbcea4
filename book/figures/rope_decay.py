"""How the mean wave of RoPE falls with distance, beside the integral that it starts as."""

from __future__ import annotations

import math
from typing import Any

import plotly.graph_objects as go
import torch

from book.figures.marks import axis, line, significant
from lab.explore import COLOURS, PALETTE, Drawn, layout
from lab.theory import rope_decay
from stringlib.positions import geometric_frequencies

__all__ = ["decay_curves"]

LARGEST, POINTS = 7, 211  # distances up to 10^7, 30 a decade
LOWEST, HIGHEST = 3e-4, 1.6


def decay_curves(dim: int, base: float) -> Drawn:
    r"""Draw :math:`|S(t)|` and :math:`|I(t)|` against distance, with both laws of the integral.

    Args:
        dim: Channels d of a head: d/2 waves in the sum.
        base: The base b of the frequencies.

    Returns:
        A figure with logarithmic axes.
    """
    # whole distances, evenly spread on the logarithmic axis
    t = torch.logspace(0, LARGEST, POINTS, dtype=torch.float64).round().unique()
    total = rope_decay.phase_sum(t, geometric_frequencies(dim // 2, base)).abs()
    integral = rope_decay.phase_integral(t, base).abs()
    early, late = rope_decay.regimes(t, base)
    within_early = [v if v > LOWEST else None for v in early.tolist()]
    within_late = [v if v < HIGHEST else None for v in late.tolist()]
    floor, leaves = (dim / 2) ** -0.5, rope_decay.horizon(dim // 2, base)
    grey = PALETTE["grey"]

    def curve(y: Any, colour: str, name: str, **look: Any) -> go.Scatter:
        shown = significant(y, 4)  # more than a reader sees
        return line(t.tolist(), shown, colour, name, hover="t = %{x}: %{y:.3g}", **look)

    curves = [
        curve(total, COLOURS["rope"], "sum |S|", width=1.2),
        curve(integral, PALETTE["orange"], "integral |I|", width=3),
        curve(within_early, PALETTE["teal"], "(ln(b/t) − γ)/ln b", width=2, dash="dash"),
        curve(within_late, PALETTE["magenta"], "b/(t ln b)", width=2, dash="dot"),
        line([1, 10**LARGEST], [floor, floor], grey, "1/√(d/2)", width=1.5),
    ]
    powers: dict[str, Any] = {"type": "log", "dtick": 1, "exponentformat": "power"}
    fig = go.Figure(
        curves,
        layout(
            height=430,
            margin={"l": 54, "r": 14, "t": 44, "b": 110},
            title_text=f"horizon πd/ln b = {leaves:.0f} tokens",
            xaxis=axis("distance t (tokens)", 0, LARGEST, **powers),
            yaxis=axis(low=math.log10(LOWEST), high=math.log10(HIGHEST), **powers),
        ),
    )
    fig.add_vline(leaves, line={"color": grey, "width": 1.5, "dash": "dot"})
    return Drawn(
        fig,
        f"Both axes logarithmic: distances from 1 to ten million, d = {dim}, base {base:g}. The "
        f"sum follows the integral up to about {leaves:.0f} tokens; from there it also scatters, "
        f"in the end by about {floor:.3f} for ever. The integral falls slowly, like a "
        f"logarithm, to about the distance {base:g}, and from there as one over the distance.",
    )
