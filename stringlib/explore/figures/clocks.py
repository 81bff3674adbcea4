"""Phase clocks: every pair of channels is a clock, and the score reads them all."""

from __future__ import annotations

import math

import plotly.graph_objects as go
import torch
from torch import Tensor

from stringlib import RoPE
from stringlib.explore.explorer import Explorer
from stringlib.explore.style import PALETTE, heading, layout

__all__ = ["intro_figure", "phase_clocks", "phase_clocks_text"]

FARTHEST = 256
COLUMNS = 8  # at most; a phone is narrow
CELL = 2.7  # a dial's radius is 1


def _scores(encoder: RoPE, distances: Tensor) -> Tensor:
    """Return (R(Δ)q)·k at each distance Δ for q = k = (1, …, 1)/√d, shape ``(distances,)``."""
    ones = torch.full((encoder.head_dim,), encoder.head_dim**-0.5, dtype=torch.float64)
    return (encoder.rotate(ones.expand(1, len(distances), -1), distances[:, None]) @ ones)[0]


def _turns_text(turns: float) -> str:
    return f"{turns:.0f}" if turns >= 10 else f"{turns:.1f}" if turns >= 1 else f"{turns:.2f}"


def _hands(
    centres: list[tuple[float, float]], angles: list[float], name: str, colour: str
) -> go.Scatter:
    """Return one trace of lines from each centre to the rim."""
    x: list[float | None] = []
    y: list[float | None] = []
    for (cx, cy), angle in zip(centres, angles, strict=True):
        x += [cx, cx + math.cos(angle), None]
        y += [cy, cy + math.sin(angle), None]
    return go.Scatter(
        x=x, y=y, mode="lines", name=name, line={"color": colour, "width": 3.5}, hoverinfo="skip"
    )


def phase_clocks(
    distance: float, base: float = 10_000.0, dim: int = 16, position: float = 0.0
) -> go.Figure:
    r"""Draw one dial for each pair of channels above the score against distance.

    Pair i turns by :math:`\theta_i = b^{-2i/d}` a token.
    On its dial stand the query, turned by ``position``, and the key, turned by
    ``position - distance``; both start to the right.  Query and key are equal
    before they are turned, so the score is the mean over all dials of the
    cosine between the two hands.

    Args:
        distance: How many tokens the key is behind the query.
        base: The base b of the frequencies.
        dim: Channels d of a head: d/2 dials.
        position: The query's own position, which the score does not see.

    Returns:
        A figure; dials from fastest to slowest, each with the turns between its hands.
    """
    encoder = RoPE(dim, base=base)
    theta = encoder.frequencies()[0, :, 0].tolist()
    columns = COLUMNS if len(theta) > COLUMNS else max(1, len(theta) // 2)
    rows = -(-len(theta) // columns)
    centres = [(CELL * (i % columns), -(CELL + 0.5) * (i // columns)) for i in range(len(theta))]
    curve = _scores(encoder, torch.arange(FARTHEST + 1, dtype=torch.float64))
    score = _scores(encoder, torch.tensor([distance], dtype=torch.float64)).item()

    fig = go.Figure(
        [
            _hands(centres, [t * position for t in theta], "query", PALETTE["orange"]),
            _hands(centres, [t * (position - distance) for t in theta], "key", PALETTE["blue"]),
            go.Scatter(
                x=[x for x, _ in centres],
                y=[y - 1.35 for _, y in centres],
                text=[_turns_text(t * distance / (2 * math.pi)) for t in theta],
                mode="text",
                showlegend=False,
                hoverinfo="skip",
            ),
            go.Scatter(
                x=list(range(FARTHEST + 1)),
                y=curve.tolist(),
                mode="lines",
                line={"color": PALETTE["grey"], "width": 2},
                showlegend=False,
                hovertemplate="distance %{x}: score %{y:.3f}<extra></extra>",
                xaxis="x2",
                yaxis="y2",
            ),
            go.Scatter(
                x=[distance, distance],
                y=[0, score],
                mode="lines+markers",
                line={"color": PALETTE["blue"], "width": 2},
                marker={"size": [0, 12], "opacity": 1, "line": {"width": 0}},
                showlegend=False,
                hoverinfo="skip",
                xaxis="x2",
                yaxis="y2",
            ),
        ]
    )
    half = CELL / 2
    dials = "one dial for each pair of channels, fastest first,<br>and the turns between its hands"
    heads = [(dials, 1), (f"score at distance {distance:g}: {score:.2f}", 0.42)]
    return fig.update_layout(
        layout(
            height=500,
            margin={"l": 44, "r": 14, "t": 46, "b": 76},
            xaxis={
                "range": [-half, CELL * (columns - 1) + half],
                "visible": False,
                "constrain": "domain",
            },
            yaxis={
                "range": [-(CELL + 0.5) * (rows - 1) - 1.9, 1.15],
                "domain": [0.52, 1],
                "visible": False,
                "scaleanchor": "x",
                "constrain": "domain",
            },
            xaxis2={
                "range": [0, FARTHEST],
                "anchor": "y2",
                "title": {"text": "distance (tokens)", "standoff": 6},
            },
            yaxis2={"range": [-1.05, 1.1], "domain": [0, 0.42], "anchor": "x2", "dtick": 0.5},
            shapes=[
                {
                    "type": "circle",
                    "x0": x - 1,
                    "x1": x + 1,
                    "y0": y - 1,
                    "y1": y + 1,
                    "line": {"width": 1},
                }
                for x, y in centres
            ],
            annotations=[heading(text, y=y) for text, y in heads],
        )
    )


def phase_clocks_text(
    distance: float, base: float = 10_000.0, dim: int = 16, position: float = 0.0
) -> str:
    """Say what :func:`phase_clocks` shows in a state."""
    encoder = RoPE(dim, base=base)
    theta = encoder.frequencies()[0, :, 0].tolist()
    turns = [_turns_text(t * distance / (2 * math.pi)) for t in (theta[0], theta[-1])]
    score = _scores(encoder, torch.tensor([distance], dtype=torch.float64)).item()
    return (
        f"{len(theta)} dials, one for each pair of channels, from the fastest to the slowest. "
        f"Each has a hand for the query at position {position:g} and one for the key "
        f"{distance:g} tokens behind. Between the hands lie {turns[0]} turns on the first dial and "
        f"{turns[1]} on the last. Below, the score against distance from 0 to {FARTHEST}: "
        f"at {distance:g} it is {score:.2f}."
    )


def intro_figure() -> Explorer:
    """Return the front page's figure: both tokens move on, and the score stays."""
    return Explorer(
        phase_clocks,
        alt=phase_clocks_text,
        name="rotary-clocks",
        client="clocks",
        play="position",
        initial={"position": 10, "distance": 8},
        labels={"position": "position of the query", "distance": "distance to the key"},
        position=range(129),
        distance=range(65),
        base=[100],
    )
