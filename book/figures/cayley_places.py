"""A Cayley basis before and after RoPE and after a norm, and what it learns there."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import plotly.graph_objects as go
import torch
from torch import Tensor

from book.figures.marks import axis, bars, dots, line, segments, significant
from lab.explore import COLOURS, PALETTE, Drawn, computed, layout, pick
from stringlib.algebra.skew import cayley, skew
from stringlib.kernels.rotation import geometric_frequencies
from stringlib.reference.rope import apply_rope

__all__ = ["acting_directions", "folded_scores", "heads_behind", "losses_by_density"]

WIDTH, HEADS = 16, 4  # channels of all heads, and heads
SHIFTS = 40
OFFSET = 3.0  # from the query to the key
PLANES = [(0, 1), (0, 2), (1, 2)]
TOKENS, HEAD_DIM = 9, 16  # of the folded scores


def _random(seed: int, *shapes: Sequence[int]) -> list[Tensor]:
    """Return normal numbers in double precision, the same at every call."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(*s, dtype=torch.float64, generator=generator) for s in shapes]


@computed
def _by_head(size: Tensor, after: bool) -> dict[str, Tensor]:
    """Return the scores of one query and key over the shift: by head, their sum, and RoPE's."""
    q, k, entries = _random(3, (WIDTH,), (WIDTH,), (WIDTH * (WIDTH - 1) // 2,))
    P = cayley(size * skew(entries) / 4)
    shifts = torch.arange(SHIFTS + 1).double()

    def turned(x: Tensor, offset: float) -> Tensor:
        along = x.expand(SHIFTS + 1, WIDTH)
        return apply_rope(along, shifts + offset, geometric_frequencies(WIDTH // 2))

    if after:
        encoded = [turned(x, by) @ P.mT for x, by in ((q, 0.0), (k, OFFSET))]
    else:
        encoded = [turned(x @ P, by) for x, by in ((q, 0.0), (k, OFFSET))]
    products = encoded[0] * encoded[1] / (WIDTH / HEADS) ** 0.5
    by_head = products.view(-1, HEADS, WIDTH // HEADS).sum(-1).mT
    rope = (turned(q, 0.0) * turned(k, OFFSET)).sum(-1) / (WIDTH / HEADS) ** 0.5
    changes = (by_head.amax(-1) - by_head.amin(-1)).amax()
    return {
        "heads": by_head,
        "sum": by_head.sum(0),
        "rope": rope + 0 * size,
        "change": torch.where(changes > 1e-9, changes, 0.0),
        "moves": (changes > 1e-9).double(),
    }


def heads_behind(stands: str, size: float) -> Drawn:
    """Draw the scores of four heads as all positions shift, with one transform for all channels.

    Before RoPE it is that of :eq:`eq-cayley-before`, after it that of :eq:`eq-cayley-after`. The
    sum of the heads is the score of one head with all the channels.

    Args:
        stands: "before RoPE" or "after RoPE".
        size: Of the entries of S, in standard deviations of a quarter.

    Returns:
        A figure with a line for each head, their sum, and the sum with RoPE alone.
    """
    found = _by_head(size, stands.startswith("after"))
    hover = "shift %{x}: score %{y:.2f}"
    shifts = list(range(SHIFTS + 1))
    traces = [
        line(shifts, score, PALETTE[colour], f"head {n + 1}", width=2, hover=hover)
        for n, (score, colour) in enumerate(
            zip(found["heads"], ("blue", "orange", "teal", "magenta"), strict=True)
        )
    ]
    traces += [
        line(shifts, found["sum"], PALETTE["red"], "sum of the heads", width=4, hover=hover),
        line(shifts, found["rope"], PALETTE["grey"], "sum with RoPE alone", width=2, dash="dot"),
    ]
    how = pick(
        found["moves"], "Each of the four lines is horizontal", "The four lines rise and fall"
    )
    axes = layout(
        height=400,
        margin={"l": 48, "r": 14, "t": 44, "b": 104},
        title_text=f"transform {stands}:<br>score of a head changes by up to {found['change']:.2f}",
        xaxis=axis("common shift of all positions", 0, SHIFTS),
        yaxis=axis("score", -2.75, 2.75, dtick=1),
    )
    return Drawn(
        go.Figure(traces, axes),
        "A line chart shows the score of a query and a key against a common shift of both "
        f"positions, from 0 to {SHIFTS} tokens. Four thin lines are the scores in four heads. The "
        f"transform is applied {stands}, and the size of S is {size:g}. {how}, and the shift "
        f"changes the score of a single head by up to {found['change']:.2f}. A thick line, the "
        f"sum of the four scores, is horizontal at {found['sum'][0]:.2f}. A dotted line, the sum "
        f"of the scores with RoPE alone, is horizontal at {found['rope'][0]:.2f}.",
    )


@computed
def _acting(first: Tensor, second: Tensor, third: Tensor) -> dict[str, Tensor]:
    """Return the change of L along each kind of direction of S, and how many of them change L."""
    omega = torch.stack([first, second, third])
    one, other = torch.tensor(PLANES).unbind(-1)
    apart, together = (omega[one] - omega[other]).abs(), omega[one] + omega[other]
    speeds = 2 * torch.stack([apart, together], -1).flatten()
    moves = (speeds > 1e-9).double()
    return {
        "speeds": speeds,
        "redundant": torch.where(moves > 0, math.nan, 0 * speeds),
        "acting": 2 * moves.sum(),
        "tallest": speeds.amax(-1),
    }


def acting_directions(first: float, second: float, third: float) -> Drawn:
    """Draw how much each direction of S moves the generator, for three planes.

    At S = 0 the generator moves by the commutator of S with that of RoPE. Two directions of S
    rotate planes i and j against each other, and two with each other; along them the generator
    changes by twice the difference and twice the sum of the frequencies. The three directions that
    rotate a plane within itself never change it.

    Args:
        first: Frequency of the first plane.
        second: Of the second.
        third: Of the third.

    Returns:
        A figure of a bar for every two directions, and crosses where they are redundant.
    """
    found = _acting(first, second, third)
    digits = "₁₂₃"
    kinds = [f"ω{digits[i]}<br>{sign} ω{digits[j]}" for i, j in PLANES for sign in ("−", "+")]
    within = "within<br>a plane"
    teal, red, acting = COLOURS["cayley"], PALETTE["red"], found["acting"]
    traces = [
        bars(kinds, found["speeds"], teal, "two directions of S", hover="%{y:.2f}"),
        dots(kinds, found["redundant"], red, "redundant", symbol="x", size=11),
        dots([within], [0], red, symbol="x", size=11),
    ]
    axes = layout(
        height=360,
        margin={"l": 44, "r": 14, "t": 44, "b": 96},
        title_text=f"{acting:.0f} of 15 directions of S change L",
        xaxis={"tickangle": 0},
        yaxis=axis("change of L", -0.5, 10.4, dtick=2),
    )
    return Drawn(
        go.Figure(traces, axes),
        "A bar chart shows the change of the generator of six channels per unit of change of S, "
        "for several kinds of directions of S. Each of the three pairs of planes has one bar for "
        "the difference of its two frequencies and one bar for their sum. Each bar represents "
        "two directions of S. A cross marks redundant directions, along which the generator does "
        "not change. The directions within a plane, at the last cross, are always redundant. The "
        f"frequencies of the three planes are {first:g}, {second:g} and {third:g}. The tallest "
        f"bar has the height {found['tallest']:.1f}, and {acting:.0f} of the 15 directions change "
        "the generator.",
    )


@computed
def _folded(spread: Tensor, size: Tensor) -> dict[str, Tensor]:
    """Return scores with the basis in the encoder, and with it folded into the weights."""
    q, k, entries, logs = _random(
        5, (TOKENS, HEAD_DIM), (TOKENS, HEAD_DIM), (HEAD_DIM * (HEAD_DIM - 1) // 2,), (HEAD_DIM,)
    )
    P = cayley(size * skew(entries) / 2)
    scales = (spread * logs).exp()
    places = torch.arange(TOKENS).double()

    def scaled(x: Tensor) -> Tensor:
        return x / x.square().sum(-1, keepdim=True).sqrt() * scales

    def scores(*pair: Tensor) -> Tensor:
        one, other = (apply_rope(x, places, geometric_frequencies(HEAD_DIM // 2)) for x in pair)
        return (one @ other.mT).flatten()

    direct, folded = scores(scaled(q) @ P, scaled(k) @ P), scores(scaled(q @ P), scaled(k @ P))
    size_of = direct.square().mean(-1).sqrt()
    change = (direct - folded).abs().amax() / size_of
    return {
        "direct": direct / size_of,
        "folded": folded / size_of,
        "change": torch.where(change > 1e-9, change, 0.0),
        "moved": (change > 1e-9).double(),
    }


def folded_scores(spread: float, size: float) -> Drawn:
    """Draw scores after a norm with scales against those after folding, :eq:`eq-fold`.

    Args:
        spread: Standard deviation of the logarithms of the scales; at 0 they are all 1.
        size: Of the entries of S, in standard deviations of a half.

    Returns:
        A figure of a dot for each pair of query and key, and the diagonal of equal scores.
    """
    found = _folded(spread, size)
    change = found["change"]
    traces = [
        line([-5, 5], [-5, 5], PALETTE["grey"], "unchanged", width=1.5, dash="dot"),
        dots(found["direct"], found["folded"], COLOURS["cayley"], "a query and a key", size=6,
             hover="%{x:.2f}, folded %{y:.2f}"),
    ]  # fmt: skip
    reach = axis(low=-4, high=4, dtick=2, constrain="domain")
    axes = layout(
        height=420,
        margin={"l": 48, "r": 14, "t": 44, "b": 84},
        title_text=f"largest change of a score: {change:.2f}",
        xaxis={**reach, "title": {"text": "score, P in the encoder", "standoff": 4}},
        yaxis={**reach, "scaleanchor": "x", "title": {"text": "score, P folded", "standoff": 4}},
    )
    where = pick(found["moved"], "All dots lie on the diagonal", "The dots leave the diagonal")
    return Drawn(
        go.Figure(traces, axes),
        "A scatter plot has one dot for each pair of a query and a key, after a norm with "
        "learned scales. The horizontal axis is the score with P in the encoder, and the "
        "vertical axis is the score with P folded into the weights, both divided by the root "
        "mean square of the scores. A dotted diagonal line marks scores that folding does not "
        f"change. The scales have spread {spread:g}, and the size of S is {size:g}. {where}, and "
        f"folding changes a score by up to {change:.2f} times the root mean square.",
    )


def losses_by_density(
    projections: str,
    *,
    recorded: Mapping[str, Mapping[str, tuple[Sequence[float], tuple[float, float, float]]]],
) -> Drawn:
    """Draw the loss of each seed against the density of S, and their mean with its interval.

    Args:
        projections: A name in ``recorded``.
        recorded: Projections → S → the losses by seed, and their mean with both ends.

    Returns:
        A figure of a line for each seed, and of means.
    """
    found = recorded[str(projections)]
    kinds = list(found)
    means = [mean for _, mean in found.values()]
    seeds = range(len(next(iter(found.values()))[0]))
    hover = "%{x}: %{y:.3f}"
    traces = [
        line(kinds, significant([losses[n] for losses, _ in found.values()]), PALETTE["grey"],
             "a seed" if n == 0 else None, width=1, hover=f"seed {n}, {hover}")
        for n in seeds
    ]  # fmt: skip
    colour = COLOURS["cayley"]
    ends = [((kind, low), (kind, high)) for kind, (_, low, high) in zip(kinds, means, strict=True)]
    traces += [
        segments(ends, colour, width=4),
        dots(kinds, significant([mean for mean, *_ in means]), colour, "mean, 95% interval",
             hover=hover),
    ]  # fmt: skip
    axes = layout(
        height=390,
        margin={"l": 60, "r": 14, "t": 44, "b": 96},
        title_text=f"{projections} projections",
        xaxis=axis("density of S (rightmost: dense S after RoPE)", type="category"),
        yaxis=axis("loss (nats)", -3.7, 0.5, type="log", tickvals=[0.001, 0.01, 0.1, 1]),
    )
    start, sparse, after = (means[kinds.index(kind)][0] for kind in ("0", "0.1", "after RoPE"))
    before = [(mean, kind) for kind, (mean, *_) in zip(kinds, means, strict=True)][:-1]
    least, density = min(before)
    return Drawn(
        go.Figure(traces, axes),
        "A line chart shows the loss in nats, on a logarithmic axis, against the density of S, "
        f"with {projections} projections. Each thin line joins the losses of one seed. Dots are "
        f"means, and thick vertical lines are their 95% intervals. The mean loss is {start:.2f} "
        f"at density 0 and {sparse:.2f} at density 0.1. The lowest mean loss is {least:.2f}, at "
        f"density {density}. The last point on the horizontal axis is a dense S after RoPE, where "
        f"the mean loss is {after:.2f}.",
    )
