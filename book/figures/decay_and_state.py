"""What decays leave of every past token, how long they remember, and where products of them end."""

from __future__ import annotations

import math
from typing import Any

import plotly.graph_objects as go
import torch
from torch import Tensor

from book.figures.marks import axis, dots, line, upright
from lab.explore import COLOURS, PALETTE, Drawn, Panel, computed, layout, panels
from stringlib.attention.decay import decay_mask

__all__ = ["decay_memory", "memory_of_decay", "products_of_decays"]

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
            f"left at token {TOKENS - 1}; of token {FACT}: {facts[0]:.2f} and {facts[1]:.2f}",
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


DISTANCES = sorted({round(2 ** (i / 5)) for i in range(71)})
HEADS = range(8)


@computed
def _weights(memory: Tensor) -> dict[str, Tensor]:
    """Return a constant decay, its weights at all distances, and its half-life."""
    log = torch.log1p(-1 / memory)
    weights = (log * torch.tensor(DISTANCES, dtype=torch.float64)).exp()
    return {"decay": log.exp(), "weights": weights, "half": -math.log(2) / log}


def memory_of_decay(memory: float) -> Drawn:
    r"""Draw the weights of a constant decay against distance, and the half-lives of known heads.

    Those of RetNet are by :eq:`eq-retnet-decay`, those of ALiBi have the decays :math:`2^{-1-h}`
    as logarithms.

    Args:
        memory: The sum of all weights, 1 / (1 - decay), in tokens.

    Returns:
        A figure of one line, and two rows of dots at half of the weight.
    """
    found = _weights(memory)
    lives = {
        "retnet": [-math.log(2) / math.log1p(-(2.0 ** (-5 - h))) for h in HEADS],
        "alibi": [math.log(2) * 2.0 ** (1 + h) for h in HEADS],
    }
    drawn = [line(DISTANCES, found["weights"], PALETTE["blue"], "weight", hover="%{x}: %{y:.2f}")]
    for name, called, size, symbol in (
        ("retnet", "RetNet's heads", 15, "circle-open"),
        ("alibi", "ALiBi's heads", 8, "circle"),
    ):
        at = [float(f"{life:.3g}") for life in lives[name]]
        drawn.append(
            dots(
                at,
                [0.5] * 8,
                COLOURS[name],
                called,
                size=size,
                symbol=symbol,
                hover="half at %{x:.3g} tokens",
            )
        )
    half, decay = found["half"], found["decay"]
    axes = layout(
        height=360,
        title_text=f"γ = {decay:.4f}: memory {memory:.0f}, half-life {half:.1f}",
        xaxis=axis("distance (tokens)", 0, 4.1, type="log", tickvals=[1, 10, 100, 1000, 10_000]),
        yaxis=axis("weight", -0.03, 1.05),
    )
    return Drawn(
        go.Figure(drawn, axes),
        f"Weight against distance on a logarithmic axis, decay {decay:.4f}: all weights add up to "
        f"{memory:.0f} tokens, and half is left after {half:.1f}. Dots at one half, for the heads "
        "of RetNet and of ALiBi, stand at equal steps: each head remembers twice as long as the "
        "one before.",
    )


LARGEST = math.log10(torch.finfo(torch.float32).max)
SMALLEST = math.log10(1.4e-45)  # what float32 keeps, below its normal numbers
BACK = 10
TOKENS_FAR = [round(10 ** (1 + i / 20)) for i in range(61)]


@computed
def _products(decay: Tensor) -> dict[str, Tensor]:
    """Return powers of ten: a running product, its reciprocal, and their product ten tokens back.

    Each where float32 has it, and the first token whose reciprocal is no number.
    """
    power = decay.log10()
    tokens = torch.tensor(TOKENS_FAR, dtype=torch.float64)
    product = (tokens + 1) * power
    kept = torch.where(product > SMALLEST, product, math.nan)
    turned = torch.where(-product < LARGEST, -product, math.nan)
    weight = torch.where(-product < LARGEST, BACK * power, math.nan)
    return {"curves": torch.stack([kept, turned, weight]), "last": (-LARGEST / power).floor()}


def products_of_decays(decay: float) -> Drawn:
    """Draw the running product of a constant decay and its reciprocal, as far as float32 goes.

    Args:
        decay: That of every token.

    Returns:
        A figure of three lines; the weight is a product of the other two.
    """
    found = _products(decay)
    names = ("Γ of the query", "1/Γ of the key", f"their product, {BACK} back")
    colours = (PALETTE["blue"], PALETTE["magenta"], PALETTE["orange"])
    drawn = [
        line(TOKENS_FAR, curve, colour, name, hover="token %{x}: 10^%{y:.1f}")
        for curve, name, colour in zip(found["curves"], names, colours, strict=True)
    ]
    limit = [round(LARGEST, 2)] * 2
    drawn.append(line([10, 10_000], limit, PALETTE["grey"], "largest float32", dash="dot", width=2))
    last = found["last"]
    axes = layout(
        height=400,
        title_text=f"1/Γ is no float32 from token {last:,.0f} on",
        xaxis=axis("token", 1, 4, type="log", dtick=1),
        yaxis=axis("power of ten", -50, 50),
        margin={"b": 96},
    )
    return Drawn(
        go.Figure(drawn, axes),
        f"Powers of ten against the token, decay {decay:g}: the running product falls, its "
        f"reciprocal rises and is beyond float32 from token {last:,.0f} on. There ends their "
        f"product for a key {BACK} tokens back, which was the same number all along.",
    )
