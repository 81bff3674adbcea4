"""One causal sum as a row of a matrix, as a running state, and as chunks of both."""

from __future__ import annotations

import plotly.graph_objects as go
import torch
from torch import Tensor

from book.figures.marks import axis, bars, box, dots, downwards, heat, rounded
from lab.explore import PALETTE, Drawn, Panel, panels
from lab.explore.style import DIVERGING, SEQUENTIAL

__all__ = ["three_forms"]

TOKENS, FEATURES, CHANNELS = 8, 4, 3
STATE, OWN = PALETTE["orange"], PALETTE["teal"]


def _example() -> tuple[Tensor, Tensor, Tensor]:
    """Return features of queries and keys, and values with a column of ones."""
    draw = torch.Generator().manual_seed(4)
    phi_q, phi_k = 1.5 * torch.rand(2, TOKENS, FEATURES, generator=draw, dtype=torch.float64)
    v = 2 * torch.rand(TOKENS, CHANNELS, generator=draw, dtype=torch.float64) - 1
    return phi_q, phi_k, torch.cat([v, torch.ones(TOKENS, 1, dtype=torch.float64)], -1)


def _parts(token: int, chunk: int) -> dict[str, Tensor]:
    """Return the matrix, the two states and the two parts of the sums of a token."""
    phi_q, phi_k, u = _example()
    first, matrix = token - token % chunk, (phi_q @ phi_k.mT).tril()
    before = phi_k[:first].mT @ u[:first]
    own = matrix[token, first : token + 1] @ u[first : token + 1]
    now = phi_k[: token + 1].mT @ u[: token + 1]
    return {
        "matrix": matrix,
        "before": before,
        "now": now,
        "by state": phi_q[token] @ before,
        "own": own,
        "by row": matrix[token] @ u,
    }


def three_forms(token: int, chunk: int) -> Drawn:
    """Draw the sums of one token: from the state before its chunk and from its own chunk.

    Top left the matrix of comparisons, with the row of the token framed where it goes through the
    state and where it goes one by one. Top right the two parts of its sums, which add up to the
    row times the values. Below the state before the chunk and the state after the token.

    Args:
        token: The token t, from 0.
        chunk: Tokens of a chunk: 1 is the recurrence, all of them the matrix form.

    Returns:
        A figure with four panels.
    """
    token, chunk = int(token), int(chunk)
    parts, first = _parts(token, chunk), token - token % chunk
    comparisons = [
        [x if key <= query else None for key, x in enumerate(row)]
        for query, row in enumerate(parts["matrix"].tolist())
    ]
    names = [*(f"v{c}" for c in range(CHANNELS)), "1"]
    shown = list(range(TOKENS))
    matrix = heat(
        rounded(comparisons, 2),
        (SEQUENTIAL, 0, 6),
        "query %{y}, key %{x}: %{z:.2f}",
        x=shown,
        y=shown,
        xgap=1,
        ygap=1,
    )
    framed = [(-0.5, first - 0.5, STATE), (first - 0.5, token + 0.5, OWN)]
    frames = [
        box(left, right, token - 0.5, token + 0.5, width=3, color=colour)
        for left, right, colour in framed[first == 0 :]
    ]

    hover = "%{y:.2f}"

    def sums(part: str, colour: str, name: str) -> go.Bar:
        return bars(names, parts[part].tolist(), colour, name, hover=hover)

    whole = dots(
        names,
        parts["by row"].tolist(),
        PALETTE["grey"],
        "the whole row",
        size=22,
        symbol="line-ew",
        marker_line={"width": 3, "color": PALETTE["grey"]},
        hover=hover,
    )

    def state(sums: Tensor, head: str) -> Panel:
        cells = heat(
            sums.tolist(),
            (DIVERGING, -8, 8),
            x=names,
            y=[f"φ{a}" for a in range(FEATURES)],
            xgap=2,
            ygap=2,
            texttemplate="%{z:.1f}",
            textfont={"size": 11},
        )
        rows = downwards(FEATURES, type="category")
        return Panel([cells], head, x=axis(type="category", showgrid=False), y=rows)

    fig = panels(
        [
            Panel(
                [matrix],
                "query (row), key (column)",
                x={"dtick": 1, "showgrid": False},
                y=downwards(TOKENS, dtick=1),
                shapes=frames,
            ),
            Panel(
                [
                    sums("by state", STATE, "through the state"),
                    sums("own", OWN, "its own chunk"),
                    whole,
                ],
                f"sums of token {token}",
                x={"type": "category"},
                y=axis(low=-8, high=19),
            ),
        ],
        [
            state(parts["before"], f"state before token {first}"),
            state(parts["now"], f"state after token {token}"),
        ],
        heights=(0.45, 0.37),
        down=0.18,
        height=560,
        barmode="relative",
        margin={"l": 34, "r": 12, "t": 34, "b": 96},
    )
    by_state, own, row = (parts[name][-1].item() for name in ("by state", "own", "by row"))
    route = (
        f"Its row of the matrix is split: keys 0 to {first - 1} come through the state, keys "
        f"{first} to {token} one by one."
        if first
        else f"No chunk is complete, so keys 0 to {token} come one by one."
    )
    return Drawn(
        fig,
        f"Token {token} in chunks of {chunk}. {route} In the column of ones the state gives "
        f"{by_state:.2f} and the chunk {own:.2f}, together {row:.2f}, which is the whole row. "
        f"Below, the state before token {first} and the state after token {token}, four features "
        "by three value channels and a column of ones.",
    )
