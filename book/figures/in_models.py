"""The clocks of a released model: how many positions each pair takes for a turn."""

from __future__ import annotations

import math

import plotly.graph_objects as go

from book.figures.marks import axis, dots, line, significant
from book.released import RELEASED
from lab.explore import COLOURS, Drawn, layout

__all__ = ["BFLOAT16", "CLOCKS", "OFF", "model_clocks"]

CLOCKS = (
    "Llama 3",
    "Llama 3.1",
    "Gemma 3, local layers",
    "Gemma 4, global layers",
    "GPT-NeoX",
    "gpt-oss",
    "Qwen3-VL, text",
    "RoPE-ViT, axial",
    "DINOv3",
)
"""Models whose clocks are unlike one another, by their names in ``RELEASED``."""

BFLOAT16 = 1 / 257
"""How far, relatively, rounding to bfloat16 can move a number."""

OFF = 0.1
"""An error of an angle that shows, in radians."""

SYMBOLS = ("circle", "square", "diamond")
EXPONENTS = -0.5, 8.5


def model_clocks(model: str, position: int) -> Drawn:
    """Draw for each pair of a head how many positions it takes for a turn.

    Circles, squares and diamonds read the first, second and third coordinate. Hollow pairs have
    not turned once at the position. Below the lower line an angle there that passed through
    bfloat16, as position, frequency or product, can be off by over a tenth of a radian,
    :eq:`eq-model-bfloat`.

    Args:
        model: A name in ``RELEASED``.
        position: Where the token stands, in the model's own units.

    Returns:
        A figure with a logarithmic axis.
    """
    speeds = RELEASED[str(model)].encoder().frequencies()[0]
    turns = (2 * math.pi / speeds.norm(dim=-1)).tolist()
    reads = speeds.abs().argmax(-1).tolist()
    limit = 2 * math.pi * BFLOAT16 * position / OFF
    turning = [x for x in turns if math.isfinite(x)]
    slow = sum(x > position for x in turning)
    loose = sum(x < limit for x in turning)
    traces = []
    for coordinate, symbol in enumerate(SYMBOLS):
        own = [i for i in range(len(turns)) if reads[i] == coordinate and math.isfinite(turns[i])]
        marks = dots(
            own,
            significant([turns[i] for i in own]),
            COLOURS["rope"],
            size=8,
            symbol=[symbol + ("-open" if turns[i] > position else "") for i in own],
            hover="pair %{x}: %{y:,.3g} positions a turn",
        )
        traces.append(marks)
    ends = -0.7, len(turns) - 0.3
    traces += [
        _level(ends, position, f"the position, {position:,}", "top left"),
        _level(ends, limit, "in bfloat16 off by 0.1 below", "bottom left", dash="dot"),
    ]
    frame = layout(
        height=380,
        margin={"l": 64, "r": 12, "t": 30, "b": 48},
        xaxis=axis("pair", *ends),
        yaxis=axis("positions a turn", *EXPONENTS, type="log", dtick=1, exponentformat="power"),
    )
    told = f"{slow} of {len(turning)} turning pairs have not turned once at position {position:,}"
    return Drawn(
        go.Figure(traces, frame),
        f"{model}: positions that each pair takes for a turn, from {_plain(min(turning))} to "
        f"{_plain(max(turning))}. {told}. In bfloat16 the angles of {loose} pairs there can be off "
        "by over a tenth of a radian.",
    )


def _plain(x: float) -> str:
    """Return three digits of a number, without an exponent."""
    return f"{float(f'{x:.3g}'):,.10g}"


def _level(
    ends: tuple[float, float], y: float, text: str, place: str, dash: str | None = None
) -> go.Scatter:
    """Return a level line with words at its right end."""
    look = {"mode": "lines+text", "textposition": place}
    return line(ends, [y, y], COLOURS["none"], width=2, dash=dash, text=["", text], **look)
