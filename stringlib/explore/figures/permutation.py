"""Three words change places: what attention makes of them follows, until positions enter."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go
import torch
from torch import Tensor

from stringlib import ALiBi, RoPE, Sinusoidal
from stringlib.explore.style import DIVERGING, SEQUENTIAL, heading, layout

__all__ = ["POSITIONS", "WORDS", "permuted_words", "permuted_words_text"]

WORDS = ("dog", "bites", "man")
POSITIONS = ("none", "causal mask", "sinusoid added", "ALiBi", "RoPE")
DIM, SHOWN = 16, 6  # channels, and how many of them are drawn


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


def _changes(order: str, positions: str) -> tuple[float, float]:
    """Return the largest change, since the first order, of a word's output and of their mean."""
    words = order.split()
    _, before = _attend(WORDS, positions)
    _, after = _attend(words, positions)
    moved = before[[WORDS.index(word) for word in words]]
    mean = (after.mean(0) - before.mean(0)).abs().max()
    return (after - moved).abs().max().item(), mean.item()


def permuted_words(order: str, positions: str) -> go.Figure:
    """Draw the attention between three words, and its output, in some order.

    Left the weights, a row for each query.  Right the first channels of each
    word's output, and of the mean of the three.  The head prints how much a
    word's own output has changed since ``dog bites man``.

    Args:
        order: The three words, with blanks between.
        positions: How positions enter, one of ``POSITIONS``.

    Returns:
        A figure of two heat-maps.
    """
    words = order.split()
    weights, out = _attend(words, positions)
    rows = torch.cat([out, out.mean(0, keepdim=True)])[:, :SHOWN]
    change, of_mean = _changes(order, positions)
    fig = go.Figure(
        [
            go.Heatmap(
                z=weights.round(decimals=3).tolist(),
                colorscale=SEQUENTIAL,
                zmin=0,
                zmax=1,
                showscale=False,
                texttemplate="%{z:.2f}",
                hovertemplate="weight %{z:.3f}<extra></extra>",
            ),
            go.Heatmap(
                z=rows.round(decimals=3).tolist(),
                colorscale=DIVERGING,
                zmin=-2,
                zmax=2,
                showscale=False,
                hovertemplate="channel %{x}: %{z:.2f}<extra></extra>",
                xaxis="x2",
                yaxis="y2",
            ),
        ]
    )
    heads = [
        ("attention weights", "x"),
        (f"outputs changed<br>by {change:.2f}, mean {of_mean:.2f}", "x2"),
    ]
    plain = {"showgrid": False, "zeroline": False, "ticks": ""}
    places = list(range(len(words)))
    return fig.update_layout(
        layout(
            height=330,
            margin={"l": 52, "r": 10, "t": 52, "b": 52},
            xaxis={
                **plain,
                "domain": [0, 0.42],
                "tickvals": places,
                "ticktext": words,
                "title": {"text": "key", "standoff": 4},
            },
            yaxis={**plain, "range": [3.5, -0.5], "tickvals": places, "ticktext": words},
            xaxis2={
                **plain,
                "domain": [0.58, 1],
                "anchor": "y2",
                "tickvals": list(range(SHOWN)),
                "title": {"text": "channel", "standoff": 4},
            },
            yaxis2={
                **plain,
                "range": [3.5, -0.5],
                "anchor": "x2",
                "tickvals": [*places, 3],
                "ticktext": [*words, "mean"],
            },
            annotations=[heading(text, xref=f"{axis} domain") for text, axis in heads],
        )
    )


def permuted_words_text(order: str, positions: str) -> str:
    """Say what :func:`permuted_words` shows in a state."""
    change, of_mean = _changes(order, positions)
    return (
        f"Attention between the words {', '.join(order.split())}, in this order; positions: "
        f"{positions}. Left a heat-map of the weights, right one of each word's output and of "
        f"their mean. Since the order dog, bites, man the output of a word has changed by at most "
        f"{change:.2f}, and the mean by {of_mean:.2f}."
    )
