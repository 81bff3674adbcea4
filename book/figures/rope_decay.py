"""How the mean wave of RoPE falls with distance: the integral that it follows, and its series."""

from __future__ import annotations

import math
from typing import Any

import plotly.graph_objects as go
import torch
from numpy.polynomial.laguerre import laggauss
from numpy.polynomial.legendre import leggauss
from torch import Tensor

from book.figures.marks import axis, dots, line, pin, significant, through, upright
from book.names import display
from lab.explore import COLOURS, PALETTE, Drawn, Panel, computed, layout, panels
from lab.theory import rope_decay
from stringlib.kernels.rotation import geometric_frequencies

__all__ = [
    "SCALED",
    "abel_curves",
    "copied_score",
    "decay_curves",
    "fast_head",
    "partial_sums",
    "series_errors",
    "slower_pairs",
]

LARGEST, POINTS = 7, 211  # distances up to 10^7, 30 a decade
LOWEST, HIGHEST = 3e-4, 1.6
TERMS, NODES, FARTHEST_OUT = 40, 80, 16.0  # of the series; of the quadrature of its remainder
PAIRS, BASE, WITHIN = 64, 10_000.0, 3  # of the partial sums; steps of the integral within a step
REACH = 128  # tokens of the copied score


SERIES_TERMS, SERIES_END, FAR_NODES = 40, 4.0, 40  # of E₁: a series, and a quadrature beyond it


def _exp_integral(x: Tensor, nodes: Tensor, weights: Tensor) -> Tensor:
    r"""Return :math:`E_1(-\mathrm{i}x)`, its real and its imaginary part, ``(2, ...)``.

    By a power series up to 4, and beyond as
    :math:`e^{\mathrm{i}x} \int_0^\infty e^{-v} / (v - \mathrm{i}x)\,dv`.
    """
    k = torch.arange(1, SERIES_TERMS + 1, dtype=torch.float64)
    near, far = x.clamp(max=SERIES_END).log(), x.clamp(min=SERIES_END)
    terms = (k * near[:, None] - (k + 1).lgamma() - k.log()).exp()
    turns = k * (math.pi / 2)
    series = torch.stack(
        [
            -rope_decay.EULER - near - (terms * turns.cos()).sum(-1),
            math.pi / 2 - (terms * turns.sin()).sum(-1),
        ]
    )
    shares = weights / (nodes**2 + far[:, None] ** 2)
    along, across = (shares * nodes).sum(-1), shares.sum(-1) * far
    c, s = far.cos(), far.sin()
    return torch.where(
        x < SERIES_END, series, torch.stack([along * c - across * s, along * s + across * c])
    )


@computed
def _integral(
    base: Tensor, distances: list[float], nodes: list[float], weights: list[float]
) -> dict[str, Tensor]:
    """Return the size of the integral, and its two laws where the figure has room for them."""
    t, v, w = (torch.tensor(x, dtype=torch.float64) for x in (distances, nodes, weights))
    value = (_exp_integral(t / base, v, w) - _exp_integral(t, v, w)) / base.log()
    early, late = ((base / t).log() - rope_decay.EULER) / base.log(), base / (t * base.log())
    return {
        "size": value.square().sum(0).sqrt(),
        "early": torch.where(early > LOWEST, early, math.nan),
        "late": torch.where(late < HIGHEST, late, math.nan),
    }


@computed
def _summed(base: Tensor, pairs: int, distances: list[float]) -> dict[str, Tensor]:
    """Return the size of the sum of so many waves, and where it leaves its integral."""
    theta = base ** -(torch.arange(pairs).double() / pairs)
    angles = torch.tensor(distances, dtype=torch.float64)[:, None] * theta
    return {
        "size": (angles.cos().mean(-1).square() + angles.sin().mean(-1).square()).sqrt(),
        "leaves": 2 * math.pi * pairs / base.log(),
    }


def decay_curves(dim: int, base: float) -> Drawn:
    r"""Draw :math:`|S(t)|` and :math:`|I(t)|` against distance, with both laws of the integral.

    Args:
        dim: Channels d of a head: d/2 waves in the sum.
        base: The base b of the frequencies.

    Returns:
        A figure with logarithmic axes.
    """
    # whole distances, evenly spread on the logarithmic axis
    t = torch.logspace(0, LARGEST, POINTS, dtype=torch.float64).round().unique().tolist()
    nodes, weights = (part.tolist() for part in laggauss(FAR_NODES))
    integral, total = _integral(base, t, nodes, weights), _summed(base, dim // 2, t)
    floor, leaves = (dim / 2) ** -0.5, total["leaves"]
    grey = PALETTE["grey"]

    def curve(y: Any, colour: str, name: str, **look: Any) -> go.Scatter:
        return line(t, y, colour, name, hover="t = %{x}: %{y:.3g}", **look)

    curves = [
        curve(total["size"], COLOURS["rope"], "mean |S|", width=1.2),
        curve(integral["size"], PALETTE["orange"], "integral |I|", width=3),
        curve(integral["early"], PALETTE["teal"], "(ln(b/t) − γ)/ln b", width=2, dash="dash"),
        curve(integral["late"], PALETTE["magenta"], "b/(t ln b)", width=2, dash="dot"),
        line([1, 10**LARGEST], [floor, floor], grey, "1/√(d/2)", width=1.5),
    ]
    powers: dict[str, Any] = {"type": "log", "dtick": 1, "exponentformat": "power"}
    axes = layout(
        height=430,
        margin={"l": 54, "r": 14, "t": 44, "b": 110},
        title_text=f"horizon πd/ln b = {leaves:.0f} tokens",
        xaxis=axis("distance t (tokens)", 0, LARGEST, **powers),
        yaxis=axis("absolute value |S|, |I|", math.log10(LOWEST), math.log10(HIGHEST), **powers),
        shapes=[{**upright(leaves, color=grey, width=1.5, dash="dot"), "yref": "y domain"}],
    )
    return Drawn(
        go.Figure(curves, axes),
        "A line chart shows absolute values of a mean of waves and of its integral against the "
        f"distance, from 1 to ten million tokens, for {dim} channels and base {base:,.0f}. Both "
        "axes are logarithmic. A thin line is the mean of the waves, and a wide line is the "
        "integral. A dashed line and a dotted line are approximations of the integral, a "
        "logarithm below the base and a multiple of 1/t beyond it. The mean follows the integral "
        f"up to the horizon at {leaves:.0f} tokens, which a dotted vertical line marks. Beyond "
        "the horizon the mean fluctuates, and at the largest distances its root mean square is "
        f"about {floor:.3f}, which a horizontal line marks. The integral falls logarithmically up "
        f"to about distance {base:,.0f}, and beyond this distance it falls like 1/t.",
    )


@computed
def _remainders(x: Tensor, nodes: list[float], weights: list[float]) -> dict[str, Tensor]:
    r"""Return the size of E₁'s series' remainder after so many terms, its bound, and the best stop.

    The remainder is :math:`K! \int_0^\infty e^{-v} (x + iv)^{-K-1}\,dv`, up to its phase.
    """
    v, w = torch.tensor(nodes, dtype=torch.float64), torch.tensor(weights, dtype=torch.float64)
    k = torch.arange(TERMS + 1, dtype=torch.float64)
    log_factorial = (k + 1).lgamma()
    power, phase = -(k + 1), (k[:, None] + 1) * (v / x).atan()
    sizes = (power[:, None] * (x**2 + v**2).log() / 2 - v).exp() * w
    along, across = (sizes * phase.cos()).sum(-1), (sizes * phase.sin()).sum(-1)
    errors = (along**2 + across**2).sqrt() * log_factorial.exp()
    least = errors.amin(-1)
    return {
        "errors": errors,
        "bounds": (log_factorial + power * x.log()).exp(),
        "best": torch.where(errors == least, k, 0.0).amax(-1),
        "least": least,
        "digits": -least.log10(),
    }


def series_errors(x: float) -> Drawn:
    r"""Draw the error of the series of :eq:`eq-decay-parts` against the number of its terms.

    Args:
        x: Where :math:`E_1(-\mathrm{i}x)` is wanted.

    Returns:
        A figure with the errors, the bound :math:`K!/x^{K+1}`, and the best place to stop.
    """
    nodes, weights = (FARTHEST_OUT / 2 * part for part in leggauss(NODES))
    found = _remainders(x, (nodes + FARTHEST_OUT / 2).tolist(), weights.tolist())
    best, least, digits = found["best"], found["least"], found["digits"]
    terms = list(range(TERMS + 1))
    drawn = [
        line(terms, found["bounds"], PALETTE["grey"], "bound", dash="dot"),
        dots(terms, found["errors"], PALETTE["orange"], "error", size=6, hover="%{x} terms: %{y}"),
        dots([best], [least], PALETTE["magenta"], size=13),
    ]
    powers: dict[str, Any] = {"type": "log", "dtick": 3, "exponentformat": "power"}
    axes = layout(
        height=360,
        title_text=f"best: {best:g} terms, {digits:.1f} correct decimal places",
        xaxis=axis("number K of terms", -1, TERMS + 1),
        yaxis=axis("absolute error", -10.5, 10.5, **powers),
    )
    return Drawn(
        go.Figure(drawn, axes),
        f"A chart of dots shows the absolute error of the series at x = {x:g}, on a logarithmic "
        f"axis, against the number of terms, from 0 to {TERMS}. A larger dot marks the smallest "
        f"error, with {best:g} terms, at which {digits:.1f} decimal places are correct. With more "
        "terms the error rises again, without limit. A dotted line shows the bound, which lies "
        "above the error for every number of terms.",
    )


@computed
def _partial(distance: Tensor) -> dict[str, Tensor]:
    """Return the paths of the sum, ends halved, and of the integral, and what lies between them."""
    turn = distance * BASE ** (
        -torch.arange(PAIRS * 2 * WITHIN + 1).double() / (2 * WITHIN * PAIRS)
    )
    waves = torch.stack([turn.cos(), turn.sin()])
    hands = waves[:, :: 2 * WITHIN]
    chords = (hands[:, 1:] + hands[:, :-1]) / (2 * PAIRS)
    # Simpson's rule on each piece
    pieces = waves[:, :-2:2] + 4 * waves[:, 1::2] + waves[:, 2::2]
    start = torch.zeros(2, 1).double()
    sums = torch.cat([start, chords.cumsum(-1)], -1)
    arc = torch.cat([start, (pieces / (6 * WITHIN * PAIRS)).cumsum(-1)], -1)
    share = distance * math.log(BASE) / (2 * math.pi * PAIRS)
    between = sums[:, -1] - arc[:, -1]
    short = {"sums": (1e4 * sums).round() / 1e4, "arc": (1e4 * arc).round() / 1e4}  # for the page
    return {**short, "gap": (between**2).sum(-1).sqrt(), "share": share}


def partial_sums(distance: float) -> Drawn:
    """Draw the sum of 64 waves, arrow by arrow, beside its integral: :eq:`eq-decay-gap`.

    Args:
        distance: t, in tokens.

    Returns:
        A figure of both paths, and of the distance of their ends against t, with its bound.
    """
    found, leaves = _partial(distance), rope_decay.horizon(PAIRS, BASE)
    t = torch.linspace(0.5, 1.2 * leaves, 70, dtype=torch.float64)
    waves = rope_decay.phase_sum(t, geometric_frequencies(PAIRS, BASE))
    ends = (torch.exp(1j * t) - torch.exp(1j * t / BASE)) / (2 * PAIRS)
    gaps = (waves - rope_decay.phase_integral(t, BASE) - ends).abs()
    before = t[t < 0.97 * leaves]
    bounds = rope_decay.gap_bound(before, PAIRS, BASE)
    gap, share = found["gap"], found["share"]
    ours, grey = COLOURS["rope"], PALETTE["grey"]
    fig = panels(
        Panel(
            [
                through(found["arc"], PALETTE["orange"], "integral", width=3),
                through(found["sums"], ours, "sum", width=1.2, mode="lines+markers",
                        marker={"size": 4}),
            ],
            f"t = {distance:g}: {share:.2f} of the horizon",
            x=axis(low=-0.25, high=0.85, dtick=0.25),
            y=axis(low=-0.15, high=0.45, dtick=0.25),
            square=True,
        ),
        Panel(
            [
                line(significant(t), significant(gaps), ours, width=1.5),
                line(significant(before), significant(bounds), grey, "bound", dash="dot"),
                pin(distance, gap, PALETTE["magenta"]),
            ],
            f"difference between sum and integral: {gap:.4f}",
            x=axis("distance t (tokens)", 0, 1.2 * leaves),
            y=axis("difference", 0, 0.1, dtick=0.05),
        ),
        heights=(0.56, 0.3),
        height=560,
        margin={"l": 44, "r": 12, "t": 34, "b": 84},
    )  # fmt: skip
    return Drawn(
        fig,
        "The upper panel is a diagram of the sum of the waves as 64 arrows joined tip to tail, "
        "and of the integral as a curve. Each arrow is the mean of two neighbouring waves, "
        f"divided by 64. The distance is {distance:g} tokens, which is {share:.2f} of the "
        f"horizon. At this distance, the end of the last arrow is {gap:.4f} away from the end of "
        "the curve. The lower panel is a line chart of this difference against the distance in "
        "tokens. A vertical line with a dot marks the chosen distance. The difference grows with "
        f"the distance, and up to the horizon at {leaves:.0f} tokens it stays below the bound, a "
        "dotted line.",
    )


@computed
def _copied(place: Tensor) -> dict[str, Tensor]:
    """Return the score of a key made for a distance, at all distances."""
    apart = torch.arange(REACH + 1, dtype=torch.float64) - place
    return {"score": (apart[:, None] * geometric_frequencies(PAIRS, BASE)).cos().mean(-1)}


def copied_score(place: int) -> Drawn:
    """Draw the score, divided by d, of a query with a rotated key: :eq:`eq-decay-anywhere`.

    Args:
        place: t₀, the distance that the key is made for.

    Returns:
        A figure with the score, and that of a query with a copy of itself.
    """
    distances = list(range(REACH + 1))
    drawn = [
        line(distances, _copied(0)["score"], PALETTE["grey"], "key = query", width=1.5, dash="dot"),
        line(distances, _copied(place)["score"], COLOURS["rope"], "key with maximum at t₀",
             hover="t = %{x}: %{y:.2f}"),
        pin(place, 1, PALETTE["magenta"]),
    ]  # fmt: skip
    axes = layout(
        height=340,
        title_text=f"t₀ = {place:g}: the largest score is at distance {place:g}",
        xaxis=axis("distance t (tokens)", 0, REACH),
        yaxis=axis("score / d", -0.2, 1.1, dtick=0.5),
    )
    return Drawn(
        go.Figure(drawn, axes),
        "A line chart shows the scores of a query with two keys, divided by d, against the "
        f"distance, from 0 to {REACH} tokens, with 128 channels. The dotted line is for a key "
        "that equals the query, so its score is 1 at distance 0 and lower at every other "
        f"distance. The solid line of the second key is the dotted line, shifted by {place:g} "
        f"tokens. A vertical line with a dot marks its maximum, 1, at distance {place:g}.",
    )


PLACES = list(range(0, 251, 2))  # of RoFormer's figure


@computed
def _bounds(fall: Tensor, partial: list[float], waves: list[list[float]]) -> dict[str, Tensor]:
    """Return RoFormer's bound and the score over the sum of the entries, and both at the end."""
    h = 1 - fall * torch.arange(PAIRS).double() / PAIRS
    largest = torch.cat([h[:-1] - h[1:], h[-1:]]).amax(-1)
    level, slope = torch.tensor(waves, dtype=torch.float64).reshape(2, 2, -1)
    bound = largest * torch.tensor(partial, dtype=torch.float64) / h.sum(-1)
    score = (level - fall * slope).square().sum(0).sqrt() / h.sum(-1)
    return {"bound": bound, "score": score, "ends": torch.stack([bound[-1], score[-1]])}


def abel_curves(fall: float) -> Drawn:
    """Draw RoFormer's bound :eq:`eq-decay-abel` for entries that fall evenly from pair to pair.

    Args:
        fall: By which share of themselves, over all pairs.

    Returns:
        A figure of the bound and the score over the sum of the entries, the triangle inequality.
    """
    theta = geometric_frequencies(PAIRS, BASE)
    places = torch.tensor(PLACES, dtype=torch.float64)
    partial = PAIRS * rope_decay.abel_bound(places, theta)
    sums = torch.exp(1j * places[:, None] * theta) @ torch.stack(
        [torch.ones(PAIRS), torch.arange(PAIRS) / PAIRS], 1
    ).to(torch.complex128)
    parts = [side for sum_ in sums.mT for side in (sum_.real.tolist(), sum_.imag.tolist())]
    found = _bounds(fall, partial.tolist(), parts)
    bound, score = found["ends"]
    hover = "t = %{x}: %{y:.2f}"
    drawn = [
        line(PLACES, found["bound"], PALETTE["magenta"], "RoFormer's bound", hover=hover),
        line([0, 250], [1, 1], PALETTE["grey"], "triangle inequality", width=1.5),
        line(PLACES, found["score"], COLOURS["rope"], "|complex sum|", hover=hover),
    ]
    ticks = [0.1, 1, 10]
    axes = layout(
        height=370,
        margin={"t": 40, "b": 90},
        title_text=f"at distance 250: bound {bound:.2f}, |complex sum| {score:.2f}",
        xaxis=axis("distance t (tokens)", 0, 250, dtick=50),
        yaxis=axis("divided by Σ|h|", math.log10(0.04), math.log10(50), type="log", tickvals=ticks),
    )
    return Drawn(
        go.Figure(drawn, axes),
        "A line chart shows RoFormer's bound and the absolute value of the complex sum of the "
        "waves, both divided by the sum of the amplitudes, against the distance, from 0 to 250 "
        "tokens. The vertical axis is logarithmic. The amplitude of the last pair is lower than "
        f"that of the first pair by {fall:.0%}. The line of the bound falls with the distance, "
        f"with oscillations, and is at {bound:.2f} at 250 tokens. The line of the absolute value "
        f"of the sum is at {score:.2f} at this distance. A horizontal line at 1 is the bound of "
        "the triangle inequality, and the absolute value of the sum is never above this line.",
    )


SCALED = ("interpolation", "NTK-aware", "YaRN")
SAID = dict(zip(SCALED, ("position interpolation", "NTK-aware scaling", "YaRN"), strict=True))
"""The scalings of :func:`fast_head`."""

STUDY_PAIRS, STUDY_BASE, FAST, TRAINED, LONG = 32, 100.0, 7, 64, 256


@computed
def _fast(scale: Tensor, place: Tensor, powers: list[float]) -> dict[str, Tensor]:
    """Return the scores of a key made for a place, before and after, and where the last is best."""
    theta = geometric_frequencies(STUDY_PAIRS, STUDY_BASE)[:FAST]
    slowed = theta * scale ** -torch.tensor(powers, dtype=torch.float64)
    t = torch.arange(1, LONG + 1).double()
    made = place * theta
    before = (t[:, None] * theta - made).cos().mean(-1)
    after = (t[:, None] * slowed - made).cos().mean(-1)
    top = after.amax(-1)
    return {
        "before": before,
        "after": after,
        "best": torch.where(after > top - 1e-9, t, 1e9).amin(-1),
        "top": top,
        "kept": (after * (t == place)).sum(-1),
    }


def fast_head(method: str, scale: float, place: int) -> Drawn:
    """Draw to which token a head that counts with its seven fast pairs attends after a scaling.

    :eq:`eq-scale-interpolation`, :eq:`eq-scale-ntk` and :eq:`eq-scale-yarn`, with 64 channels, the
    base 100 and 64 tokens in training. These pairs made four turns or more.

    Args:
        method: One of ``SCALED``.
        scale: s, the new length over the old one.
        place: The distance at which its key scores highest without a scaling.

    Returns:
        A figure of the score before and after.
    """
    powers = {
        "interpolation": [1.0] * FAST,
        "NTK-aware": [i / (STUDY_PAIRS - 1) for i in range(FAST)],
        "YaRN": [0.0] * FAST,  # four turns, the end of its ramp there
    }[str(method)]
    colour = COLOURS[dict(zip(SCALED, ("pi", "ntk", "yarn"), strict=True))[str(method)]]
    found = _fast(scale, place, powers)
    distances, hover = list(range(1, LONG + 1)), "t = %{x}: %{y:.2f}"
    drawn = [
        line(distances, found["before"], PALETTE["grey"], "before scaling", width=1.5, dash="dot"),
        line(distances, found["after"], colour, "after scaling", width=2, hover=hover),
        dots([found["best"]], [found["top"]], colour, size=12),
    ]
    best, kept = found["best"], found["kept"]
    axes = layout(
        height=370,
        margin={"l": 44, "r": 14, "t": 44, "b": 90},
        title_text=f"maximum moves from distance {place:.0f} to {best:.0f};<br>"
        f"score at distance {place:.0f}: {kept:.2f}",
        xaxis=axis("distance (tokens)", 0, LONG, dtick=64),
        yaxis=axis("score", -1.05, 1.1, dtick=0.5),
    )
    return Drawn(
        go.Figure(drawn, axes),
        "A line chart shows the score of a head that counts tokens with seven fast pairs, "
        f"against the distance, from 1 to {LONG} tokens. A dotted line is the score before "
        f"scaling, which has its maximum, 1, at distance {place:.0f}. A solid line is the score "
        f"after {SAID[method]} with scale {scale:g}. A dot marks its maximum at distance "
        f"{best:.0f}. After scaling, the score at distance {place:.0f} is {kept:.2f}.",
    )


SLOW_TURNS, FAST_TURNS = 1, 32  # the ends of YaRN's ramp


@computed
def _slowed(scale: Tensor, length: Tensor) -> dict[str, Tensor]:
    """Return by how much each pair is divided, the pairs that YaRN keeps, and the new length."""
    place = torch.arange(PAIRS).double()
    turns = length * geometric_frequencies(PAIRS, BASE) / (2 * math.pi)
    keep = ((turns - SLOW_TURNS) / (FAST_TURNS - SLOW_TURNS)).clamp(0, 1)
    return {
        "by": torch.stack(
            [
                scale * torch.ones(PAIRS, dtype=torch.float64),
                scale ** (place / (PAIRS - 1)),
                1 / (keep + (1 - keep) / scale),
            ]
        ),
        "whole": (turns >= FAST_TURNS).double().sum(-1),
        "longer": scale * length,
    }


def slower_pairs(scale: float, length: int) -> Drawn:
    """Draw by how much the frequency of each of 64 pairs is divided for a longer text.

    :eq:`eq-scale-interpolation`, :eq:`eq-scale-ntk` and :eq:`eq-scale-yarn`, with the base 10,000.

    Args:
        scale: s, the new length over the old one.
        length: T, tokens in training.

    Returns:
        A figure of a line for each scaling.
    """
    found = _slowed(scale, length)
    whole, longer = found["whole"], found["longer"]
    lines = [
        line(list(range(PAIRS)), by, COLOURS[colour], display(colour), hover="pair %{x}: %{y:.3g}")
        for by, colour in zip(found["by"], ("pi", "ntk", "yarn"), strict=True)
    ]
    axes = layout(
        height=340,
        title_text=f"{longer:,.0f} tokens: YaRN keeps {whole:.0f} frequencies unchanged",
        xaxis=axis("pair i, from high to low frequency"),
        yaxis=axis("frequency divided by", -0.05, math.log10(40), type="log",
                   tickvals=[1, 2, 4, 8, 16, 32]),
    )  # fmt: skip
    return Drawn(
        go.Figure(lines, axes),
        "A line chart shows the factor by which a frequency is divided, on a logarithmic axis, "
        f"against the pair, for {PAIRS} pairs from high to low frequency. The model was trained "
        f"on texts of {length:,.0f} tokens and is now used with texts of {longer:,.0f} tokens. "
        f"The line of position interpolation is horizontal, at {scale:g}. The line of NTK-aware "
        f"scaling rises from 1 for the first pair to {scale:g} for the last. YaRN keeps the "
        f"frequencies of the first {whole:.0f} pairs unchanged, and divides the lowest "
        f"frequencies by {scale:g}.",
    )
