"""How much of the attention the nearest tokens get before any content is compared."""

from __future__ import annotations

import math

import plotly.graph_objects as go

from stringlib.explore.style import COLOURS, layout

__all__ = ["near_share", "nearest_tokens", "nearest_tokens_text"]

NEAR = 4
"""Tokens that the title speaks of."""


def near_share(weights: list[float], near: int) -> float:
    """Return which share of all weight lies on the last ``near`` tokens, :eq:`eq-near-share`.

    Args:
        weights: The weight at distance 0, 1, 2 …
        near: How many of the nearest tokens.
    """
    return math.fsum(weights[:near]) / math.fsum(weights)


def _weights(length: int, half_life: float) -> dict[str, list[float]]:
    return {
        "uniform": [1.0] * length,
        "cosine": [math.cos(math.pi * d / (2 * length)) for d in range(length)],
        "gla": [2 ** (-d / half_life) for d in range(length)],
    }


def nearest_tokens(length: int, half_life: int) -> go.Figure:
    """Draw the share of the nearest k tokens, for every k, under three position weights.

    Args:
        length: Tokens that a query sees, itself among them; also the horizon of the cosine.
        half_life: Tokens after which the decay has lost a half.

    Returns:
        A figure with three curves.
    """
    length = int(length)
    names = {
        "uniform": "no weight",
        "cosine": f"cosine, M = {length}",
        "gla": f"decay, half-life {half_life}",
    }
    counts = [k for e in range(11) for k in (2**e, 3 * 2 ** (e - 1)) if k == int(k) and k <= length]
    counts = sorted({int(k) for k in counts})
    # as many points for every length, so that a slider moves them instead of drawing anew
    counts += [length] * (21 - len(counts))
    fig = go.Figure(
        [
            go.Scatter(
                x=counts,
                y=[round(near_share(w, k), 4) for k in counts],
                name=names[name],
                mode="lines",
                line={"color": COLOURS[name], "width": 2.5},
                hovertemplate="nearest %{x}: %{y:.1%}<extra></extra>",
            )
            for name, w in _weights(length, half_life).items()
        ]
    )
    fig.add_vline(NEAR, line={"color": COLOURS["uniform"], "dash": "dot", "width": 1})
    return fig.update_layout(
        layout(
            height=400,
            margin={"l": 54, "r": 14, "t": 44, "b": 96},
            title_text=f"{length} tokens in sight",
            xaxis={
                "type": "log",
                "range": [0, 3.02],
                "tickvals": [1, 4, 16, 64, 256, 1024],
                "title": {"text": "nearest tokens", "standoff": 4},
            },
            yaxis={"range": [0, 1.03], "tickformat": ".0%", "title": "share of the weight"},
        )
    )


def nearest_tokens_text(length: int, half_life: int) -> str:
    """Say what :func:`nearest_tokens` shows."""
    shares = {name: near_share(w, NEAR) for name, w in _weights(int(length), half_life).items()}
    return (
        f"Share of the position weight on the nearest tokens, of {length} in sight. The nearest "
        f"{NEAR} get {shares['uniform']:.1%} without a weight, {shares['cosine']:.1%} with the "
        f"cosine weight, and {shares['gla']:.1%} with a decay of half-life {half_life}."
    )
