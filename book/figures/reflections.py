"""Two mirrors turn a flag, and a rate with it; one for each token is enough; angles that cancel."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
import torch
from torch import Tensor

from book.figures.marks import at_one_place, axis, circle, line, rounded, through
from lab.explore import COLOURS, PALETTE, Drawn, computed, layout
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


def mirror_losses(
    optimizer: str,
    rate: str,
    *,
    every: int,
    recorded: Mapping[str, Mapping[str, Sequence[Sequence[float]]]],
) -> Drawn:
    """Draw the recorded loss of two mirrors beside that of frequencies at a rate of their own.

    Args:
        optimizer: A name in ``recorded``.
        rate: Of the frequencies, over that of the mirrors, a name in ``recorded``.
        every: Steps of one point.
        recorded: Optimizer → rate, or ``"mirrors"`` → losses ``(seeds, points)``.

    Returns:
        A figure with two means, and bands from the lowest seed to the highest.
    """
    runs = recorded[optimizer]
    alone = {"0": "ω fixed", "1": "ω at η"}.get(rate, f"ω at {rate}η")
    wide: dict[str, Any] = {"width": 7, "opacity": 0.4}
    thin: dict[str, Any] = {"width": 2.5}
    looks = {
        "mirrors": ("two mirrors at η", COLOURS["reflection"], wide),
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
    axes = layout(
        height=360,
        margin={"l": 48, "r": 14, "t": 44, "b": 84},
        title_text=f"{optimizer}: mirrors end at {ends[0]:.2f}, ω at {ends[1]:.2f}",
        xaxis=axis("step", 0, every * losses.shape[1]),
        yaxis=axis("training loss", 0, 3.5),
    )
    return Drawn(
        go.Figure(traces, axes),
        f"Training loss against the step under {optimizer}, mean of {len(losses)} seeds with the "
        f"lowest and the highest. A wide line, two mirrors at the rate η, ends at {ends[0]:.2f}; a "
        f"thin one, {alone}, at {ends[1]:.2f}.",
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
        position: t, of the query; its mirror turns by 15 degrees per token.
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


def _in_float32(numbers: Tensor) -> Tensor:
    """Return numbers rounded to 24 binary digits, with operations that a page has."""
    unit = (numbers.abs().clamp(min=1e-30).log2().floor() - 23).exp2()
    return (numbers / unit).round() * unit


@computed
def _rounding(common: Tensor, distance: Tensor) -> dict[str, Tensor]:
    """Return the largest error of a score over |q||k| for a key at each position, in two ways."""
    theta = RoPE(64).frequencies()[0, :, 0]
    stored = _in_float32(common + torch.stack([-theta, theta]) / 4)
    keys = torch.tensor(KEYS, dtype=torch.float64)

    def turn(positions: Tensor) -> Tensor:
        angles = _in_float32(positions[:, None, None] * stored)
        return 2 * (angles[:, 1] - angles[:, 0])

    kept = 2 * (stored[1] - stored[0]) * distance
    turned = torch.stack([kept.expand(len(KEYS), -1), turn(keys + distance) - turn(keys)])
    # a plane that is turned too far by δ moves a vector by 2 sin δ/2, and no other moves it more
    errors = 2 * ((turned - theta * distance) / 2).sin().abs().amax(-1)
    here = errors[:, KEYS.index(SEEN_AT)]
    return {"errors": errors, "here": here, "digits": -here.log10()}


def rounded_mirrors(common: float, distance: float) -> Drawn:
    """Draw what rounding two mirrors to float32 does to a score: of package and literal form.

    The package rounds the angles per token and subtracts them; the literal form also rounds the
    angle of each mirror at each position, :eq:`eq-reflection-rotation`.

    Args:
        common: What is added to both angles per token, in radians.
        distance: From the key to the query, in tokens.

    Returns:
        A figure with two curves over the position of the key.
    """
    found = _rounding(common, distance)
    package, literal = found["digits"]
    looks = {"package": COLOURS["reflection"], "literal form": PALETTE["brown"]}
    powers = dict(zip(range(-8, 1, 2), ("10⁻⁸", "10⁻⁶", "10⁻⁴", "10⁻²", "1"), strict=True))
    ticks = [1, 10, 100, 1000, 10_000, 100_000]
    axes = layout(
        height=370,
        margin={"l": 54, "r": 18, "t": 44, "b": 84},
        title_text=f"digits right at 1,000: {package:.1f}, literal form {literal:.1f}",
        xaxis=axis("position of the key", 0, 5, type="log", tickvals=ticks,
                   ticktext=[f"{n:,}" for n in ticks]),
        yaxis=axis("error of a score", -8.3, 0.5, type="log", ticktext=[*powers.values()],
                   tickvals=[10.0**n for n in powers]),
    )  # fmt: skip
    curves = at_one_place(
        KEYS, SEEN_AT, looks, found["errors"], found["here"], "position %{x:,}: %{y:.1e}"
    )
    return Drawn(
        go.Figure(curves, axes),
        f"Largest error of a score over |q||k| against the position of the key, both logarithmic, "
        f"with {common:g} added to both angles and a query {distance:g} tokens on. The package's "
        f"error is the same at every position; the literal form's grows with it. At 1,000 the "
        f"package has {package:.1f} digits right, the literal form {literal:.1f}.",
    )
