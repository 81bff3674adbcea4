"""The task; and what its question finds with and without a shift, and the vote that this gives."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from book.figures.marks import CELLS, axis, bars, dots, downwards, heat
from lab.explore import PALETTE, Drawn, Panel, computed, panels, pick
from lab.explore.style import SEQUENTIAL

__all__ = ["asked_value", "recalled_value"]

TOKENS = "A3B1C4D1E5C"
VALUES = "1345"
RIGHT = "4"

DEALS = {1: "A3B1C4D1E5", 2: "D2A5E3B1C2", 3: "B4E4C1A5D3"}


def asked_value(asked: str, deal: int) -> Drawn:
    """Draw one sequence of the task: five pairs, a question and its answer.

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
        f"The tokens {' '.join(DEALS[deal])}, five keys each before its value, and then the "
        f"question {asked}. Its first place is framed in blue and the value {tokens[place + 1]} "
        "behind it, the answer, in orange.",
    )


@computed
def _heard(share: Tensor, sharpness: Tensor) -> dict[str, Tensor]:
    """Return causal softmax weights of tokens with orthonormal embeddings, and the last votes.

    ``best`` is the number of the value that has most of them.
    """
    same = torch.tensor([[float(a == b) for b in TOKENS] for a in TOKENS], dtype=torch.float64)
    before = torch.nn.functional.pad(same[:, :-1], (1, 0))  # nothing stands before the first
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
    """Draw the attention among five pairs and a question, and what the question hears.

    Every token has an embedding of its own, orthogonal to all others, that serves as query and
    key. The key of a place is mixed from its own token and the one before.

    Args:
        share: Share of the token before in a key, from 0 to 1.
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
            "weights: a row for each query",
            x={**CELLS, **places, "ticktext": names},
            y=downwards(len(names), **places, ticktext=[*names[:-1], "C ?"]),
        ),
        Panel(
            shares,
            "shares of the values in the last row",
            x=axis("value", type="category"),
            y=axis(low=0, high=1.25, dtick=0.5),
        ),
        heights=(0.62, 0.25),
        down=0.13,
        height=560,
        showlegend=False,
        barmode="overlay",
        margin={"l": 40, "r": 14, "t": 34, "b": 44},
    )
    votes_told = ", ".join(f"{v:.2f} to {name}" for v, name in zip(votes, VALUES, strict=True))
    answers = [f"{v}, {'' if v == RIGHT else f'not {RIGHT}, '}the right one" for v in VALUES]
    return Drawn(
        fig,
        f"Attention among the tokens {' '.join(TOKENS)}, the last of which asks for the value of "
        f"C. Share of the earlier token in a key {share:g}, score of a match {sharpness:g}. The "
        f"question's weight on values has shares of {votes_told}: it answers "
        f"{pick(found['best'], *answers)}.",
    )
