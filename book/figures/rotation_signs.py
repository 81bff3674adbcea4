"""Rotations and feature maps: a drift, a mean over rotations, the width of a peak, and a pole."""

from __future__ import annotations

import math
from functools import lru_cache

import plotly.graph_objects as go
import torch
from torch import Tensor

from book.figures.marks import axis, dots, level, line, rounded
from lab.explore import COLOURS, PALETTE, Drawn, Panel, computed, layout, panels
from stringlib.kernels.rotation import geometric_frequencies

__all__ = [
    "DRIFTING",
    "drifting_kernel",
    "fastest_frequency",
    "near_the_pole",
    "turned_product",
]

DRIFTING = {"random, exp": "favor", "random, ReLU": "relu", "ReLU": "relu", "elu + 1": "elu"}
"""The feature maps of :func:`drifting_kernel`, and their methods."""
SPOKEN = {
    "random, exp": "positive random features",
    "random, ReLU": "ReLU of a random projection",
    "ReLU": "ReLU without a projection",
    "elu + 1": "elu + 1 without a projection",
}
SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256]  # numbers of rows
AROUND = 60  # points on the circle
BETWEEN = math.pi / 3  # the angle from query to key

TURNS = 120
OFFSETS = [round(0.2 * i, 1) for i in range(-80, 81)]
HALF = 1.8955  # sin(x) / x is one half there
ANGLES = [3 * i for i in range(121)]


def _products(rows: Tensor, length: Tensor, features: str) -> Tensor:
    """Return the part of each row in the product of query and key, at each rotation of both."""
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
    inner = kernel[..., :-1]  # the last point is the first
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
    """Return the mean drift of one row before ReLU; m rows have this drift divided by √m."""
    rows = torch.randn(20_000, 2, generator=torch.Generator().manual_seed(5)).double()
    products = _products(rows, torch.tensor(1.0).double(), "ReLU")[:, :-1]
    spread = products.var(-1, unbiased=False).mean().sqrt()
    return 100 * (spread / products.mean()).item()


@computed
def _moved_kernel(
    rows: Tensor, length: Tensor, weight: list[list[float]], features: str, one: float
) -> dict[str, Tensor]:
    """Return the product of the first rows divided by its mean around the circle, and drifts."""
    sums = _products(torch.tensor(weight, dtype=torch.float64), length, features).cumsum(0)
    sizes = torch.tensor(SIZES)
    if len(weight) < SIZES[-1]:  # all rows, if they are not random
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
    """Draw how one product of features changes when query and key are rotated together before it.

    In a plane a shift of both tokens is a rotation, :eq:`eq-torus-shift`.

    Args:
        features: One of ``DRIFTING``; the random ones take the first rows of one matrix.
        rows: Number m of random rows, at most 256; the other feature maps have two rows.
        length: Norm of query and key.

    Returns:
        A figure of two panels, the product against the rotation and its drift against m.

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
    count = f"m = {rows:.0f}" if random else "2 fixed rows"
    kernel = Panel(
        [line(turns, found["kernel"], colour, hover="%{x}°: %{y:.2f}")],
        f"{count}: drift {percent:.1f}%",
        x=axis("rotation of query and key (°)", 0, 360, dtick=90),
        y=axis("product / mean product", 0, 3.1, dtick=1),
        shapes=[level(1, width=1.5, dash="dash")],
    )
    law = found["law"] if random else [None] * len(SIZES)
    falls = Panel(
        [
            line(SIZES, law, PALETTE["grey"], "mean over draws", dash="dash", hover="%{y:.1f}%"),
            line(SIZES, found["drifts"], colour, "this draw", hover="m = %{x}: %{y:.1f}%"),
            dots([rows], [percent], PALETTE["red"], size=13),
        ],
        "drift (%) against m",
        x=axis("number of rows m", -0.1, 2.5, type="log", tickvals=[1, 4, 16, 64, 256]),
        y=axis(low=-0.3, high=2.8, type="log", tickvals=[1, 10, 100]),
    )
    fig = panels(
        [kernel, falls], across=0.16, height=360, margin={"l": 48, "r": 14, "t": 36, "b": 96}
    )
    law_said = (
        "A dashed line shows the mean over draws, which falls like one divided by the square "
        "root of the number of rows."
        if random
        else "The drift is the same for every number of rows, because this feature map has no "
        "random rows."
    )
    return Drawn(
        fig,
        "Two line charts show how a product of features drifts. The left chart shows the product "
        f"of the features of a query and a key of norm {length:g}, divided by its mean, against a "
        "common rotation of both by 0 to 360 degrees. A dashed horizontal line marks the mean. "
        f"The feature map is {SPOKEN[features]}, with {count}. The drift of the product is "
        f"{percent:.1f}% of its mean. The right chart shows the drift against the number of rows, "
        f"from {SIZES[0]} to {SIZES[-1]}, on logarithmic axes. The line is for this draw, and a "
        f"dot marks {rows:g} on the horizontal axis. {law_said}",
    )


@computed
def _product(position: Tensor, offset: Tensor) -> dict[str, Tensor]:
    """Return the product of ReLU features after all common rotations, after none, and the mean."""
    turns = torch.arange(TURNS + 1).double() * (2 * math.pi / TURNS)
    query, key = position + turns, position + offset + turns + math.pi / 2
    features = torch.stack([query.cos(), query.sin(), key.cos(), key.sin()]).relu()
    products = (features[:2] * features[2:]).sum(0)
    mean = products[:-1].mean(-1)
    return {"products": products, "here": products[:1], "mean": mean.expand(2)}


def turned_product(position: float, offset: float) -> Drawn:
    r"""Draw the product of one query and one key before ReLU, against a rotation of both.

    The query is (1, 0) and the key (0, 1), in a plane that rotates by one radian per token. A
    random rotation of both adds to the position, :eq:`eq-torus-turn`: the curve slides, and keeps
    its mean.

    Args:
        position: Position of the query.
        offset: Offset of the key from the query.

    Returns:
        A figure of a line, its mean, and a dot at no rotation.
    """
    found = _product(position, offset)
    (here,), (mean, _) = found["here"], found["mean"]
    turns = [round(360 / TURNS * i) for i in range(TURNS + 1)]
    drawn = [
        line(turns, found["products"], COLOURS["relu"], "product", hover="%{x}°: %{y:.2f}"),
        line([0, 360], found["mean"], PALETTE["grey"], "mean over all rotations", dash="dash"),
        dots([0], found["here"], PALETTE["red"], "no rotation"),
    ]
    axes = layout(
        height=360,
        title_text=f"without rotation {here:.2f}, mean over all rotations {mean:.2f}",
        xaxis=axis("rotation of query and key (degrees)", -8, 360, dtick=90),
        yaxis=axis("product of features", -0.05, 1.1, dtick=0.5),
    )
    return Drawn(
        go.Figure(drawn, axes),
        "A line chart shows the product of the ReLU features of a query and a key against a "
        "common rotation of both by 0 to 360 degrees, in a plane that rotates by one radian per "
        f"token. The query is at position {position:g}, and the key at offset {offset:g} from it. "
        f"A dot marks 0 degrees, where the product is {here:.2f}. A dashed horizontal line at "
        f"{mean:.2f} is the mean over all rotations, which does not depend on the position.",
    )


@computed
def _band(fastest: Tensor) -> dict[str, Tensor]:
    """Return a mean of 32 cosines spread evenly, and the offset at which it is one half."""
    offsets = torch.tensor(OFFSETS, dtype=torch.float64)
    waves = fastest * (torch.arange(32).double() + 0.5) / 32
    kernel = torch.outer(offsets, waves).cos().mean(-1)
    return {"kernel": kernel, "half": HALF / fastest, "lowest": kernel.amin(-1)}


def fastest_frequency(fastest: float) -> Drawn:
    """Draw kernels with a rotation after φ against the offset, and a softmax kernel.

    The kernel is :eq:`eq-rotation-pair` with equal pairs: a mean of cosines.

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
        title_text=f"after φ, even: 0.5 at offset {half:.1f}, minimum {lowest:.2f}",
        xaxis=axis("offset δ", -16, 16, dtick=4),
        yaxis=axis("kernel (1 at offset 0)", -0.35, 1.05),
        margin={"b": 96},
    )
    return Drawn(
        go.Figure(drawn, axes),
        "A line chart shows three kernels against the offset, from -16 to 16. All lines have "
        "their peak at offset 0, with the value 1. The kernel of softmax with geometric "
        "frequencies has a narrow peak. A dashed line, the kernel of a rotation after φ with the "
        "same frequencies, has a broad peak. The third line is the kernel of a rotation after φ "
        f"with even frequencies up to {fastest:g} radians per token. This kernel falls to one "
        f"half at offset {half:.1f}, and its smallest value in the plotted range is {lowest:.2f}.",
    )


@computed
def _pole(angle: Tensor) -> dict[str, Tensor]:
    """Return the outputs with both denominators at all angles and at one, and its denominator."""
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
    """Draw the output for two tokens with equal features and the values 1 and -1, rotated after φ.

    The output is that of the first token, by :eq:`eq-rotation-after`, divided by the sum
    of the rotated products, and by :eq:`eq-rotation-numerator`, divided by the sum of the products
    that are not rotated.

    Args:
        angle: Degrees from one token to the next; not 180, where the denominator is 0.

    Returns:
        A figure of two lines.
    """
    found = _pole(angle)
    red, teal = PALETTE["red"], COLOURS["relu"]
    plain = torch.tensor(ANGLES).double().deg2rad()
    drawn = [
        line([0, 360, 360, 0], [1, 1, -1, -1], PALETTE["grey"], "range of the values", width=0,
             fill="toself"),
        line(ANGLES, found["own"], red, "denominator also rotated", hover="%{x}°: %{y:.2f}"),
        line(ANGLES, rounded((1 - plain.cos()) / 2), teal, "only the numerator rotated",
             hover="%{x}°: %{y:.2f}"),
        dots([angle, angle], found["here"], [red, teal]),
    ]  # fmt: skip
    output, denominator = found["output"], found["denominator"]
    axes = layout(
        height=400,
        title_text=f"rotated denominator {denominator:.4f}, output {output:,.1f}",
        xaxis=axis("rotation per token (degrees)", 0, 360, dtick=90),
        yaxis=axis("output of the first token", -1.3, 12),
        margin={"b": 96},
    )
    return Drawn(
        go.Figure(drawn, axes),
        "A line chart shows the output of the first of two tokens with the values 1 and -1 "
        "against the rotation per token, from 0 to 360 degrees. A shaded band from -1 to 1 marks "
        "the range in which a weighted mean has to lie. One line is for the numerator divided by "
        "the sum of the rotated products. It leaves the band and has a pole at 180 degrees. At "
        f"{angle:g} degrees the sum of the rotated products is {denominator:.4f}, and the output "
        f"is {output:,.1f}. The other line is for a rotation of the numerator only. It stays "
        f"between 0 and 1, and at the same angle its output is {found['alone']:.2f}. Dots mark "
        "both outputs where they are within the plot.",
    )
