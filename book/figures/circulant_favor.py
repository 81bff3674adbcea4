"""Circulant rows: how alike they look, which are orthogonal, their errors, and what they cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
import torch
from torch import Tensor

from book.figures.marks import (
    axis,
    bars,
    broken,
    circle,
    dots,
    line,
    listed,
    rounded,
    significant,
    through,
    won,
)
from book.names import display
from lab.explore import COLOURS, PALETTE, Drawn, Panel, computed, layout, panels

__all__ = [
    "CIRCULANT_SIGNS",
    "CIRCULANT_VECTORS",
    "free_projection",
    "nearest_orthogonal",
    "row_correlation",
    "structured_bias",
    "two_rows",
    "two_strong_channels",
    "weight_errors",
]

SIZE = 16
TICKS = (0.03, 0.1, 0.3, 1, 3, 10, 30)  # of the error: plotly's own are too many, without zeros
STEPS = {c: [d for d in range(1, SIZE) if math.gcd(d, SIZE) == c] for c in (1, 2, 4, 8)}
"""Number of cycles → the steps that split the channels into so many."""

CIRCULANT_VECTORS = ("constant", "smooth", "random", "one channel")
"""The vectors z that :func:`row_correlation` knows."""
CIRCULANT_SIGNS = ("no signs", "signs 1", "signs 2", "signs 3")
"""The choices of s that :func:`row_correlation` knows."""


def _vector(name: str) -> Tensor:
    """Return a vector of length 1."""
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
    return shapes[name] / shapes[name].norm()


def _signs(name: str) -> Tensor:
    if name not in CIRCULANT_SIGNS:
        raise ValueError(f"signs must be one of {CIRCULANT_SIGNS}, got {name!r}")
    number = CIRCULANT_SIGNS.index(name)
    if number == 0:
        return torch.ones(SIZE, dtype=torch.float64)
    bits = torch.randint(2, (SIZE,), generator=torch.Generator().manual_seed(number))
    return (2 * bits - 1).double()


def _shares() -> Tensor:
    """Return the share of the pairs of m rows that are δ rows apart, ``(m, δ)``."""
    delta, m = torch.arange(SIZE).double(), torch.arange(1, SIZE + 1).double()[:, None]
    return ((m - delta).clamp(min=0) + (m - (SIZE - delta)).clamp(min=0)) / m**2


def _at(values: Tensor, places: Tensor) -> Tensor:
    """Return the values at places, in their shape; the page indexes by lists alone."""
    return values[places.flatten()].view(places.shape)


@computed
def _signed(square: Tensor, direction: list[float]) -> dict[str, Tensor]:
    """Return s ⊙ z, its autocorrelation, and the error of rows, :eq:`eq-circulant-variance`."""
    u = torch.tensor(direction, dtype=torch.float64) * square.sqrt()
    places = torch.arange(SIZE)
    correlation = (u * _at(u, (places + places[:, None]) % SIZE)).sum(-1)
    errors = (_shares() * torch.expm1(correlation)).sum(-1)
    return {
        "signed": u,
        "correlation": correlation,
        "errors": errors,
        "last": errors[-1],
        "apart": correlation[1:].abs().amax(-1),
    }


@computed
def _unsigned(square: Tensor, direction: list[float]) -> dict[str, Tensor]:
    """Return the errors of independent rows and of a circulant over all signs, and axes' ends.

    The mean over signs is :eq:`eq-circulant-variance-signs`.
    """
    z = torch.tensor(direction, dtype=torch.float64) * square.sqrt()
    means = []
    for cycles, deltas in STEPS.items():
        delta = torch.tensor(deltas)[:, None, None]
        # the channels of each cycle, (deltas, cycles, channels)
        at = (delta * torch.arange(SIZE // cycles) + torch.arange(cycles)[:, None]) % SIZE
        a = _at(z, at) * _at(z, (at + delta) % SIZE)
        means.append((a.cosh().prod(-1) + a.sinh().prod(-1)).prod(-1))
    alone = torch.expm1(square)  # of a row with itself
    shares, order = _shares(), [d for deltas in STEPS.values() for d in deltas]
    average = shares[:, 0] * alone + (shares[:, order] * (torch.cat(means) - 1)).sum(-1)
    independent = alone / torch.arange(1, SIZE + 1).double()
    reach, ends = torch.tensor([-1.1, 1.1]).double(), torch.tensor([0.5 / SIZE, 1.6]).double()
    return {
        "independent": independent,
        "average": average,
        "told": torch.stack([independent[0], independent[-1], average[-1]]),
        "channels": reach * square.sqrt(),
        "rows": reach * square,
        "decades": (ends * alone).log10(),
    }


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
    z, s = _vector(vector), _signs(signs)
    found, among = _signed(square, (s * z).tolist()), _unsigned(square, z.tolist())
    rows = list(range(1, SIZE + 1))
    purple = COLOURS["favor-circulant"]

    def channels(head: str, heights: list[float], colour: str, ends: list[float], x: str) -> Panel:
        drawn = bars(list(range(SIZE)), heights, colour, hover="%{x}: %{y:.3f}")
        y = axis(low=ends[0], high=ends[1], nticks=5)
        return Panel([drawn], head, x=axis(x, dtick=5), y=y)

    def error(values: list[float], colour: str, name: str, **look: Any) -> go.Scatter:
        return line(rows, values, colour, name, hover="m = %{x}: %{y:.3f}", **look)

    low, high = among["decades"]
    curves = Panel(
        [
            error(
                among["independent"],
                COLOURS["favor-iid"],
                "independent rows",
                width=2,
                dash="dash",
            ),
            error(among["average"], purple, "circulant, all signs", width=2, dash="dot"),
            error(found["errors"], purple, "circulant, these signs", width=3),
        ],
        "error with m rows",
        x=axis("rows m", 0.5, SIZE + 0.5),
        y=axis(low=low, high=high, type="log", tickvals=TICKS),
    )
    fig = panels(
        [
            channels("s ⊙ z", found["signed"], PALETTE["grey"], among["channels"], "channel n"),
            channels("covariance Aδ of rows", found["correlation"], purple, among["rows"], "δ"),
        ],
        curves,
        heights=(0.36, 0.42),
        across=0.13,
        down=0.22,
        height=560,
        margin={"l": 44, "r": 14, "t": 34, "b": 92},
    )
    one, independent, average = among["told"]
    of_vector = (
        "a vector with 1 non-zero channel of 16"
        if vector == "one channel"
        else f"a {vector} vector with 16 channels"
    )
    flipped = (
        "No signs are flipped."
        if signs == "no signs"
        else f"The signs of the channels are flipped by the random choice called {signs}."
    )
    return Drawn(
        fig,
        "Two bar charts and a line chart show the entries, the autocorrelation and the error for "
        f"{of_vector} and squared length {square:g}. {flipped} The bar chart on the upper left "
        "shows the entries of the vector after the signs, against the channel. The bar chart on "
        "the upper right shows its cyclic autocorrelation against the shift, from 0 to 15. At "
        "the shifts 1 to 15 the absolute value of the autocorrelation is at most "
        f"{found['apart']:.2f}. The line chart below shows the error, on a logarithmic axis, "
        f"against the number of rows, from 1 to 16. All three lines start at {one:.2f} with one "
        "row. With 16 rows, the solid line of the circulant with these signs is at "
        f"{found['last']:.3f}. The dotted line, the mean over all signs, is at {average:.3f}, and "
        f"the dashed line of independent rows is at {independent:.3f}.",
    )


LENGTHS = [round(0.1 * i, 1) for i in range(1, 81)]  # squared ones, ζ


@computed
def _two(direction: Tensor) -> dict[str, Tensor]:
    """Return errors of two rows over those of independent ones, and how the rows see z.

    With equal signs, with opposite ones and on average; all again at ζ = 1.
    """
    zeta, angle = torch.tensor(LENGTHS, dtype=torch.float64), direction * (math.pi / 180)
    alike = (2 * angle).sin() * zeta  # A₁ with equal signs
    signs = torch.stack([torch.expm1(alike), torch.expm1(-alike), alike.cosh() - 1])
    ratios = 1 + signs / torch.expm1(zeta)
    x, y = angle.cos(), angle.sin()
    nothing = 0 * x
    seen = [[x, nothing, y, y, nothing, x], [x, nothing, -y, -y, nothing, x]]
    places = torch.stack([torch.stack(pair) for pair in seen]).reshape(2, 2, 3)
    return {"ratios": ratios, "one": ratios[:, LENGTHS.index(1.0)], "seen": places}


def two_rows(direction: float) -> Drawn:
    """Draw the error of both rows of a circulant of two channels, :eq:`eq-circulant-variance`.

    The first row multiplies r by u = s ⊙ z, the second one by u with its channels swapped.

    Args:
        direction: Of z, in degrees.

    Returns:
        A figure of the plane, with the two vectors for equal and for opposite signs, and of the
        errors over that of independent rows.
    """
    found = _two(direction)
    equal, opposite, mean = found["one"]
    grey, red, teal = PALETTE["grey"], PALETTE["red"], PALETTE["teal"]
    purple = COLOURS["favor-circulant"]
    seen = [
        through(ends, colour, width=3, mode="lines+markers", marker={"size": [11, 0, 11]})
        for ends, colour in zip(found["seen"], (red, teal), strict=True)
    ]
    plane = Panel(
        seen,
        "u, and u with its channels swapped",
        x=axis(low=-1.9, high=1.9, dtick=1),
        y=axis(low=-1.25, high=1.25, dtick=1),
        shapes=[circle()],
        square=True,
    )
    worst = rounded([1 + (math.cosh(z) - 1) / math.expm1(z) for z in LENGTHS])
    hover = "ζ = %{x}: %{y:.2f}"
    looks = (("equal signs", red), ("opposite signs", teal), ("mean of both", purple))
    curves = [
        line(LENGTHS, ratios, colour, name, hover=hover, width=width)
        for ratios, (name, colour), width in zip(found["ratios"], looks, (2.5, 2.5, 4), strict=True)
    ]
    fig = panels(
        plane,
        Panel(
            [
                *curves,
                line(LENGTHS, worst, grey, "upper bound", width=2, dash="dot"),
                line([0, 8], [1, 1], COLOURS["favor-iid"], "independent rows", dash="dash"),
            ],
            "error relative to independent rows",
            x=axis("ζ", 0, 8),
            y=axis(low=0, high=2.15, dtick=0.5),
        ),
        heights=(0.42, 0.4),
        height=580,
        title_text=f"ζ = 1: signs equal {equal:.2f}, opposite {opposite:.2f}, mean {mean:.2f}",
        margin={"l": 34, "r": 10, "t": 64, "b": 104},
    )
    return Drawn(
        fig,
        f"Two panels show two rows of a circulant for a vector z at {direction:g} degrees. The "
        "upper panel is the plane with the unit circle and two pairs of arrows, one pair for "
        "equal signs and one pair for opposite signs. Each pair consists of the vector u and the "
        "vector u with its channels swapped. The lower panel is a line chart of the error "
        "relative to independent rows, against ζ from 0 to 8. A dashed horizontal line at 1 "
        f"marks independent rows. At ζ = 1 the line of equal signs is at {equal:.2f}, and that of "
        f"opposite signs is at {opposite:.2f}. A thick line, the mean over these two choices of "
        f"signs, is at {mean:.2f}. The thick line is never below 1, and never above a dotted "
        "bound that rises towards 1.5.",
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
        "largest": column[:2] + 1e-9,  # so that no text says -0.00
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
        title_text=f"squared distance of the circulants: {distance:.2f}",
        margin={"l": 34, "r": 10, "t": 64, "b": 84},
    )
    return Drawn(
        fig,
        "Two panels compare a circulant with the nearest orthogonal circulant. The upper panel "
        "is the complex plane with the unit circle and eight eigenvalues of the circulant, which "
        f"lie on a circle of radius {weight:g} around 1. A line joins each eigenvalue to the "
        "nearest point of the unit circle, which is an eigenvalue of the orthogonal circulant. "
        f"The squared lengths of these eight lines add up to {distance:.2f}. The lower panel is a "
        "bar chart of two columns of 8 numbers against the row. Dots mark the first two numbers, "
        f"1 and {weight:g}, of the column r, whose other numbers are 0. Bars show the column q of "
        f"the nearest orthogonal circulant, which begins with {one:.2f} and {two:.2f}.",
    )


SHORT = [round(0.1 * i, 1) for i in range(41)]  # ζ of two vectors of length 1 or less


@computed
def _bias(channels: Tensor) -> dict[str, Tensor]:
    """Return the bounds of the bias and, to first order, that of one channel, in percent."""
    zeta = torch.tensor(SHORT, dtype=torch.float64)
    low = torch.expm1(-(channels + 2) * zeta.square() / (4 * channels**2))
    high = (-zeta / 2 - channels / 2 * (1 - zeta / channels).log()).exp() - 1
    one = zeta.square() / (8 * channels)
    curves = 100 * torch.stack([low, high, one])
    return {"curves": curves, "last": curves[:, -1]}


def structured_bias(channels: int) -> Drawn:
    """Draw what the bias of orthogonal circulant and Hadamard features lies between.

    Equations :eq:`eq-structured-bias` and, for one channel, :eq:`eq-unit-bias`.

    Args:
        channels: d.

    Returns:
        A figure of both bounds, and of the bias of one channel to first order.
    """
    found = _bias(channels)
    low, high, one = found["curves"]
    least, most, middle = found["last"]
    grey, hover = PALETTE["grey"], "ζ = %{x}: %{y:.2f}%"
    teal = COLOURS["favor-unit-circulant"]
    drawn = [
        line(SHORT, high, grey, "bounds for every z", dash="dot", hover=hover),
        line(SHORT, low, grey, dash="dot", hover=hover),
        line(
            SHORT, one, teal, f"{display('favor-unit-circulant')}, z with one channel", hover=hover
        ),
        line([0, 4], [0, 0], COLOURS["favor-iid"], "independent rows", width=1.5, dash="dash"),
    ]
    axes = layout(
        height=380,
        title_text=f"ζ = 4: bias between {least:.1f}% and {most:.1f}%",
        xaxis=axis("ζ", 0, 4.05),
        yaxis=axis("bias, percent", -36, 58, dtick=20),
        margin={"b": 96},
    )
    return Drawn(
        go.Figure(drawn, axes),
        "A line chart shows the bias of the estimate, in percent, against ζ from 0 to 4, for "
        f"{channels:g} channels. Two dotted curves are a lower and an upper bound for every z. "
        f"They start at 0, and at ζ = 4 they reach {least:.1f}% and {most:.1f}%. A solid curve "
        f"between them shows the bias of {display('favor-unit-circulant')}, to first order, for a "
        f"z with one non-zero channel. This curve reaches {middle:.1f}% at ζ = 4. A dashed line "
        "at 0 marks independent rows, which have no bias.",
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
    drawn = [line([0, 6], [1, 1], COLOURS["favor-iid"], display("favor-iid"), width=2, dash="dash")]
    for name, ratios in zip(names, found["ratios"], strict=True):
        said, colour = display(f"favor-{name}"), COLOURS[f"favor-{name}"]
        drawn.append(line(SQUARES, ratios, colour, said, hover="ζ = %{x}: %{y:.2f}"))
    (_, signed), (_, unit), (short, simplex) = found["at"]
    axes = layout(
        height=400,
        title_text=f"simplex: {short:.2f} at ζ = 1, {simplex:.2f} at ζ = 4",
        xaxis=axis("ζ", 0, 6),
        yaxis=axis("error relative to independent rows", 0, 1.55),
        margin={"b": 96},
    )
    return Drawn(
        go.Figure(drawn, axes),
        "A line chart shows the error relative to independent rows against the squared length ζ, "
        "from 0 to 6, in the limit of many channels. Two equal channels at a distance of d/2 "
        f"have together {share:.0%} of ζ. At ζ = 4 the relative error is {signed:.2f} for "
        f"{display('favor-circulant')} and {unit:.2f} for {display('favor-unit-circulant')}. The "
        f"curve of {display('favor-simplex-circulant')} is the lowest of the three. It is near 0 "
        f"at the left edge, {short:.2f} at ζ = 1 and {simplex:.2f} at ζ = 4. A dashed line at 1 "
        "marks independent rows.",
    )


PROJECTIONS = {
    kind: display(f"favor-{kind}")
    for kind in ("iid", "hadamard", "circulant", "unit-circulant", "simplex-circulant")
}
"""Projection of the record → display name."""


def weight_errors(
    length: str, *, recorded: Mapping[str, Mapping[str, Any]], sizes: Sequence[int]
) -> Drawn:
    """Draw the error of attention weights by projections, over that of uniform attention.

    Args:
        length: Of queries and keys, a name in ``recorded``.
        recorded: Length → projection → its error over that of uniform attention for each of
            ``sizes``; and ``"least"``, projection → the number from which on every seed beats
            uniform attention, or None.
        sizes: Numbers of features.

    Returns:
        A figure with one line a projection, and a diamond from where on it wins.
    """
    found, sizes = recorded[length], [*sizes]
    hover = "m = %{x}: %{y:.2f}"
    colours = {kind: COLOURS[f"favor-{kind}"] for kind in PROJECTIONS}
    drawn = [
        line(sizes, significant(found[kind]), colours[kind], name, hover=hover)
        for kind, name in PROJECTIONS.items()
    ]
    wins = {kind: found["least"][kind] for kind in PROJECTIONS}
    drawn.append(won(sizes, found, wins, colours, hover))
    drawn.append(line([sizes[0], sizes[-1]], [1, 1], PALETTE["grey"], display("uniform")))
    at = sizes.index(HEAD_DIM)
    independent, simplex = (significant([found[k][at]])[0] for k in ("iid", "simplex-circulant"))
    ticks = [0.2, 0.5, 1, 2, 5]
    axes = layout(
        height=430,
        title_text=f"64 features: independent rows {independent:.2f}, simplex {simplex:.2f}",
        xaxis=axis("features m", 1.15, 2.76, type="log", tickvals=sizes),
        yaxis=axis(
            "error / error of uniform weights", -0.75, 0.82, type="log", tickvals=ticks,
            ticktext=[f"{y:g}" for y in ticks],
        ),
        margin={"b": 110},
    )  # fmt: skip
    first = {n: [PROJECTIONS[k] for k in wins if wins[k] == n] for n in {*wins.values()}}
    never = first.pop(None, [])
    told = [
        f"From {n} features on {listed(first[n])} {'is' if len(first[n]) == 1 else 'are'} better "
        "than uniform weights on all seeds."
        for n in sorted(first)
    ]
    if never:
        verb = "is" if len(never) == 1 else "are"
        told.append(
            f"With up to {sizes[-1]} features {listed(never)} {verb} not better than uniform "
            "weights on all seeds."
        )
    return Drawn(
        go.Figure(drawn, axes),
        "A line chart shows the error of the attention weights, divided by the error of uniform "
        f"attention, against the number of features, from {sizes[0]} to {sizes[-1]}, for queries "
        f"and keys of length {length}. Both axes are logarithmic. There is one line for each of "
        "five projections, and a horizontal line at 1 marks uniform attention. With 64 features "
        f"the relative error is {independent:.2f} for {PROJECTIONS['iid']} and {simplex:.2f} for "
        f"{PROJECTIONS['simplex-circulant']}. A diamond on a line marks the number of features "
        "from which on its projection is better than uniform attention on all seeds. "
        f"{' '.join(told)}",
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
        title_text=f"without the projection: layer {whole:.2f} times,<br>"
        f"attention {core:.2f} times as fast",
        xaxis=axis("thousand multiplications per token", 0, 1350),
        margin={"l": 128},
        showlegend=False,
    )
    return Drawn(
        go.Figure([drawn], axes),
        "A horizontal bar chart shows the multiplications per token, in thousands, of a layer "
        f"and of its four parts, with {features:.0f} features. The random projection needs "
        f"{projection:.0f} thousand multiplications, and the sums of linear attention need "
        f"{sums:.0f} thousand. The projections to queries, keys, values and output together need "
        f"{linear:.0f} thousand, and the feed-forward part needs {inner:.0f} thousand. The "
        f"longest bar is the whole layer, with {layer:.0f} thousand. Without the random "
        f"projection linear attention would be {core:.2f} times as fast, but the whole layer "
        f"would be only {whole:.2f} times as fast.",
    )
