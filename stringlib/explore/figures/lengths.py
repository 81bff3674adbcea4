"""A preference learned at 64 tokens, read far beyond them with scaled frequencies."""

from __future__ import annotations

import plotly.graph_objects as go
import torch
from torch import Tensor

from stringlib import RoPE
from stringlib.encoders.scaling import ntk_aware, position_interpolation, yarn
from stringlib.explore.style import COLOURS, layout
from stringlib.theory.extrapolation import seen_turns, unseen_share

__all__ = ["LENGTH_METHODS", "beyond_training", "beyond_training_text"]

TRAINED, LONGEST, DIM, FAST = 64, 1024, 16, 4
WIDTH, RIDGE = 4, 1e-3  # of the preference −log(1 + Δ/4), and of the fit
LENGTH_METHODS = {"rope": "unscaled", "pi": "interpolation", "ntk": "NTK-aware", "yarn": "YaRN"}
"""Name of a method → its name in the figure."""


def _frequencies(method: str, scale: float) -> Tensor:
    """Return the frequencies at test, ``(pairs,)``."""
    theta = RoPE(DIM).frequencies()
    ways = {
        "rope": lambda: theta,
        "pi": lambda: position_interpolation(theta, scale),
        "ntk": lambda: ntk_aware(theta, scale),
        "yarn": lambda: yarn(theta, scale, TRAINED, fast=FAST),
    }
    return ways[method]()[0, :, 0]


def _waves(distances: Tensor, frequencies: Tensor) -> Tensor:
    angles = distances[:, None].double() * frequencies
    return torch.cat([angles.cos(), angles.sin()], -1)


def _scores(method: str, scale: float, distances: Tensor) -> Tensor:
    """Return the score at distances, of waves fitted to the preference in training."""
    near = torch.arange(TRAINED)
    A, wish = _waves(near, _frequencies("rope", 1)), -torch.log1p(near / WIDTH).double()
    damped = A.mT @ A + RIDGE * TRAINED * torch.eye(DIM, dtype=A.dtype)
    return _waves(distances, _frequencies(method, scale)) @ torch.linalg.solve(damped, A.mT @ wish)


def _unseen(method: str, scale: float) -> Tensor:
    theta = _frequencies("rope", 1)
    return unseen_share(theta, _frequencies(method, scale), TRAINED, scale * TRAINED)


def beyond_training(method: str, scale: int) -> go.Figure:
    """Draw a score against distance far beyond training, and the angles that are new.

    Eight pairs of RoPE are fitted, by least squares, to a preference for near keys at the 64
    distances of training.  Above, the score of that head at up to ``64 * scale`` tokens; below,
    for each pair the share of the circle that it met in training and the share that is new.

    Args:
        method: One of ``LENGTH_METHODS``.
        scale: How many times as long the text is, from 1 to 16.

    Returns:
        A figure with two panels.
    """
    method, scale = str(method), int(scale)
    shown = torch.unique(torch.logspace(0, 10, 161, base=2).round()).long()
    far = shown[shown <= scale * TRAINED]
    theta = _frequencies("rope", 1)
    seen = seen_turns(theta, TRAINED).clamp(max=1)
    fig = go.Figure(
        [
            go.Scatter(
                x=shown.tolist(),
                y=(-torch.log1p(shown / WIDTH)).round(decimals=3).tolist(),
                name="preference",
                line={"color": COLOURS["none"], "dash": "dot", "width": 2},
                hoverinfo="skip",
            ),
            go.Scatter(
                x=far.tolist(),
                y=_scores(method, scale, far).round(decimals=3).tolist(),
                name="score",
                line={"color": COLOURS[method], "width": 2.5},
                hovertemplate="%{x} tokens: %{y:.2f}<extra></extra>",
            ),
            go.Bar(
                y=seen.round(decimals=4).tolist(),
                name="seen in training",
                marker={"color": COLOURS["none"], "opacity": 0.45},
                xaxis="x2",
                yaxis="y2",
                hovertemplate="pair %{x}: %{y:.0%}<extra></extra>",
            ),
            go.Bar(
                y=_unseen(method, scale).round(decimals=4).tolist(),
                name="new",
                marker={"color": COLOURS[method]},
                xaxis="x2",
                yaxis="y2",
                hovertemplate="pair %{x}: %{y:.0%}<extra></extra>",
            ),
        ]
    )
    ticks = [1, 4, 16, 64, 256, 1024]
    return fig.update_layout(
        layout(
            height=520,
            barmode="stack",
            margin={"l": 48, "r": 12, "t": 34, "b": 92},
            title_text=f"{LENGTH_METHODS[method]}, {scale} times as long",
            xaxis={
                "type": "log",
                "range": [0, 3.02],
                "tickvals": ticks,
                "title": {"text": "distance of the key (tokens)", "standoff": 2},
            },
            yaxis={"domain": [0.46, 1], "range": [-6.2, 2.4], "title": "score"},
            xaxis2={
                "anchor": "y2",
                "dtick": 1,
                "showgrid": False,
                "title": {"text": "pair, fast to slow", "standoff": 2},
            },
            yaxis2={
                "domain": [0, 0.26],
                "range": [0, 1.05],
                "tickformat": ".0%",
                "title": "of the circle",
            },
            shapes=[
                {
                    "type": "rect",
                    "x0": 1,
                    "x1": TRAINED - 1,
                    "y0": 0,
                    "y1": 1,
                    "yref": "y domain",
                    "fillcolor": COLOURS["none"],
                    "opacity": 0.15,
                    "line": {"width": 0},
                    "layer": "below",
                }
            ],
        )
    )


def beyond_training_text(method: str, scale: int) -> str:
    """Say what :func:`beyond_training` shows in a state."""
    method, scale = str(method), int(scale)
    near, last = _scores(method, scale, torch.tensor([4, TRAINED - 1])).tolist()
    far = _scores(method, scale, torch.arange(TRAINED, scale * TRAINED))
    new = int((_unseen(method, scale) > 0.005).sum())
    top = f"Farther away it lies between {far.min():.1f} and {far.max():.1f}. " if len(far) else ""
    return (
        f"Score against distance on a logarithmic axis, trained distances to {TRAINED - 1} shaded. "
        f"{LENGTH_METHODS[method]}, {scale} times as long: {near:.1f} at distance 4, {last:.1f} at "
        f"{TRAINED - 1}. {top}The preference that was fitted falls from -0.7 to {_wish():.1f} "
        f"there and goes on falling. Below, the angles: {new} of 8 pairs meet new ones."
    )


def _wish() -> float:
    return -torch.log1p(torch.tensor((TRAINED - 1) / WIDTH)).item()
