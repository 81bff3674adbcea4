"""What each way of encoding queries and keys costs, beside the attention that it serves."""

from __future__ import annotations

import plotly.graph_objects as go
import torch
from torch import Tensor

from book.figures.marks import axis, bars
from lab.explore import COLOURS, Drawn, computed, layout

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
    return dict(zip(NAMES, _counted(dim, tokens, batch)["counts"], strict=True))


@computed
def _counted(dim: Tensor, tokens: Tensor, batch: Tensor) -> dict[str, Tensor]:
    """Return the operations in the order of ``NAMES``."""
    transform, turn = 5 * dim.log2(), 3 + 0 * dim
    return {
        "counts": torch.stack(
            [
                5 * dim**2 / batch + 2 * dim,
                2 * transform + 2 * turn,
                transform + turn,
                transform / 2 + turn,
                2 * dim + turn,
                turn,
                turn,
                2 * HEADS * dim,
                2 * tokens,
            ]
        )
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
        text=[f"{counts[name]:,.0f}" for name in shown],
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
        f"Bars of the operations for one channel of a query or a key, at {dim:g} channels, "
        f"{tokens:g} tokens and {batch:g} sequences. {told}. Folded and RoPE take "
        f"{counts['folded']:.0f} each. The projections take {counts['projections']:,.0f}, "
        f"the attention itself {counts['attention']:,.0f}.",
    )
