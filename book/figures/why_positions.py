"""Words in another order, hands of a clock, biases against distance, and accuracies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
import torch
from torch import Tensor

from book.figures.marks import (
    CELLS,
    axis,
    broken,
    circle,
    dots,
    downwards,
    heat,
    line,
    listed,
    rounded,
    significant,
    through,
)
from book.names import display, wrapped
from lab.explore import COLOURS, PALETTE, Drawn, Panel, computed, layout, panels
from lab.explore.style import DIVERGING
from stringlib import ALiBi, RoPE, Sinusoidal, T5Bias
from stringlib.kernels.rotation import geometric_frequencies

__all__ = [
    "METHODS",
    "POSITIONS",
    "WORDS",
    "asked_distance",
    "bias_curves",
    "clock_hands",
    "divided_bias",
    "looked_back",
    "permuted_words",
]

WORDS = ("dog", "bites", "man")
POSITIONS = ("none", "causal mask", "sinusoid added", "ALiBi", "RoPE")
GIVEN = {
    "none": "without any position information",
    "causal mask": "with a causal mask",
    "sinusoid added": "with sinusoidal vectors added to the words",
    "ALiBi": "with the bias of ALiBi",
    "RoPE": "with queries and keys rotated by RoPE",
}
"""How a sentence says each of them."""
METHODS = {
    name: display(name)
    for name in (
        *("none", "sinusoidal", "learned", "alibi", "t5"),
        *("kerple-log", "kerple-power", "rope"),
    )
}
"""Names of the methods of the recorded study as readers see them."""
DIM, SHOWN = 16, 6  # channels, and how many of them are drawn
LARGEST = 44  # pixels across, the disc of weight 1
FARTHEST = 128


def _attend(words: Sequence[str], positions: str) -> tuple[Tensor, Tensor]:
    """Return the weights ``(3, 3)`` and the output ``(3, DIM)`` of one head with fixed weights."""
    generator = torch.Generator().manual_seed(3)
    meanings = torch.randn(len(WORDS), DIM, generator=generator, dtype=torch.float64)
    to_qkv = torch.randn(3, DIM, DIM, generator=generator, dtype=torch.float64) / DIM**0.5
    x, places = meanings[[WORDS.index(word) for word in words]], torch.arange(len(words))[:, None]
    if positions == "sinusoid added":
        x = Sinusoidal(DIM)(x, places)
    q, k, v = x @ to_qkv
    if positions == "RoPE":
        q, k = (rotated[0] for rotated in RoPE(DIM)(q[None], k[None], places))
    scores = q @ k.mT / DIM**0.5
    if positions == "ALiBi":
        scores = scores + ALiBi(8).double()(len(words), len(words))[0]  # the steepest head
    if positions == "causal mask":
        scores = scores + torch.ones_like(scores).tril().log()
    weights = scores.softmax(-1)
    return weights, weights @ v


def permuted_words(order: str, positions: str) -> Drawn:
    """Draw the attention between three words, and its output, in some order.

    On the left the weights, a row for each query, as discs whose area is proportional to the
    weight.  On the right the first channels of each word's output, and of the mean of the three.
    The title says by how much the outputs differ from those for ``dog bites man``.

    Args:
        order: The three words, separated by blanks.
        positions: How positions enter, one of ``POSITIONS``.

    Returns:
        A figure of a row of discs for each query, and a heat-map.
    """
    words = order.split()
    _, before = _attend(WORDS, positions)
    weights, out = _attend(words, positions)
    mean = out.mean(0)
    change = (out - before[[WORDS.index(word) for word in words]]).abs().max()
    of_mean = (mean - before.mean(0)).abs().max()
    most = [
        f"The query {word} gives its largest weight, {row.max():.2f}, to the key "
        f"{words[int(row.argmax())]}."
        for word, row in zip(words, weights, strict=True)
    ]
    compared = (
        "This is the order with which the other orders are compared."
        if tuple(words) == WORDS
        else "The outputs of the words and their mean are the same as in the order dog, bites, man."
        if change < 0.005
        else "Compared with the order dog, bites, man, the largest change in a channel is "
        f"{change:.2f} for the outputs of the words and {of_mean:.2f} for their mean."
    )
    rows = torch.cat([out, mean[None]])[:, :SHOWN]
    places = list(range(len(words)))
    flat = weights.flatten()
    seen = dots(
        places * len(words),
        [row for row in places for _ in places],
        PALETTE["blue"],
        size=rounded(LARGEST * flat.sqrt(), 1),
        text=[f"{weight:.2f}" for weight in flat],
        textposition="bottom center",
        customdata=rounded(flat),
        hover="weight %{customdata:.3f}",
    )
    said = heat(rounded(rows), (DIVERGING, -2, 2), "channel %{x}: %{z:.2f}")
    named: dict[str, Any] = {"tickvals": places, "ticktext": words}
    fig = panels(
        [
            Panel(
                [seen],
                "attention weights",
                x=axis("key", -0.5, 2.5, **CELLS, **named),
                y=downwards(4, **named),
            ),
            Panel(
                [said],
                f"outputs changed by {change:.2f},<br>their mean by {of_mean:.2f}",
                x=axis("channel", **CELLS, tickvals=list(range(SHOWN))),
                y=downwards(4, tickvals=[*places, 3], ticktext=[*words, "mean"]),
            ),
        ],
        across=0.16,
        height=330,
        margin={"l": 52, "r": 10, "t": 52, "b": 52},
    )
    return Drawn(
        fig,
        "A dot plot and a heat map show one attention head that reads the words "
        f"{', '.join(words)} in this order, {GIVEN[positions]}. The left panel has a row for each "
        "query and a column for each key, and the area of each disc is proportional to its "
        f"weight. {' '.join(most)} The right panel is a heat map of the first {SHOWN} channels of "
        f"the output of each word and of the mean of the outputs. {compared}",
    )


@computed
def _curves(slope: Tensor, r1: Tensor, r2: Tensor, power: Tensor) -> dict[str, Tensor]:
    """Return method → bias at the distances 0 … FARTHEST."""
    distances = torch.arange(FARTHEST + 1).double()
    log = -r1 * torch.log1p(r2 * distances)
    with torch.random.fork_rng(devices=[]):  # its random start leaves the reader's generator alone
        of = T5Bias(1, bidirectional=False).buckets(distances.long())
    first, end = ((of[:, None] > of).sum(-1), (of[:, None] >= of).sum(-1))  # of each bucket
    total = torch.cat([log[:1], log.cumsum(0)])
    return {
        "alibi": -(2**-slope) * distances,
        "kerple-power": -r1 * distances**power,
        "t5": (total[end] - total[first]) / (end - first),
        "kerple-log": log,
    }


def bias_curves(slope: int, r1: float, r2: float, power: float) -> Drawn:
    """Draw four biases against the distance of the key.

    ALiBi is linear, KERPLE a power or a logarithm.  T5 learns one number for
    each bucket of distances.  To show the buckets, each number is the mean of
    KERPLE's logarithm over its bucket here.

    Args:
        slope: ALiBi's slope is 2 to the power of minus this number.
        r1: Factor of both KERPLE biases.
        r2: KERPLE's logarithm is −r1 log(1 + r2 Δ).
        power: KERPLE's power is −r1 Δ to this power, between 0 and 2.

    Returns:
        A figure with one line per method.
    """
    names = {name: display(name) for name in ("alibi", "kerple-power", "t5", "kerple-log")}
    names["t5"] += ", means of KERPLE (logarithmic)"
    curves = _curves(slope, r1, r2, power)
    lines = [
        line(
            None,
            curve,
            COLOURS[method],
            names[method],
            width=7 if method == "t5" else 2.5,
            line_shape="hv" if method == "t5" else "linear",
            hover="distance %{x}: %{y:.2f}",
        )
        for method, curve in curves.items()
    ]
    far = {method: curve[64] for method, curve in curves.items()}
    axes = layout(
        height=400,
        margin={"t": 14, "b": 104},
        xaxis=axis("distance |Δ| (tokens)", 0, 128),
        yaxis=axis("bias b(Δ)", -10, 0.3),
    )
    return Drawn(
        go.Figure(lines, axes),
        "A line chart shows the bias of four methods against the distance of the key, from 0 to "
        f"{FARTHEST} tokens. All four lines fall as the distance grows. The bias of ALiBi is a "
        f"straight line, whose value at distance 64 is {far['alibi']:.1f}. At the same distance, "
        f"the bias of {names['kerple-power']} is {far['kerple-power']:.1f}, and the bias of "
        f"{names['kerple-log']} is {far['kerple-log']:.1f}. The wide line of the T5 bias is a "
        "staircase that follows the logarithm. Up to distance 16 each step of the staircase is "
        "one token long, and then the steps become longer. The last step begins at distance 113.",
    )


PLACES = 96  # number of positions s of the curve
GAP = 10  # tokens to the two positions whose inner product the title gives


@computed
def _hands(position: Tensor) -> dict[str, Tensor]:
    """Return a sinusoidal vector as hands, and its inner products with those of all positions."""
    angles = position * geometric_frequencies(DIM // 2)
    hand = torch.stack([angles.cos(), angles.sin()], -1)
    feet = torch.stack([2.4 * torch.arange(DIM // 2), torch.zeros(DIM // 2)], -1).double()
    away = torch.arange(PLACES, dtype=torch.float64) - position
    return {
        "hands": broken(feet, feet + hand),
        "products": (away[:, None] * geometric_frequencies(DIM // 2)).cos().sum(-1),
        "others": position + torch.tensor([-GAP, GAP], dtype=torch.float64),
    }


def clock_hands(position: int) -> Drawn:
    """Draw a sinusoidal vector as hands of clocks, and its inner products, :eq:`eq-abs-gram`.

    Args:
        position: t.

    Returns:
        A figure of eight dials, from fast to slow, above the inner products.
    """
    found = _hands(position)
    frequencies = geometric_frequencies(DIM // 2)
    away = frequencies.mul(GAP).cos().sum().item()
    dials = [circle(2.4 * j) for j in range(DIM // 2)]
    colour = COLOURS["sinusoidal"]
    hidden: dict[str, Any] = {"visible": False, "fixedrange": True}
    fig = panels(
        Panel(
            [through(found["hands"], colour, width=3, customdata=significant(frequencies, 6))],
            x=axis(low=-1.3, high=2.4 * 7 + 1.3, **hidden),
            y=axis(low=-1.3, high=1.3, **hidden),
            shapes=dials,
            square=True,
        ),
        Panel(
            [
                line(list(range(PLACES)), found["products"], colour, hover="s = %{x}: %{y:.2f}"),
                dots([position], [DIM / 2], colour),
                dots(found["others"], [away, away], PALETTE["grey"]),
            ],
            f"at distance 0: {DIM / 2:g}, at distance {GAP}: {away:.2f}",
            x=axis("position s", -1, PLACES),
            y=axis("inner product", -1, 8.8, dtick=2),
        ),
        heights=(0.2, 0.62),
        down=0.12,
        height=430,
        margin={"l": 48, "r": 12, "t": 8, "b": 48},
    )
    return Drawn(
        fig,
        "The upper panel is a diagram of eight dials with one hand each, which show the "
        f"sinusoidal vector of position {position:g}, from the highest frequency on the left to "
        "the lowest on the right. The lower panel is a line chart of the inner product of this "
        f"vector with the vector of each position, against the position, from 0 to {PLACES - 1}. "
        f"A dot marks the peak of the line, {DIM / 2:g}, at position {position:g}. Two other dots "
        f"mark the positions that are {GAP} tokens away from the peak, where the inner product is "
        f"{away:.2f}. When the position changes, the line is shifted and keeps its shape.",
    )


FAR = 48  # number of keys


@computed
def _asked(distance: Tensor) -> dict[str, Tensor]:
    """Return the weights of equal keys for a rotated query that encodes a distance."""
    away = torch.arange(FAR, dtype=torch.float64)
    waves = ((away - distance)[:, None] * geometric_frequencies(16, 100.0)).cos().mean(-1)
    weights = (16 * waves).softmax(-1)
    biased = (-away / 2).softmax(-1)
    here = (away == distance).double()
    return {"weights": weights, "there": torch.stack([weights, biased]) @ here}


def asked_distance(distance: int) -> Drawn:
    r"""Draw the weights of equal keys with a bias, and for a query that encodes a distance.

    With a bias the weights are the same for every query, :eq:`eq-bias-ratio`; here the bias is
    that of ALiBi with slope ½. The rotated query is :math:`R(-m)k`, with
    :math:`|k|^2/\sqrt d = 16`.

    Args:
        distance: m that the query encodes.

    Returns:
        A figure of two curves against the distance.
    """
    found = _asked(distance)
    biased = (-torch.arange(FAR, dtype=torch.float64) / 2).softmax(-1)
    rotated, kept = found["there"]
    away, hover = list(range(FAR)), "distance %{x}: %{y:.2f}"
    traces = [
        line(away, rounded(biased, 4), COLOURS["alibi"], "bias of ALiBi", hover=hover),
        line(away, found["weights"], COLOURS["rope"], "rotation", hover=hover),
        dots([distance], [rotated], COLOURS["rope"], hover=hover),
        dots([distance], [kept], COLOURS["alibi"], hover=hover),
    ]
    axes = layout(
        height=340,
        margin={"l": 54, "r": 14, "t": 44, "b": 84},
        title_text=f"weight at distance {distance:.0f}: rotation {rotated:.2f}, bias {kept:.2f}",
        xaxis=axis("distance of the key (tokens)", -1, FAR),
        yaxis=axis("attention weight", 0, 0.6, dtick=0.2),
    )
    return Drawn(
        go.Figure(traces, axes),
        f"A line chart shows the attention weights of {FAR} equal keys against their distance "
        f"from the query, from 0 to {FAR - 1} tokens. One line is for the bias of ALiBi, the "
        "other is for rotated queries and keys, with a query that encodes distance "
        f"{distance:.0f}. With the bias, the weight falls from {biased[0]:.2f} at distance 0 "
        "towards 0, and the line is the same for every encoded distance. The line of the "
        f"rotation has its peak at the encoded distance {distance:.0f}. Dots mark this distance, "
        f"where the weight is {rotated:.2f} with the rotation and {kept:.2f} with the bias.",
    )


GOOD = 0.9  # accuracy from which on the words name a method


def looked_back(
    test: str, *, recorded: Mapping[str, Mapping[str, Mapping[str, Sequence[float | None]]]]
) -> Drawn:
    """Draw the accuracy of every method and seed on both tasks, in one of the tests.

    Args:
        test: A name in ``recorded``.
        recorded: Test → task → method → the accuracy of each seed, None where there is none.

    Returns:
        A figure of a row for each method, with its mean on the right, in a panel for each task.
    """
    row: list[Panel] = []
    spoken = []
    for task, found in recorded[str(test)].items():
        places = list(range(len(found)))
        beside = torch.linspace(-0.26, 0.26, max(map(len, found.values()))).tolist()
        means = [None if None in a else sum(filter(None, a)) / len(a) for a in found.values()]
        numbers = ["none" if mean is None else f"{mean:.2f}" for mean in means]
        names = [display(name) for name in found]
        ranked = sorted(
            ((mean, name) for mean, name in zip(means, names, strict=True) if mean is not None),
            key=lambda pair: -pair[0],
        )
        good = [name for mean, name in ranked if mean > GOOD]
        (best, first), (worst, last) = ranked[0], ranked[-1]
        spoken.append(
            f"In the task “{task}”, the mean accuracy exceeds {GOOD} for {listed(good)}."
            if good
            else f"In the task “{task}”, {first} has the highest mean accuracy, {best:.2f}."
        )
        spoken.append(f"In this task, {last} has the lowest mean accuracy, {worst:.2f}.")
        absent = [name for name, mean in zip(names, means, strict=True) if mean is None]
        labels: dict[str, Any] = (
            {"showticklabels": False}
            if row
            else {"ticktext": [wrapped(name, 16) for name in names]}
        )
        seeds = dots(
            rounded([a for seeds in found.values() for a in seeds]),
            rounded([at + dy for at in places for dy in beside]),
            [COLOURS[name] for name, seeds in found.items() for _ in seeds],
            size=7,
            hover="%{x:.3f}",
        )
        mean = dots([1.06] * len(found), places, "rgba(0,0,0,0)", text=numbers,
                    textposition="middle right")  # fmt: skip
        row.append(
            Panel(
                [seeds, mean],
                task,
                x=axis("accuracy", 0, 1.75, tickvals=[0, 0.5, 1]),
                y=downwards(len(found), tickvals=places, **labels),
            )
        )
    fig = panels(row, across=0.05, height=350, margin={"l": 118, "r": 8, "t": 34, "b": 48})
    missing = (
        f" {listed(absent)} has no accuracy in this test, because its table has no rows for these "
        "positions."
        if absent
        else ""
    )
    return Drawn(
        fig,
        f"Two dot plots show the accuracy of each method on two tasks, in the test “{test}”, with "
        "a row for each method. Each of the five seeds of a method is a dot, and the mean of the "
        f"seeds is printed on the right. {' '.join(spoken)}{missing}",
    )


NEAR = 8  # number of the nearest keys whose weights are summed


@computed
def _divided(channels: Tensor) -> dict[str, Tensor]:
    """Return the weights of equal keys with a bias, as it is and divided, and the nearest share.

    The distances are computed, because a program for the page would store a constant.
    """
    away = (0 * channels + 1).expand(FAR).cumsum(0) - 1
    bias = torch.stack([-away.log1p(), -away.log1p() / channels.sqrt()])
    weights = bias.softmax(-1)
    return {"weights": weights, "near": (weights * (away < NEAR)).sum(-1)}


def divided_bias(channels: int) -> Drawn:
    r"""Draw the weights of equal keys when the bias is divided by :math:`\sqrt d` like the scores.

    One curve adds the bias after the division, :eq:`eq-bias-softmax`, the other before it. The
    bias is the logarithm of :eq:`eq-bias-kerple` with both numbers 1.

    Args:
        channels: Number d of channels of a head.

    Returns:
        A figure of two curves against the distance.
    """
    found = _divided(channels)
    (right, wrong), (kept, lost) = found["weights"], found["near"]
    away, hover = list(range(FAR)), "distance %{x}: %{y:.3f}"
    traces = [
        line(away, right, COLOURS["kerple-log"], "bias b(Δ)", hover=hover),
        line(away, wrong, PALETTE["grey"], "divided bias b(Δ) / √d", dash="dash", hover=hover),
    ]
    axes = layout(
        height=340,
        margin={"l": 54, "r": 14, "t": 44, "b": 84},
        title_text=f"nearest {NEAR} keys: {kept:.0%} of the weight,<br>"
        f"with the divided bias {lost:.0%}",
        xaxis=axis("distance of the key (tokens)", -1, FAR),
        yaxis=axis("attention weight", 0, 0.25, dtick=0.1),
    )
    return Drawn(
        go.Figure(traces, axes),
        f"A line chart shows the attention weights of {FAR} equal keys against their distance, "
        f"from 0 to {FAR - 1} tokens, with the bias of {display('kerple-log')}. The solid line is "
        f"for the bias itself, and the nearest {NEAR} keys get {kept:.0%} of the weight. The "
        f"dashed line is for the bias divided by the square root of {channels:.0f}, the number of "
        f"channels. This line is flatter, and the nearest {NEAR} keys get {lost:.0%} of the "
        "weight.",
    )
