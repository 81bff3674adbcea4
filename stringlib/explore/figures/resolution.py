"""What stays the same when a model meets more patches than in training."""

from __future__ import annotations

import plotly.graph_objects as go
import torch
from torch import Tensor

from stringlib import AxialRoPE
from stringlib.explore.style import COLOURS, heading, layout
from stringlib.theory.offsets import offset_scores

__all__ = ["RESOLUTION_CONVENTIONS", "resolution_scores", "resolution_scores_text"]

TRAINED, DIM = 14, 64
RESOLUTION_CONVENTIONS = {
    "count patches": lambda side: 1.0,
    "scale": lambda side: TRAINED / side,
    "pin the corners": lambda side: (TRAINED - 1) / (side - 1),
}
"""Name of a convention → the coordinate of one patch, when a row has ``side`` of them."""


def _scores(patches: Tensor, step: float) -> Tensor:
    """Return the score of equal vectors so many patches apart in a row."""
    ones = torch.full((1, DIM), DIM**-0.5, dtype=torch.float64)
    offsets = torch.outer(patches, torch.tensor([0.0, step], dtype=torch.float64))
    return offset_scores(AxialRoPE(DIM, 2), ones, ones, offsets)[0]


def _changes(convention: str, side: int) -> tuple[float, float]:
    """Return how much the scores change since training, by patches and by widths of the picture."""
    step = RESOLUTION_CONVENTIONS[convention](side)
    patches = torch.arange(min(side, TRAINED), dtype=torch.float64)
    widths = torch.linspace(0, 1 - 1 / TRAINED, 53, dtype=torch.float64)
    by_patch = _scores(patches, step) - _scores(patches, 1.0)
    by_width = _scores(side * widths, step) - _scores(TRAINED * widths, 1.0)
    return by_patch.abs().max().item(), by_width.abs().max().item()


def resolution_scores(convention: str, side: int) -> go.Figure:
    """Draw the score along a row, in training and with another number of patches.

    Query and key are equal and constant, the encoder is axial RoPE with its usual
    base.  Left the offset is counted in patches, right in widths of the picture.

    Args:
        convention: One of ``RESOLUTION_CONVENTIONS``.
        side: Number of patches in a row at the test; 14 in training.

    Returns:
        A figure with two panels; their heads say how much the scores change.
    """
    fig = go.Figure()
    rows = (
        (f"{TRAINED} patches, trained", TRAINED, 1.0, COLOURS["none"], 6.0),
        (f"{side} patches", side, RESOLUTION_CONVENTIONS[convention](side), COLOURS["axial"], 2.5),
    )
    for name, patches, step, colour, width in rows:
        places = torch.arange(patches, dtype=torch.float64)
        scores = _scores(places, step).tolist()
        for axis, unit in (("", 1), ("2", patches)):
            fig.add_scatter(
                x=(places / unit).tolist(),
                y=scores,
                name=name,
                mode="lines",
                line={"color": colour, "width": width},
                showlegend=axis == "",
                hovertemplate="%{x:.3g}: %{y:.3f}<extra></extra>",
                xaxis=f"x{axis}",
                yaxis=f"y{axis}",
            )
    patch, width = _changes(convention, side)
    heads = (("x", "by patches", patch), ("x2", "by widths", width))
    upright = {"range": [0.4, 1.02], "dtick": 0.1}
    return fig.update_layout(
        layout(
            height=370,
            margin={"l": 40, "r": 12, "t": 44, "b": 88},
            xaxis={
                "domain": [0, 0.46],
                "range": [0, TRAINED],
                "title": {"text": "patches", "standoff": 4},
            },
            xaxis2={
                "domain": [0.56, 1],
                "range": [0, 1],
                "anchor": "y2",
                "title": {"text": "widths of the picture", "standoff": 4},
            },
            yaxis=upright,
            yaxis2={**upright, "anchor": "x2"},
            annotations=[
                heading(f"{text}:<br>changes by {change:.3f}", xref=f"{x} domain")
                for x, text, change in heads
            ],
        )
    )


def resolution_scores_text(convention: str, side: int) -> str:
    """Say what :func:`resolution_scores` shows in a state."""
    patch, width = _changes(convention, side)
    return (
        f"Two panels with the score along a row of {TRAINED} patches, as trained, and of {side}; "
        f"convention: {convention}. Against the offset in patches the two curves differ by up to "
        f"{patch:.3f}, against the offset in widths of the picture by up to {width:.3f}."
    )
