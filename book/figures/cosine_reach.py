"""How near cosine weights reach, what they do beyond their horizon, and what more copies buy."""

from __future__ import annotations

import math

import plotly.graph_objects as go
import torch
from torch import Tensor

from book.figures.marks import axis, bars, box, line, rounded
from lab.explore import COLOURS, PALETTE, Drawn, Panel, computed, layout, panels
from stringlib import FallingWeight, RampWeight
from stringlib.attention.ramp import gauss_nodes

__all__ = ["COPIES", "beyond_horizon", "more_copies", "nearest_share"]

LENGTH = 1000
NAMES = {
    "uniform": "constant",
    "cosine": "cosine",
    "cosine-positive": "positive",
    "retnet": "decay",
}
DECAY = 63 / 64


@computed
def _shares(nearest: Tensor) -> dict[str, Tensor]:
    """Return what the nearest tokens get of four weights."""
    share = nearest / LENGTH
    wave = (math.pi * share / 2).sin()
    positive = share + (math.pi * share).sin() / math.pi
    decay = (1 - DECAY**nearest) / (1 - DECAY**LENGTH)
    return {"shares": torch.stack([share, wave, positive, decay]), "edges": nearest.expand(2)}


def nearest_share(nearest: int) -> Drawn:
    """Draw four weights against the distance, and what the nearest of 1,000 tokens get of each.

    The cosine of :eq:`eq-cosine-weight` has its horizon at the length, the positive form of
    :eq:`eq-cosine-positive` at half of it.

    Args:
        nearest: How many tokens.

    Returns:
        A figure of the weights, and of the shares.
    """
    found = _shares(nearest)
    at = [10 * i for i in range(101)]
    x = torch.tensor(at).double() / LENGTH
    rows = {
        "uniform": torch.ones_like(x),
        "cosine": (math.pi / 2 * x).cos(),
        "cosine-positive": (math.pi / 2 * x).cos() ** 2,
        "retnet": DECAY ** (LENGTH * x),
    }
    fig = panels(
        Panel(
            [
                *(line(at, rounded(row), COLOURS[name], NAMES[name]) for name, row in rows.items()),
                line(found["edges"], [0, 1.05], PALETTE["grey"], width=1.5, dash="dot"),
            ],
            x=axis("distance (tokens)", 0, LENGTH),
            y=axis("weight", 0, 1.05, dtick=0.5),
        ),
        Panel(
            [
                bars([*NAMES.values()], found["shares"], [COLOURS[name] for name in NAMES],
                     hover="%{x}: %{y:.1%}")
            ],
            y=axis("of the weight", 0, 1.05, tickformat=".0%", dtick=0.5),
        ),
        heights=(0.5, 0.3),
        down=0.19,
        height=470,
        title_text=f"the nearest {nearest:.0f}: cosine {found['shares'][1]:.1%}",
        showlegend=False,
    )  # fmt: skip
    told = ", ".join(
        f"{name} {share:.1%}" for name, share in zip(NAMES.values(), found["shares"], strict=True)
    )
    return Drawn(
        fig,
        "Four weights against the distance up to 1,000 tokens: a constant, a cosine flat at "
        "its top and 0 at the end, a positive form that falls a little sooner, and a decay that is "
        f"near 0 after a quarter. Of the weight the nearest {nearest:.0f} get: {told}.",
    )


TOKENS, REACH = 64, 130


@computed
def _means(horizon: Tensor) -> dict[str, Tensor]:
    """Return the outputs of all tokens for values 0 to 63, where they are near, and both ends."""
    place = torch.arange(TOKENS).double()
    angles = math.pi / 2 * place / horizon
    waves = torch.stack([angles.cos(), angles.sin()])  # products of two are the weights
    means = ((waves @ place) @ waves) / (waves.sum(-1) @ waves)
    middle = (TOKENS - 1) / 2
    outside = (means - middle).abs() > middle + 1e-9
    return {
        "means": torch.where((means - middle).abs() < REACH, means, math.nan),
        "ends": torch.stack([means[0], means[-1]]),
        "outside": outside.double().sum(-1),
    }


def beyond_horizon(horizon: float) -> Drawn:
    """Draw what tokens with equal features say of the values 0 to 63 under a cosine weight.

    Not causal, :eq:`eq-cosine-weight`: within the horizon each output is a mean.

    Args:
        horizon: M, in tokens, of 64.

    Returns:
        A figure of one line over a band where means lie.
    """
    found = _means(horizon)
    first, last = found["ends"]
    outside = found["outside"]
    look = {"fillcolor": PALETTE["grey"], "opacity": 0.2, "layer": "below"}
    axes = layout(
        height=360,
        title_text=f"M = {horizon:.0f}: first token {first:.0f}, last {last:.0f}",
        xaxis=axis("token", -0.5, TOKENS - 0.5, dtick=8),
        yaxis=axis("output", 31.5 - REACH, 31.5 + REACH, dtick=63, tick0=0),
        shapes=[{**box(-0.5, TOKENS - 0.5, 0, TOKENS - 1, width=0), **look}],
    )
    drawn = line(None, found["means"], COLOURS["cosine"], mode="lines+markers",
                 marker={"size": 4}, hover="token %{x}: %{y:.1f}")  # fmt: skip
    return Drawn(
        go.Figure([drawn], axes),
        f"Outputs of {TOKENS} tokens for the values 0 to 63, horizon {horizon:.0f}; a band marks "
        f"where means lie. {outside:.0f} outputs are outside: the first token says {first:.0f}, "
        f"the last {last:.0f}.",
    )


COPIES = ("2", "3", "4", "5", "6")
"""The numbers of copies of :func:`more_copies`."""


def more_copies(copies: str) -> Drawn:
    """Draw a ramp and the best falling polynomial of as many copies, each over its mean.

    They are :eq:`eq-ramp-weight` and :eq:`eq-falling-weight`; at distance 0 they are as high as
    their *heights*, :eq:`eq-falling-best`.

    Args:
        copies: One of ``COPIES``.

    Returns:
        A figure of two lines.
    """
    power = int(copies) - 1
    shown, heights, tenths = [], [], []
    for weight, height in (
        (RampWeight(LENGTH, power), power + 1),
        (FallingWeight(LENGTH, power), 1 / gauss_nodes(power)[0]),
    ):
        row = weight.matrix(LENGTH, LENGTH)[-1].flip(0)
        tenths.append((row[: LENGTH // 10].sum() / row.sum()).item())
        shown.append(rounded(height * row[::20] / row[0], 2))
        heights.append(height)
    at = [step / 50 for step in range(50)]
    drawn = [
        line(at, row, COLOURS[name], said, dash=dash, hover="%{x} M: %{y:.2f}")
        for row, name, said, dash in zip(
            shown, ("ramp", "falling"), ("ramp", "best falling"), ("dash", "solid"), strict=True
        )
    ]
    told = f"{copies} copies: the nearest tenth gets {tenths[0]:.0%} and {tenths[1]:.0%}"
    axes = layout(
        height=360,
        title_text=told,
        xaxis=axis("distance, in horizons M", 0, 1, dtick=0.2),
        yaxis=axis("weight over its mean", 0, 9.2),
    )
    return Drawn(
        go.Figure(drawn, axes),
        f"{told}, of a ramp and of the best polynomial. Against the distance both fall from their "
        f"heights, {heights[0]} and {heights[1]:.2f}, to 0 at the horizon.",
    )
