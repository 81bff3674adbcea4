"""A preference learned at 64 tokens, read far beyond them with scaled frequencies."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go
import torch
from torch import Tensor

from book.figures.marks import axis, bars, box, line, rounded
from lab.explore import COLOURS, Drawn, Panel, panels
from lab.theory.extrapolation import seen_turns, unseen_share
from stringlib import RoPE
from stringlib.encoders.scaling import ntk_aware, position_interpolation, yarn

__all__ = ["LENGTH_METHODS", "beyond_training"]

TRAINED, DIM, FAST = 64, 16, 4
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


def _preference(distances: Tensor) -> Tensor:
    return -torch.log1p(distances / WIDTH)


def _scores(method: str, scale: float, distances: Tensor) -> Tensor:
    """Return the score at distances, of waves fitted to the preference in training."""
    near = torch.arange(TRAINED)
    A, wish = _waves(near, _frequencies("rope", 1)), _preference(near).double()
    damped = A.mT @ A + RIDGE * TRAINED * torch.eye(DIM, dtype=A.dtype)
    return _waves(distances, _frequencies(method, scale)) @ torch.linalg.solve(damped, A.mT @ wish)


def beyond_training(method: str, scale: int) -> Drawn:
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
    name = f"{LENGTH_METHODS[method]}, {scale} times as long"
    shown = torch.unique(torch.logspace(0, 10, 161, base=2).round()).long()
    drawn = shown[shown <= scale * TRAINED]
    every = torch.arange(scale * TRAINED + 1)
    scores = _scores(method, scale, every)
    theta, scaled = _frequencies("rope", 1), _frequencies(method, scale)
    seen = seen_turns(theta, TRAINED).clamp(max=1)
    unseen = unseen_share(theta, scaled, TRAINED, scale * TRAINED)
    grey, colour = COLOURS["none"], COLOURS[method]

    def share(of: Tensor, name: str, colour: str, **look: Any) -> go.Bar:
        return bars(None, rounded(of, 4), colour, name, hover="pair %{x}: %{y:.0%}", **look)

    preference = rounded(_preference(shown))
    trained = box(1, TRAINED - 1, 0, 1, width=0)
    shade = {"yref": "domain", "fillcolor": grey, "opacity": 0.15, "layer": "below"}
    ticks = [1, 4, 16, 64, 256, 1024]
    fig = panels(
        Panel(
            [
                line(shown.tolist(), preference, grey, "preference", width=2, dash="dot"),
                line(
                    drawn.tolist(),
                    rounded(scores[drawn]),
                    colour,
                    "score",
                    hover="%{x} tokens: %{y:.2f}",
                ),
            ],
            x=axis("distance of the key (tokens)", 0, 3.02, type="log", tickvals=ticks),
            y=axis("score", -6.2, 2.4),
            shapes=[{**trained, **shade}],
        ),
        Panel(
            [
                share(seen, "seen in training", grey, opacity=0.45),
                share(unseen, "new", colour),
            ],
            x=axis("pair, fast to slow", dtick=1, showgrid=False),
            y=axis("of the circle", 0, 1.05, tickformat=".0%"),
        ),
        heights=(0.54, 0.26),
        down=0.2,
        height=520,
        barmode="stack",
        margin={"l": 48, "r": 12, "t": 34, "b": 92},
        title_text=name,
    )
    near, last = scores[4].item(), scores[TRAINED - 1].item()
    far = scores[TRAINED:-1]
    top = f"Farther away it lies between {far.min():.1f} and {far.max():.1f}. " if len(far) else ""
    wish = _preference(torch.tensor(TRAINED - 1)).item()
    return Drawn(
        fig,
        f"Score against distance on a logarithmic axis, trained distances to {TRAINED - 1} shaded. "
        f"{name}: {near:.1f} at distance 4, {last:.1f} at "
        f"{TRAINED - 1}. {top}The preference that was fitted falls from -0.7 to {wish:.1f} "
        f"there and goes on falling. Below, the angles: {int((unseen > 0.005).sum())} of 8 pairs "
        "meet new ones.",
    )
