"""Words that change places, and what a bias adds to the logit of a key that is far away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
import torch
from torch import Tensor

from book.figures.marks import CELLS, axis, dots, downwards, heat, line, rounded
from lab.explore import COLOURS, PALETTE, Drawn, Panel, computed, layout, panels
from lab.explore.style import DIVERGING
from stringlib import ALiBi, RoPE, Sinusoidal, T5Bias

__all__ = ["POSITIONS", "WORDS", "bias_curves", "permuted_words"]

WORDS = ("dog", "bites", "man")
POSITIONS = ("none", "causal mask", "sinusoid added", "ALiBi", "RoPE")
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
        q, k = (turned[0] for turned in RoPE(DIM)(q[None], k[None], places))
    scores = q @ k.mT / DIM**0.5
    if positions == "ALiBi":
        scores = scores + ALiBi(8).double()(len(words), len(words))[0]  # the steepest head
    if positions == "causal mask":
        scores = scores + torch.ones_like(scores).tril().log()
    weights = scores.softmax(-1)
    return weights, weights @ v


def permuted_words(order: str, positions: str) -> Drawn:
    """Draw the attention between three words, and its output, in some order.

    Left the weights, a row for each query, as discs of that area.  Right the first channels of each
    word's output, and of the mean of the three.  The head prints how much a
    word's own output has changed since ``dog bites man``.

    Args:
        order: The three words, with blanks between.
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
                f"outputs changed<br>by {change:.2f}, mean {of_mean:.2f}",
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
        f"Attention between the words {', '.join(words)}, in this order; positions: "
        f"{positions}. Left the weights as discs, right a heat-map of each word's output and of "
        f"their mean. Since the order dog, bites, man the output of a word has changed by at most "
        f"{change:.2f}, and the mean by {of_mean:.2f}.",
    )


@computed
def _curves(slope: Tensor, r1: Tensor, r2: Tensor, power: Tensor) -> dict[str, Tensor]:
    """Return method → bias at the distances 0 … FARTHEST."""
    distances = torch.arange(FARTHEST + 1).double()
    log = -r1 * torch.log1p(r2 * distances)
    with torch.random.fork_rng(devices=[]):  # it starts at random: not with the reader's numbers
        of = T5Bias(1, bidirectional=False).buckets(distances.long())
    first, end = ((of[:, None] > of).sum(-1), (of[:, None] >= of).sum(-1))  # of its bucket
    total = torch.cat([log[:1], log.cumsum(0)])
    return {
        "alibi": -(2**-slope) * distances,
        "kerple-power": -r1 * distances**power,
        "t5": (total[end] - total[first]) / (end - first),
        "kerple-log": log,
    }


def bias_curves(slope: int, r1: float, r2: float, power: float) -> Drawn:
    """Draw four biases against the distance of the key.

    ALiBi is a line, KERPLE a power or a logarithm.  T5 learns one number for
    each bucket of distances: here each is the mean of KERPLE's logarithm over
    its bucket, to show the buckets.

    Args:
        slope: ALiBi's slope is 1 over 2 to this power.
        r1: Factor of both KERPLE biases.
        r2: KERPLE's logarithm is −r1 log(1 + r2 Δ).
        power: KERPLE's power is −r1 Δ to this power, between 0 and 2.

    Returns:
        A figure with one line a method.
    """
    names = {
        "alibi": "ALiBi",
        "kerple-power": "KERPLE power",
        "t5": "T5 buckets, following log",
        "kerple-log": "KERPLE log",
    }
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
        yaxis=axis("bias", -10, 0.3),
    )
    return Drawn(
        go.Figure(lines, axes),
        "Bias against distance from 0 to 128. At distance 64 ALiBi, a line, is "
        f"{far['alibi']:.1f}, KERPLE's power {far['kerple-power']:.1f} and its logarithm "
        f"{far['kerple-log']:.1f}. T5's "
        "staircase follows the logarithm in steps of one token up to 16, then in longer ones; the "
        "last begins at 113.",
    )
