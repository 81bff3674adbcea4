"""A question, the places that its key finds with and without a shift, and the vote they give."""

from __future__ import annotations

import plotly.graph_objects as go
import torch
from torch import Tensor

from stringlib.explore.style import PALETTE, SEQUENTIAL, heading, layout

__all__ = ["recalled_value", "recalled_value_text"]

TOKENS = "A3B1C4D1E5C"
VALUES = "1345"
RIGHT = "4"


def _weights(share: float, sharpness: float) -> Tensor:
    """Return causal softmax weights, ``(seq, seq)``, of tokens with orthonormal embeddings."""
    same = torch.tensor([[float(a == b) for b in TOKENS] for a in TOKENS], dtype=torch.float64)
    before = torch.nn.functional.pad(same[:, :-1], (1, 0))  # nothing stands before the first
    scores = sharpness * ((1 - share) * same + share * before)
    return (scores + torch.ones_like(scores).tril().log()).softmax(-1)


def _votes(share: float, sharpness: float) -> list[float]:
    """Return the share of each of ``VALUES`` in the weight that the question gives to values."""
    last = _weights(share, sharpness)[-1].tolist()
    heard = [
        sum(w for w, token in zip(last, TOKENS, strict=True) if token == value) for value in VALUES
    ]
    return [w / sum(heard) for w in heard]


def recalled_value(share: float, sharpness: float) -> go.Figure:
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
    weights, votes = _weights(share, sharpness), _votes(share, sharpness)
    winner = max(votes)
    blue, grey = PALETTE["blue"], PALETTE["grey"]
    names = list(TOKENS)
    places = list(range(len(names)))
    fig = go.Figure(
        [
            go.Heatmap(
                z=weights.round(decimals=3).tolist(),
                colorscale=SEQUENTIAL,
                zmin=0,
                zmax=1,
                showscale=False,
                hovertemplate="weight %{z:.2f}<extra></extra>",
            ),
            go.Bar(
                x=list(VALUES),
                y=[round(v, 3) for v in votes],
                marker={"color": [blue if v == winner else grey for v in votes]},
                text=[f"{v:.2f}" for v in votes],
                textposition="outside",
                cliponaxis=False,
                hovertemplate="value %{x}: %{y:.2f}<extra></extra>",
                xaxis="x2",
                yaxis="y2",
            ),
        ]
    )
    plain = {"showgrid": False, "zeroline": False, "ticks": "", "tickvals": places}
    heads = [("weights: a row for each query", 1.0), ("shares of the values in the last row", 0.25)]
    return fig.update_layout(
        layout(
            height=560,
            showlegend=False,
            margin={"l": 40, "r": 14, "t": 34, "b": 44},
            xaxis={**plain, "ticktext": names, "anchor": "y"},
            yaxis={
                **plain,
                "ticktext": [*names[:-1], "C ?"],
                "domain": [0.38, 1],
                "range": [len(names) - 0.5, -0.5],
            },
            xaxis2={"anchor": "y2", "type": "category", "title": {"text": "value"}},
            yaxis2={"domain": [0, 0.25], "range": [0, 1.25], "dtick": 0.5},
            annotations=[heading(text, y=y) for text, y in heads],
        )
    )


def recalled_value_text(share: float, sharpness: float) -> str:
    """Say what :func:`recalled_value` shows in a state."""
    votes = _votes(share, sharpness)
    heard = ", ".join(f"{v:.2f} to {name}" for v, name in zip(votes, VALUES, strict=True))
    best = VALUES[votes.index(max(votes))]
    verdict = "the right one" if best == RIGHT else f"not {RIGHT}, the right one"
    return (
        f"Attention among the tokens {' '.join(TOKENS)}, the last of which asks for the value of "
        f"C. Share of the earlier token in a key {share:g}, score of a match {sharpness:g}. The "
        f"question's weight on values has shares of {heard}: it answers {best}, {verdict}."
    )
