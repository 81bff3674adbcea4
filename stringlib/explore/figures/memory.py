"""What is left of every past token, under a constant decay and under one that the tokens choose."""

from __future__ import annotations

import plotly.graph_objects as go
import torch
from torch import Tensor

from stringlib.attention.decay import decay_mask
from stringlib.explore.style import COLOURS, PALETTE, layout

__all__ = ["decay_memory", "decay_memory_text"]

TOKENS, FACT = 32, 12
CONSTANT, GATED = COLOURS["retnet"], COLOURS["ssd"]


def _decays(gamma: float, reset: float, kept: float) -> dict[str, Tensor]:
    """Return the factor of each token for both decays."""
    gated = torch.ones(TOKENS, dtype=torch.float64)
    gated[int(reset)] = kept
    return {"constant": torch.full_like(gated, gamma), "gated": gated}


def _left(factors: Tensor) -> Tensor:
    """Return how much of every token the last one still finds."""
    return decay_mask(factors.log())[-1]


def decay_memory(gamma: float, reset: float, kept: float) -> go.Figure:
    """Draw the weight of every past token for the last one, and the decays that make it.

    Args:
        gamma: The constant decay.
        reset: The one token at which the other decay is not 1.
        kept: What it is there.

    Returns:
        A figure with two panels, weights above, decays below.
    """
    places, rows, found = list(range(TOKENS)), [], []
    for (name, row), colour, width in zip(
        _decays(gamma, reset, kept).items(), (CONSTANT, GATED), (3.5, 2), strict=True
    ):
        left = _left(row)
        rows.append(_line(places, left, f"{name} decay", colour, width))
        rows.append(_line(places, row, None, colour, width))
        found.append(left[FACT].item())
    rows.append(
        go.Scatter(
            x=[FACT, FACT],
            y=[round(y, 4) for y in found],
            mode="markers",
            marker={"color": [CONSTANT, GATED], "size": 12, "symbol": "star"},
            name=f"token {FACT}",
            showlegend=False,
            hovertemplate="what is left: %{y:.2f}<extra></extra>",
        )
    )
    heads = (
        (f"left of each token at token {TOKENS - 1}; of token {FACT}: "
         f"{found[0]:.2f} and {found[1]:.2f}", "y"),
        ("decay at each token", "y2"),
    )  # fmt: skip
    axis = {"range": [-0.06, 1.08], "dtick": 0.5}
    return go.Figure(rows).update_layout(
        layout(
            height=460,
            margin={"l": 40, "r": 14, "t": 30, "b": 92},
            xaxis={"range": [-0.8, TOKENS - 0.2], "dtick": 4, "anchor": "y2",
                   "title": {"text": "token", "standoff": 2}},
            yaxis={"domain": [0.42, 1], **axis},
            yaxis2={"domain": [0, 0.3], "anchor": "x", **axis},
            annotations=[
                {"text": text, "x": 0.5, "y": 1, "xref": "paper", "yref": f"{y} domain",
                 "yanchor": "bottom", "showarrow": False}
                for text, y in heads
            ],
            shapes=[
                {"type": "line", "x0": FACT, "x1": FACT, "y0": 0, "y1": 1, "xref": "x",
                 "yref": "y domain", "layer": "below",
                 "line": {"color": PALETTE["grey"], "width": 1, "dash": "dot"}}
            ],
        )
    )  # fmt: skip


def _line(x: list[int], y: Tensor, name: str | None, colour: str, width: float) -> go.Scatter:
    """Return steps; a line without a name lies in the lower panel."""
    return go.Scatter(
        x=x,
        y=[round(v, 4) for v in y.tolist()],
        yaxis="y" if name else "y2",
        mode="lines+markers",
        line={"color": colour, "width": width, "shape": "linear" if name else "hvh"},
        marker={"size": 5},
        name=name,
        showlegend=bool(name),
        hovertemplate="token %{x}: %{y:.3f}<extra></extra>",
    )


def decay_memory_text(gamma: float, reset: float, kept: float) -> str:
    """Say what :func:`decay_memory` shows in a state."""
    constant, gated = (_left(row) for row in _decays(gamma, reset, kept).values())
    return (
        f"Two panels over {TOKENS} tokens. Above, what the last token still finds of each: under "
        f"the constant decay {gamma:g} it rises from {constant[0]:.2f} for the first token to 1 "
        f"for the last, with {constant[FACT]:.2f} for token {FACT}; under the gated decay it is "
        f"{gated[0]:.2f} before token {int(reset)} and 1 from there on, with {gated[FACT]:.2f} for "
        f"token {FACT}. Below, the decays: {gamma:g} everywhere, and 1 everywhere but {kept:g} at "
        f"token {int(reset)}."
    )
