"""What shifting every position does to the scores: nothing when they are relative."""

from __future__ import annotations

import plotly.graph_objects as go
import torch
from torch import Tensor

from stringlib import RoPE
from stringlib.explore.style import DIVERGING, heading, layout
from stringlib.positions import geometric_frequencies

__all__ = ["shifted_scores", "shifted_scores_text"]

TOKENS = 24
DIM = 32
AXES = ("", "2")


def _added(x: Tensor, positions: Tensor) -> Tensor:
    """Add the sinusoidal table to ``x`` of shape ``(tokens, dim)``."""
    angles = positions * geometric_frequencies(DIM // 2)
    return x + torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)


def _scores(shift: float) -> tuple[Tensor, Tensor]:
    """Return the scores over √d of fixed random tokens: rotated, and with the table added."""
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, TOKENS, DIM, generator=generator, dtype=torch.float64)
    positions = torch.arange(TOKENS, dtype=torch.float64)[:, None] + shift
    rotated_q, rotated_k = RoPE(DIM)(q[None], k[None], positions)
    rotated = rotated_q[0] @ rotated_k[0].mT
    added = _added(q, positions) @ _added(k, positions).mT
    return rotated / DIM**0.5, added / DIM**0.5


def _changes(shift: float) -> tuple[float, float]:
    """Return the largest change of a score since shift 0, for both encodings."""
    rotated, added = (
        (now - before).abs().max().item()
        for now, before in zip(_scores(shift), _scores(0), strict=True)
    )
    return rotated, added


def shifted_scores(shift: float) -> go.Figure:
    """Draw the scores, over √d, of 24 random tokens whose positions all move by ``shift``.

    Left the positions rotate queries and keys (RoPE), right a sinusoidal table
    is added to them.  The heads print the largest change since shift 0.

    Args:
        shift: What is added to every position, in tokens.

    Returns:
        A figure of two heat-maps with one colour scale.
    """
    names = ("rotated (RoPE)", "sinusoid added")
    fig = go.Figure(
        [
            go.Heatmap(
                z=scores.round(decimals=2).tolist(),
                coloraxis="coloraxis",
                hovertemplate="query %{y}, key %{x}: %{z:.2f}<extra></extra>",
                xaxis=f"x{axis}",
                yaxis=f"y{axis}",
            )
            for axis, scores in zip(AXES, _scores(shift), strict=True)
        ]
    )
    heads = [
        f"{name}<br>largest change {change:.2f}"
        for name, change in zip(names, _changes(shift), strict=True)
    ]
    fig.update_layout(
        layout(
            height=360,
            margin={"l": 40, "r": 10, "t": 48, "b": 92},
            coloraxis={
                "colorscale": DIVERGING,
                "cmin": -4,
                "cmax": 4,
                "colorbar": {
                    "orientation": "h",
                    "y": -0.2,
                    "yanchor": "top",
                    "len": 0.8,
                    "title": {"text": "score", "side": "bottom"},
                },
            },
            annotations=[
                heading(text, xref=f"x{axis} domain", yref=f"y{axis} domain")
                for axis, text in zip(AXES, heads, strict=True)
            ],
        )
    )
    for axis, domain in zip(AXES, ([0, 0.47], [0.53, 1]), strict=True):
        square = {
            "constrain": "domain",
            "showgrid": False,
            "zeroline": False,
            "dtick": 8,
            "ticks": "",
        }
        fig.update_layout(
            {
                f"xaxis{axis}": {
                    **square,
                    "domain": domain,
                    "anchor": f"y{axis}",
                    "title": {"text": "key", "standoff": 4},
                },
                f"yaxis{axis}": {
                    **square,
                    "anchor": f"x{axis}",
                    "scaleanchor": f"x{axis}",
                    "range": [TOKENS - 0.5, -0.5],
                    "constraintoward": "top",
                },
            }
        )
    return fig.update_layout(yaxis_title={"text": "query", "standoff": 4})


def shifted_scores_text(shift: float) -> str:
    """Say what :func:`shifted_scores` shows in a state."""
    rotated, added = _changes(shift)
    return (
        f"Two heat-maps of the scores between {TOKENS} queries and {TOKENS} keys, "
        f"every position shifted by {shift:g}. "
        f"Left, rotated by RoPE, the largest change since shift 0 is {rotated:.2f}; "
        f"right, with the sinusoidal table added, it is {added:.2f}."
    )
