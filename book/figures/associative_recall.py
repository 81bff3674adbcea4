"""Associative recall: the task, its attention weights, a match, and how many runs succeed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go
import torch
from torch import Tensor

from book.figures.marks import CELLS, axis, bars, dots, downwards, heat, line
from book.names import display, wrapped
from lab.explore import COLOURS, PALETTE, Drawn, Panel, computed, layout, panels, pick
from lab.explore.style import SEQUENTIAL

__all__ = [
    "asked_value",
    "match_estimates",
    "match_threshold",
    "recalled_runs",
    "recalled_value",
    "said",
]

Counted = tuple[int, float, float]
"""Runs that succeed, and the ends of an interval of that number."""

TOKENS = "A3B1C4D1E5C"
VALUES = "1345"
RIGHT = "4"

DEALS = {1: "A3B1C4D1E5", 2: "D2A5E3B1C2", 3: "B4E4C1A5D3"}


def said(name: str) -> str:
    """Return the display name of a map."""
    return display(name)


def asked_value(asked: str, deal: int) -> Drawn:
    """Draw one sequence of the task: five pairs, the key that is asked and its answer.

    Args:
        asked: The key that is asked, from A to E.
        deal: Which order of the keys and which values, a key of ``DEALS``.

    Returns:
        A figure of a row of tokens; the asked key and its value are framed in colours.
    """
    tokens = [*DEALS[deal], asked]
    place = tokens.index(asked)
    places = list(range(len(tokens)))
    look: dict[str, Any] = {"size": 24, "symbol": "square-open"}
    names: dict[str, Any] = {"text": [*tokens[:-1], f"{asked}?"], "textposition": "middle center"}
    row = dots(places, [0] * len(tokens), PALETTE["grey"], **look, **names)
    colours = [PALETTE[name] for name in ("blue", "orange", "blue")]
    pair = dots([place, place + 1, places[-1]], [0] * 3, colours, **look)
    pair.update(marker_line_width=3)
    hidden: dict[str, Any] = dict.fromkeys(("showgrid", "zeroline", "showticklabels"), False)
    hidden["fixedrange"] = True
    head = f"{asked} is asked: the answer is {tokens[place + 1]}"
    fig = panels(
        Panel(
            [row, pair],
            head,
            x=axis(low=-0.6, high=10.6, **hidden),
            y=axis(low=-1, high=1, **hidden),
        ),
        height=130,
        showlegend=False,
        margin={"l": 8, "r": 8, "t": 34, "b": 8},
    )
    return Drawn(
        fig,
        "A diagram shows a row of eleven tokens, each in a square frame. The first ten tokens, "
        f"{' '.join(DEALS[deal])}, are five keys, each followed by its value. The last token is "
        f"the question, the key {asked}. Three frames are thick: those of the question, of the "
        f"earlier key {asked}, and of the answer {tokens[place + 1]}, which is the value directly "
        f"after the earlier {asked}.",
    )


@computed
def _heard(share: Tensor, sharpness: Tensor) -> dict[str, Tensor]:
    """Return causal softmax weights of tokens with orthonormal embeddings, and the last votes.

    ``best`` is the number of the value that has most of them.
    """
    same = torch.tensor([[float(a == b) for b in TOKENS] for a in TOKENS], dtype=torch.float64)
    before = torch.nn.functional.pad(same[:, :-1], (1, 0))  # the key before the first is 0
    scores = sharpness * ((1 - share) * same + share * before)
    weights = (scores + torch.ones_like(scores).tril().log()).softmax(-1)
    of_value = torch.tensor([[float(t == v) for t in TOKENS] for v in VALUES], dtype=torch.float64)
    heard = of_value @ weights[-1]
    votes = heard / heard.sum()
    most = (votes > votes.amax() - 1e-9).double()
    return {
        "weights": weights,
        "votes": votes,
        "best": ((most.cumsum(0) == 0).double()).sum(),
        "elected": votes * most,
    }


def recalled_value(share: float, sharpness: float) -> Drawn:
    """Draw the attention weights among five pairs and a question, and the shares of the values.

    Every token has an embedding of its own, orthogonal to all others, that serves as query and
    key. The key at a position is a mixture of its own token and the one before.

    Args:
        share: Share of the key before in a key, from 0 to 1.
        sharpness: Score of a query and a key that are the same.

    Returns:
        A figure of a heat-map, a row for each query, and below it the share of each value in the
        last row's weight on values.
    """
    found = _heard(share, sharpness)
    votes = found["votes"]
    told: dict[str, Any] = {
        "text": [f"{v:.2f}" for v in votes],
        "textposition": "outside",
        "cliponaxis": False,
    }
    shares = [
        bars(list(VALUES), votes, PALETTE["grey"], hover="value %{x}: %{y:.2f}", **told),
        bars(list(VALUES), found["elected"], PALETTE["blue"]),
    ]
    names = list(TOKENS)
    places = {"tickvals": list(range(len(names)))}
    fig = panels(
        Panel(
            [heat(found["weights"], (SEQUENTIAL, 0, 1), "weight %{z:.2f}")],
            "attention weights, one row per query",
            x={**CELLS, **places, "ticktext": names},
            y=downwards(len(names), **places, ticktext=[*names[:-1], "C ?"]),
        ),
        Panel(
            shares,
            "weight of each value for the last query",
            x=axis("value (its share of the weight on all values)", type="category"),
            y=axis(low=0, high=1.25, dtick=0.5),
        ),
        heights=(0.62, 0.25),
        down=0.13,
        height=560,
        showlegend=False,
        barmode="overlay",
        margin={"l": 40, "r": 14, "t": 34, "b": 44},
    )
    answers = [f"{v}, which is right" if v == RIGHT else f"{v} instead of {RIGHT}" for v in VALUES]
    return Drawn(
        fig,
        "The upper panel is a heat map of the attention weights among the tokens "
        f"{' '.join(TOKENS)}, with a row for each query and a column for each key. The query of "
        "the last row, C, is the question. The share of the previous key in each key is "
        f"{share:g}, and a match has a score of {sharpness:g}. The lower panel is a bar chart "
        "with one bar for each of the values 1, 3, 4 and 5. The height of a bar is the weight "
        "that the question gives to this value, divided by the weight that it gives to all four "
        f"values. The right value {RIGHT} gets {votes[VALUES.index(RIGHT)]:.2f}. The highest bar "
        f"is that of the value {pick(found['best'], *answers)}.",
    )


SCORES = [round(0.1 * i, 1) for i in range(61)]


@computed
def _against(pairs: Tensor, score: Tensor) -> dict[str, Tensor]:
    """Return the softmax weights of a match and of all other keys together, by its score."""
    scores = torch.tensor(SCORES, dtype=torch.float64)

    def shares(s: Tensor) -> Tensor:
        matched = s.exp() / (s.exp() + pairs - 1)
        return torch.stack([matched, 1 - matched])

    here, needed = shares(score), (pairs - 1).log()
    return {
        "curves": shares(scores),
        "here": here,
        "needed": needed,
        "cross": torch.stack([needed, needed]),
        "wins": (here[0] > here[1]).double(),
    }


def match_threshold(pairs: int, score: float) -> Drawn:
    """Draw the weight of a match against that of other keys that share a wrong value.

    It is softmax with orthogonal keys: :math:`e^s` against 1 for each other pair.

    Args:
        pairs: P in the list.
        score: s of the match; others have 0.

    Returns:
        A figure of the two weights over the score, and where they cross.
    """
    found = _against(pairs, score)
    matched, others = found["here"]
    right, wrong = PALETTE["blue"], PALETTE["orange"]
    hover = "score %{x:.2f}: %{y:.2f}"
    traces = [
        line(SCORES, found["curves"][0], right, "right value", hover=hover),
        line(SCORES, found["curves"][1], wrong, "wrong value of all other pairs", hover=hover),
        line(found["cross"], [0, 1], PALETTE["grey"], width=1.5, dash="dot"),
        dots([score], [matched], right, hover=hover),
        dots([score], [others], wrong, hover=hover),
    ]
    said = pick(found["wins"], "not enough", "enough")
    axes = layout(
        height=360,
        margin={"l": 54, "r": 14, "t": 44, "b": 92},
        title_text=f"right value wins if s > {found['needed']:.2f}; s = {score:.2f} is {said}",
        xaxis=axis("score s of the match", 0, 6, dtick=1),
        yaxis=axis("share of the softmax weight", 0, 1.02, dtick=0.25),
    )
    return Drawn(
        go.Figure(traces, axes),
        "A line chart shows the share of the softmax weight against the score of the match, from "
        f"0 to 6, for {pairs:.0f} pairs. The line of the right value rises. The line of the wrong "
        "value, which all other pairs share, falls. A dotted vertical line marks a score of "
        f"{found['needed']:.2f}, at which the two lines cross. Two dots mark a score of "
        f"{score:.2f}, at which the right value has a weight of {matched:.2f} and the wrong value "
        f"has a weight of {others:.2f}. The weight of the right value is {said} to win.",
    )


SIZES = [2**k for k in range(3, 25)]


@computed
def _spread(pairs: Tensor, features: Tensor) -> dict[str, Tensor]:
    """Return the relative error of the estimate of the weakest match that wins.

    ``needed`` are the features with which it is 1.
    """
    square = 4 * (pairs - 1).log()  # of the query and its key together: twice a vector
    sizes = torch.tensor(SIZES, dtype=torch.float64)
    return {
        "curve": (torch.expm1(square) / sizes).sqrt(),
        "here": (torch.expm1(square) / features).sqrt(),
        "needed": torch.expm1(square),
    }


def match_estimates(pairs: int, features: int) -> Drawn:
    """Draw the relative error of random features for the similarity that a list asks for.

    The relative error is the root of :eq:`eq-favor-mse-positive` with :math:`z = 2q` and
    :math:`e^{|q|^2} = P - 1`.

    Args:
        pairs: P in the list.
        features: m, with independent rows.

    Returns:
        A figure of the error over the features, and where it is as large as what is estimated.
    """
    found = _spread(pairs, features)
    colour, hover = COLOURS["favor"], "m = %{x:,}: %{y:.3g}"
    here, needed = found["here"], found["needed"]
    traces = [
        line(SIZES, found["curve"], colour, hover=hover),
        line([SIZES[0], SIZES[-1]], [1, 1], PALETTE["grey"], width=1.5, dash="dot"),
        dots([features], [here], colour, hover=hover),
        dots([needed], [1], PALETTE["grey"], symbol="x", size=10, hover=hover),
    ]
    ticks = [10, 1000, 100_000, 10_000_000]
    axes = layout(
        height=340,
        title_text=f"relative error {here:,.1f} here, and 1 at m = {needed:,.0f}",
        xaxis=axis("random features m", 0.9, 7.3, type="log", tickvals=ticks,
                   ticktext=[f"{n:,}" for n in ticks]),
        yaxis=axis("relative error of the match", -3, 3.5, type="log", dtick=1,
                   exponentformat="power"),
    )  # fmt: skip
    return Drawn(
        go.Figure(traces, axes),
        "A line chart shows the relative error with which random features estimate the "
        f"similarity of a match, against the number of features, for {pairs:.0f} pairs. Both axes "
        "are logarithmic. A straight falling line shows a lower bound on this error. A dot marks "
        f"{features:,.0f} features, for which the bound is {here:,.1f} times the true value. A "
        "dotted horizontal line marks an error as large as the true value. A cross marks where "
        f"the bound falls to this line, at {needed:,.0f} features.",
    )


def recalled_runs(
    rate: str, norms: str, *, recorded: Mapping[str, Mapping[str, Mapping[str, Counted]]]
) -> Drawn:
    """Draw how many runs of each method recall eight pairs at a learning rate.

    Args:
        rate: The learning rate.
        norms: A name in ``recorded``.
        recorded: Name of norms → name of a method → rate → how many of 30 runs succeed, and the
            ends of the interval of the share, in runs.

    Returns:
        A figure of bars with intervals.
    """
    found = {name: rows[str(rate)] for name, rows in reversed([*recorded[norms].items()])}
    counts = [count for count, _, _ in found.values()]
    ends = {
        "type": "data",
        "array": [round(high - count, 2) for count, _, high in found.values()],
        "arrayminus": [round(count - low, 2) for count, low, _ in found.values()],
        "color": PALETTE["grey"],
        "thickness": 2,
        "width": 3,
    }
    traces = bars(
        counts,
        [wrapped(said(name), 18) for name in found],
        [COLOURS[name] for name in found],
        orientation="h",
        hover="%{y}: %{x} out of 30",
        error_x=ends,
    )
    fig = panels(
        Panel(
            [traces],
            f"{norms} norms, learning rate {rate}",
            x=axis("runs out of 30 that succeed", 0, 31, dtick=10),
            y={"type": "category", "automargin": True},
        ),
        height=430,
        margin={"l": 190, "r": 14, "t": 30, "b": 48},
        bargap=0.35,
    )
    longest, shortest = (
        _bars_with(
            [said(name) for name, row in recorded[norms].items() if row[str(rate)][0] == count],
            length,
            count,
        )
        for length, count in (("longest", max(counts)), ("shortest", min(counts)))
    )
    return Drawn(
        fig,
        "A horizontal bar chart has one bar per method. The length of the bar is the number of "
        f"runs (out of 30) that retrieve more than 90% of the values of eight pairs, with {norms} "
        f"norms and a learning rate of {rate}. A thin line at the end of each bar shows the "
        f"interval of this number. {longest} {shortest}",
    )


def _bars_with(names: list[str], length: str, count: int) -> str:
    """Say which methods have the longest or shortest bars, and how many runs that is."""
    runs = "1 run" if count == 1 else f"{count} runs"
    if len(names) == 1:
        return f"{names[0]} has the {length} bar, for {runs}."
    if len(names) < 4:
        listed = f"{', '.join(names[:-1])} and {names[-1]}"
        return f"{listed} have the {length} bars, for {runs} each."
    number = ["Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten"][len(names) - 4]
    return f"{number} methods have the {length} bars, for {runs} each."
