"""What the nearest tokens get before any content is compared; and what a unit makes of bits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from textwrap import wrap

import plotly.graph_objects as go
import torch
from torch import Tensor

from book.figures.marks import axis, bars, dots, line
from lab.explore import COLOURS, PALETTE, Drawn, computed, layout

__all__ = ["leads_in_units", "near_share", "nearest_tokens", "unit_strictness"]

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


BITS = [round(0.005 * i, 3) for i in range(31)]


@computed
def _more(unit: Tensor) -> dict[str, Tensor]:
    """Return by how many percent perplexity grows with bits a byte, and the bits of 5% and 10%."""
    bits = torch.tensor(BITS, dtype=torch.float64)
    shares = torch.tensor([0.05, 0.1], dtype=torch.float64)
    return {"more": 100 * (2 ** (unit * bits) - 1), "strict": (1 + shares).log2() / unit}


def unit_strictness(unit: float) -> Drawn:
    """Draw how much perplexity a difference in bits a byte makes, :eq:`eq-perplexity`.

    Args:
        unit: Bytes c of the unit that perplexity counts.

    Returns:
        A figure with a line for this unit and one for bytes; dots at 5% and at 10%.
    """
    found = _more(unit)
    of_bytes = [round(100 * (2**b - 1), 3) for b in BITS]
    five, ten = found["strict"]
    hover = "%{x:.3f} bits: %{y:.1f}%"
    traces = [
        line(BITS, of_bytes, PALETTE["grey"], "bytes", width=2, dash="dot", hover=hover),
        line(BITS, found["more"], PALETTE["blue"], "this unit", hover=hover),
        dots(found["strict"], [5, 10], PALETTE["red"], "5% and 10%", hover=hover),
    ]
    axes = layout(
        height=360,
        margin={"l": 54, "r": 14, "t": 44, "b": 84},
        title_text=f"5% of perplexity: {five:.3f} bits a byte",
        xaxis=axis("bits a byte more", 0, 0.15, dtick=0.05),
        yaxis=axis("perplexity more, in %", 0, 30, dtick=10),
    )
    return Drawn(
        go.Figure(traces, axes),
        f"How many percent perplexity grows with the bits a byte, for units of {unit:g} bytes and "
        f"for bytes. 5% are {five:.3f} bits a byte here, 10% are {ten:.3f}.",
    )


def leads_in_units(unit: float, *, recorded: Mapping[str, tuple[str, float]]) -> Drawn:
    """Draw the perplexity of models over that of another one, in a unit: :eq:`eq-perplexity`.

    Args:
        unit: Bytes c that perplexity counts.
        recorded: Name of a model → its colour, and its bits a byte more than the other's.

    Returns:
        A figure of bars, in percent.
    """
    percent = {name: round(100 * (2 ** (unit * b) - 1), 1) for name, (_, b) in recorded.items()}
    least, most = min(percent.values()), max(percent.values())
    rows = bars(
        list(percent.values()),
        ["<br>".join(wrap(name, 17)) for name in percent],
        [COLOURS[colour] for colour, _ in recorded.values()],
        orientation="h",
        hover="%{x}%",
    )
    axes = layout(
        height=480,
        margin={"l": 120, "r": 14, "t": 44, "b": 48},
        title_text=f"units of {unit:g} bytes: {least:+.1f}% to {most:+.1f}%",
        xaxis=axis("% over softmax with RoPE", -20, 34, dtick=10),
        yaxis={"type": "category", "range": [len(percent) - 0.5, -0.5]},
        bargap=0.35,
    )
    first, *_, last = sorted(percent, key=lambda name: percent[name])
    return Drawn(
        go.Figure(rows, axes),
        f"Perplexity of units of {unit:g} bytes over that of softmax with RoPE, after 4,000 steps, "
        f"a bar for each of {len(percent)} models: from {least:+.1f}%, {first}, to {most:+.1f}%, "
        f"{last}.",
    )
