"""The exponential by FFT, non-rotating channels of blocks, weight decay, and lost digits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
import torch
from torch import Tensor

from book.figures.marks import at_one_place, axis, bars, box, dots, line, listed, rounded, segments
from lab.explore import COLOURS, PALETTE, Drawn, Panel, computed, layout, panels
from stringlib.algebra import circulant_frequencies

__all__ = [
    "BLOCKS",
    "angle_digits",
    "held_back",
    "seeds_by_block",
    "still_channels",
    "turned_modes",
]

VECTOR = [0.5, -0.1, 0.1, -0.9, 0.1, 1.2, -0.1, 1.1]
"""What the exponential is applied to."""

BLOCKS = ["64", "32", "16", "8", "4", "2", "1"]
SIDE = 8  # of the square of 64 channels
RATE = 0.01  # η of the coefficients that noise moves
NOISES = [round(0.005 * i, 3) for i in range(1, 41)]
TOKENS = 64  # over which a score is drawn
PAIRS = 8  # of the score's channels


@computed
def _modes(r: Tensor, c1: Tensor, c2: Tensor, c3: Tensor) -> dict[str, Tensor]:
    """Return the Fourier modes of z before and after exp(rL), and the vector exp(rL) z."""
    z = torch.tensor(VECTOR, dtype=torch.float64)
    n = torch.arange(len(z), dtype=torch.float64)
    turn = 2 * math.pi * n[:, None] * n / len(z)
    real, imag = turn.cos() @ z, -turn.sin() @ z  # the Fourier transform
    # r μ_j is i times this; not −0
    angle = 0.0 - 2 * r * (turn.sin()[:, 1:4] @ torch.stack([c1, c2, c3]))

    def turned(by: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return by.cos() * x - by.sin() * y, by.sin() * x + by.cos() * y

    x, y = turned(angle, real, imag)
    swept = angle[1:4, None] * torch.arange(41).double() / 40  # the other modes mirror 1 to 3
    arcs = turned(swept, real[1:4, None], imag[1:4, None])
    return {
        "after": (turn.cos() @ x - turn.sin() @ y) / len(z),
        "before_x": real + 0 * r,
        "before_y": imag + 0 * r,
        "x": x,
        "y": y,
        "arcs": torch.stack(arcs, 1),
        "angles": angle[1:4],
    }


def turned_modes(r: float, c1: float, c2: float, c3: float) -> Drawn:
    """Draw the three steps of the exponential by FFT, :eq:`eq-circulant-fft`, for eight channels.

    Args:
        r: The position.
        c1: Coefficient of the shift by one; c0 and those from c4 on are 0.
        c2: Of the shift by two.
        c3: Of the shift by three.

    Returns:
        A figure of the vector before and after, and of its modes in the complex plane.
    """
    found = _modes(r, c1, c2, c3)
    channels = list(range(len(VECTOR)))
    pairs, still = ["orange", "blue", "teal"], PALETTE["grey"]
    colours = [still if n in (0, 4) else PALETTE[pairs[min(n, 8 - n) - 1]] for n in channels]
    hover = "%{x:.2f}, %{y:.2f}"
    vector = Panel(
        [
            bars(channels, found["after"], PALETTE["blue"], "exp(rL) z",
                 hover="channel %{x}: %{y:.2f}"),
            dots(channels, VECTOR, still, "z", size=9, symbol="diamond"),
        ],
        "vector z and exp(rL) z",
        x=axis("channel n", -0.6, 7.6, dtick=1, showgrid=False),
        y=axis(low=-1.7, high=1.7, dtick=1),
    )  # fmt: skip
    arcs = [
        line(x, y, PALETTE[colour], width=1.5)
        for (x, y), colour in zip(found["arcs"], pairs, strict=True)
    ]
    words: dict[str, Any] = {"text": [str(n) for n in channels], "textposition": "top center"}
    plane = axis(low=-3.3, high=3.3, dtick=1, showticklabels=False)
    modes = Panel(
        [
            *arcs,
            dots(found["before_x"], found["before_y"], colours, size=8, symbol="diamond-open"),
            dots(found["x"], found["y"], colours, size=10, hover=hover, **words),
        ],
        "Fourier modes",
        x=plane,
        y=plane,
        square=True,
    )
    angles = [f"{angle:.2f}" for angle in found["angles"]]
    fig = panels(
        [vector, modes], height=370, across=0.1, margin={"l": 34, "r": 8, "t": 66, "b": 78}
    )
    fig.update_layout(title_text=f"modes 1, 2, 3 rotated by {', '.join(angles)} radians")
    return Drawn(
        fig,
        f"Two panels show a vector of eight channels and its product with exp({r:g} L), for c₁ = "
        f"{c1:g}, c₂ = {c2:g} and c₃ = {c3:g}. The left panel is a bar chart against the channel. "
        "Diamonds show the entries of the vector, and bars show those of the product. The right "
        "panel is the complex plane with the eight Fourier modes of the vector, as open "
        "diamonds, and of the product, as numbered dots. The rotation moves the modes 1, 2 and 3 "
        f"on circles around 0, by {listed(angles)} radians, along arcs that are drawn. The "
        "conjugate modes 7, 6 and 5 move in the opposite direction, and the modes 0 and 4 do not "
        "move.",
    )


@computed
def _blocks(position: Tensor, size: int) -> dict[str, Tensor]:
    """Return the hand of each of 64 channels of the basis, with a gap after it."""
    generator = torch.Generator().manual_seed(1)
    columns = torch.randn(64 // size, size, dtype=torch.float64, generator=generator)
    pairs = (size - 1) // 2
    omega = circulant_frequencies(columns) / (2 * size) ** 0.5  # of standard deviation 1
    angle = omega.reshape(64 // size, pairs).repeat_interleave(2, 1) * position
    angle = angle + torch.tensor([0.0, math.pi / 2], dtype=torch.float64).repeat(pairs)
    n = torch.arange(64).view(-1, size)[:, : 2 * pairs]
    x, y = (n % SIDE).double(), torch.div(n, SIDE, rounding_mode="floor").double()
    gap = torch.full_like(angle, math.nan)
    return {
        "x": torch.stack([x + 0 * angle, x + 0.42 * angle.cos(), gap], -1).flatten(),
        "y": torch.stack([y + 0 * angle, y - 0.42 * angle.sin(), gap], -1).flatten(),
    }


def still_channels(block: str, position: float) -> Drawn:
    """Draw 64 channels in the basis of a Circulant-STRING with blocks: rotating hands, and squares.

    Two channels of a plane are neighbours; the last one or two of a block never rotate. Frequencies
    are those of random coefficients, :eq:`eq-circulant-frequencies`, with standard deviation 1.

    Args:
        block: Size B, one of ``BLOCKS``.
        position: r.

    Returns:
        A figure of eight rows of eight channels.
    """
    size = int(block)
    pairs = 64 // size * ((size - 1) // 2)
    stays = [n for n in range(64) if n % size >= 2 * ((size - 1) // 2)]
    turning = {"x": [], "y": []} if size < 3 else _blocks(position, size)
    hand: dict[str, Any] = {"size": [0, 6, 0] * (2 * pairs), "opacity": 1, "line": {"width": 0}}
    traces = [
        line(turning["x"], turning["y"], PALETTE["blue"], "rotates", mode="lines+markers",
             marker=hand, width=2),
        dots([n % SIDE for n in stays], [n // SIDE for n in stays], PALETTE["grey"],
             "never rotates", size=9, symbol="square"),
    ]  # fmt: skip
    wide, high = min(size, SIDE), max(1, size // SIDE)
    edge = {"color": PALETTE["grey"], "width": 1}
    outlines = [
        box(x - 0.5, x + wide - 0.5, y - 0.5, y + high - 0.5, **edge)
        for x in range(0, SIDE, wide)
        for y in range(0, SIDE, high)
    ]
    told = (
        f"At position {position:g} the channels of {pairs} pairs are drawn as clock hands, and "
        "the two hands of a pair are rotated by the same angle. The other "
        f"{len(stays)} channels are squares, which never rotate"
        if pairs
        else f"There is no pair, so at position {position:g}, as at every other position, all "
        f"{len(stays)} channels are squares, which never rotate"
    )
    unseen: dict[str, Any] = {"visible": False, "constrain": "domain"}
    axes = layout(
        height=400,
        margin={"l": 8, "r": 8, "t": 44, "b": 44},
        title_text=f"B = {size}: {pairs} pairs, {len(stays)} channels never rotate",
        xaxis=axis(low=-0.7, high=7.7, **unseen),
        yaxis=axis(low=7.7, high=-0.7, scaleanchor="x", **unseen),
        shapes=outlines,
    )
    return Drawn(
        go.Figure(traces, axes),
        "A diagram shows the 64 channels of the Fourier basis in eight rows of eight, with a "
        f"frame around each block of {size}. {told}.",
    )


@computed
def _held(noise: Tensor, decay: Tensor, penalty: Tensor) -> dict[str, Tensor]:
    """Return a coefficient's size under decay and under a penalty, for all noises and for one."""

    def size(u: Tensor) -> Tensor:
        return (RATE / (u * (2 - RATE * u))).sqrt()

    sigma = torch.tensor(NOISES, dtype=torch.float64)
    pulls = torch.stack([decay, 2 * penalty / noise])
    return {
        "curves": torch.stack([size(decay + 0 * sigma), size(2 * penalty / sigma)]),
        "here": size(pulls),
        "steps": 1 / (RATE * pulls),
    }


def held_back(noise: float, decay: float, penalty: float) -> Drawn:
    """Draw the size of a coefficient driven by noise alone, under weight decay or a penalty.

    Both sizes are those of :eq:`eq-circulant-decay`, for Adam at learning rate 0.01.

    Args:
        noise: Standard deviation σ of the gradient.
        decay: AdamW's w.
        penalty: λ of a penalty on the squares.

    Returns:
        A figure of two curves over the noise, with a dot on each.
    """
    found = _held(noise, decay, penalty)
    looks = {"weight decay (AdamW)": PALETTE["blue"], "penalty": PALETTE["orange"]}
    hover = "σ = %{x}: %{y:.2f}"
    traces = at_one_place(NOISES, noise, looks, found["curves"], found["here"], hover)
    (decayed, penalised), steps = found["here"], found["steps"]
    panel = Panel(
        traces,
        f"size {decayed:.2f} with weight decay, {penalised:.2f} with the penalty,<br>"
        f"after about {steps[0]:,.0f} and {steps[1]:,.0f} steps",
        x=axis("standard deviation σ of the gradient", 0, 0.2, dtick=0.05),
        y=axis("size s of a coefficient", 0, 0.5, dtick=0.1),
    )
    return Drawn(
        panels(panel, height=360, margin={"l": 54, "r": 14, "t": 52, "b": 84}),
        "A line chart shows the size of a coefficient whose gradient is only noise, against the "
        "standard deviation σ of the noise, from 0 to 0.2, at learning rate 0.01. With weight "
        f"decay {decay:g} the line is horizontal. With penalty {penalty:g} the line rises like a "
        f"square root. Dots mark σ = {noise:g}, where the size is {decayed:.2f} with weight decay "
        f"and {penalised:.2f} with the penalty. These sizes are reached after about "
        f"{steps[0]:,.0f} steps with weight decay and about {steps[1]:,.0f} steps with the "
        "penalty.",
    )


@computed
def _digits(power: Tensor) -> dict[str, Tensor]:
    """Return a score at 64 distances from one position, with angles in double and in single."""
    generator = torch.Generator().manual_seed(2)
    omega = torch.randn(PAIRS, dtype=torch.float64, generator=generator)
    content = torch.randn(PAIRS, dtype=torch.float64, generator=generator)
    first = (10**power).round()
    query, keys = first, first + torch.arange(TOKENS).double()

    def score(query: Tensor, keys: Tensor, omega: Tensor) -> Tensor:
        at_query, at_keys = (omega * query).double() + content, (keys[:, None] * omega).double()
        turned = at_query.cos() * at_keys.cos() + at_query.sin() * at_keys.sin()
        return turned.mean(-1)

    wide = score(query, keys, omega)
    narrow = score(query.float(), keys.float(), omega.float())
    return {"first": first, "scores": torch.stack([wide, narrow]),
            "error": (narrow - wide).abs().amax()}  # fmt: skip


def angle_digits(power: float) -> Drawn:
    """Draw a score against the distance, with angles computed in float64 and in float32.

    The query is at the first position, the keys at this and later ones; eight planes rotate at
    random frequencies with standard deviation 1.

    Args:
        power: Decimal logarithm of the first position.

    Returns:
        A figure of a line and of dots.
    """
    found = _digits(power)
    wide, narrow = found["scores"]
    hover = "distance %{x}: %{y:.4f}"
    distances = list(range(TOKENS))
    traces = [
        line(distances, wide, PALETTE["grey"], "angles in float64", width=2, hover=hover),
        dots(distances, narrow, PALETTE["orange"], "angles in float32", size=7, hover=hover),
    ]
    first, error = found["first"], found["error"]
    axes = layout(
        height=350,
        margin={"l": 48, "r": 14, "t": 44, "b": 84},
        title_text=f"first position {first:,.0f}: largest error {error:.6f}",
        xaxis=axis("distance from query to key", -1, TOKENS, dtick=16),
        yaxis=axis("score divided by |q||k|", -1, 1, dtick=0.5),
    )
    return Drawn(
        go.Figure(traces, axes),
        "A line chart shows a score, divided by |q||k|, against the distance from query to key, "
        f"from 0 to 63 tokens. The query is at position {first:,.0f}. The line is the score with "
        "angles in float64, which is the same at every position of the query. Dots are the score "
        f"with angles in float32, and they differ from the line by at most {error:.6f}.",
    )


def _size(name: str) -> str:
    """Return how a sentence says a block size of the study, or its control."""
    return "ω learned directly" if name == "direct" else f"block size {name}"


def seeds_by_block(
    pair: str,
    *,
    recorded: Mapping[str, tuple[Sequence[float], tuple[float, float, float]]],
    tests: Mapping[str, tuple[float, int, float]],
) -> Drawn:
    """Draw the accuracy of each seed by block size, and join the seeds of two sizes.

    Args:
        pair: The two that are compared, "one → other", a name in ``tests``.
        recorded: Block size, or "direct" → accuracies by seed, and their mean with both ends.
        tests: Pair → mean gain, seeds that gain, and the share of signs that gives as much.

    Returns:
        A figure of dots, means, and lines between the two.
    """
    one, other = str(pair).split(" → ")
    gain, better, p = tests[str(pair)]
    names = list(recorded)
    colour, grey = COLOURS["circulant"], PALETTE["grey"]
    links = [
        ((one, before), (other, after))
        for before, after in zip(recorded[one][0], recorded[other][0], strict=True)
    ]
    means = [mean for _, mean in recorded.values()]
    ends = [((name, low), (name, high)) for name, (_, low, high) in zip(names, means, strict=True)]
    places = [name for name, (row, _) in recorded.items() for _ in row]
    every = [value for row, _ in recorded.values() for value in row]
    count = len(links)
    traces = [
        dots(places, rounded(every), grey, "one seed", size=5, hover="%{x}: %{y:.2f}"),
        segments(links, grey, width=1),
        segments(ends, colour, width=4),
        dots(names, rounded([mean for mean, *_ in means]), colour, "mean, 95% interval",
             hover="%{x}: %{y:.2f}"),
    ]  # fmt: skip
    axes = layout(
        height=390,
        margin={"l": 50, "r": 14, "t": 44, "b": 84},
        title_text=f"{pair}: mean change {gain:+.2f},<br>"
        f"better on {better} of {count} seeds, p = {p:.3f}",
        xaxis=axis("block size B (direct: ω learned directly)", -0.5, len(names) - 0.5,
                   type="category", categoryorder="array", categoryarray=names),
        yaxis=axis("accuracy", 0, 1.05, dtick=0.2),
    )  # fmt: skip
    ranked = sorted((mean, _size(name)) for name, (mean, *_) in zip(names, means, strict=True))
    (worst_mean, worst), (best_mean, best) = ranked[0], ranked[-1]
    return Drawn(
        go.Figure(traces, axes),
        f"A dot plot shows the accuracy of {count} seeds against the block size, and for ω "
        "learned directly. Small dots are the seeds, large dots are their means, and thick "
        f"vertical lines are 95% intervals. The highest mean is {best_mean:.2f} ({best}), and the "
        f"lowest is {worst_mean:.2f} ({worst}). Thin lines join the accuracies of each seed for "
        f"{_size(one)} and {_size(other)}. From {_size(one)} to {_size(other)} the mean changes "
        f"by {gain:+.2f}, and {better} of {count} seeds have a higher accuracy (p = {p:.3f}).",
    )
