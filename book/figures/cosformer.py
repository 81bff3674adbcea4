"""The cosine weight as a diagonal of Ptolemy, and what a phase makes of it."""

from __future__ import annotations

import math
from typing import Any

import plotly.graph_objects as go

from book.figures.marks import axis, circle, dots, line, pin, rounded, segments, upright
from lab.explore import COLOURS, PALETTE, Drawn, Panel, panels

__all__ = ["phase_weights", "ptolemy_circle"]

COSINES, SINES, WEIGHT = PALETTE["orange"], PALETTE["blue"], COLOURS["cosine"]
Point = tuple[float, float]


def _angle(name: str, position: float, horizon: int) -> float:
    if not 0 <= position <= horizon:
        raise ValueError(f"{name} must lie between 0 and the horizon {horizon}, got {position}")
    return math.pi / 2 * position / horizon


def _corners(a: float, b: float) -> dict[str, Point]:
    """Return the corners, on the circle of diameter 1: AB = cos a, CD = cos b, AC = 1."""
    return {
        "A": (-0.5, 0.0),
        "B": (math.cos(2 * a) / 2, math.sin(2 * a) / 2),  # sees AC at a right angle
        "C": (0.5, 0.0),
        "D": (-math.cos(2 * b) / 2, -math.sin(2 * b) / 2),  # opposite to the point of the key
    }


def ptolemy_circle(query: float, key: float, horizon: int = 12) -> Drawn:
    r"""Draw the quadrilateral of a query and a key above the weights of all keys.

    On a circle of diameter 1 the position i of the query puts B at the angle
    :math:`2a = \pi i/M` above the diameter AC, the position j of the key puts D
    opposite to the angle :math:`2b`.  Then AB and CD are the cosines of a and b,
    BC and AD their sines, and BD is :math:`\cos(a-b)`: the cosine weight.

    Args:
        query: Position i, from 0 to the horizon.
        key: Position j, from 0 to the horizon.
        horizon: M.

    Returns:
        A figure with two panels. One is the circle, the other shows for each key the two
        products as areas on top of each other.

    Raises:
        ValueError: If a position lies outside.
    """
    a, b = _angle("query", query, horizon), _angle("key", key, horizon)
    corners = _corners(a, b)
    sides = math.cos(a), math.cos(b), math.sin(a), math.sin(b)  # AB, CD, BC, AD
    weight = math.cos(a - b)

    def lines(pairs: str, name: str, colour: str, width: float = 4) -> go.Scatter:
        ends = [(corners[pair[0]], corners[pair[1]]) for pair in pairs.split()]
        return segments(ends, colour, name, width=width)

    # letters stand outside of the circle
    rim = [(1.17 * x, 1.17 * y) for x, y in corners.values()]
    letters = line(
        [x for x, _ in rim],
        [y for _, y in rim],
        PALETTE["grey"],
        text=["A", "B (query)", "C", "D (key)"],
        mode="text",
    )
    circled = Panel(
        [
            lines("AC", "AC = 1", PALETTE["grey"], 1.5),
            lines("AB CD", "AB, CD: cosines", COSINES),
            lines("BC AD", "BC, AD: sines", SINES),
            lines("BD", "BD: the weight", WEIGHT),
            letters,
        ],
        f"AB·CD + BC·AD = {sides[0] * sides[1]:.2f} + {sides[2] * sides[3]:.2f} "
        f"= BD = {weight:.2f}",
        x=axis(low=-0.72, high=0.72, visible=False),
        y=axis(low=-0.64, high=0.64, visible=False),
        shapes=[circle(radius=0.5)],
        square=True,
    )
    keys = [horizon * step / 48 for step in range(49)]
    angles = [_angle("key", j, horizon) for j in keys]
    first = [math.cos(a) * math.cos(x) for x in angles]
    whole = [math.cos(a - x) for x in angles]
    look: dict[str, Any] = {"width": 1, "hover": "key %{x:.1f}: %{y:.2f}"}
    weights = Panel(
        [
            line(keys, first, COSINES, fill="tozeroy", **look),
            line(keys, whole, SINES, fill="tonexty", **look),
            pin(key, weight, WEIGHT, width=4),
        ],
        f"weight of each key for the query at {query:g}",
        x=axis(f"position of the key (horizon M = {horizon})", 0, horizon, dtick=2),
        y=axis(low=0, high=1.1, dtick=0.5),
    )
    fig = panels(
        circled,
        weights,
        heights=(0.56, 0.34),
        down=0.1,
        height=600,
        margin={"l": 44, "r": 14, "t": 34, "b": 96},
    )
    return Drawn(
        fig,
        f"A circle of diameter 1 with a quadrilateral ABCD, AC a diameter. B stands for the query "
        f"at position {query:g}, D for the key at position {key:g}, with a horizon of {horizon}. "
        f"The sides AB = {sides[0]:.2f} and CD = {sides[1]:.2f} are cosines, "
        f"BC = {sides[2]:.2f} and AD = {sides[3]:.2f} sines; "
        f"the diagonal BD = {weight:.2f} is the weight. Below, the weight of every key "
        f"as the sum of the two products, largest at {query:g}.",
    )


NEAR = 0.1  # the nearest tenth of the horizon


def _two(left: float, s: float) -> float:
    """Return cos(ωΔ + ψ), 1 at distance 0, of s = 1 − Δ/M and what the phase leaves, π/2 − ψ."""
    return math.sin(left * s) / math.sin(left) if left else s


def _three(left: float, s: float) -> float:
    """Return 1 + cos(ωΔ + ψ), 1 at distance 0, of s = 1 − Δ/M and π − ψ."""
    return _two(left / 2, s) ** 2


def _shares(phase: float) -> tuple[float, float]:
    """Return what the nearest tenth gets of the whole weight, from two copies and from three."""
    far = 1 - NEAR
    if phase == 1:
        return 1 - far**2, 1 - far**3
    a, b = math.pi / 2 * (1 - phase), math.pi * (1 - phase)
    two = (math.cos(far * a) - math.cos(a)) / (1 - math.cos(a))
    three = 1 - (far * b - math.sin(far * b)) / (b - math.sin(b))
    return two, three


def phase_weights(phase: float) -> Drawn:
    r"""Draw cosine weights with a phase that reach 0 at the horizon, and what the nearest get.

    Equation :eq:`eq-cosine-phase`, divided by the weight at distance 0. With ψ the frequency is
    what the phase leaves: (π/2 − ψ)/M for a cosine alone, (π − ψ)/M for one plus it.

    Args:
        phase: ψ as a share of its end, π/2 and π: from 0 to 1. At 1 the limits are drawn.

    Returns:
        A figure with two panels.

    Raises:
        ValueError: If the phase lies outside.
    """
    if not 0 <= phase <= 1:
        raise ValueError(f"phase must lie between 0 and 1, got {phase}")
    two, three = COLOURS["cosine"], COLOURS["cosine-positive"]
    distances = [step / 40 for step in range(41)]
    lefts = math.pi / 2 * (1 - phase), math.pi * (1 - phase)
    curves = [
        [form(left, 1 - x) for x in distances]
        for form, left in zip((_two, _three), lefts, strict=True)
    ]
    limits = [[(1 - x) ** p for x in distances] for p in (1, 2)]
    hover = "%{x:.2f} M: %{y:.2f}"
    thin: dict[str, Any] = {"width": 1.5, "dash": "dot"}
    weights = Panel(
        [
            line(distances, rounded(limits[0]), COLOURS["ramp"], "1 − Δ/M", **thin),
            line(distances, rounded(limits[1]), COLOURS["ramp-squared"], "(1 − Δ/M)²", **thin),
            line(distances, rounded(curves[0]), two, "cos(ωΔ + ψ)", hover=hover),
            line(distances, rounded(curves[1]), three, "1 + cos(ωΔ + ψ)", hover=hover),
        ],
        "weight, as a share of that at distance 0",
        x=axis("distance Δ, in horizons M", 0, 1, dtick=0.2),
        y=axis(low=0, high=1.05, dtick=0.5),
        shapes=[upright(NEAR, color=PALETTE["grey"], width=1)],
    )
    places = [step / 32 for step in range(33)]
    found = [_shares(place) for place in places]
    now = _shares(phase)
    percent = "%{x:.2f}: %{y:.1%}"
    shares = Panel(
        [
            line(places, rounded([x for x, _ in found], 4), two, hover=percent),
            line(places, rounded([x for _, x in found], 4), three, hover=percent),
            dots([phase, phase], rounded(now, 4), [two, three], size=12),
        ],
        f"the nearest tenth gets {now[0]:.1%} and {now[1]:.1%}",
        x=axis("phase ψ, as a share of its end", -0.03, 1.03, dtick=0.25),
        y=axis(low=0.1, high=0.3, dtick=0.1, tickformat=".0%"),
    )
    fig = panels(
        weights,
        shares,
        heights=(0.56, 0.3),
        down=0.19,
        height=560,
        margin={"l": 50, "r": 14, "t": 34, "b": 96},
    )
    end = "the limits: straight and squared" if phase == 1 else f"{phase:g} of its end"
    return Drawn(
        fig,
        f"Two weights that fall from 1 at distance 0 to 0 at the horizon, with a phase of {end}. "
        f"At half the horizon the cosine alone is {curves[0][20]:.2f}, one plus a cosine "
        f"{curves[1][20]:.2f}; dotted lines show the limits, {limits[0][20]:.2f} and "
        f"{limits[1][20]:.2f} there. Below, the share of the nearest tenth against the phase: "
        f"{now[0]:.1%} and {now[1]:.1%} here, and it rises with the phase in both.",
    )
