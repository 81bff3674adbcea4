"""Figures of chapter 8: two reflections, their learning rate, one reflection, and rounding."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
import torch
from torch import Tensor

from book.figures.marks import at_one_place, axis, circle, line, rounded, through
from lab.explore import COLOURS, PALETTE, Drawn, computed, layout, pick
from stringlib import RoPE
from stringlib.reference.rope import householder_2d

__all__ = ["mirror_losses", "mirror_rate", "one_mirror", "rounded_mirrors", "two_mirrors"]

FLAG = [[0.0, 0.0], [1.0, 0.0], [0.7, 0.2], [0.7, 0.0]]  # points right, with its cloth to the left
REACH = 1.25  # of the mirrors
STEPS, RATE = 60, 0.01
SPEED, QUERY, KEY = 15.0, 100.0, 60.0  # degrees per token of one mirror, and of two flags
KEYS = sorted({round(10 ** (k / 16)) for k in range(81)})  # positions of a key, 1 to 100,000
SEEN_AT = 1000  # the position of the dots


def _arc(start: Tensor, end: Tensor, radius: float) -> Tensor:
    """Return an arc between two angles in degrees, a gap, and a point outside near its middle."""
    angles = torch.deg2rad(start + (end - start) * torch.arange(13) / 12)
    arc = radius * torch.stack([angles.cos(), angles.sin()])
    gap = torch.full((2, 1), math.nan, dtype=arc.dtype)
    return torch.cat([arc, gap, (1 + 0.13 / radius) * arc[:, 5:6]], 1)


@computed
def _mirrored(between: Tensor, first: Tensor, point: Tensor) -> dict[str, Tensor]:
    """Return the mirrors, the flag and its images, both arcs, and the angles of all."""
    mirrors = torch.deg2rad(torch.stack([first, first + between]))
    a = torch.deg2rad(point)
    rotation = torch.stack([torch.stack([a.cos(), -a.sin()]), torch.stack([a.sin(), a.cos()])])
    flag = torch.tensor(FLAG, dtype=torch.float64) @ rotation.mT
    one, two = householder_2d(mirrors + math.pi / 2)  # a normal is perpendicular to its mirror
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
    r"""Reflect a flag in one mirror and its image in another, :eq:`eq-reflection-rotation`.

    The first image has its cloth on the other side; the second one is the flag itself, rotated by
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
    flags = {"flag": "blue", "after one reflection": "grey", "after both": "red"}
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
        title_text=f"mirrors {between:g}° apart rotate the flag by {twice:g}°",
        xaxis=unseen,
        yaxis={**unseen, "scaleanchor": "x"},
    )
    return Drawn(
        go.Figure(traces, axes),
        "A diagram shows a flag and its images under reflections in two mirrors, which are lines "
        f"through the origin. The first mirror, a solid line, is at an angle of {first:g} "
        f"degrees, and the second mirror, a dashed line, is at {second:g} degrees. The flag "
        f"points at {point:g} degrees. After the first reflection the flag points at {image:g} "
        "degrees, with its cloth on the other side of the pole. After both reflections it points "
        f"at {end:g} degrees, with its cloth on the original side. Two dotted arcs show the angle "
        f"of {between:g} degrees between the mirrors and the angle of {twice:g} degrees by which "
        "the two reflections rotate the flag.",
    )


def _mirrored_path() -> list[float]:
    """Return ω = 2(ω₂ − ω₁) after each step of gradient descent on (ω − 1)²/2 in both angles."""
    first = second = 0.0
    path = [0.0]
    for _ in range(STEPS):
        slope = path[-1] - 1
        first, second = first + 2 * RATE * slope, second - 2 * RATE * slope
        path.append(2 * (second - first))
    return path


@computed
def _free_path(factor: Tensor, mirrors: list[float]) -> dict[str, Tensor]:
    """Return the path of ω itself at a multiple of the learning rate, and where it lies."""
    alone = 1 - (1 - factor * RATE) ** torch.arange(STEPS + 1).double()
    behind = torch.tensor(mirrors, dtype=torch.float64) - alone
    apart, above = behind.abs().amax(-1), (behind.amax(-1) < 1e-6).double()
    return {
        "alone": alone,
        "apart": apart,
        "side": torch.where(apart < 5e-4, 1.0, 2 * above),
    }


def mirror_rate(factor: float) -> Drawn:
    """Draw a frequency learned by two angles, and one that is the parameter itself.

    Gradient descent on (ω − 1)²/2 from 0. By :eq:`eq-reflection-rate` the paths agree at factor 8.

    Args:
        factor: Learning rate of ω itself, divided by that of the angles.

    Returns:
        A figure with two lines.
    """
    mirrors = _mirrored_path()
    found = _free_path(factor, mirrors)
    apart = found["apart"]
    side = pick(found["side"], "lies below", "coincides with", "lies above")
    drawn = [
        line(None, rounded(mirrors), COLOURS["reflection"], "two reflections at η", width=7,
             opacity=0.4, hover="step %{x}: %{y:.3f}"),
        line(None, found["alone"], COLOURS["mixed"], f"ω at {factor:g}η",
             hover="step %{x}: %{y:.3f}"),
    ]  # fmt: skip
    axes = layout(
        height=340,
        title_text=f"ω at {factor:g}η: at most {apart:.3f} away from two reflections",
        xaxis=axis("step", 0, STEPS),
        yaxis=axis("frequency ω", 0, 1.05, dtick=0.25),
    )
    return Drawn(
        go.Figure(drawn, axes),
        f"A line chart shows the frequency ω against the step, from 0 to {STEPS}, of gradient "
        "descent towards the minimum at 1. The wide line, for two reflections with learning rate "
        "η, rises steeply and flattens near the minimum. For the thin line ω itself is learned, "
        f"and its learning rate is {factor:g} times η. The thin line {side} the wide line, and "
        f"the two differ by up to {apart:.3f}.",
    )


def mirror_losses(
    optimizer: str,
    rate: str,
    *,
    every: int,
    recorded: Mapping[str, Mapping[str, Sequence[Sequence[float]]]],
) -> Drawn:
    """Draw the recorded loss of two reflections and of frequencies with another learning rate.

    Args:
        optimizer: A name in ``recorded``.
        rate: Learning rate of ω, divided by that of the angles, a name in ``recorded``.
        every: Steps per point.
        recorded: Optimizer → rate, or ``"mirrors"`` → losses ``(seeds, points)``.

    Returns:
        A figure with two means, and bands from the lowest seed to the highest.
    """
    runs = recorded[optimizer]
    alone = {"0": "ω fixed", "1": "ω at η"}.get(rate, f"ω at {rate}η")
    wide: dict[str, Any] = {"width": 7, "opacity": 0.4}
    thin: dict[str, Any] = {"width": 2.5}
    looks = {
        "mirrors": ("two reflections at η", COLOURS["reflection"], wide),
        rate: (alone, COLOURS["mixed" if float(rate) else "none"], thin),
    }
    traces, ends = [], []
    for of, (name, colour, look) in looks.items():
        losses = torch.tensor(runs[of], dtype=torch.float64)
        steps = [every * (i + 0.5) for i in range(losses.shape[1])]
        rim = torch.cat([losses.amax(0), losses.amin(0).flip(0)])
        band: dict[str, Any] = {"fill": "toself", "opacity": 0.15, "fillcolor": colour}
        traces += [
            line([*steps, *steps[::-1]], rounded(rim), colour, width=0, **band),
            line(steps, rounded(losses.mean(0)), colour, name, hover="step %{x}: %{y:.2f}", **look),
        ]
        ends.append(losses[:, -1].mean().item())
    same = runs[rate] == runs["mirrors"]
    end = "coincides with the wide curve" if same else f"ends at {ends[1]:.3f}"
    kind = "whose learning rate is " + {"1": "also η"}.get(rate, f"{rate}η")
    kind = kind if float(rate) else "that are not learned"
    axes = layout(
        height=360,
        margin={"l": 48, "r": 14, "t": 44, "b": 84},
        title_text=f"{optimizer}: reflections end at {ends[0]:.3f}, ω at {ends[1]:.3f}",
        xaxis=axis("training step", 0, every * losses.shape[1]),
        yaxis=axis("training loss (nats)", 0, 3.5),
    )
    return Drawn(
        go.Figure(traces, axes),
        "A line chart shows the training loss in nats against the training step, from 0 to "
        f"{every * losses.shape[1]:,}, under {optimizer}. Each line is the mean of {len(losses)} "
        "seeds, with a band from the lowest seed to the highest. The wide line is for two "
        f"reflections with learning rate η, and it ends at {ends[0]:.3f}. The thin line is for "
        f"frequencies {kind}. The thin line {end}.",
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
        position: t, of the query; its mirror rotates by 15 degrees per token.
        distance: t − s, from the key to the query.

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
            line([0, x], [0, y], PALETTE[colour], f"{name}, reflected", width=4,
                 mode="lines+markers", marker={"size": [0, 11], "opacity": 1})
        )  # fmt: skip
    unseen = {"range": [-1.35, 1.35], "visible": False, "constrain": "domain"}
    axes = layout(
        height=430,
        margin={"l": 8, "r": 8, "t": 40, "b": 76},
        title_text=f"distance {distance:g}: images {between:.0f}° apart, score {score:.2f}",
        shapes=[circle()],
        xaxis=unseen,
        yaxis={**unseen, "scaleanchor": "x"},
    )
    return Drawn(
        go.Figure(traces, axes),
        "A diagram shows the unit circle with two vectors of length 1 from its centre and two "
        "dashed lines through the centre, which are mirrors. One vector is a query at position "
        f"{position:g} after its reflection in one mirror. The other vector is a key after its "
        f"reflection in the other mirror. The distance from the key to the query is {distance:g}. "
        f"The angle between the two vectors is {between:.0f} degrees, so the score is "
        f"{score:.2f}. The angle stays the same if query and key move together.",
    )


def _in_float32(numbers: Tensor) -> Tensor:
    """Return numbers rounded to 24 binary digits, with operations that a page has."""
    unit = (numbers.abs().clamp(min=1e-30).log2().floor() - 23).exp2()
    return (numbers / unit).round() * unit


@computed
def _rounding(common: Tensor, distance: Tensor) -> dict[str, Tensor]:
    """Return the largest error of a score, divided by |q||k|, for keys at all positions."""
    theta = RoPE(64).frequencies()[0, :, 0]
    stored = _in_float32(common + torch.stack([-theta, theta]) / 4)
    keys = torch.tensor(KEYS, dtype=torch.float64)

    def rotated(positions: Tensor) -> Tensor:
        angles = _in_float32(positions[:, None, None] * stored)
        return 2 * (angles[:, 1] - angles[:, 0])

    kept = 2 * (stored[1] - stored[0]) * distance
    angles = torch.stack([kept.expand(len(KEYS), -1), rotated(keys + distance) - rotated(keys)])
    # a plane rotated too far by δ moves a vector by 2 sin δ/2, and this is the largest error
    errors = 2 * ((angles - theta * distance) / 2).sin().abs().amax(-1)
    here = errors[:, KEYS.index(SEEN_AT)]
    return {"errors": errors, "here": here, "digits": -here.log10()}


def rounded_mirrors(common: float, distance: float) -> Drawn:
    """Draw the error of a score if angles are rounded to float32, for two implementations.

    The package rounds the angles per token and subtracts them; the reference implementation also
    rounds the angle of each mirror at each position, :eq:`eq-reflection-rotation`.

    Args:
        common: Number added to both angles per token, in radians.
        distance: From the key to the query, in tokens.

    Returns:
        A figure with two curves against the position of the key.
    """
    found = _rounding(common, distance)
    package, reference = found["digits"]
    looks = {"package": COLOURS["reflection"], "reference implementation": PALETTE["brown"]}
    powers = dict(zip(range(-8, 1, 2), ("10⁻⁸", "10⁻⁶", "10⁻⁴", "10⁻²", "1"), strict=True))
    ticks = [1, 10, 100, 1000, 10_000, 100_000]
    axes = layout(
        height=370,
        margin={"l": 54, "r": 18, "t": 44, "b": 84},
        title_text=f"correct digits: package {package:.1f}, reference {reference:.1f}",
        xaxis=axis("position of the key", 0, 5, type="log", tickvals=ticks,
                   ticktext=[f"{n:,}" for n in ticks]),
        yaxis=axis("error of a score / |q||k|", -8.3, 0.5, type="log", ticktext=[*powers.values()],
                   tickvals=[10.0**n for n in powers]),
    )  # fmt: skip
    curves = at_one_place(
        KEYS, SEEN_AT, looks, found["errors"], found["here"], "position %{x:,}: %{y:.1e}"
    )
    return Drawn(
        go.Figure(curves, axes),
        "A line chart shows the largest error of a score, divided by |q||k|, against the "
        f"position of the key, from {KEYS[0]} to {KEYS[-1]:,}, both on logarithmic axes. The "
        f"distance from the key to the query is {distance:g} tokens, and {common:g} is added to "
        "both angles. The line of the package is horizontal, because its error is the same at "
        "every position. The line of the reference implementation tends to rise with the "
        f"position. Dots mark position 1,000, where the package has {package:.1f} correct digits, "
        f"and the reference implementation has {reference:.1f}.",
    )
