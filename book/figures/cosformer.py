"""The cosine weight as a diagonal of Ptolemy, and the effect of a phase."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from book.figures.marks import axis, broken, circle, dots, line, pin, rounded, through, upright
from lab.explore import COLOURS, PALETTE, Drawn, Panel, computed, panels, pick

__all__ = ["phase_weights", "ptolemy_circle"]

COSINES, SINES, WEIGHT = PALETTE["orange"], PALETTE["blue"], COLOURS["cosine"]
KEYS = 49  # of the curve


@computed
def _quadrilateral(query: Tensor, key: Tensor, horizon: int) -> dict[str, Tensor]:
    """Return corners and sides, on the circle of diameter 1, and the weight of every key.

    AB = cos a, CD = cos b, AC = 1. Sides are in the order AB, CD, BC, AD.
    """
    a, b = (math.pi / 2 * x / horizon for x in (query, key))
    nought = torch.zeros_like(a)
    corners = torch.stack(
        [
            torch.stack([nought - 0.5, nought]),
            torch.stack([(2 * a).cos(), (2 * a).sin()]) / 2,  # sees AC at a right angle
            torch.stack([nought + 0.5, nought]),
            -torch.stack([(2 * b).cos(), (2 * b).sin()]) / 2,  # opposite to the point of the key
        ]
    )
    A, B, C, D = corners[:, None].unbind()
    keys = torch.linspace(0, math.pi / 2, KEYS, dtype=torch.float64)
    products = torch.stack([a.cos() * b.cos(), a.sin() * b.sin()])
    return {
        "rim": 1.17 * corners.mT,  # letters are outside of the circle
        "cosines": broken(torch.cat([A, C]), torch.cat([B, D])),
        "sines": broken(torch.cat([B, A]), torch.cat([C, D])),
        "diagonal": broken(B, D),
        "sides": torch.stack([a.cos(), b.cos(), a.sin(), b.sin()]),
        "products": products,
        "weight": products.sum(),
        "first": a.cos() * keys.cos(),
        "whole": (a - keys).cos(),
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
        products as stacked areas.

    Raises:
        ValueError: If a position lies outside.
    """
    for name, position in (("query", query), ("key", key)):
        if not 0 <= position <= horizon:
            raise ValueError(f"{name} must lie between 0 and the horizon {horizon}, got {position}")
    found = _quadrilateral(query, key, horizon)
    sides, weight, (cosine, sine) = found["sides"], found["weight"], found["products"]
    letters = through(
        found["rim"],
        PALETTE["grey"],
        text=["A", "B (query)", "C", "D (key)"],
        mode="text",
    )
    circled = Panel(
        [
            line([-0.5, 0.5], [0, 0], PALETTE["grey"], "AC = 1", width=1.5),
            through(found["cosines"], COSINES, "AB, CD: cosines", width=4),
            through(found["sines"], SINES, "BC, AD: sines", width=4),
            through(found["diagonal"], WEIGHT, "BD: the weight", width=4),
            letters,
        ],
        f"AB·CD + BC·AD = {cosine:.2f} + {sine:.2f} = BD = {weight:.2f}",
        x=axis(low=-0.72, high=0.72, visible=False),
        y=axis(low=-0.64, high=0.64, visible=False),
        shapes=[circle(radius=0.5)],
        square=True,
    )
    keys = [horizon * step / (KEYS - 1) for step in range(KEYS)]
    look: dict[str, Any] = {"width": 1, "hover": "key %{x:.1f}: %{y:.2f}"}
    weights = Panel(
        [
            line(keys, found["first"], COSINES, fill="tozeroy", **look),
            line(keys, found["whole"], SINES, fill="tonexty", **look),
            pin(key, weight, WEIGHT, width=4),
        ],
        f"weight of each key for the query at position {query:g}",
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
        "The upper panel is a diagram of a quadrilateral ABCD on a circle of diameter 1, and AC "
        f"is a diameter. Point B belongs to the query at position {query:g}, and point D belongs "
        f"to the key at position {key:g}. Two opposite sides are cosines, and AB is "
        f"{sides[0]:.2f} long and CD is {sides[1]:.2f} long. The two other sides are sines, and "
        f"BC is {sides[2]:.2f} long and AD is {sides[3]:.2f} long. The length of the diagonal BD "
        f"is the weight of this key for this query, {weight:.2f}. The lower panel is an area "
        "chart of the weight against the position of the key, from 0 to the horizon of "
        f"{horizon}. Two stacked areas, one for the product of the cosines and one for the "
        "product of the sines, add up to the weight, which is greatest at the position of the "
        f"query, {query:g}. A vertical line up to a dot marks the key at position {key:g}.",
    )


NEAR = 0.1  # the nearest tenth of the horizon


@computed
def _phased(phase: Tensor) -> dict[str, Tensor]:
    """Return both weights up to the horizon, and the share of the nearest tenth, also elsewhere.

    cos(ωΔ + ψ) divided by its value at distance 0 is sin(u s)/sin u with s = 1 − Δ/M and
    u = π/2 − ψ; one plus a cosine is the square of that. At u = 0 they are their limits.
    """
    s = 1 - torch.arange(41, dtype=torch.float64) / 40
    left = math.pi / 2 * (1 - phase).clamp(min=1e-4)  # the limit to 1e-9
    two = (left * s).sin() / left.sin()
    places = torch.cat([torch.arange(33, dtype=torch.float64) / 32, phase[None]])
    far, end = 1 - NEAR, math.pi / 2 * (1 - places).clamp(min=1e-3)
    cosine = ((far * end).cos() - end.cos()) / (1 - end.cos())
    b = 2 * end
    squared = 1 - (far * b - (far * b).sin()) / (b - b.sin())
    shares = torch.stack([cosine, squared])
    return {
        "curves": torch.stack([two, two.square()]),
        "shares": shares[:, :-1],
        "now": shares[:, -1],
        "limit": (phase == 1).double(),
    }


def phase_weights(phase: float) -> Drawn:
    r"""Draw cosine weights with a phase that reach 0 at the horizon, and the nearest tenth's share.

    Equation :eq:`eq-cosine-phase`, divided by the weight at distance 0. The frequency is
    (π/2 − ψ)/M for a cosine alone and (π − ψ)/M for one plus a cosine.

    Args:
        phase: ψ as a share of its largest value, π/2 and π: from 0 to 1. At 1 the limits are drawn.

    Returns:
        A figure with two panels.

    Raises:
        ValueError: If the phase lies outside.
    """
    if not 0 <= phase <= 1:
        raise ValueError(f"phase must lie between 0 and 1, got {phase}")
    two, three = COLOURS["cosine"], COLOURS["cosine-positive"]
    distances = [step / 40 for step in range(41)]
    found = _phased(phase)
    curves, now = found["curves"], found["now"]
    limits = [[(1 - x) ** p for x in distances] for p in (1, 2)]
    hover = "%{x:.2f} M: %{y:.2f}"
    thin: dict[str, Any] = {"width": 1.5, "dash": "dot"}
    weights = Panel(
        [
            line(distances, rounded(limits[0]), COLOURS["ramp"], "ramp 1 − Δ/M", **thin),
            line(
                distances,
                rounded(limits[1]),
                COLOURS["ramp-squared"],
                "squared ramp (1 − Δ/M)²",
                **thin,
            ),
            line(distances, curves[0], two, "cos(ωΔ + ψ)", hover=hover),
            line(distances, curves[1], three, "1 + cos(ωΔ + ψ)", hover=hover),
        ],
        "weight, divided by the weight at distance 0",
        x=axis("distance Δ, as a share of the horizon M", 0, 1, dtick=0.2),
        y=axis(low=0, high=1.05, dtick=0.5),
        shapes=[upright(NEAR, color=PALETTE["grey"], width=1)],
    )
    places = [step / 32 for step in range(33)]
    percent = "%{x:.2f}: %{y:.1%}"
    shares = Panel(
        [
            line(places, found["shares"][0], two, hover=percent),
            line(places, found["shares"][1], three, hover=percent),
            dots([phase, phase], now, [two, three], size=12),
        ],
        f"share of the nearest tenth: {now[0]:.1%} and {now[1]:.1%}",
        x=axis("phase ψ, as a share of its largest value", -0.03, 1.03, dtick=0.25),
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
    limit = pick(found["limit"], "", ", where the solid curves coincide with the dotted ones")
    return Drawn(
        fig,
        "Two line charts compare cosine weights that have a phase with two ramps. The upper "
        "chart shows four weights, divided by the weight at distance 0, against the distance, as "
        "a share of the horizon. All four lines fall from 1 at distance 0 to 0 at the horizon. "
        f"The phase of the two solid curves is {phase:.0%} of its largest value{limit}. At half "
        f"the horizon the cosine has the value {curves[0][20]:.2f}, and one plus a cosine has the "
        f"value {curves[1][20]:.2f}. The two dotted curves are the ramp, which has the value "
        f"{limits[0][20]:.2f} at half the horizon, and the squared ramp, which has the value "
        f"{limits[1][20]:.2f} there. A thin vertical line marks a tenth of the horizon. The lower "
        "chart shows the share of the weight that the nearest tenth of the tokens gets, against "
        "the phase, as two rising curves. Dots mark the chosen phase, where this share is "
        f"{now[0]:.1%} with the cosine and {now[1]:.1%} with one plus a cosine.",
    )
