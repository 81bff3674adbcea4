"""What each way of encoding queries and keys costs, beside the attention that it serves."""

from __future__ import annotations

import math

import plotly.graph_objects as go

from stringlib.explore.style import COLOURS, layout

__all__ = ["encoding_cost", "encoding_cost_text", "operations"]

HEADS = 6
NAMES = {
    "matrix_exp": "exp of a matrix",
    "fft": "FFT, inverse FFT",
    "rfft": "real FFT, inverse",
    "half": "half spectrum",
    "basis": "product with P",
    "folded": "<b>folded</b>",
    "rope": "RoPE",
    "projections": "W<sub>q</sub>, W<sub>k</sub>",
    "attention": "attention itself",
}
RUNGS = ("matrix_exp", "fft", "rfft", "half", "basis", "folded", "rope")


def operations(dim: int, tokens: int, batch: int) -> dict[str, float]:
    r"""Return additions and multiplications for each channel of q and k, :eq:`eq-inference-cost`.

    A complex FFT counts as :math:`5d\log_2 d`, a real one as half of that. The matrix exponential
    counts as five products of matrices, fewer than it takes; q, k and the whole batch share it.
    The two projections and the attention (scores and weighted values) are what a layer of six
    heads pays without any position.

    Args:
        dim: Channels :math:`d` of a head, a power of 2.
        tokens: Length of a sequence.
        batch: Number of sequences with the same positions.

    Returns:
        Name of a rung, or of the context → operations.
    """
    transform, turn = 5 * math.log2(dim), 3.0
    return {
        "matrix_exp": 5 * dim**2 / batch + 2 * dim,
        "fft": 2 * transform + 2 * turn,
        "rfft": transform + turn,
        "half": transform / 2 + turn,
        "basis": 2 * dim + turn,
        "folded": turn,
        "rope": turn,
        "projections": 2 * HEADS * dim,
        "attention": 2 * tokens,
    }


def encoding_cost(dim: int, tokens: int, batch: int) -> go.Figure:
    """Draw the operations that each rung spends on one channel of a query or a key.

    Args:
        dim: Channels of a head, a power of 2.
        tokens: Length of a sequence.
        batch: Number of sequences with the same positions.

    Returns:
        A bar chart with a logarithmic axis.
    """
    counts = operations(dim, tokens, batch)
    colour = {"matrix_exp": "dense", "rope": "rope", "projections": "none", "attention": "none"}
    shown = list(reversed(counts))
    bars = go.Bar(
        x=[counts[name] for name in shown],
        y=[NAMES[name] for name in shown],
        orientation="h",
        marker={"color": [COLOURS[colour.get(name, "circulant")] for name in shown]},
        text=[_short(counts[name]) for name in shown],
        textposition="outside",
        cliponaxis=False,
        hovertemplate="%{y}: %{x:,.0f}<extra></extra>",
        showlegend=False,
    )
    return go.Figure(bars).update_layout(
        layout(
            height=400,
            margin={"l": 118, "r": 40, "t": 20, "b": 48},
            bargap=0.35,
            xaxis={
                "type": "log",
                "range": [0, 7.3],
                "dtick": 1,
                "title": {"text": "operations for one channel of q or k"},
            },
        )
    )


def _short(count: float) -> str:
    return f"{count:,.0f}" if count < 1e6 else f"{count / 1e6:.1f}M"


def encoding_cost_text(dim: int, tokens: int, batch: int) -> str:
    """Say what :func:`encoding_cost` shows in a state."""
    counts = operations(dim, tokens, batch)
    rungs = ", ".join(f"{NAMES[n]} {counts[n]:,.0f}" for n in RUNGS if n not in ("folded", "rope"))
    return (
        f"Bars of the operations for one channel of a query or a key, at {dim} channels, {tokens} "
        f"tokens and {batch} sequences. {rungs}. Folded and RoPE take {counts['folded']:.0f} each. "
        f"The projections take {counts['projections']:,.0f}, "
        f"the attention itself {counts['attention']:,.0f}."
    )
