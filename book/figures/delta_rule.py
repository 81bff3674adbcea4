"""Two keys are written in turn: a state that adds, and one that replaces."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go
import torch
from torch import Tensor

from book.figures.marks import axis, broken, dots, line, through
from lab.explore import COLOURS, PALETTE, Drawn, Panel, computed, panels

__all__ = ["written_twice"]

KEYS = "AB"
WRITES = (("A", 2.0), ("B", 1.5), ("A", -1.0))
ADDS, REPLACES, LATEST = COLOURS["identity"], COLOURS["delta"], PALETTE["brown"]


@computed
def _states(beta: Tensor, angle: Tensor, decay: Tensor) -> dict[str, Tensor]:
    """Return keys, and states before and after every write with what they answer after each.

    ``adds`` and ``replaces`` are ``(2, writes + 1)``, answers ``(2 states, 2 keys, writes)``.
    """
    turn = angle.deg2rad()
    keys = torch.stack(
        [torch.stack([turn.cos() * 0 + 1, turn * 0]), torch.stack([turn.cos(), turn.sin()])]
    )
    adds, replaces = [torch.zeros(2).double()], [torch.zeros(2).double()]
    for name, value in WRITES:
        key, left = keys[KEYS.index(name)], decay * replaces[-1]
        adds.append(decay * adds[-1] + value * key)
        replaces.append(left + beta * (value - left @ key) * key)
    states = torch.stack([torch.stack(adds), torch.stack(replaces)])
    upright = torch.stack([-keys[:, 1], keys[:, 0]], -1)
    written = torch.tensor([[KEYS.index(name), value] for name, value in WRITES])
    feet = written[:, 1:] * keys[written[:, 0].long()]
    along = 9 * upright[written[:, 0].long()]
    side = torch.tensor([[-0.3], [0.3]])  # of its arrow, where a key's name stands
    return {
        "adds": states[0].mT,
        "replaces": states[1].mT,
        "answers": keys @ states[:, 1:].mT,
        "solutions": broken(feet - along, feet + along),
        "arrows": broken(keys * 0, keys).unflatten(-1, (2, 3)).transpose(0, 1),
        "names": (keys + side * upright).mT,
    }


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
    found = _states(beta, angle, decay)
    looks: dict[str, Any] = {
        "adds": (ADDS, "square", "adds"),
        "replaces": (REPLACES, "circle", "delta rule"),
    }
    lines = through(found["solutions"], LATEST, width=1)
    arrows = [through(arrow, PALETTE["grey"], width=5) for arrow in found["arrows"]]
    names = go.Scatter(
        x=found["names"][0], y=found["names"][1], text=[*KEYS], mode="text", hoverinfo="skip",
        showlegend=False, textfont={"size": 15},
    )  # fmt: skip
    plane = [lines, *arrows, names]
    for path, (colour, symbol, name) in looks.items():
        plane.append(
            through(found[path], colour, name, width=2, mode="lines+markers",
                 marker={"size": [4, 9, 9, 13], "symbol": symbol, "opacity": 1},
                 hover="after %{pointNumber} writes: (%{x:.2f}, %{y:.2f})")
        )  # fmt: skip
    ticks = [f"{name} ← {value:g}".replace("-", "−") for name, value in WRITES]
    answers = []
    for number, name in enumerate(KEYS):
        latest = [
            next((v for k, v in WRITES[n::-1] if k == name), None) for n in range(len(WRITES))
        ]
        traces: list[Any] = [
            dots(ticks_at := list(range(len(WRITES))), latest, LATEST,
                 "latest value" if name == "A" else None, size=24, symbol="line-ew",
                 marker_line={"width": 3, "color": LATEST}, hover="%{y:g}")
        ]  # fmt: skip
        for said, (colour, symbol, _) in zip(found["answers"], looks.values(), strict=True):
            traces.append(
                line(ticks_at, said[number], colour, width=1.5, mode="lines+markers",
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
    adds, replaces = found["answers"]
    told = {name: f"{adds[i][-1]:.2f} and {replaces[i][-1]:.2f}" for i, name in enumerate(KEYS)}
    last = dict(WRITES)
    return Drawn(
        fig,
        f"Written are {writes}; the keys are {angle:g} degrees apart, the rate is {beta:g} and the "
        f"decay {decay:g}. Above, the states as points of a plane, with the lines of all states "
        "that answer a key with a value written. Below, what they answer after each write, adding "
        f"and by the delta rule: at the end {told['A']} to A, whose latest value is {last['A']:g}, "
        f"and {told['B']} to B, whose latest value is {last['B']:g}.",
    )
