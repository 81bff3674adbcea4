"""How much of the attention the nearest tokens get before any content is compared."""

from __future__ import annotations

import math

import plotly.graph_objects as go
import torch
from torch import Tensor

from book.figures.marks import axis, line
from lab.explore import COLOURS, Drawn, computed, layout

__all__ = ["near_share", "nearest_tokens"]

NEAR = 4
"""Tokens that the title speaks of."""
COUNTS = sorted({*(2**e for e in range(11)), *(3 * 2**e for e in range(9))})  # 1 to 1024


def near_share(weights: list[float], near: int) -> float:
    """Return which share of all weight lies on the last ``near`` tokens, :eq:`eq-near-share`.

    Args:
        weights: The weight at distance 0, 1, 2 …
        near: How many of the nearest tokens.
    """
    return math.fsum(weights[:near]) / math.fsum(weights)


@computed
def _shares(length: Tensor, half_life: Tensor) -> dict[str, Tensor]:
    """Return the share of the nearest tokens for each of ``counts``, and of the nearest four."""
    distances = torch.arange(COUNTS[-1], dtype=torch.float64)
    weights = {
        "uniform": (distances < length).double(),
        "cosine": (distances / length * math.pi / 2).cos(),
        "gla": 2 ** (distances / -half_life),
    }
    # as many points for every length, so that a slider moves them instead of drawing anew
    counts = torch.tensor(COUNTS, dtype=torch.float64).minimum(length)
    within = torch.cat([counts, torch.tensor([NEAR])])[:, None] > distances
    seen = torch.stack([*weights.values()]) * (distances < length)
    shares = (seen @ within.double().mT) / seen.sum(-1, keepdim=True)
    return {"counts": counts, **dict(zip(weights, shares, strict=True))}


def nearest_tokens(length: int, half_life: int) -> Drawn:
    """Draw the share of the nearest k tokens, for every k, under three position weights.

    Args:
        length: Tokens that a query sees, itself among them; also the horizon of the cosine.
        half_life: Tokens after which the decay has lost a half.

    Returns:
        A figure with three curves.
    """
    found = _shares(length, half_life)
    names = {
        "uniform": "no weight",
        "cosine": f"cosine, M = {length:g}",
        "gla": f"decay, half-life {half_life:g}",
    }
    curves = [
        line(
            found["counts"],
            found[name][:-1],
            COLOURS[name],
            label,
            hover="nearest %{x}: %{y:.1%}",
        )
        for name, label in names.items()
    ]
    axes = layout(
        height=400,
        margin={"l": 54, "r": 14, "t": 44, "b": 96},
        title_text=f"{length:g} tokens in sight",
        xaxis=axis("nearest tokens", 0, 3.02, type="log", tickvals=[1, 4, 16, 64, 256, 1024]),
        yaxis=axis("share of the weight", 0, 1.03, tickformat=".0%"),
    )
    fig = go.Figure(curves, axes)
    fig.add_vline(NEAR, line={"color": COLOURS["uniform"], "dash": "dot", "width": 1})
    shares = {name: found[name][-1] for name in names}
    return Drawn(
        fig,
        f"Share of the position weight on the nearest tokens, of {length:g} in sight. The nearest "
        f"{NEAR} get {shares['uniform']:.1%} without a weight, {shares['cosine']:.1%} with the "
        f"cosine weight, and {shares['gla']:.1%} with a decay of half-life {half_life:g}.",
    )
