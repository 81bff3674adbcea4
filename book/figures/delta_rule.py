"""Two keys are written in turn: a state that adds, and one that replaces."""

from __future__ import annotations

import math
from typing import Any

import plotly.graph_objects as go
import torch
from torch import Tensor

from book.figures.marks import axis, dots, line, rounded, segments
from lab.explore import COLOURS, PALETTE, Drawn, Panel, panels

__all__ = ["written_twice"]

WRITES = (("A", 2.0), ("B", 1.5), ("A", -1.0))
ADDS, REPLACES, LATEST = COLOURS["identity"], COLOURS["delta"], PALETTE["brown"]


def _states(keys: dict[str, Tensor], rate: float, decay: float) -> tuple[Tensor, Tensor]:
    """Return the states before and after every write, ``(writes + 1, 2)``: adding, replacing."""
    adds, replaces = [torch.zeros(2).double()], [torch.zeros(2).double()]
    for name, value in WRITES:
        key, kept = keys[name], decay * replaces[-1]
        adds.append(decay * adds[-1] + value * key)
        replaces.append(kept + rate * (value - kept @ key) * key)
    return torch.stack(adds), torch.stack(replaces)


def _upright(key: Tensor) -> Tensor:
    """Return a key of the plane, turned by a quarter."""
    return torch.stack([-key[1], key[0]])


def _solutions(key: Tensor, value: float) -> tuple[list[float], list[float]]:
    """Return the ends of the line of all states that answer a key with a value."""
    foot, along = value * key, 9 * _upright(key)
    one, other = rounded(foot - along), rounded(foot + along)
    return one, other


def written_twice(beta: float, angle: float, decay: float) -> Drawn:
    r"""Draw the path of two states through three writes, and what they answer: :eq:`eq-delta-rule`.

    Values are numbers and keys have two channels, so a state is a point of the plane. It answers a
    key with a value anywhere on a line upright on the key. The delta rule walks toward that line,
    and with :math:`\beta = 1` to its nearest point.

    Args:
        beta: Rate of the delta rule.
        angle: Degrees between the keys A and B.
        decay: Factor of both states before each write.

    Returns:
        A figure of the plane, and of the answers to either key after each write.
    """
    turn = math.radians(angle)
    keys = {"A": torch.tensor([1.0, 0.0]).double()}
    keys["B"] = torch.tensor([math.cos(turn), math.sin(turn)]).double()
    paths = dict(zip(("adds", "replaces"), _states(keys, beta, decay), strict=True))
    looks: dict[str, Any] = {
        "adds": (ADDS, "square", "adds"),
        "replaces": (REPLACES, "circle", "delta rule"),
    }
    lines = segments([_solutions(keys[k], v) for k, v in WRITES], LATEST, width=1)
    arrows = [segments([([0, 0], rounded(key))], PALETTE["grey"], width=5) for key in keys.values()]
    side = {"A": -0.3, "B": 0.3}  # of its arrow, where a key's name stands
    tips = torch.stack([key + side[name] * _upright(key) for name, key in keys.items()])
    names = go.Scatter(
        x=rounded(tips[:, 0]), y=rounded(tips[:, 1]), text=[*keys], mode="text", hoverinfo="skip",
        showlegend=False, textfont={"size": 15},
    )  # fmt: skip
    plane = [lines, *arrows, names]
    for path, (colour, symbol, name) in looks.items():
        x, y = rounded(paths[path].mT)
        plane.append(
            line(x, y, colour, name, width=2, mode="lines+markers",
                 marker={"size": [4, 9, 9, 13], "symbol": symbol, "opacity": 1},
                 hover="after %{pointNumber} writes: (%{x:.2f}, %{y:.2f})")
        )  # fmt: skip
    ticks = [f"{name} ← {value:g}".replace("-", "−") for name, value in WRITES]
    answers, found = [], {}
    for name, key in keys.items():
        latest = [
            next((v for k, v in WRITES[n::-1] if k == name), None) for n in range(len(WRITES))
        ]
        traces: list[Any] = [
            dots(ticks_at := list(range(len(WRITES))), latest, LATEST,
                 "latest value" if name == "A" else None, size=24, symbol="line-ew",
                 marker_line={"width": 3, "color": LATEST}, hover="%{y:g}")
        ]  # fmt: skip
        for path, (colour, symbol, _) in looks.items():
            said = paths[path][1:] @ key
            found[path, name] = rounded(said)[-1]
            traces.append(
                line(ticks_at, rounded(said), colour, width=1.5, mode="lines+markers",
                     marker={"size": 9, "symbol": symbol}, hover="%{y:.2f}")
            )  # fmt: skip
        answers.append(
            Panel(
                traces,
                f"answer to {name}",
                x={
                    "tickvals": ticks_at,
                    "ticktext": ticks,
                    "range": [-0.4, 2.4],
                    "zeroline": False,
                },
                y=axis(low=-3.2, high=4.6, dtick=2),
            )
        )
    fig = panels(
        Panel(
            plane,
            "the state",
            x=axis(low=-3.2, high=4.5, dtick=1),
            y=axis(low=-2.4, high=2.4, dtick=1),
            square=True,
        ),
        answers,
        heights=(0.56, 0.3),
        down=0.14,
        height=560,
        margin={"l": 34, "r": 12, "t": 30, "b": 96},
    )
    writes = ", ".join(f"{v:g} under {k}" for k, v in WRITES)
    told = {name: f"{found['adds', name]:.2f} and {found['replaces', name]:.2f}" for name in keys}
    last = dict(WRITES)
    return Drawn(
        fig,
        f"Written are {writes}; the keys are {angle:g} degrees apart, the rate is {beta:g} and the "
        f"decay {decay:g}. Above, the states as points of a plane, with the lines of all states "
        "that answer a key with a value written. Below, what they answer after each write, adding "
        f"and by the delta rule: at the end {told['A']} to A, whose latest value is {last['A']:g}, "
        f"and {told['B']} to B, whose latest value is {last['B']:g}.",
    )
