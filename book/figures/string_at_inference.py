"""What each implementation of an encoder costs, and what scales do to a rotated basis."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache

import plotly.graph_objects as go
import torch
from torch import Tensor

from book.figures.marks import axis, bars, dots, line, listed, significant, through
from lab.explore import COLOURS, PALETTE, Drawn, computed, layout
from lab.records import gather, read_record

__all__ = [
    "clocked_rungs",
    "encoding_cost",
    "operations",
    "scaled_turn",
    "timed_sizes",
    "where_lines_cross",
]

HEADS = 6
NAMES = {
    "matrix_exp": "matrix exponential",
    "fft": "FFT, inverse FFT",
    "rfft": "real FFT, inverse",
    "half": "half spectrum",
    "basis": "product with P",
    "folded": "<b>folded</b>",
    "rope": "RoPE",
    "projections": "W<sub>q</sub>, W<sub>k</sub>",
    "attention": "attention itself",
}
SIZES = [round(2 ** (i / 4)) for i in range(8, 49)]  # channels of a head, 4 to 4,096
TIMED = {"product": "product", "rfft": "real FFT"}
SPELLED = {
    "matrix_exp": "the matrix exponential",
    "fft": "the FFT with its inverse",
    "rfft": "the real FFT with its inverse",
    "half": "the half spectrum",
    "basis": "the product with P",
    "folded": "the folded layer",
    "rope": "RoPE",
    "projections": "both projections",
    "attention": "the attention itself",
}
"""Names in the alternative texts."""


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
    """Draw the operations of each implementation for one channel of a query or a key.

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
    return Drawn(
        go.Figure([rungs], axes),
        "A horizontal bar chart shows the operations for one channel of a query or a key, on a "
        "logarithmic axis. Seven bars are for implementations of an encoder, and two bars are "
        f"for the projections and for the attention itself. A head has {dim:g} channels, a "
        f"sequence has {tokens:g} tokens, and the batch size is {batch:g}. The folded layer and "
        f"RoPE need {counts['folded']:.0f} operations each. The half spectrum needs the fewest "
        f"operations of the other implementations, {counts['half']:,.0f}, and the product with P "
        f"needs {counts['basis']:,.0f}. The projections need {counts['projections']:,.0f} "
        f"operations, and the attention itself needs {counts['attention']:,.0f}.",
    )


def clocked_rungs(
    measure: str,
    *,
    recorded: Mapping[str, Mapping[str, tuple[float, float, float]]],
    sizes: tuple[int, int, int],
) -> Drawn:
    """Draw what each implementation was measured to take, and the times that the count predicts.

    Args:
        measure: A name in ``recorded``; those of memory begin so.
        recorded: Measure → name of a rung → median and both quartiles.
        sizes: Channels of a head, tokens and sequences.

    Returns:
        A bar chart; a diamond is what :eq:`eq-inference-cost` says, the product with P as measured.
    """
    found = recorded[str(measure)]
    memory, counts = str(measure).startswith("memory"), operations(*sizes)
    shown = [name for name in reversed(NAMES) if name in found]
    middle = [found[name][0] for name in shown]
    reach = [[found[name][end] for name in shown] for end in (1, 2)]
    names = [NAMES[name] for name in shown]
    colour = {"matrix_exp": "dense", "rope": "rope", "projections": "none", "attention": "none"}
    drawn = [
        bars(
            middle,
            names,
            [COLOURS[colour.get(name, "circulant")] for name in shown],
            orientation="h",
            error_x={
                "color": PALETTE["grey"],
                "type": "data",
                "symmetric": False,
                "array": significant([b - m for m, b in zip(middle, reach[1], strict=True)]),
                "arrayminus": significant([m - a for m, a in zip(middle, reach[0], strict=True)]),
            },
            hover="%{y}: %{x:.3g}",
        ),
        # beyond the error bars
        dots(
            [4e3 if not memory else 1.2e2] * len(shown),
            names,
            "rgba(0,0,0,0)",
            text=[f"{value:.3g}" if value < 100 else f"{value:.0f}" for value in middle],
            textposition="middle left",
        ),
    ]
    price = found["basis"][0] / counts["basis"]
    drawn.append(
        dots(
            [None] * len(shown) if memory else significant([price * counts[n] for n in shown]),
            names,
            PALETTE["magenta"],
            "predicted by the count",
            symbol="diamond",
            marker_line={"width": 1.5, "color": "white"},
            hover="%{y}, counted: %{x:.3g} ms",
        )
    )
    unit = "memory, relative to q and k" if memory else "milliseconds"
    low, high = (-3, 2.1) if memory else (-1, 3.7)
    axes = layout(
        height=400,
        margin={"l": 118, "r": 14, "t": 20, "b": 84},
        bargap=0.35,
        xaxis=axis(unit, low, high, type="log", dtick=1),
    )
    rungs = [n for n in shown if n not in ("projections", "attention")]
    order = sorted(rungs, key=lambda name: found[name][0])
    low_bar, high_bar = order[0], order[-1]
    gradients, two = "gradients" in str(measure), "2 threads" in str(measure)
    kept = "holds at most" if "held" in str(measure) else "saves for the backward pass"
    what = f"the memory that a forward pass {kept}, relative to the queries and keys,"
    time = "forward and backward pass" if gradients else "forward pass"
    time = f"the time of a {time} on {'two threads' if two else 'one thread'}, in milliseconds,"
    ms = "" if memory else " milliseconds"
    more = [SPELLED[name] for name in ("projections", "attention") if name in found]
    beside = f" More bars are for {listed(more)}." if more else ""
    return Drawn(
        go.Figure(drawn, axes),
        f"A horizontal bar chart shows {what if memory else time} for each implementation, on a "
        f"logarithmic axis.{beside} Thin lines reach from the lower to the upper quartile. "
        f"The shortest bar is that of {SPELLED[low_bar]}, at {found[low_bar][0]:.3g}{ms}. The "
        f"longest bar of an implementation is that of {SPELLED[high_bar]}, at "
        f"{found[high_bar][0]:.3g}{ms}. The bar of the half spectrum is at "
        f"{found['half'][0]:.3g}{ms}, and that of the product with P at "
        f"{found['basis'][0]:.3g}{ms}."
        + ("" if memory else " Diamonds mark the times that the operation count predicts."),
    )


@computed
def _crossing(price: Tensor, unit: float) -> dict[str, Tensor]:
    """Return the cost of the half spectrum at all sizes, and the first at which it is ahead.

    In milliseconds, of which an operation of a product takes ``unit``.
    """
    d = torch.tensor(SIZES, dtype=torch.float64)
    spectrum = price * 5 / 2 * d.log2() + 3
    first = torch.where(spectrum < 2 * d + 3, d, SIZES[-1]).amin(-1)
    return {"spectrum": unit * spectrum, "first": first, "there": unit * (2 * first + 3)}


@cache
def timed_sizes() -> dict[str, dict[str, dict[int, tuple[float, float, float]]]]:
    """Return what was recorded at other sizes of a head, on one thread.

    Returns:
        The median and both quartiles in milliseconds, by kind, by ``"product"`` or ``"rfft"``, and
        by channels of a head.
    """
    data = read_record("inference_ladder")["data"]
    found: dict[str, dict[str, dict[int, tuple[float, float, float]]]] = {}
    for mode, title in (("forward", "forward"), ("gradients", "with gradients")):
        rows = gather(data, mode, "what", "threads")["sizes"][1]
        found[title] = {}
        for way in TIMED:
            ends = torch.tensor(rows[way], dtype=torch.float64).quantile(
                torch.tensor([0.5, 0.25, 0.75], dtype=torch.float64), 0
            )
            middle, low, high = ends.tolist()
            found[title][way] = dict(zip(data["sizes"], zip(middle, low, high, strict=True),
                                         strict=True))  # fmt: skip
    return found


def where_lines_cross(kind: str, price: float) -> Drawn:
    """Draw a product with P and a half spectrum by size, timed and :eq:`eq-inference-cost`.

    The counted product is as measured at the largest size.

    Args:
        kind: "forward" or "with gradients".
        price: What an operation of the FFT costs, one of a product of matrices being 1.

    Returns:
        A figure with logarithmic axes; a dot marks the first size at which the FFT is ahead.
    """
    times, colour = timed_sizes()[str(kind)], COLOURS["circulant"]
    largest = max(times["product"])
    unit = times["product"][largest][0] / (2 * largest + 3)
    found = _crossing(price, unit)
    first, there = found["first"], found["there"]
    clocked = min(d for d in times["rfft"] if times["rfft"][d][0] < times["product"][d][0])
    passes = "with gradients" if "gradients" in str(kind) else "of a forward pass"
    drawn = [
        line(SIZES, significant([unit * (2 * d + 3) for d in SIZES]), colour, "product, predicted",
             hover="d = %{x}: %{y:.3g} ms"),
        line(SIZES, found["spectrum"], colour, "half spectrum, predicted", dash="dash",
             hover="d = %{x}: %{y:.3g} ms"),
        dots([first], [there], PALETTE["magenta"]),
    ]  # fmt: skip
    for name, symbol in (("product", "circle"), ("rfft", "diamond-open")):
        rows = times[name]
        middle, low, high = ([row[at] for row in rows.values()] for at in range(3))
        marks = dots(
            [*rows],
            significant(middle),
            colour,
            f"{TIMED[name]}, measured",
            size=10,
            symbol=symbol,
            hover="d = %{x}: %{y:.3g} ms",
        )
        ends = {
            "array": significant([b - m for m, b in zip(middle, high, strict=True)]),
            "arrayminus": significant([m - a for m, a in zip(middle, low, strict=True)]),
        }
        drawn.append(marks.update(error_y={"type": "data", "symmetric": False, **ends}))
    sizes = [4, 16, 64, 256, 1024, 4096]
    axes = layout(
        height=420,
        margin={"l": 54, "r": 14, "t": 44, "b": 112},
        title_text=f"FFT faster from d = {first:.0f} (predicted), {clocked} (measured)",
        xaxis=axis("channels d of a head", 0.55, 3.65, type="log", tickvals=sizes),
        yaxis=axis("milliseconds, one thread", -0.6, 3.1, type="log", dtick=1),
    )
    return Drawn(
        go.Figure(drawn, axes),
        "A line chart shows predicted times in milliseconds on one thread against the channels "
        f"of a head, from {SIZES[0]} to {SIZES[-1]:,}, both on logarithmic axes. The solid line "
        "of the product with P rises in proportion to the channels, and the dashed line of the "
        f"half spectrum rises slowly. Small marks with error bars are measured times {passes}, "
        "dots for the product and hollow diamonds for the real FFT. One operation of the FFT is "
        f"assumed to take {price:g} times as long as one operation of the product. With this "
        f"value the half spectrum is predicted to be faster from {first:.0f} channels on, which a "
        f"larger dot marks. The measured real FFT is faster from {clocked} channels on.",
    )


@computed
def _scaled(turn: Tensor, ratio: Tensor) -> dict[str, Tensor]:
    """Return two directions at a right angle, and their images under the scales (1, ratio)."""
    angle = turn.deg2rad() + torch.tensor([0, math.pi / 2], dtype=torch.float64)
    rows = torch.stack([angle.cos(), angle.sin()], -1)
    scaled = rows * torch.stack([ratio / ratio, ratio])
    around = torch.arange(73).double() * (math.pi / 36)
    gap = torch.full((2,), math.nan).double()

    def cross(ends: Tensor) -> Tensor:
        return torch.stack([-ends[0], ends[0], gap, -ends[1], ends[1]], -1)

    sizes = scaled.norm(dim=-1)
    cosine = (scaled[0] * scaled[1]).sum(-1) / (sizes[0] * sizes[1])
    return {
        "before": cross(rows),
        "after": cross(scaled),
        "ellipse": torch.stack([around.cos(), ratio * around.sin()]),
        "between": 90 - torch.atan2(cosine, (1 - cosine**2).clamp(min=0).sqrt()).rad2deg(),
    }


def scaled_turn(turn: float, ratio: float) -> Drawn:
    """Draw what scales do to a right angle: :eq:`eq-fold-norm` in the plane.

    The rows of PᵀΓ have to be those of Γ'O, which are perpendicular.

    Args:
        turn: Degrees by which P rotates the two channels.
        ratio: Scale of the second channel, that of the first being 1.

    Returns:
        A figure with the two directions before and after the scales.
    """
    found = _scaled(turn, ratio)
    between = found["between"]
    reach = axis(low=-2.2, high=2.2, dtick=1, constrain="domain")
    drawn = [
        through(found["ellipse"], PALETTE["grey"], width=1),
        through(found["before"], PALETTE["blue"], "before the scales", width=2, dash="dot"),
        through(found["after"], PALETTE["red"], "after the scales", width=3),
    ]
    axes = layout(
        height=400,
        title_text=f"The right angle becomes {between:.0f}°",
        xaxis={**reach, "title": {"text": "channel 1"}},
        yaxis={**reach, "scaleanchor": "x", "title": {"text": "channel 2"}},
    )
    return Drawn(
        go.Figure(drawn, axes),
        "A diagram of the plane of two channels shows two perpendicular directions as dotted "
        f"lines, rotated by {turn:g} degrees from the axes. Solid lines show the two directions "
        f"after channel 2 has been multiplied by {ratio:g}. An ellipse is the image of the unit "
        f"circle. The angle between the solid lines is {between:.0f} degrees. It is a right angle "
        "only if the scales are equal or the directions are the axes.",
    )
