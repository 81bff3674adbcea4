"""One causal sum as a row of a matrix, as a running state, and as chunks of both."""

from __future__ import annotations

import plotly.graph_objects as go
import torch
from torch import Tensor

from stringlib.explore.style import DIVERGING, PALETTE, SEQUENTIAL, layout

__all__ = ["three_forms", "three_forms_text"]

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


def three_forms(token: int, chunk: int) -> go.Figure:
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
    seen = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril().tolist()
    rows = [
        [round(x, 2) if s else None for x, s in zip(row, mask, strict=True)]
        for row, mask in zip(parts["matrix"].tolist(), seen, strict=True)
    ]
    names = [*(f"v{c}" for c in range(CHANNELS)), "1"]
    shown = list(range(TOKENS))
    cells = {"texttemplate": "%{z:.1f}", "textfont": {"size": 11}, "showscale": False}
    state = {"x": names, "y": [f"φ{a}" for a in range(FEATURES)], "xgap": 2, "ygap": 2}
    state |= {"colorscale": DIVERGING, "zmin": -8, "zmax": 8, "hoverinfo": "skip"}
    bar = {"x": names, "xaxis": "x2", "yaxis": "y2", "hovertemplate": "%{y:.2f}<extra></extra>"}
    fig = go.Figure(
        [
            go.Heatmap(
                x=shown,
                y=shown,
                z=rows,
                colorscale=SEQUENTIAL,
                zmin=0,
                zmax=6,
                xgap=1,
                ygap=1,
                showscale=False,
                hovertemplate="query %{y}, key %{x}: %{z:.2f}<extra></extra>",
            ),
            go.Bar(
                y=parts["by state"].tolist(),
                marker={"color": STATE},
                name="through the state",
                **bar,
            ),
            go.Bar(y=parts["own"].tolist(), marker={"color": OWN}, name="its own chunk", **bar),
            go.Scatter(
                y=parts["by row"].tolist(),
                mode="markers",
                marker={"symbol": "line-ew", "size": 22, "line": {"width": 3, "color": "#7f8a94"}},
                name="the whole row",
                **bar,
            ),
            go.Heatmap(z=parts["before"].tolist(), xaxis="x3", yaxis="y3", **state, **cells),
            go.Heatmap(z=parts["now"].tolist(), xaxis="x4", yaxis="y4", **state, **cells),
        ]
    )
    left, right, low, high = [0, 0.45], [0.58, 1], [0, 0.37], [0.55, 1]
    bare = {"showgrid": False, "zeroline": False}
    table = {"range": [TOKENS - 0.5, -0.5], **bare}  # the first row on top
    down = {"range": [FEATURES - 0.5, -0.5], **bare}
    frame = {"type": "rect", "y0": token - 0.5, "y1": token + 0.5, "line": {"width": 3}}
    boxes = [
        frame | {"x0": -0.5, "x1": first - 0.5, "line": {"width": 3, "color": STATE}},
        frame | {"x0": first - 0.5, "x1": token + 0.5, "line": {"width": 3, "color": OWN}},
    ]
    heads = [
        ("query (row), key (column)", "x", "y"),
        (f"sums of token {token}", "x2", "y2"),
        (f"state before token {first}", "x3", "y3"),
        (f"state after token {token}", "x4", "y4"),
    ]
    return fig.update_layout(
        layout(
            height=560,
            barmode="relative",
            margin={"l": 34, "r": 12, "t": 34, "b": 96},
            xaxis={"domain": left, "anchor": "y", "dtick": 1, "showgrid": False},
            yaxis={"domain": high, "anchor": "x", "dtick": 1, **table},
            xaxis2={"domain": right, "anchor": "y2", "type": "category"},
            yaxis2={"domain": high, "anchor": "x2", "range": [-8, 19]},
            xaxis3={"domain": left, "anchor": "y3", "type": "category", "showgrid": False},
            yaxis3={"domain": low, "anchor": "x3", "type": "category", **down},
            xaxis4={"domain": right, "anchor": "y4", "type": "category", "showgrid": False},
            yaxis4={"domain": low, "anchor": "x4", "type": "category", **down},
            shapes=boxes[first == 0 :],
            annotations=[
                {
                    "text": text,
                    "x": 0.5,
                    "y": 1,
                    "xref": f"{x} domain",
                    "yref": f"{y} domain",
                    "yanchor": "bottom",
                    "yshift": 6,
                    "showarrow": False,
                }
                for text, x, y in heads
            ],
        )
    )


def three_forms_text(token: int, chunk: int) -> str:
    """Describe what ``three_forms`` shows."""
    token, chunk = int(token), int(chunk)
    parts, first = _parts(token, chunk), token - token % chunk
    by_state, own, row = (parts[name][-1].item() for name in ("by state", "own", "by row"))
    route = (
        f"Its row of the matrix is split: keys 0 to {first - 1} come through the state, keys "
        f"{first} to {token} one by one."
        if first
        else f"No chunk is complete, so keys 0 to {token} come one by one."
    )
    return (
        f"Token {token} in chunks of {chunk}. {route} In the column of ones the state gives "
        f"{by_state:.2f} and the chunk {own:.2f}, together {row:.2f}, which is the whole row. "
        f"Below, the state before token {first} and the state after token {token}, four features "
        "by three value channels and a column of ones."
    )
