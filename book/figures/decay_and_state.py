"""What is left of every past token, under a constant decay and under one that the tokens choose."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go
import torch
from torch import Tensor

from book.figures.marks import axis, dots, line, upright
from lab.explore import COLOURS, PALETTE, Drawn, Panel, computed, panels
from stringlib.attention.decay import decay_mask

__all__ = ["decay_memory"]

TOKENS, FACT = 32, 12
CONSTANT, GATED = COLOURS["retnet"], COLOURS["ssd"]


@computed
def _memory(gamma: Tensor, reset: Tensor, kept: Tensor) -> dict[str, Tensor]:
    """Return the factor of each token for both decays, and how much the last one finds of each."""
    constant = gamma.expand(TOKENS)
    gated = torch.where(torch.arange(TOKENS) == reset, kept, 1.0)
    decays = torch.stack([constant, gated])
    return {"decays": decays, "left": decay_mask(decays.log())[:, -1]}


def decay_memory(gamma: float, reset: float, kept: float) -> Drawn:
    """Draw the weight of every past token for the last one, and the decays that make it.

    Args:
        gamma: The constant decay.
        reset: The one token at which the other decay is not 1.
        kept: What it is there.

    Returns:
        A figure with two panels, weights above, decays below.
    """
    found = _memory(gamma, reset, kept)
    constant, gated = found["left"]
    places, colours, widths = list(range(TOKENS)), (CONSTANT, GATED), (3.5, 2)
    left = [
        _steps(places, row, colour, width, f"{name} decay")
        for name, row, colour, width in zip(
            ("constant", "gated"), found["left"], colours, widths, strict=True
        )
    ]
    factors = [
        _steps(places, row, colour, width)
        for row, colour, width in zip(found["decays"], colours, widths, strict=True)
    ]
    facts = constant[FACT], gated[FACT]
    stars = dots(
        [FACT, FACT],
        facts,
        list(colours),
        symbol="star",
        hover="what is left: %{y:.2f}",
    )
    tokens: dict[str, Any] = {"range": [-0.8, TOKENS - 0.2], "dtick": 4}
    shares = axis(low=-0.06, high=1.08, dtick=0.5)
    fact = upright(FACT, color=PALETTE["grey"], width=1, dash="dot")
    fig = panels(
        Panel(
            [*left, stars],
            f"left of each token at token {TOKENS - 1}; of token {FACT}: "
            f"{facts[0]:.2f} and {facts[1]:.2f}",
            x={**tokens, "showticklabels": False},
            y=shares,
            shapes=[{**fact, "layer": "below"}],
        ),
        Panel(
            factors,
            "decay at each token",
            x=axis("token", **tokens),
            y=shares,
        ),
        heights=(0.58, 0.3),
        down=0.12,
        height=460,
        margin={"l": 40, "r": 14, "t": 30, "b": 92},
    )
    return Drawn(
        fig,
        f"Two panels over {TOKENS} tokens. Above, what the last token still finds of each: under "
        f"the constant decay {gamma:g} it rises from {constant[0]:.2f} for the first token to 1 "
        f"for the last, with {facts[0]:.2f} for token {FACT}; under the gated decay it is "
        f"{gated[0]:.2f} before token {reset:.0f} and 1 from there on, with {facts[1]:.2f} for "
        f"token {FACT}. Below, the decays: {gamma:g} everywhere, and 1 everywhere but {kept:g} at "
        f"token {reset:.0f}.",
    )


def _steps(
    x: list[int], y: list[float], colour: str, width: float, name: str | None = None
) -> go.Scatter:
    """Return a line with dots; without a name it has steps."""
    return line(
        x,
        y,
        colour,
        name,
        width=width,
        line_shape="linear" if name else "hvh",
        mode="lines+markers",
        marker={"size": 5},
        hover="token %{x}: %{y:.3f}",
    )
