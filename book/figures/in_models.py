"""Released models: their periods, what bfloat16 and a mirror do, two angles in one pair."""

from __future__ import annotations

import math

import plotly.graph_objects as go
import torch
from torch import Tensor

from book.figures.marks import axis, circle, dots, line, through
from book.released import RELEASED
from lab.explore import COLOURS, PALETTE, Drawn, Panel, computed, layout, panels, pick
from stringlib.algebra.circulant import circulant
from stringlib.kernels.rotation import geometric_frequencies

__all__ = [
    "BFLOAT16",
    "CLOCKS",
    "OFF",
    "bfloat_angles",
    "mirrored_loss",
    "model_clocks",
    "tiled_matrix",
    "tiled_pair",
]

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
"""Models whose frequencies differ from each other, by their names in ``RELEASED``."""

BFLOAT16 = 1 / 257
"""The largest relative error of rounding a number to bfloat16."""

OFF = 0.1
"""An error of an angle that shows, in radians."""

SYMBOLS = ("circle", "square", "diamond")
EXPONENTS = -0.5, 8.5


@computed
def _at(position: Tensor, turns: list[float], reads: list[int]) -> dict[str, Tensor]:
    """Return the turns of the pairs that have turned at a position, and of those that have not.

    Each as a row for each coordinate that a pair may read, with gaps. And the turn below which
    bfloat16 shows, how many pairs have not turned, and how many are below.
    """
    all_turns = torch.tensor(turns, dtype=torch.float64)
    own = torch.tensor(reads) == torch.arange(len(SYMBOLS))[:, None]
    limit = 2 * math.pi * BFLOAT16 * position / OFF
    waits = all_turns > position
    return {
        "turned": torch.where(own & ~waits, all_turns, math.nan),
        "waiting": torch.where(own & waits, all_turns, math.nan),
        "limit": limit,
        "slow": waits.double().sum(-1),
        "loose": (all_turns < limit).double().sum(-1),
    }


def model_clocks(model: str, position: int) -> Drawn:
    """Draw for each pair of a head its period, in positions per full turn.

    Circles, squares and diamonds read the first, second and third coordinate. Hollow pairs have
    not made a full turn at the position. For pairs below the lower line an angle there that was
    rounded to bfloat16, as position, frequency or product, can be wrong by over a tenth of a
    radian, :eq:`eq-model-bfloat`.

    Args:
        model: A name in ``RELEASED``.
        position: Position of the token, in the model's own units.

    Returns:
        A figure with a logarithmic axis.
    """
    speeds = RELEASED[str(model)].encoder().frequencies()[0]
    turning = speeds.norm(dim=-1) > 0
    turns = [float(f"{x:.3g}") for x in (2 * math.pi / speeds.norm(dim=-1))[turning].tolist()]
    found = _at(position, turns, speeds.abs().argmax(-1)[turning].tolist())
    pairs = turning.nonzero()[:, 0].tolist()
    traces = [
        dots(
            pairs,
            some,
            COLOURS["rope"],
            size=8,
            symbol=symbol + ending,
            hover="pair %{x}: %{y:,.3g} positions per full turn",
        )
        for kind, ending in (("turned", ""), ("waiting", "-open"))
        for symbol, some in zip(SYMBOLS, found[kind], strict=True)
    ]
    ends = -0.7, len(turning) - 0.3
    traces += [
        _level(ends, position, f"the position, {position:,.0f}", "top left"),
        _level(
            ends,
            found["limit"],
            "below: bfloat16 error can exceed 0.1 radians",
            "bottom left",
            dash="dot",
        ),
    ]
    frame = layout(
        height=380,
        margin={"l": 64, "r": 12, "t": 30, "b": 48},
        xaxis=axis("pair", *ends),
        yaxis=axis(
            "positions per full turn", *EXPONENTS, type="log", dtick=1, exponentformat="power"
        ),
    )
    return Drawn(
        go.Figure(traces, frame),
        f"A dot plot shows the number of positions that each pair of {model} takes for a full "
        "turn, on a logarithmic axis, against the index of the pair. The numbers lie between "
        f"{_plain(min(turns))} and {_plain(max(turns))}. A horizontal line marks position "
        f"{position:,.0f}, and hollow marks are the {found['slow']:.0f} of the {len(turns)} "
        "rotating pairs that have not made a full turn there. A dotted horizontal line marks "
        "where rounding to bfloat16 matters. The angle of a pair below this line can be wrong by "
        "over a tenth of a radian at this position, if it is rounded to bfloat16. The number of "
        f"pairs below the dotted line is {found['loose']:.0f}.",
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


ROUNDED = {
    "position": PALETTE["orange"],
    "frequency": PALETTE["magenta"],
    "product": PALETTE["blue"],
}
"""What is rounded, and its colour."""


@computed
def _lost(position: Tensor) -> dict[str, Tensor]:
    """Return the errors of a head's angles when each of three numbers is rounded, with gaps at 0.

    And the bound, and how many pairs are off by over a tenth of a radian.
    """
    speeds = geometric_frequencies(64, 500_000)
    angles = position * speeds
    rounded = torch.stack(
        [
            position.bfloat16().double() * speeds,
            position * speeds.bfloat16().double(),
            angles.bfloat16().double(),
        ]
    )
    off = (rounded - angles).abs()
    return {
        "off": torch.where(off > 1e-12, off, math.nan),
        "bound": angles * BFLOAT16,
        "count": (off > OFF).double().sum(-1),
    }


def bfloat_angles(position: int) -> Drawn:
    """Draw the errors of Llama 3's angles in bfloat16 at a position, :eq:`eq-model-bfloat`.

    Args:
        position: Of the token.

    Returns:
        A figure with a line for each number that may be rounded, and the bound.
    """
    found = _lost(position)
    counts = [f"{count:.0f}" for count in found["count"]]
    traces = [
        line(None, found["bound"], COLOURS["none"], "bound", width=2),
        line([-1, 64], [OFF, OFF], COLOURS["none"], width=1.5, dash="dot"),
    ]
    for (name, colour), off in zip(ROUNDED.items(), found["off"], strict=True):
        traces.append(line(None, off, colour, name, width=1.5, hover="pair %{x}: %{y:.2g} radians"))
    said = ", ".join(f"{n}: {c}" for n, c in zip(ROUNDED, counts, strict=True))
    told = " ".join(
        f"If the {name} is rounded, the number of pairs with an error over 0.1 radians is {count}."
        for name, count in zip(ROUNDED, counts, strict=True)
    )
    angles = Panel(
        traces,
        f"pairs with an error over 0.1 radians if we round the<br>{said}",
        x=axis("pair, from high to low frequency", -1, 64),
        y=axis("error (radians)", -5, 2, type="log", dtick=1, exponentformat="power"),
    )
    return Drawn(
        panels(angles, height=400, margin={"l": 60, "r": 12, "t": 48, "b": 92}),
        "A line chart shows the errors of the angles of Llama 3 in bfloat16 at position "
        f"{position:,.0f}, in radians on a logarithmic axis, against the 64 pairs from high to "
        "low frequency. The line of the bound falls with the frequency. Three lines show the "
        "errors for a rounded position, a rounded frequency and a rounded product, and none of "
        "these lines rises above the bound. A dotted horizontal line marks an error of 0.1 "
        f"radians. {told}",
    )


SIDES = [round(0.05 * i - 1, 2) for i in range(41)]  # coefficients c


@computed
def _mixed(share: Tensor) -> dict[str, Tensor]:
    """Return the loss over c with a share of mirrored examples, its slope at 0, and the tangent."""
    c = torch.tensor(SIDES, dtype=torch.float64)
    column = torch.stack([0 * c, c, 0 * c], -1)
    turn = torch.linalg.matrix_exp(circulant(column) - circulant(column).mT)  # R_c(1)
    query, key = torch.eye(3, dtype=torch.float64)[::2]
    right, left = 2 * (query @ turn @ key), 2 * (query @ turn.mT @ key)  # R_c(1), R_c(-1)
    plain = -torch.nn.functional.logsigmoid(right - left)
    loss = (1 - share) * plain + share * plain.flip(0)
    middle = len(SIDES) // 2
    slope = (loss[middle + 1] - loss[middle - 1]) / (c[middle + 1] - c[middle - 1])
    return {
        "plain": plain * (1 + 0 * share),
        "loss": loss,
        "slope": slope,
        "tangent": loss[middle] + slope * torch.tensor([-0.5, 0.5], dtype=torch.float64),
    }


def mirrored_loss(share: float) -> Drawn:
    """Draw a loss over the coefficient of Circulant-STRING, and its slope where training begins.

    A query has to attend to the right one of two equal keys, on its right and on its left. A share
    of the examples is mirrored: by :eq:`eq-model-mirror` their loss is that of the others at -c.

    Args:
        share: Share of the examples that are mirrored, up to a half.

    Returns:
        A figure with the loss, those of either kind of examples, and a tangent at 0.
    """
    found = _mixed(share)
    grey, colour = COLOURS["none"], COLOURS["circulant"]
    traces = [
        line(SIDES, found["plain"], grey, "original", width=1.5, dash="dot"),
        line([-c for c in SIDES], found["plain"], grey, "mirrored", width=1.5, dash="dash"),
        line(SIDES, found["loss"], colour, "mixture", hover="c = %{x}: %{y:.2f}"),
        line([-0.5, 0.5], found["tangent"], PALETTE["red"], "slope at 0", width=3),
    ]
    frame = layout(
        height=360,
        margin={"l": 54, "r": 12, "t": 44, "b": 84},
        title_text=f"{share:.0%} mirrored: slope {found['slope']:.2f} at c = 0",
        xaxis=axis("coefficient c", -1, 1, dtick=0.5),
        yaxis=axis("loss", 0, 2.8, dtick=0.5),
    )
    return Drawn(
        go.Figure(traces, frame),
        "A line chart shows the loss against the coefficient c, from −1 to 1. The dotted curve "
        "of the original examples falls with c, and the dashed curve of the mirrored examples is "
        "its mirror image, which rises. A solid curve is the loss of a mixture, of which "
        f"{share:.0%} are mirrored examples. All three curves meet at c = 0. A short straight "
        f"line touches the solid curve at c = 0 and shows its slope there, {found['slope']:.2f}.",
    )


def tiled_matrix(alpha: Tensor, beta: Tensor) -> Tensor:
    """Return the matrix of a pair whose two channels rotate by different angles, in radians."""
    first = torch.stack([alpha.cos(), -alpha.sin()])
    second = torch.stack([beta.sin(), beta.cos()])
    return torch.stack([first, second])


@computed
def _tiled(alpha: Tensor, beta: Tensor) -> dict[str, Tensor]:
    """Return the image of the circle and of the axes, the determinant and both lengths."""
    a, b = alpha.deg2rad(), beta.deg2rad()
    turned = tiled_matrix(a, b)
    around = torch.linspace(0, 2 * math.pi, 73, dtype=torch.float64)
    circle = torch.stack([around.cos(), around.sin()])
    skew = (b - a).sin().abs()
    axes = torch.tensor([[1.0, 0, 0], [0, 0, 1]], dtype=torch.float64)
    return {
        "image": turned @ circle,
        "axes": turned @ axes,
        "det": (a - b).cos(),
        "lengths": torch.stack([(1 - skew).clamp(min=0).sqrt(), (1 + skew).sqrt()]),
        "shape": (skew > 1e-9).double() + (skew > 1 - 1e-9).double(),
    }


def tiled_pair(alpha: float, beta: float) -> Drawn:
    """Draw the image of a circle under two angles in one pair, :eq:`eq-model-tiled`.

    Args:
        alpha: Angle of the first channel, in degrees.
        beta: Angle of the second channel, in degrees.

    Returns:
        A figure of the plane with the circle, its image, and that of the two axes.
    """
    found = _tiled(alpha, beta)
    (short, long), colour = found["lengths"], COLOURS["rope"]
    shape = pick(found["shape"], "the unit circle itself", "an ellipse", "a straight segment")
    traces = [
        through(found["image"], colour, width=3),
        through(found["axes"], PALETTE["red"], width=3, mode="lines+markers",
                marker={"size": [12, 0, 12], "opacity": 1}),
    ]  # fmt: skip
    size = {"low": -1.6, "high": 1.6, "dtick": 1}
    fig = panels(
        Panel(
            traces,
            f"radii of the image: {short:.2f} to {long:.2f}, determinant {found['det']:.2f}",
            x=axis("channel 1", **size),
            y=axis("channel 2", **size),
            shapes=[circle()],
            square=True,
        ),
        height=430,
        margin={"l": 44, "r": 12, "t": 30, "b": 48},
    )
    return Drawn(
        fig,
        "A diagram shows the plane of a pair of channels with the unit circle and its image, if "
        f"the two channels rotate by {alpha:g} and {beta:g} degrees. The image of the circle is "
        f"{shape}, and two thick lines from the origin with a dot at the end are the images of "
        f"the axes. The shortest radius of the image is {short:.2f}. The longest radius of the "
        f"image is {long:.2f}. The determinant of the map is {found['det']:.2f}.",
    )
