"""What each way of encoding queries and keys costs, beside the attention that it serves."""

from __future__ import annotations

import math

import plotly.graph_objects as go

from book.figures.marks import axis, bars
from lab.explore import COLOURS, Drawn, layout

__all__ = ["encoding_cost", "operations"]

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
TOLD = ("matrix_exp", "fft", "rfft", "half", "basis")  # one by one, in words


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


def encoding_cost(dim: int, tokens: int, batch: int) -> Drawn:
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
    rungs = bars(
        [counts[name] for name in shown],
        [NAMES[name] for name in shown],
        [COLOURS[colour.get(name, "circulant")] for name in shown],
        orientation="h",
        text=[_short(counts[name]) for name in shown],
        textposition="outside",
        cliponaxis=False,
        hover="%{y}: %{x:,.0f}",
    )
    axes = layout(
        height=400,
        margin={"l": 118, "r": 40, "t": 20, "b": 48},
        bargap=0.35,
        xaxis=axis("operations for one channel of q or k", 0, 7.3, type="log", dtick=2),
    )
    told = ", ".join(f"{NAMES[name]} {counts[name]:,.0f}" for name in TOLD)
    return Drawn(
        go.Figure([rungs], axes),
        f"Bars of the operations for one channel of a query or a key, at {dim} channels, {tokens} "
        f"tokens and {batch} sequences. {told}. Folded and RoPE take {counts['folded']:.0f} each. "
        f"The projections take {counts['projections']:,.0f}, "
        f"the attention itself {counts['attention']:,.0f}.",
    )


def _short(count: float) -> str:
    return f"{count:,.0f}" if count < 1e6 else f"{count / 1e6:.1f}M"
