"""Two mirrors: a flag, its mirror image, and the image of that, which is the flag turned."""

from __future__ import annotations

import math
from typing import Any

import plotly.graph_objects as go
import torch
from torch import Tensor

from book.figures.marks import through
from lab.explore import PALETTE, Drawn, computed, layout
from stringlib.reference.rope import householder_2d

__all__ = ["two_mirrors"]

FLAG = [[0.0, 0.0], [1.0, 0.0], [0.7, 0.2], [0.7, 0.0]]  # points right, with its cloth to the left
REACH = 1.25  # of the mirrors


def _arc(start: Tensor, end: Tensor, radius: float) -> Tensor:
    """Return an arc between two angles in degrees, a gap, and a place outside near its middle."""
    angles = torch.deg2rad(start + (end - start) * torch.arange(13) / 12)
    arc = radius * torch.stack([angles.cos(), angles.sin()])
    gap = torch.full((2, 1), math.nan, dtype=arc.dtype)
    return torch.cat([arc, gap, (1 + 0.13 / radius) * arc[:, 5:6]], 1)


@computed
def _mirrored(between: Tensor, first: Tensor, point: Tensor) -> dict[str, Tensor]:
    """Return the mirrors, the flag and its images, both arcs, and the angles of all."""
    mirrors = torch.deg2rad(torch.stack([first, first + between]))
    a = torch.deg2rad(point)
    turn = torch.stack([torch.stack([a.cos(), -a.sin()]), torch.stack([a.sin(), a.cos()])])
    flag = torch.tensor(FLAG, dtype=torch.float64) @ turn.mT
    one, two = householder_2d(mirrors + math.pi / 2)  # a normal stands upright on its mirror
    image = flag @ one.mT
    far = REACH * torch.stack([mirrors.cos(), mirrors.sin()], -1)[..., None]
    return {
        "mirrors": torch.cat([-far, far], -1),
        "flags": torch.stack([flag.mT, image.mT, two @ image.mT]),
        "arc": _arc(first, first + between, 1.1),
        "turned": _arc(point, point + 2 * between, 0.5),
        "degrees": torch.stack(
            [2 * between, first + between, 2 * first - point, point + 2 * between]
        ),
    }


def two_mirrors(between: float, first: float = 45.0, point: float = 20.0) -> Drawn:
    r"""Reflect a flag in one mirror, and the image in another, :eq:`eq-reflection-rotation`.

    The first image has its cloth on the other side; the second one is the flag itself, turned by
    twice the angle between the mirrors. All angles are in degrees.

    Args:
        between: Angle from the first mirror to the second.
        first: Angle of the first mirror; the second one moves with it.
        point: Angle of the flag.

    Returns:
        A figure with the two mirrors, the flag, its two images, and arcs with their angles.
    """
    found = _mirrored(between, first, point)
    twice, second, image, end = found["degrees"]
    looks = {"first mirror": "solid", "second mirror": "dash"}
    traces = [
        through(ends, PALETTE["brown"], name, dash=dash)
        for (name, dash), ends in zip(looks.items(), found["mirrors"], strict=True)
    ]
    flags = {"flag": "blue", "after one mirror": "grey", "after both": "red"}
    traces += [
        through(corners, PALETTE[colour], name, width=4, fill="toself")
        for (name, colour), corners in zip(flags.items(), found["flags"], strict=True)
    ]
    for arc, angle, colour in (("arc", between, "brown"), ("turned", twice, "red")):
        words: dict[str, Any] = {"text": [*[""] * 14, f"{angle:g}°"], "mode": "lines+text"}
        traces.append(through(found[arc], PALETTE[colour], dash="dot", **words))
    unseen = {"range": [-1.35, 1.35], "visible": False, "constrain": "domain"}
    axes = layout(
        height=430,
        margin={"l": 8, "r": 8, "t": 40, "b": 76},
        title_text=f"mirrors {between:g}° apart turn the flag by {twice:g}°",
        xaxis=unseen,
        yaxis={**unseen, "scaleanchor": "x"},
    )
    return Drawn(
        go.Figure(traces, axes),
        f"A flag at {point:g} degrees and mirrors at {first:g} and {second:g} degrees. "
        f"After one mirror the flag stands at {image:g} degrees with its cloth on the "
        f"other side. After both it stands at {end:g} degrees, its cloth as at "
        "first.",
    )
