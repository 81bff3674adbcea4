"""The Cayley transform on the circle, its signs and digits, and the graph of a sparse S."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from book.figures.marks import (
    CELLS,
    axis,
    circle,
    colour_axis,
    dots,
    downwards,
    heat,
    level,
    line,
    rounded,
    significant,
)
from lab.explore import COLOURS, PALETTE, Drawn, Panel, computed, panels, pick
from lab.explore.style import SEQUENTIAL
from stringlib.algebra.skew import cayley, skew, sparse_skew

__all__ = ["cayley_circle", "connected_chance", "sign_choice", "solve_error", "sparse_basis"]

REACH = 1.7  # of the circle's panel
SIZE = 32
DENSITIES = [round(0.005 * i, 3) for i in range(61)]


@computed
def _turned(t: Tensor) -> dict[str, Tensor]:
    """Return what the Cayley transform and the exponential do with t, and the ray to the former."""
    angles = torch.stack([2 * t.atan(), 2 * t])
    far = 4 / (1 + t * t).sqrt()  # the ray continues beyond the circle
    rays = torch.stack([angles * 0, angles, angles * math.nan], -1)
    return {
        "angles": angles,
        "degrees": angles.rad2deg(),
        "over_pi": angles / math.pi,
        "x": angles.cos(),
        "y": angles.sin(),
        "ray": torch.stack([far - 1, far * t]),
        "hands_x": (rays.cos() * (rays != 0)).flatten(),
        "hands_y": rays.sin().flatten(),
        "slope": 2 / (1 + t * t),
    }


def cayley_circle(t: float) -> Drawn:
    r"""Draw the rotation that the Cayley transform makes of one number, beside the exponential.

    S has the entries t and −t. The line from −1 through :math:`\mathrm{i}\,t` meets the unit
    circle again at the eigenvalue :math:`e^{2 \mathrm{i} \arctan t}` of its transform; the
    exponential of −2S, equal to first order, rotates by 2t.

    Args:
        t: The entry of S above the diagonal.

    Returns:
        A figure with two panels, the circle and the angles against t.
    """
    found = _turned(t)
    (cayley_x, exponential_x), (cayley_y, exponential_y) = found["x"], found["y"]
    turned, straight = found["degrees"]
    ray, over_pi, slope = found["ray"], found["over_pi"], found["slope"]
    teal, brown, grey = COLOURS["cayley"], COLOURS["dense"], PALETTE["grey"]
    square: dict[str, Any] = {"symbol": "square", "size": 10}
    plane = axis(low=-REACH, high=REACH, dtick=1)
    on_circle = Panel(
        [
            line([-1, ray[0]], [0, ray[1]], grey, width=2),
            dots([-1, 0], [0, t], grey, size=8, symbol=["x", "diamond"]),
            line(found["hands_x"], found["hands_y"], grey, width=1),
            dots([cayley_x], [cayley_y], teal, "Cayley: 2 arctan t"),
            dots([exponential_x], [exponential_y], brown, "exponential: 2t", **square),
        ],
        f"t = {t:g}: rotated by {turned:.0f}°",
        x=plane,
        y=plane,
        shapes=[{**circle(), "layer": "below"}],
        square=True,
    )
    grid = [i / 10 for i in range(-60, 61)]
    curve = [2 * math.atan(v) / math.pi for v in grid]
    against_t = Panel(
        [
            line(grid, rounded(curve, 4), teal),
            line(grid, rounded([2 * v / math.pi for v in grid], 4), brown, dash="dot"),
            dots([t], [over_pi[0]], teal),
            dots([t], [over_pi[1]], brown, **square),
        ],
        f"angle (radians)<br>slope of Cayley {slope:.2f}",
        x=axis("entry t of S", -6, 6),
        y=axis(low=-2, high=2, dtick=1, ticksuffix="π"),
        shapes=[level(bound, width=1, dash="dash", color=grey) for bound in (-1, 1)],
        width=0.9,
    )
    return Drawn(
        panels(
            [on_circle, against_t],
            across=0.11,
            height=390,
            margin={"l": 36, "r": 12, "t": 46, "b": 76},
        ),
        "Two panels compare the Cayley transform of a number with its exponential. The left "
        f"panel is the complex plane with the unit circle. A ray from −1 through {t:g}i meets the "
        f"circle at {turned:.0f} degrees, where a dot marks the rotation by the Cayley transform. "
        f"A square on the circle, at {straight:.0f} degrees, marks the rotation by the "
        "exponential. The right panel is a line chart of both angles, in radians, against the "
        "entry t of S, from -6 to 6. The angle of the exponential is a dotted straight line that "
        "leaves the range from −π to π, whose ends are dashed horizontal lines. The angle of the "
        "transform, twice the arc tangent of t, is a solid curve that stays in this range. A dot "
        f"and a square mark the chosen t. There the solid curve has slope {slope:.2f}.",
    )


@computed
def _sparse(density: Tensor) -> dict[str, Tensor]:
    """Return S with its first entries filled, in a fixed random order, P, and how full they are."""
    generator = torch.Generator().manual_seed(2)
    places = torch.triu_indices(SIZE, SIZE, offset=1)
    order = torch.randperm(places.shape[1], generator=generator)
    entries = torch.randn(places.shape[1], dtype=torch.float64, generator=generator)
    entries = entries.float().double()  # with fewer digits, so that the page is smaller
    count = (density * len(order)).round()
    skew = sparse_skew(entries, places[:, order], SIZE)
    rank = sparse_skew(torch.arange(1.0, 1 + len(order)).double(), places[:, order], SIZE).abs()
    skew = torch.where(rank <= count, skew, 0.0)
    # channels that a path of entries joins are one part: the parts are what the powers reach
    joined = torch.eye(SIZE).double() + (skew != 0).double()
    for _ in range(5):
        joined = (joined @ joined > 0).double()
    pair = torch.stack([skew, cayley(skew)]).abs()
    return {
        "entries": torch.where(pair > 1e-12, pair, math.nan),
        "filled": (pair > 1e-12).double().mean((-2, -1)),
        "parts": (1 / joined.sum(-1)).sum(),
        "whole": joined.amin(),
    }


def sparse_basis(density: float) -> Drawn:
    """Draw the entries of a sparse S of 32 channels beside those of its Cayley transform P.

    Entries are filled in a fixed random order, so a higher density adds to a lower one.
    What is exactly 0 is left blank.

    Args:
        density: Which part of the entries above the diagonal is filled.

    Returns:
        A figure of two heat-maps with one colour scale.
    """
    found = _sparse(density)
    filled = [f"{share:.0%} filled" for share in found["filled"]]
    skew, basis = found["entries"]
    blocks = f"{found['parts']:.0f} connected part{pick(found['whole'], 's', '')}"

    def entries(matrix: Any, head: str) -> Panel:
        hover = "row %{y}, column %{x}: %{z:.2f}"
        drawn = heat(matrix, hover=hover, xgap=1, ygap=1, hoverongaps=False)
        columns = axis(low=-0.5, high=SIZE - 0.5, dtick=8, **CELLS)
        return Panel([drawn], head, x=columns, y=downwards(SIZE, dtick=8), square=True)

    return Drawn(
        panels(
            [
                entries(skew, f"S: {filled[0]},<br>{blocks}"),
                entries(basis, f"P: {filled[1]}"),
            ],
            across=0.08,
            height=390,
            margin={"l": 32, "r": 10, "t": 48, "b": 92},
            coloraxis=colour_axis(SEQUENTIAL, 0, 1, y=-0.16, title="absolute value of an entry"),
        ),
        "Two heat maps show the absolute values of the entries of two matrices of size 32 by 32. "
        f"The left map is the sparse S. It is {filled[0]}, and its channels form {blocks}. The "
        f"right map is the Cayley transform P of this S. It is {filled[1]}. Empty cells are "
        "entries that are 0.",
    )


@computed
def _signed(angle: Tensor) -> dict[str, Tensor]:
    """Return the entry of S for an angle, and for half a turn less, as both signs are changed."""
    half = angle.deg2rad() / 2
    tangent = half.sin() / half.cos()
    entries = torch.stack([tangent, -1 / tangent])
    chosen = (entries[0].abs() > 1).double()
    return {
        "entries": entries,
        "chosen": chosen,
    }


def sign_choice(angle: float) -> Drawn:
    """Draw the entry of S that rotates a plane by an angle, with either pair of signs.

    By :eq:`eq-cayley-plane` it is :math:`t = tan(angle / 2)`; with both signs changed, the angle
    is smaller by half a turn.

    Args:
        angle: Degrees, between 0 and 180.

    Returns:
        A figure of the two curves over the angle, and a dot on each.
    """
    found = _signed(angle)
    plain, changed = found["entries"]
    teal, orange = COLOURS["cayley"], PALETTE["orange"]
    degrees = list(range(2, 180, 2))
    tangents = [math.tan(math.radians(a) / 2) for a in degrees]
    hover = "%{x}°: t = %{y:.2f}"
    lines = [
        line(degrees, rounded(tangents), teal, "signs unchanged", hover=hover),
        line(degrees, rounded([-1 / t for t in tangents]), orange, "both signs changed",
             hover=hover),
        dots([angle], [plain], teal, hover=hover),
        dots([angle], [changed], orange, hover=hover),
    ]  # fmt: skip
    band = {"type": "rect", "x0": 0, "x1": 180, "y0": -1, "y1": 1, "line": {"width": 0}}
    fig = panels(
        Panel(
            lines,
            f"{angle:g}°: t = {plain:.2f}, or {changed:.2f} with both signs changed",
            x=axis("angle of the plane (degrees)", 0, 180, dtick=45),
            y=axis("entry t of S", -6, 6, dtick=2),
            shapes=[{**band, "fillcolor": PALETTE["grey"], "opacity": 0.15, "layer": "below"}],
        ),
        height=360,
        margin={"l": 48, "r": 14, "t": 30, "b": 84},
    )
    which = pick(found["chosen"], "first", "second")
    return Drawn(
        fig,
        "A line chart shows the entry t of S, from -6 to 6, against the angle of a plane, from 0 "
        "to 180 degrees. For the first curve both columns of the rotation keep their signs, and "
        "for the second curve both columns change their signs. Both curves rise. A shaded band "
        f"covers the entries from -1 to 1. Dots mark the angle of {angle:g} degrees, at which the "
        f"first curve has the value {plain:.2f}, and the second curve has the value "
        f"{changed:.2f}. At this angle the {which} curve is within the band.",
    )


@computed
def _connected(channels: Tensor, density: Tensor) -> dict[str, Tensor]:
    """Return the limit law over densities, at one, and the density at which it is a half."""
    f = torch.tensor(DENSITIES, dtype=torch.float64)
    law = (-(-(f * channels - channels.log())).exp()).exp()
    return {
        "law": law,
        "here": (-(-(density * channels - channels.log())).exp()).exp(),
        "half": (channels.log() - math.log(math.log(2))) / channels,
    }


def connected_chance(channels: int, density: float) -> Drawn:
    """Draw the probability that a random sparse S leaves one connected part: its limit law.

    Args:
        channels: d.
        density: f of the entries above the diagonal, :eq:`eq-cayley-sparse`.

    Returns:
        A figure of the law over the density.
    """
    found = _connected(channels, density)
    here, half = found["here"], found["half"]
    colour, hover = COLOURS["cayley"], "f = %{x}: %{y:.0%}"
    fig = panels(
        Panel(
            [
                line(DENSITIES, found["law"], colour, hover=hover),
                dots([density], [here], colour, hover=hover),
                dots([half], [0.5], PALETTE["grey"], symbol="x", size=10, hover=hover),
            ],
            f"probability {here:.0%} at f = {density:g}, and 50% at f = {half:.3f}",
            x=axis("density f", 0, 0.3, dtick=0.1),
            y=axis("probability", 0, 1.05, tickformat=".0%"),
        ),
        height=330,
        margin={"l": 60, "r": 14, "t": 30, "b": 48},
    )
    return Drawn(
        fig,
        "A line chart shows the probability that a random graph is connected, by the limit law, "
        f"against the density of the graph, from 0 to 0.3. The graph has {channels:.0f} nodes, "
        "one for each channel. The line rises with the density. A cross on the line marks "
        f"density {half:.3f}, at which the probability is one half. A dot marks the chosen "
        f"density, {density:g}, at which the probability is {here:.0%}.",
    )


@computed
def _values(power: Tensor, channels: int) -> dict[str, Tensor]:
    """Return the singular values of I + S, from the largest, and its condition number."""
    generator = torch.Generator().manual_seed(6)
    entries = torch.randn(channels * (channels - 1) // 2, dtype=torch.float64, generator=generator)
    s = torch.linalg.svdvals(skew(entries))
    s = torch.where(s > 1e-9 * s[0], s / s[0], 0.0)  # for odd d the last one is 0
    values = (1 + (10**power * s) ** 2).sqrt()
    return {"values": values, "kappa": values[0] / values[-1], "norm": 10**power}


def solve_error(
    channels: str,
    power: float,
    *,
    recorded: Mapping[str, Mapping[str, Sequence[float]]],
    sizes: Sequence[float],
) -> Drawn:
    """Draw the singular values of I + S, and how far P is from orthogonal, by the size of S.

    Args:
        channels: d, a name in ``recorded``.
        power: Decimal logarithm of the norm of S.
        recorded: Channels → way → largest entry of PᵀP − I at each of the sizes.
        sizes: Norms of S.

    Returns:
        A figure of two panels.
    """
    d = int(channels)
    found = _values(power, d)
    kappa, norm = found["kappa"], found["norm"]
    hover = "number %{x}: %{y:.4g}"
    of_pairs = [*significant(found["values"][::2]), None][:33]  # they come in pairs
    values = Panel(
        [dots(list(range(1, 66, 2)), of_pairs, COLOURS["cayley"], size=5, hover=hover)],
        f"d = {d}: κ = {kappa:,.0f}",
        x=axis("singular values of I + S", 0, 67, dtick=16),
        y=axis(None, -0.3, 5.3, type="log", dtick=1, exponentformat="power"),
    )
    looks = {"inverse": "orange", "solve": "blue", "package": "teal"}
    errors = Panel(
        [
            line(sizes, rounded([math.log10(v) for v in recorded[str(channels)][way]]),
                 PALETTE[colour], way, mode="lines+markers", hover="‖S‖ = %{x}: 10 to the %{y:.1f}")
            for way, colour in looks.items()
        ]
        + [line([norm, norm], [-16, -11], PALETTE["grey"], width=1.5, dash="dot")],
        "largest entry of PᵀP − I",
        x=axis("‖S‖", -1.2, 5.2, type="log", dtick=2, exponentformat="power"),
        y=axis(None, -16, -11, tickvals=[-16, -15, -14, -13, -12, -11],
               ticktext=["10⁻¹⁶", "10⁻¹⁵", "10⁻¹⁴", "10⁻¹³", "10⁻¹²", "10⁻¹¹"]),
    )  # fmt: skip
    shapes = (
        "For large norms the lines of the inverse and of the linear solve keep rising, and the "
        "line of the package remains the lowest."
        if d % 2
        else "For large norms the lines of the inverse and of the linear solve stay level, and "
        "the line of the package is lowest."
    )
    room = {"l": 40, "r": 10, "t": 34, "b": 84}
    return Drawn(
        panels([values, errors], height=360, across=0.16, margin=room),
        "Two panels show the singular values of I + S and the errors of the Cayley transform P, "
        f"for {d} channels and an S of norm {norm:,.1f}. In the left panel, dots show every "
        "second singular value in descending order, on a logarithmic axis. The largest singular "
        f"value is {kappa:,.0f} times the smallest. The right panel is a line chart of the "
        "largest entry of PᵀP − I against the norm of S, on logarithmic axes. It has one line "
        f"for the inverse, one for the linear solve and one for the package. {shapes} A dotted "
        "vertical line marks the chosen norm.",
    )
