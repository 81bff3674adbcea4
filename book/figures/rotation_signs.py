"""What turning features costs and buys: a mean over turns, the width of a peak, and a pole."""

from __future__ import annotations

import math

import plotly.graph_objects as go
import torch
from torch import Tensor

from book.figures.marks import axis, dots, line, rounded
from lab.explore import COLOURS, PALETTE, Drawn, computed, layout
from stringlib.positions import geometric_frequencies

__all__ = ["fastest_frequency", "near_the_pole", "turned_product"]

TURNS = 120
OFFSETS = [round(0.2 * i, 1) for i in range(-80, 81)]
HALF = 1.8955  # sin(x) / x is one half there
ANGLES = [3 * i for i in range(121)]


@computed
def _product(position: Tensor, offset: Tensor) -> dict[str, Tensor]:
    """Return the product of ReLU features after every common turn, at no turn, and the mean."""
    turns = torch.arange(TURNS + 1).double() * (2 * math.pi / TURNS)
    query, key = position + turns, position + offset + turns + math.pi / 2
    features = torch.stack([query.cos(), query.sin(), key.cos(), key.sin()]).relu()
    products = (features[:2] * features[2:]).sum(0)
    mean = products[:-1].mean(-1)
    return {"products": products, "here": products[:1], "mean": mean.expand(2)}


def turned_product(position: float, offset: float) -> Drawn:
    r"""Draw the product of one query and one key, turned before ReLU, against a turn of both.

    The query is (1, 0) and the key (0, 1), in a plane that turns by one radian a token. A random
    turn of both adds to the position, :eq:`eq-torus-turn`: the curve slides, and keeps its mean.

    Args:
        position: That of the query.
        offset: From the query to the key.

    Returns:
        A figure of a line, its mean, and a dot where nothing is turned.
    """
    found = _product(position, offset)
    (here,), (mean, _) = found["here"], found["mean"]
    turns = [round(360 / TURNS * i) for i in range(TURNS + 1)]
    drawn = [
        line(turns, found["products"], COLOURS["relu"], "product", hover="%{x}°: %{y:.2f}"),
        line([0, 360], found["mean"], PALETTE["grey"], "mean over all turns", dash="dash"),
        dots([0], found["here"], PALETTE["red"], "no turn"),
    ]
    axes = layout(
        height=360,
        title_text=f"without a turn {here:.2f}, mean over all turns {mean:.2f}",
        xaxis=axis("turn of query and key (degrees)", -8, 360, dtick=90),
        yaxis=axis(low=-0.05, high=1.1, dtick=0.5),
    )
    return Drawn(
        go.Figure(drawn, axes),
        f"Product of the ReLU features of a query at {position:g} and a key {offset:g} tokens on, "
        f"against a turn of both: {here:.2f} without a turn, and {mean:.2f} in the mean over all "
        "turns, whatever the position.",
    )


@computed
def _band(fastest: Tensor) -> dict[str, Tensor]:
    """Return a mean of 32 cosines spread evenly, and the offset at which it is one half."""
    offsets = torch.tensor(OFFSETS, dtype=torch.float64)
    waves = fastest * (torch.arange(32).double() + 0.5) / 32
    kernel = torch.outer(offsets, waves).cos().mean(-1)
    return {"kernel": kernel, "half": HALF / fastest, "lowest": kernel.amin(-1)}


def fastest_frequency(fastest: float) -> Drawn:
    """Draw a kernel turned after its features against the offset, beside RoPE's and softmax.

    It is :eq:`eq-rotation-pair` with equal pairs: a mean of cosines.

    Args:
        fastest: The highest of 32 frequencies that are spread evenly, in radians a token.

    Returns:
        A figure of three lines.
    """
    found = _band(fastest)
    slow = torch.outer(torch.tensor(OFFSETS).double(), geometric_frequencies(32, 100.0))
    hill = slow.cos().mean(-1)
    drawn = [
        line(
            OFFSETS, rounded(hill, 2), COLOURS["favor"], "after φ, geometric", width=2, dash="dash"
        ),
        line(
            OFFSETS, rounded((16 * (hill - 1)).exp(), 2), COLOURS["softmax"], "softmax, geometric"
        ),
        line(OFFSETS, found["kernel"], COLOURS["favor"], "after φ, even", hover="%{x}: %{y:.2f}"),
    ]
    half, lowest = found["half"], found["lowest"]
    axes = layout(
        height=400,
        title_text=f"even: one half at {half:.1f} tokens, lowest {lowest:.2f}",
        xaxis=axis("offset δ", -16, 16, dtick=4),
        yaxis=axis("kernel", -0.35, 1.05),
        margin={"b": 96},
    )
    return Drawn(
        go.Figure(drawn, axes),
        "Three kernels against the offset from -16 to 16, each 1 at 0. Softmax with RoPE's "
        "frequencies of base 100 is a narrow peak, the same turned after the features a broad "
        f"hill. Frequencies spread evenly up to {fastest:g} fall to one half at {half:.1f} "
        f"tokens, and to {lowest:.2f} at the lowest.",
    )


@computed
def _pole(angle: Tensor) -> dict[str, Tensor]:
    """Return the output by either denominator at all angles and at one, and its denominator."""
    every = torch.cat([torch.tensor(ANGLES).double(), angle[None]]).deg2rad()
    own = (1 - every.cos()) / (1 + every.cos())
    shown = torch.where(own < 12, own, math.nan)
    alone = (1 - every.cos()) / 2
    return {
        "own": shown[:-1],
        "here": torch.stack([shown[-1], alone[-1]]),
        "output": own[-1],
        "alone": alone[-1],
        "denominator": 1 + every[-1].cos(),
    }


def near_the_pole(angle: float) -> Drawn:
    """Draw the output of two tokens with equal features and the values 1 and -1, turned after φ.

    It is that of the first token, by :eq:`eq-rotation-after` with its own denominator, and by
    :eq:`eq-rotation-numerator` with that of features which are not turned.

    Args:
        angle: Degrees from one token to the next; not 180, where the denominator is 0.

    Returns:
        A figure of two lines.
    """
    found = _pole(angle)
    red, teal = PALETTE["red"], COLOURS["relu"]
    plain = torch.tensor(ANGLES).double().deg2rad()
    drawn = [
        line([0, 360, 360, 0], [1, 1, -1, -1], PALETTE["grey"], "between the values", width=0,
             fill="toself"),
        line(ANGLES, found["own"], red, "own denominator", hover="%{x}°: %{y:.2f}"),
        line(ANGLES, rounded((1 - plain.cos()) / 2), teal, "numerator alone",
             hover="%{x}°: %{y:.2f}"),
        dots([angle, angle], found["here"], [red, teal]),
    ]  # fmt: skip
    output, denominator = found["output"], found["denominator"]
    axes = layout(
        height=400,
        title_text=f"denominator {denominator:.4f}: output {output:,.1f}",
        xaxis=axis("turn a token (degrees)", 0, 360, dtick=90),
        yaxis=axis("output", -1.3, 12),
        margin={"b": 96},
    )
    return Drawn(
        go.Figure(drawn, axes),
        f"Output for the values 1 and -1 at a turn of {angle:g} degrees a token: the denominator "
        f"is {denominator:.4f} and the output {output:,.1f}, where a mean would lie between the "
        f"values. With the numerator alone turned it is {found['alone']:.2f}, and has no pole.",
    )
