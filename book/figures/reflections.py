"""Two mirrors turn a flag, and a rate with it; one mirror for each token is relative already."""

from __future__ import annotations

import math
from typing import Any

import plotly.graph_objects as go
import torch
from torch import Tensor

from book.figures.marks import axis, circle, line, rounded, through
from lab.explore import COLOURS, PALETTE, Drawn, computed, layout
from stringlib.reference.rope import householder_2d

__all__ = ["mirror_rate", "one_mirror", "two_mirrors"]

FLAG = [[0.0, 0.0], [1.0, 0.0], [0.7, 0.2], [0.7, 0.0]]  # points right, with its cloth to the left
REACH = 1.25  # of the mirrors
STEPS, RATE = 60, 0.01
SPEED, QUERY, KEY = 15.0, 100.0, 60.0  # degrees a token of one mirror, and of two flags


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


def _mirrored_path() -> list[float]:
    """Return ω = 2(ω₂ − ω₁) after each step of gradient descent on (ω − 1)²/2 by both angles."""
    first = second = 0.0
    path = [0.0]
    for _ in range(STEPS):
        slope = path[-1] - 1
        first, second = first + 2 * RATE * slope, second - 2 * RATE * slope
        path.append(2 * (second - first))
    return path


@computed
def _free_path(factor: Tensor, mirrors: list[float]) -> dict[str, Tensor]:
    """Return the path of ω alone at a factor of the rate, and how far it is from the mirrors'."""
    alone = 1 - (1 - factor * RATE) ** torch.arange(STEPS + 1).double()
    return {
        "alone": alone,
        "apart": (torch.tensor(mirrors, dtype=torch.float64) - alone).abs().amax(-1),
    }


def mirror_rate(factor: float) -> Drawn:
    """Draw the path of a frequency that two mirrors learn, and of a free one: its rate moves.

    Gradient descent on (ω − 1)²/2 from 0; by :eq:`eq-reflection-rate` the paths are one at 8.

    Args:
        factor: Rate of the free frequency, over that of the mirrors.

    Returns:
        A figure with two lines.
    """
    mirrors = _mirrored_path()
    found = _free_path(factor, mirrors)
    apart = found["apart"]
    drawn = [
        line(None, rounded(mirrors), COLOURS["reflection"], "two mirrors at η", width=7,
             opacity=0.4, hover="step %{x}: %{y:.3f}"),
        line(None, found["alone"], COLOURS["mixed"], "ω at a rate of its own",
             hover="step %{x}: %{y:.3f}"),
    ]  # fmt: skip
    axes = layout(
        height=340,
        title_text=f"ω at {factor:g} η: up to {apart:.3f} from the mirrors",
        xaxis=axis("step", 0, STEPS),
        yaxis=axis("frequency ω", 0, 1.05, dtick=0.25),
    )
    return Drawn(
        go.Figure(drawn, axes),
        f"A frequency against 60 steps of gradient descent, from 0 toward 1. A wide line, two "
        f"mirrors at the rate η, rises fast. A thin one, the frequency itself at {factor:g} times "
        f"that rate, is up to {apart:.3f} away from it.",
    )


@computed
def _images(position: Tensor, distance: Tensor) -> dict[str, Tensor]:
    """Return the mirrors of a query and a key, the flags' images, the angle between, the score."""
    at = SPEED * torch.stack([position, position - distance])
    flags = torch.tensor([QUERY, KEY], dtype=torch.float64).deg2rad()
    mirrors = (at.deg2rad() + math.pi / 2)[:, None] + torch.tensor(
        [0, math.pi], dtype=torch.float64
    )
    vectors = torch.stack([flags.cos(), flags.sin()], -1)[..., None]
    images = (householder_2d(at.deg2rad()) @ vectors)[..., 0]
    cosine, sine = (images[0] * images[1]).sum(-1), images[0, 0] * images[1, 1]
    sine = sine - images[0, 1] * images[1, 0]
    return {
        "mirrors": REACH * torch.stack([mirrors.cos(), mirrors.sin()], 1),
        "images": images,
        "between": torch.atan2(sine, cosine).abs().rad2deg(),
        "score": cosine,
    }


def one_mirror(position: float, distance: float) -> Drawn:
    """Reflect a query and a key, each in the mirror of its position: :eq:`eq-reflection-single`.

    Args:
        position: t, of the query; its mirror turns by 15 degrees a token.
        distance: t − s, how far the key is behind.

    Returns:
        A figure with both mirrors and both images.
    """
    found = _images(position, distance)
    between, score = found["between"], found["score"]
    traces = []
    for name, colour, mirror, image in zip(
        ("query", "key"), ("orange", "blue"), found["mirrors"], found["images"], strict=True
    ):
        traces.append(through(mirror, PALETTE[colour], f"{name}'s mirror", width=1.5, dash="dash"))
        x, y = image
        traces.append(
            line([0, x], [0, y], PALETTE[colour], f"{name}, mirrored", width=4,
                 mode="lines+markers", marker={"size": [0, 11], "opacity": 1})
        )  # fmt: skip
    unseen = {"range": [-1.35, 1.35], "visible": False, "constrain": "domain"}
    axes = layout(
        height=430,
        margin={"l": 8, "r": 8, "t": 40, "b": 76},
        title_text=f"distance {distance:g}: {between:.0f}° apart, score {score:.2f}",
        shapes=[circle()],
        xaxis=unseen,
        yaxis={**unseen, "scaleanchor": "x"},
    )
    return Drawn(
        go.Figure(traces, axes),
        f"A query at position {position:g}, reflected in its mirror, and a key {distance:g} tokens "
        f"behind, reflected in its own. The images stand {between:.0f} degrees apart: a score of "
        f"{score:.2f}, at this distance wherever the query stands.",
    )
