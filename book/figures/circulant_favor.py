"""Circulant rows: how alike they look, which are orthogonal, their errors, and what they cost."""

from __future__ import annotations

import math
from typing import Any

import plotly.graph_objects as go
import torch
from torch import Tensor

from book.figures.marks import axis, bars, broken, circle, dots, line, rounded, through
from lab.explore import COLOURS, PALETTE, Drawn, Panel, computed, layout, panels
from lab.theory.structured_variance import (
    circulant_mean_mse,
    circulant_mse,
    cyclic_autocorrelation,
)

__all__ = [
    "CIRCULANT_SIGNS",
    "CIRCULANT_VECTORS",
    "free_projection",
    "nearest_orthogonal",
    "row_correlation",
    "two_strong_channels",
]

SIZE = 16
TICKS = (0.03, 0.1, 0.3, 1, 3, 10, 30)  # of the error: plotly's own are too many, without zeros
CIRCULANT_VECTORS = ("constant", "smooth", "random", "one channel")
"""The vectors z that :func:`row_correlation` knows."""
CIRCULANT_SIGNS = ("no signs", "signs 1", "signs 2", "signs 3")
"""The choices of s that :func:`row_correlation` knows."""


def _vector(name: str, square: float) -> Tensor:
    n = torch.arange(SIZE, dtype=torch.float64)
    draw = torch.Generator().manual_seed(4)
    shapes = {
        "constant": torch.ones_like(n),
        "smooth": torch.exp(-(((n - 6) / 3) ** 2)),
        "random": torch.randn(SIZE, generator=draw, dtype=torch.float64),
        "one channel": (n == 5).double(),
    }
    if name not in shapes:
        raise ValueError(f"vector must be one of {CIRCULANT_VECTORS}, got {name!r}")
    return shapes[name] / shapes[name].norm() * math.sqrt(square)


def _signs(name: str) -> Tensor:
    if name not in CIRCULANT_SIGNS:
        raise ValueError(f"signs must be one of {CIRCULANT_SIGNS}, got {name!r}")
    number = CIRCULANT_SIGNS.index(name)
    if number == 0:
        return torch.ones(SIZE, dtype=torch.float64)
    bits = torch.randint(2, (SIZE,), generator=torch.Generator().manual_seed(number))
    return (2 * bits - 1).double()


def row_correlation(vector: str, signs: str, square: float) -> Drawn:
    r"""Draw s ⊙ z, its cyclic autocorrelation, and the error of m circulant rows.

    Above: the 16 channels of s ⊙ z, and :math:`A_\delta`, the covariance of the
    projections onto two rows that are δ apart.  Below: the relative error of the
    mean of m features, for independent rows, for a circulant with these signs, and
    for a circulant on average over all signs.

    Args:
        vector: One of ``CIRCULANT_VECTORS``.
        signs: One of ``CIRCULANT_SIGNS``.
        square: The squared length of z.

    Returns:
        A figure with three panels.

    Raises:
        ValueError: If a name is unknown.
    """
    z, s = _vector(vector, square), _signs(signs)
    correlation = cyclic_autocorrelation(s * z)
    rows = list(range(1, SIZE + 1))
    independent = [math.expm1(square) / m for m in rows]
    average = [circulant_mean_mse(z, m).item() for m in rows]
    errors = [circulant_mse(z, s, m).item() for m in rows]
    purple = COLOURS["favor-circulant"]

    def channels(head: str, heights: Tensor, colour: str, reach: float, title: str) -> Panel:
        drawn = bars(list(range(SIZE)), rounded(heights, 4), colour, hover="%{x}: %{y:.3f}")
        y = axis(low=-1.1 * reach, high=1.1 * reach, nticks=5)
        return Panel([drawn], head, x=axis(title, dtick=5), y=y)

    def error(values: list[float], colour: str, name: str, **look: Any) -> go.Scatter:
        return line(rows, rounded(values, 5), colour, name, hover="m = %{x}: %{y:.3f}", **look)

    low, high = 0.5 * independent[-1], 1.6 * independent[0]
    curves = Panel(
        [
            error(independent, COLOURS["favor-iid"], "independent rows", width=2, dash="dash"),
            error(average, purple, "circulant, all signs", width=2, dash="dot"),
            error(errors, purple, "circulant, these signs", width=3),
        ],
        "error of the mean of m features",
        x=axis("rows m", 0.5, SIZE + 0.5),
        y=axis(low=math.log10(low), high=math.log10(high), type="log", tickvals=TICKS),
    )
    fig = panels(
        [
            channels("s ⊙ z", s * z, PALETTE["grey"], math.sqrt(square), "channel n"),
            channels("Aδ: rows δ apart", correlation, purple, square, "δ"),
        ],
        curves,
        heights=(0.36, 0.42),
        across=0.13,
        down=0.22,
        height=560,
        margin={"l": 44, "r": 14, "t": 34, "b": 92},
    )
    return Drawn(
        fig,
        f"A {vector} vector of 16 channels and squared length {square:g}, {signs}: its entries, "
        f"its cyclic autocorrelation, at most {correlation[1:].abs().max():.2f} in size away from "
        f"0, and the error of the mean of 1 to 16 features. It starts at {independent[0]:.2f} and "
        f"at 16 rows is {independent[-1]:.3f} for independent rows, {errors[-1]:.3f} for the "
        f"circulant with these signs and {average[-1]:.3f} for a circulant on average over all "
        "signs.",
    )


@computed
def _nearest(weight: Tensor) -> dict[str, Tensor]:
    """Return the eigenvalues of circ(1, weight, 0, ...), those next to them, and both columns."""
    waves = torch.outer(torch.arange(8).double(), torch.arange(8).double()) * (math.pi / 4)
    real, imaginary = 1 + weight * waves[1].cos(), -weight * waves[1].sin()
    modulus = (real.square() + imaginary.square()).sqrt()
    far = torch.stack([real, imaginary], -1)
    near = far / modulus[:, None]
    column = (waves.cos() @ near[:, :1] - waves.sin() @ near[:, 1:])[:, 0] / 8
    return {
        "far": far.mT,
        "near": near.mT,
        "moves": broken(far, near),
        "column": column,
        "first": torch.stack([weight * 0 + 1, weight]),
        "distance": (modulus - 1).square().sum(-1),
        "largest": column[:2],
    }


def nearest_orthogonal(weight: float) -> Drawn:
    """Draw the eigenvalues of a circulant, their nearest on the unit circle, and both columns.

    The circulant has the column (1, weight, 0, ...) of 8 numbers; what is nearest to it is
    :eq:`eq-nearest-circulant`.

    Args:
        weight: The second number of the column.

    Returns:
        A figure of the complex plane and of the columns.
    """
    found = _nearest(weight)
    grey, teal = PALETTE["grey"], COLOURS["favor-unit-circulant"]
    distance, (one, two) = found["distance"], found["largest"]
    (far, far_up), (near, near_up) = found["far"], found["near"]
    said = "%{x:.2f}, %{y:.2f}"
    plane = Panel(
        [
            through(found["moves"], grey, width=1.5),
            dots(far, far_up, grey, "circ(r)", size=9, hover=said),
            dots(near, near_up, teal, "nearest orthogonal", size=9, hover=said),
        ],
        "eigenvalues",
        x=axis("real part", -1.5, 3.3, dtick=1),
        y=axis(low=-2.4, high=2.4, dtick=1),
        shapes=[circle()],
        square=True,
    )
    columns = Panel(
        [
            bars(list(range(8)), found["column"], teal, hover="%{x}: %{y:.3f}"),
            dots([0, 1], found["first"], grey, size=9, hover="%{x}: %{y:.2f}"),
        ],
        "first columns r and q",
        x=axis("row", -0.6, 7.6, dtick=1),
        y=axis(low=-0.5, high=2.2, dtick=0.5),
    )
    fig = panels(
        plane,
        columns,
        heights=(0.62, 0.26),
        height=560,
        title_text=f"squared distance {distance:.2f}",
        margin={"l": 34, "r": 10, "t": 64, "b": 84},
    )
    return Drawn(
        fig,
        f"Above, the eight eigenvalues of a circulant with the column 1, {weight:g}, 0, ... on "
        f"a circle of radius {weight:g} about 1, each joined to the nearest point of the unit "
        f"circle; the squared lengths add up to {distance:.2f}. Below, its column as dots, and as "
        f"bars that of the nearest orthogonal circulant, from {one:.2f} and {two:.2f} on.",
    )


SQUARES = [round(0.1 * i, 1) for i in range(1, 61)]


@computed
def _strong(share: Tensor) -> dict[str, Tensor]:
    """Return errors over those of independent rows for many channels: signed, unit, simplex.

    And all three at the squared lengths 1 and 4.
    """
    zeta = torch.tensor(SQUARES, dtype=torch.float64)
    strong = share * zeta
    # a pair of channels d/2 apart counts whole, all others to second order
    signed = torch.expm1(zeta) + (zeta.square() - strong.square()) / 2 + strong.cosh() - 1
    errors = torch.stack([signed, signed - zeta.square(), signed - zeta - zeta.square()])
    ratios = errors / torch.expm1(zeta)
    return {"ratios": ratios, "at": ratios[:, [SQUARES.index(1.0), SQUARES.index(4.0)]]}


def two_strong_channels(share: float) -> Drawn:
    """Draw the errors of three circulants over that of independent rows, for many channels.

    Limits of :eq:`eq-circulant-variance-signs`, :eq:`eq-unit-error` and :eq:`eq-simplex-error` for
    a vector with two strong channels d/2 apart, the rest of it spread over all.

    Args:
        share: Of the squared length, what the two strong channels have together.

    Returns:
        A figure of three lines, and a level for independent rows.
    """
    found = _strong(share)
    names = ("circulant", "unit-circulant", "simplex-circulant")
    drawn = [line([0, 6], [1, 1], COLOURS["favor-iid"], "independent rows", width=2, dash="dash")]
    for name, ratios in zip(names, found["ratios"], strict=True):
        said = "signed circulant" if name == "circulant" else name
        drawn.append(
            line(SQUARES, ratios, COLOURS[f"favor-{name}"], said, hover="ζ = %{x}: %{y:.2f}")
        )
    (_, signed), (_, unit), (short, simplex) = found["at"]
    axes = layout(
        height=400,
        title_text=f"simplex: {short:.2f} at ζ = 1, {simplex:.2f} at ζ = 4",
        xaxis=axis("ζ", 0, 6),
        yaxis=axis("error over independent rows", 0, 1.55),
        margin={"b": 96},
    )
    return Drawn(
        go.Figure(drawn, axes),
        "Error over that of independent rows against the squared length ζ, for many channels, "
        f"{share:.0%} of ζ in two channels half a circle apart. At ζ = 4 it is {signed:.2f} for a "
        f"signed circulant, {unit:.2f} for a unit-modulus one and {simplex:.2f} for rows of a "
        f"simplex, which have {short:.2f} at ζ = 1.",
    )


HEADS, HEAD_DIM, FEED_FORWARD = 4, 64, 682


@computed
def _parts(features: Tensor) -> dict[str, Tensor]:
    """Return the multiplications of a layer's parts for a token, in thousands.

    And how many times as fast attention and the layer are if the projection is free.
    """
    width = HEADS * HEAD_DIM
    projection = 2 * features * HEADS * HEAD_DIM
    sums = 2 * features * HEADS * (HEAD_DIM + 1)
    fixed = torch.tensor([4.0 * width**2, 3.0 * width * FEED_FORWARD]).double()
    parts = torch.cat([torch.stack([projection, sums]), fixed + 0 * features])
    whole = parts.sum(-1)
    return {
        "parts": torch.cat([parts, whole[None]]) / 1000,
        "faster": torch.stack([(projection + sums) / sums, whole / (whole - projection)]),
    }


def free_projection(features: int) -> Drawn:
    """Draw the multiplications of a layer's parts, and what a projection that is free saves.

    Args:
        features: m, rows of the projection, in each of 4 heads of 64 channels.

    Returns:
        A figure of five bars.
    """
    found = _parts(features)
    core, whole = found["faster"]
    names = ["layer", "feed-forward", "q, k, v, output", "sums over tokens", "projection"]
    colours = [PALETTE["grey"]] * 3 + [COLOURS["favor"], COLOURS["favor-circulant"]]
    projection, sums, linear, inner, layer = found["parts"]
    drawn = bars(
        [layer, inner, linear, sums, projection],
        names,
        colours,
        orientation="h",
        hover="%{x:.0f} thousand",
    )
    axes = layout(
        height=320,
        title_text=f"layer {whole:.2f}, attention {core:.2f} times as fast",
        xaxis=axis("thousand multiplications a token", 0, 1350),
        margin={"l": 128},
        showlegend=False,
    )
    return Drawn(
        go.Figure([drawn], axes),
        f"Thousands of multiplications for a token, with {features:.0f} features: "
        f"{projection:.0f} in the random projection, {sums:.0f} in the sums of linear attention, "
        f"{linear:.0f} in the four projections of the layer and {inner:.0f} in its feed-forward "
        "part. Without the "
        f"first, attention is {core:.2f} times as fast, and the layer {whole:.2f} times.",
    )
