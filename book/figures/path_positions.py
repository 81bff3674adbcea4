"""Positions that are sums of steps of the tokens, and decays that are products of their gates."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go
import torch
from torch import Tensor

from book.figures.marks import (
    CELLS,
    axis,
    bars,
    broken,
    colour_axis,
    dots,
    downwards,
    heat,
    line,
    through,
)
from lab.explore import PALETTE, Drawn, Panel, computed, layout, panels, pick
from lab.explore.style import SEQUENTIAL
from stringlib.attention.decay import decay_mask
from stringlib.attention.path import path_positions

__all__ = ["RATE", "USES", "WORDS", "gated_sentences", "stretched_sentence"]

WORDS = ("we", "ran", ".", "the", "cat", "sat", ".", "the", "dog", "hid")
"""Three sentences of a text. The last token is the query."""
USES = ("bias", "rotation")
RATE = 0.3
"""The slope of the bias, and the frequency of the rotation."""

PLACES = [i + 1 for i in range(len(WORDS))]
SHOWN = [f"<b>{word}</b>" if word == "." else word for word in WORDS]
KINDS = {"full stop": ".", "“the”": "the", "other word": ""}
COLOUR = dict(zip(KINDS, (PALETTE["red"], PALETTE["orange"], PALETTE["blue"]), strict=True))
LAST = len(WORDS) - 1 - WORDS[::-1].index(".")
WIDTH = 16.5
"""End of the axis of positions if the last token is not further."""


def _kind(word: str) -> str:
    return next(name for name, own in KINDS.items() if own in (word, ""))


@computed
def _stretched(stop: Tensor, article: Tensor, other: Tensor, bias: bool) -> dict[str, Tensor]:
    """Return positions, the pieces between them, and what the last token gives every token.

    The latter by the positions, and by indices, which are positions with every step 1.
    """
    steps = torch.stack([{".": stop, "the": article}.get(word, other) for word in WORDS])
    places = torch.tensor(PLACES, dtype=torch.float64)
    positions = path_positions(steps[:, None])[0][:, 0]
    ends = torch.stack([positions, torch.zeros_like(positions)], -1)
    starts = torch.stack([positions - steps, torch.zeros_like(positions)], -1)
    pieces = broken(starts, ends).unflatten(-1, (-1, 3))
    kinds = torch.tensor([[_kind(word) == kind for word in WORDS] for kind in KINDS])
    distances = torch.stack([positions[-1] - positions, places[-1] - places + 0 * stop])
    given = (-RATE * distances).softmax(-1) if bias else (RATE * distances).cos()
    told = given[:, LAST:].sum(-1) if bias else given[:, LAST - 1]
    top = torch.stack([places, torch.ones_like(places)], -1)
    return {
        "positions": positions,
        "pieces": torch.where(kinds[:, None, :, None], pieces, torch.nan).flatten(-2),
        "fan": broken(top, ends),
        "given": given,
        "told": told,
        "right": (positions[-1] + 1).clamp(min=WIDTH),
        "highest": (1.05 * given.amax()).clamp(min=0.32),
    }


def stretched_sentence(stop: float, article: float, other: float, use: str) -> Drawn:
    """Draw the positions of the tokens of a text, and how its last token uses them.

    A position is the sum of the steps up to a token, :eq:`eq-path-sum`. Queries and keys are all
    equal.

    Args:
        stop: Step of a full stop.
        article: Step of "the".
        other: Step of all other words.
        use: ``"bias"``: attention weights with a bias of -``RATE`` for each unit of distance.
            ``"rotation"``: scores of one pair of channels, which rotates by ``RATE`` for each unit.

    Returns:
        A figure with two panels. Positions are above, and weights or scores are below.
    """
    bias = use == USES[0]
    found = _stretched(stop, article, other, bias)
    grey, positions = PALETTE["grey"], found["positions"]
    colours = [COLOUR[_kind(word)] for word in WORDS]
    heights = [1.3 + 0.42 * (i % 2) for i in range(len(WORDS))]
    sentence: list[Any] = [
        through(found["fan"], grey, width=1),
        dots(PLACES, [1] * len(WORDS), grey, size=9, symbol="line-ns",
             marker_line={"width": 2, "color": grey}),
        line(PLACES, heights, grey, mode="text", text=SHOWN, textposition="middle center"),
        *(
            through(pieces, COLOUR[kind], kind, width=5)
            for kind, pieces in zip(KINDS, found["pieces"], strict=True)
        ),
        dots(positions, [0] * len(WORDS), colours, size=9, hovertext=[*WORDS],
             hover="%{hovertext}: position %{x:.2f}"),
    ]  # fmt: skip
    own, plain = found["given"]
    hover = "%{y:.3f}"
    said = [
        bars(PLACES, own, colours, hover=hover),
        bars(PLACES, plain, grey, "with indices", hover=hover),
    ]
    here, there = found["told"]
    last = positions[-1]
    head = (
        f"last four tokens: weight {here:.2f}, with indices {there:.2f}"
        if bias
        else f"score with “sat”: {here:.2f}, with indices {there:.2f}"
    )
    fig = panels(
        Panel(
            sentence,
            f"“hid” is at position {last:.2f}, with indices at {len(WORDS)}",
            x=axis("position", -0.4, found["right"], showgrid=False, zeroline=False),
            y=axis(low=-0.25, high=2.0, showticklabels=False, **CELLS),
        ),
        Panel(
            said,
            head,
            x=axis(None, 0.4, len(WORDS) + 0.6, tickvals=PLACES, ticktext=SHOWN, tickangle=0,
                   showgrid=False, zeroline=False),
            y=axis("weight", 0, found["highest"], dtick=0.1) if bias
            else axis("score", -1.1, 1.1, dtick=1),
        ),
        heights=(0.4, 0.4),
        down=0.24,
        height=470,
        bargap=0.25,
        margin={"l": 46, "r": 14, "t": 30, "b": 70},
    )  # fmt: skip
    below = (
        f"the softmax weight that the last token gives each token if the bias falls by {RATE} per "
        f"unit of distance. The last four tokens get {here:.2f} of the weight. The second bar "
        f"is for indices instead of positions, where these tokens get {there:.2f} of the weight."
        if bias
        else f"the score of the last token with each token if a rotation of {RATE} radians per "
        "unit of distance is applied to equal queries and keys. The score with “sat”, the word "
        f"before the last full stop, is {here:.2f}. The second bar is for indices instead of "
        f"positions, where this score is {there:.2f}."
    )
    return Drawn(
        fig,
        f"The upper panel is a diagram of the ten tokens “{' '.join(WORDS)}” at equal distances, "
        "and below them an axis of positions. A thin line leads from each token to its position, "
        f"which is the sum of the steps of the tokens so far. A full stop has the step {stop:g}, "
        f"“the” has the step {article:g}, and all other words have the step {other:g}. The thick "
        f"pieces of the axis are these steps. The last token is at position {last:.2f}. The lower "
        f"panel is a bar chart with two bars for each token. The first bar shows {below}",
    )


@computed
def _gated(closes: Tensor, keeps: Tensor) -> dict[str, Tensor]:
    """Return the decay of every pair, two of them, and which of the gates is smaller."""
    gates = torch.stack([closes if word == "." else keeps for word in WORDS])
    decays = decay_mask(gates.log())
    upper = torch.ones(len(WORDS), len(WORDS)).triu(1).bool()
    more = closes - keeps
    return {
        "decays": torch.where(upper, torch.nan, decays),
        "ends": decays[-1, [LAST, LAST - 1]],
        "order": (more > -1e-9).double() + (more > 1e-9).double(),
    }


def gated_sentences(closes: float, keeps: float) -> Drawn:
    """Draw the matrix of decays of a text with a forget gate for each token, :eq:`eq-fox`.

    Args:
        closes: Gate of a full stop.
        keeps: Gate of all other tokens.

    Returns:
        A figure of one map.
    """
    found = _gated(closes, keeps)
    first, before = found["ends"]
    ticks: dict[str, Any] = {"tickvals": [*range(len(WORDS))], "ticktext": SHOWN}
    fig = go.Figure(
        [
            heat(found["decays"], hover="%{text}: %{z:.3f}", xgap=1, ygap=1, hoverongaps=False,
                 text=[[f"query {query}, key {key}" for key in WORDS] for query in WORDS])
        ],
        layout(
            height=460,
            title_text=f"decay to “hid”: {first:.2f} from “.”, {before:.2f} from “sat”",
            xaxis=axis("key", -0.5, len(WORDS) - 0.5, tickangle=0, constrain="domain", **CELLS,
                       **ticks),
            yaxis=axis("query", **{**downwards(len(WORDS), **ticks), "scaleanchor": "x",
                                   "constrain": "domain"}),
            coloraxis=colour_axis(SEQUENTIAL, 0, 1, -0.16),
            margin={"l": 54, "r": 14, "t": 44, "b": 90},
        ),
    )  # fmt: skip
    shape = pick(
        found["order"],
        "The decay falls more at a full stop than at other tokens. So each of the three sentences "
        "gives a triangle on the diagonal that is brighter than the part of the map to its left.",
        "All gates are equal, so the decay depends only on the distance.",
        "The decay falls less at a full stop than at other tokens.",
    )
    return Drawn(
        fig,
        "A heat map shows the decay from each key (column) to each query (row) of the ten tokens "
        f"“{' '.join(WORDS)}”. It is lower triangular, because no token attends to a later one. "
        f"The decay is 1 on the diagonal. A full stop has the gate {closes:g}, and all other "
        f"tokens have the gate {keeps:g}. {shape} The decay from the last full stop to the last "
        f"token is {first:.2f}. The decay from “sat”, the word before this full stop, to the last "
        f"token is {before:.2f}.",
    )
