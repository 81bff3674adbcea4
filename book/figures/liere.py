"""Generators that need not commute: their parameters, their error, and their limit far away."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import plotly.graph_objects as go
import torch
from torch import Tensor

from book.figures.marks import at_one_place, axis, bars, dots, line, listed, rounded, segments
from book.names import display
from lab.explore import COLOURS, PALETTE, Drawn, Panel, computed, layout, panels, pick
from stringlib.algebra import skew

__all__ = ["area_error", "far_out", "numbers_of_an_encoder", "shifted_accuracy"]

CHANNELS = list(range(2, 65))
FAR = [10 ** (i / 80) for i in range(241)]  # from 1 to 1,000
OFFSET = [1.2, 0.0]  # from the query to the key, far out


@computed
def _numbers(channels: Tensor, coordinates: int) -> dict[str, Tensor]:
    """Return the independent parameters of four encoders, over all channels and at ``channels``."""

    def counts(d: Tensor) -> Tensor:
        planes, free = (d / 2).floor(), d * (d - 1) / 2
        table = coordinates * planes
        return torch.stack(
            [coordinates * free, free + table - planes, table, coordinates * ((d - 1) / 2).floor()]
        )

    every = counts(torch.tensor(CHANNELS, dtype=torch.float64))
    return {
        "curves": torch.where(every > 0, every, math.nan) + 0 * channels,
        "here": counts(channels),
    }


def numbers_of_an_encoder(coordinates: str, channels: int) -> Drawn:
    """Draw the number of independent parameters of an encoder against its channels.

    Free skew-symmetric matrices are :eq:`eq-universal-liere`; every STRING is :eq:`eq-string`,
    which Cayley-STRING reaches.

    Args:
        coordinates: d_c.
        channels: d.

    Returns:
        A figure of four lines, with a dot on each.
    """
    found = _numbers(channels, int(coordinates))
    looks = {
        f"{display('liere')}, free generators": COLOURS["dense"],
        f"{display('cayley')}, full STRING": COLOURS["cayley"],
        f"{display('mixed')}, only Ω": COLOURS["mixed"],
        display("circulant"): COLOURS["circulant"],
    }
    hover = "%{x} channels: %{y:,}"
    traces = at_one_place(CHANNELS, channels, looks, found["curves"], found["here"], hover)
    most, whole, table, circulant = found["here"]
    known = f"{coordinates} coordinate{'' if int(coordinates) == 1 else 's'}"
    axes = layout(
        height=390,
        margin={"l": 60, "r": 14, "t": 44, "b": 104},
        title_text=f"parameters: LieRE {most:,.0f}, STRING {whole:,.0f}, only Ω {table:,.0f}",
        xaxis=axis("channels d", 0, 66, dtick=16),
        yaxis=axis("independent parameters", 0, 3.9, type="log", dtick=1),
    )
    return Drawn(
        go.Figure(traces, axes),
        f"A line chart shows the number of independent parameters of encoders with {known}, on a "
        f"logarithmic axis, against the number of channels, from {CHANNELS[0]} to {CHANNELS[-1]}. "
        f"All four lines rise. Dots mark {channels:g} channels, where this number is {most:,.0f} "
        f"for the free generators of LieRE and {whole:,.0f} for a full STRING such as "
        f"Cayley-STRING. It is {table:,.0f} for RoPE-Mixed, which has only the frequencies of a "
        f"STRING, and {circulant:,.0f} for Circulant-STRING.",
    )


@computed
def _area(query: Tensor, first: Tensor, second: Tensor) -> dict[str, Tensor]:
    """Return the triangle, the error of LieRE, and its leading term."""
    generator = torch.Generator().manual_seed(4)
    entries = torch.randn(2, 6, dtype=torch.float64, generator=generator) / 2.5
    one, two = skew(entries)
    at_query = torch.matrix_exp(query * one)
    at_key = torch.matrix_exp(first * one + second * two)
    between = torch.matrix_exp((first - query) * one + second * two)
    area = (query * second / 2).abs()
    error = (at_query.mT @ at_key - between).square().sum().sqrt()
    leading = area * (one @ two - two @ one).square().sum().sqrt()
    nought = torch.zeros_like(query)
    return {
        "corners": torch.stack(
            [
                torch.stack([nought, query, first, nought]),
                torch.stack([nought, nought, second, nought]),
            ]
        ),
        "area": area,
        "sizes": torch.where(
            torch.stack([error, leading]) > 1e-9, torch.stack([error, leading]), 0.0
        ),
    }


def area_error(query: float, first: float, second: float) -> Drawn:
    """Draw the triangle of :eq:`eq-universal-area`, LieRE's error there, and the leading term.

    The query is on the axis of the first coordinate. Sizes are Frobenius norms, for a pair of
    random generators of four channels.

    Args:
        query: First coordinate of the query; the second is 0.
        first: First coordinate of the key.
        second: Second coordinate of the key.

    Returns:
        A figure of the triangle and of two bars.
    """
    found = _area(query, first, second)
    x, y = found["corners"]
    area, (error, leading) = found["area"], found["sizes"]
    grey, blue = PALETTE["grey"], PALETTE["blue"]
    plane = axis(low=-2.3, high=2.3, dtick=1)
    triangle = Panel(
        [
            line(x, y, blue, width=2, fill="toself"),
            dots([0], [0], grey, size=9, text=["origin"], textposition="bottom center"),
            dots([query], [0], grey, size=11, text=["query"], textposition="bottom center"),
            dots([first], [second], PALETTE["orange"], size=14, text=["key"],
                 textposition="top center"),
        ],
        f"area {area:.2f}",
        x=plane,
        y=plane,
        square=True,
    )  # fmt: skip
    sizes = Panel(
        [bars(["error", "leading<br>term"], found["sizes"], [COLOURS["dense"], blue],
              hover="%{x}: %{y:.3f}")],
        f"{error:.3f} and {leading:.3f}",
        x={"tickangle": 0},
        y=axis(low=0, high=2.4, dtick=1),
        width=0.7,
    )  # fmt: skip
    return Drawn(
        panels(
            [triangle, sizes], height=370, across=0.12, margin={"l": 30, "r": 8, "t": 34, "b": 48}
        ),
        "The left panel is a diagram of a triangle with corners at the origin, a query at "
        f"({query:g}, 0) and a key at ({first:g}, {second:g}). Its area is {area:.2f}. The right "
        f"panel is a bar chart with two bars. They are the size of LieRE's error, {error:.3f}, "
        f"and the size of the leading term of this error, {leading:.3f}. This term is the area "
        "times the commutator.",
    )


@computed
def _far(direction: Tensor, distance: Tensor) -> dict[str, Tensor]:
    """Return the distance of the product from its limit and from that at the origin."""
    axes = torch.tensor([[0.9, 0.1, 0.3], [-0.2, 0.4, 0.9]], dtype=torch.float64)
    angle = direction.deg2rad()
    along = angle.cos() * axes[0] + angle.sin() * axes[1]
    offset = OFFSET[0] * axes[0] + OFFSET[1] * axes[1]

    def turn(by: Tensor) -> Tensor:
        """Rotate about vectors ``(..., 3)``, by their length: Rodrigues' formula."""
        x, y, z = by.unbind(-1)
        nought = torch.zeros_like(x)
        K = torch.stack([nought, -z, y, z, nought, -x, -y, x, nought], -1).unflatten(-1, (3, 3))
        size = by.square().sum(-1).sqrt()[..., None, None]
        return torch.eye(3).double() + size.sin() / size * K + (1 - size.cos()) / size**2 * K @ K

    unit = along / along.square().sum().sqrt()
    limit, origin = turn((offset * unit).sum() * unit), turn(offset)

    def gaps(s: Tensor) -> Tensor:
        product = turn(s[:, None] * along).mT @ turn(s[:, None] * along + offset)
        apart = [(product - end).square().sum((-2, -1)).sqrt() for end in (origin, limit)]
        return torch.stack(apart)

    here = gaps(10 ** distance[None])[:, 0]
    return {
        "s": 10**distance,
        "off": ((direction > 0) & (direction < 180)).double(),
        "curves": gaps(torch.tensor(FAR, dtype=torch.float64)),
        "here": here,
    }


def far_out(direction: float, distance: float) -> Drawn:
    """Draw how a LieRE of three channels converges to its limit along a line from the origin.

    The generators rotate about two axes. In the limit, only the part of the offset's rotation
    about the axis of the direction remains.

    Args:
        direction: Direction of query and key from the origin, in degrees from their offset.
        distance: Decimal logarithm of their distance from the origin.

    Returns:
        A figure of two lines against the distance, with a dot on each.
    """
    found = _far(direction, distance)
    looks = {
        "distance from the product at the origin": PALETTE["grey"],
        "distance from the limit": PALETTE["orange"],
    }
    hover = "s = %{x:.3g}: %{y:.3f}"
    traces = at_one_place(rounded(FAR), found["s"], looks, found["curves"], found["here"], hover)
    origin, limit = found["here"]
    grows = pick(
        found["off"],
        "In this direction both distances are 0 at every s",
        "As s grows, the distance from the limit goes to 0, but the distance from the product at "
        "the origin does not",
    )
    axes = layout(
        height=360,
        margin={"l": 54, "r": 14, "t": 44, "b": 84},
        title_text=f"s = {found['s']:,.0f}: {limit:.3f} from the limit",
        xaxis=axis("distance s from the origin", 0, 3, type="log", dtick=1),
        yaxis=axis("distance (Frobenius norm)", 0, 2.4, dtick=1),
    )
    return Drawn(
        go.Figure(traces, axes),
        "A line chart shows how far the product of the rotations of query and key is from two "
        "fixed matrices, in the Frobenius norm, against the distance s of the query from the "
        "origin, from 1 to 1,000 on a logarithmic axis. One line is the distance of the product "
        "from its limit, and the other line is the distance from its value at the origin. The "
        f"direction of the query is {direction:g} degrees from the offset. Dots mark s = "
        f"{found['s']:,.0f}, where the product is {limit:.3f} from its limit and {origin:.3f} "
        f"from its value at the origin. {grows}.",
    )


def shifted_accuracy(
    seeds: str,
    *,
    recorded: Mapping[str, Sequence[Sequence[float]]],
    shifts: Sequence[int],
    looks: Mapping[str, str],
) -> Drawn:
    """Draw the mean accuracy of each encoder against the shift, and the seeds of one.

    Args:
        seeds: The encoder whose seeds are drawn, a name in ``recorded``.
        recorded: Encoder → accuracies by seed and shift.
        shifts: The shifts.
        looks: Encoder → its method in ``COLOURS``.

    Returns:
        A figure with a line and standard errors for each encoder, and thin lines for the seeds.
    """
    places = [str(shift) for shift in shifts]
    thin = COLOURS[looks[str(seeds)]]
    traces = [
        line(places, rounded(row), thin, "single seeds" if n == 0 else None, width=1,
             hover=f"seed {n}, shift %{{x}}: %{{y:.2f}}")
        for n, row in enumerate(recorded[str(seeds)])
    ]  # fmt: skip
    starts, ends_of = [], []
    for name, rows in recorded.items():
        found = torch.tensor(rows, dtype=torch.float64)
        mean, error = found.mean(0).tolist(), (found.std(0) / len(found) ** 0.5).tolist()
        colour, dash = COLOURS[looks[name]], "dash" if "shifted" in name else None
        ends = [((p, m - e), (p, m + e)) for p, m, e in zip(places, mean, error, strict=True)]
        traces += [
            segments(ends, colour, width=2),
            line(places, rounded(mean), colour, name, width=3.5, dash=dash,
                 hover="%{x}: %{y:.2f}"),
        ]  # fmt: skip
        ends_of.append((mean[-1], name))
        starts.append(mean[0])
    low_start, high_start = min(starts), max(starts)
    told = [f"{mean:.2f} for {name}" for mean, name in ends_of]
    lowest = min(row[-1] for row in recorded[str(seeds)])
    axes = layout(
        height=420,
        margin={"l": 50, "r": 14, "t": 44, "b": 104},
        title_text=f"{seeds}, lowest seed: accuracy {lowest:.2f} at shift {places[-1]}",
        xaxis=axis("shift of both coordinates", -0.3, len(places) - 0.7, type="category"),
        yaxis=axis("accuracy", 0, 1.05, dtick=0.2),
    )
    return Drawn(
        go.Figure(traces, axes),
        f"A line chart shows the accuracy of {len(recorded)} encoders against the shift of both "
        f"coordinates, from {places[0]} to {places[-1]}. Thick lines are means, with vertical "
        f"bars of one standard error. Without a shift all means are between {low_start:.2f} and "
        f"{high_start:.2f}. After a shift of {places[-1]} the means are {listed(told)}. Thin "
        f"lines are the single seeds of {seeds}, and the lowest of these lines ends at "
        f"{lowest:.2f}.",
    )
