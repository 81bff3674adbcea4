"""What turning features costs and buys: a drift, a mean over turns, a peak's width, and a pole."""

from __future__ import annotations

import math
from functools import lru_cache

import plotly.graph_objects as go
import torch
from torch import Tensor

from book.figures.marks import axis, dots, level, line, rounded
from lab.explore import COLOURS, PALETTE, Drawn, Panel, computed, layout, panels
from stringlib.positions import geometric_frequencies

__all__ = [
    "DRIFTING",
    "drifting_kernel",
    "fastest_frequency",
    "near_the_pole",
    "turned_product",
]

DRIFTING = {"random, exp": "favor", "random, ReLU": "relu", "ReLU": "relu", "elu + 1": "elu"}
"""The feature maps of :func:`drifting_kernel`, and their methods."""
SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256]  # rows; as many as the last are drawn
AROUND = 60  # places on the circle
BETWEEN = math.pi / 3  # the angle from query to key

TURNS = 120
OFFSETS = [round(0.2 * i, 1) for i in range(-80, 81)]
HALF = 1.8955  # sin(x) / x is one half there
ANGLES = [3 * i for i in range(121)]


def _products(rows: Tensor, length: Tensor, features: str) -> Tensor:
    """Return what each row adds to the product of query and key, at each turn of both."""
    turns = torch.arange(AROUND + 1).double() * (2 * math.pi / AROUND)
    angles = torch.cat([turns, turns + BETWEEN])
    seen = (length * rows) @ torch.stack([angles.cos(), angles.sin()])
    if features == "random, exp":
        mapped = (seen - length**2 / 2).exp()
    elif features == "elu + 1":
        mapped = torch.where(seen > 0, seen + 1, seen.exp())
    else:
        mapped = seen.relu()
    return mapped[:, : AROUND + 1] * mapped[:, AROUND + 1 :]


def _drift(kernel: Tensor) -> Tensor:
    """Return by how much kernels vary around the circle, in percent of their mean: ``(...)``."""
    inner = kernel[..., :-1]  # the last place is the first
    mean = inner.mean(-1)
    return 100 * (inner - mean[..., None]).square().mean(-1).sqrt() / mean


@lru_cache
def _rows(features: str) -> list[list[float]]:
    """Return the rows of the random matrix of a feature map, or of the unit matrix."""
    if features not in DRIFTING:
        raise ValueError(f"features must be one of {[*DRIFTING]}, got {features!r}")
    if not features.startswith("random"):
        return [[1.0, 0.0], [0.0, 1.0]]
    drawn = torch.randn(SIZES[-1], 2, generator=torch.Generator().manual_seed(4)).double()
    return rounded(drawn)


@lru_cache
def _relu_drift() -> float:
    """Return the drift of one row before ReLU, in the mean over many; m rows have it over √m."""
    rows = torch.randn(20_000, 2, generator=torch.Generator().manual_seed(5)).double()
    products = _products(rows, torch.tensor(1.0).double(), "ReLU")[:, :-1]
    spread = products.var(-1, unbiased=False).mean().sqrt()
    return 100 * (spread / products.mean()).item()


@computed
def _moved_kernel(
    rows: Tensor, length: Tensor, weight: list[list[float]], features: str, one: float
) -> dict[str, Tensor]:
    """Return the product of the first rows around the circle, over its mean, and its drifts."""
    sums = _products(torch.tensor(weight, dtype=torch.float64), length, features).cumsum(0)
    sizes = torch.tensor(SIZES)
    if len(weight) < SIZES[-1]:  # all of it, where rows are not drawn
        used, of = sums[-1:], sums[-1:].expand(len(SIZES), -1)
    else:
        here = (torch.arange(1, len(weight) + 1) == rows).double()
        used, of = here[None] @ sums, sums[sizes - 1]
    turns = torch.arange(AROUND).double() * (2 * math.pi / AROUND)
    both = 2 * length**2 * (1 + math.cos(BETWEEN))  # the square of the length of q + k
    law = 100 * (both.exp() - (both * turns.cos()).exp().mean(-1)).sqrt()
    law = law if features == "random, exp" else torch.full_like(law, one)
    drift = _drift(used)
    return {
        "kernel": used[0] / used[0, :-1].mean(-1),
        "drift": drift,
        "drifts": _drift(of),
        "law": law / sizes.double().sqrt(),
    }


def drifting_kernel(features: str, rows: int, length: float) -> Drawn:
    """Draw how one product of features changes when query and key are turned together before it.

    A plane, as :eq:`eq-torus-shift` has it: moving both tokens turns them.

    Args:
        features: One of ``DRIFTING``; the random ones take the first rows of one matrix.
        rows: Random rows m, at most 256; the others have two, and no more.
        length: Of query and key.

    Returns:
        A figure of two panels, the product against the turn and its drift against m.

    Raises:
        ValueError: If the features are unknown.
    """
    weight = _rows(features)
    random = len(weight) == SIZES[-1]
    one = _relu_drift() if features == "random, ReLU" else math.nan
    found = _moved_kernel(rows, length, weight, features, one)
    colour = COLOURS[DRIFTING[features]]
    turns = [round(360 / AROUND * i) for i in range(AROUND + 1)]
    (percent,) = found["drift"]
    count = f"m = {rows:.0f}" if random else "no m"
    kernel = Panel(
        [line(turns, found["kernel"], colour, hover="%{x}°: %{y:.2f}")],
        f"{count}: drifts by {percent:.1f}%",
        x=axis("turn (degrees)", 0, 360, dtick=90),
        y=axis("product over its mean", 0, 3.1, dtick=1),
        shapes=[level(1, width=1.5, dash="dash")],
    )
    law = found["law"] if random else [None] * len(SIZES)
    falls = Panel(
        [
            line(SIZES, law, PALETTE["grey"], "1/√m", dash="dash", hover="%{y:.1f}%"),
            line(SIZES, found["drifts"], colour, "this draw", hover="m = %{x}: %{y:.1f}%"),
            dots([rows], [percent], PALETTE["red"], size=13),
        ],
        "drift, in %, against m",
        x=axis("rows m", -0.1, 2.5, type="log", tickvals=[1, 4, 16, 64, 256]),
        y=axis(low=-0.3, high=2.8, type="log", tickvals=[1, 10, 100]),
    )
    fig = panels(
        [kernel, falls], across=0.16, height=360, margin={"l": 48, "r": 14, "t": 36, "b": 96}
    )
    return Drawn(
        fig,
        f"The product of the features of a query and a key of length {length:g}, {features}, "
        f"{count}, against a turn of both: it drifts by {percent:.1f}% of its mean. Beside it the "
        f"drift against the rows, here {rows:g}"
        + (": it falls as one over their square root." if random else ": they do nothing."),
    )


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

    The query is (1, 0) and the key (0, 1), in a plane that turns by one radian per token. A random
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
        fastest: The highest of 32 frequencies that are spread evenly, in radians per token.

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
        xaxis=axis("turn per token (degrees)", 0, 360, dtick=90),
        yaxis=axis("output", -1.3, 12),
        margin={"b": 96},
    )
    return Drawn(
        go.Figure(drawn, axes),
        f"Output for the values 1 and -1 at a turn of {angle:g} degrees per token: the denominator "
        f"is {denominator:.4f} and the output {output:,.1f}, where a mean would lie between the "
        f"values. With the numerator alone turned it is {found['alone']:.2f}, and has no pole.",
    )
