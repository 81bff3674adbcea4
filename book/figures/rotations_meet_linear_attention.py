"""Rotations before and after a feature map, rolled features, and their accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from statistics import fmean
from typing import Any, NamedTuple

import plotly.graph_objects as go
import torch
from torch import Tensor, nn

from book.figures.marks import (
    CELLS,
    axis,
    bars,
    colour_axis,
    dots,
    downwards,
    heat,
    level,
    line,
    rounded,
    upright,
)
from book.names import display
from lab.explore import COLOURS, PALETTE, Drawn, Panel, computed, layout, panels
from lab.explore.style import DIVERGING
from stringlib.attention.favor import FavorFeatures
from stringlib.attention.features import ReLUFeatures
from stringlib.attention.roll import Roll
from stringlib.encoders.rope import RoPE
from stringlib.encoders.string import STRING
from stringlib.testing.properties import shift_error

__all__ = [
    "CYCLES",
    "KERNEL_FEATURES",
    "WAYS",
    "rolled_features",
    "shifted_accuracy",
    "shifted_kernels",
]

TOKENS, CHANNELS, BASE, LIMIT = 12, 16, 20.0, 3.0
KERNEL_FEATURES = ("ReLU, 16", "random, 16", "random, 64", "random, 1024")
"""The feature maps of :func:`shifted_kernels`, with their numbers of features."""

CYCLES = {"12": (12,), "5 + 7": (5, 7), "3 + 4 + 5": (3, 4, 5)}
"""The cycles of :func:`rolled_features`, by their names."""
OFFSETS = 60
CALLED = {"softmax": "Softmax + RoPE", "none": display("none")}
"""A line of :func:`shifted_accuracy` → its name in the legend, if that is another."""
SPOKEN = {
    "softmax": "With softmax attention and RoPE",
    "before φ": "With a rotation before φ",
    "before φ, moving": "With a rotation before φ that is trained at shifted positions",
    "after φ": "With a rotation after φ and a division by the sum of the rotated products",
    "after φ, numerator": "With a rotation after φ in the numerator alone",
    "rolled": "With rolled features",
    "none": "Without positions",
}
"""A line of :func:`shifted_accuracy` → how the alternative text names it."""
WAYS = {
    "softmax": ("solid", "circle"),
    "before φ": ("solid", "square"),
    "before φ, moving": ("dot", "diamond"),
    "after φ": ("dashdot", "x"),
    "after φ, numerator": ("dash", "triangle-up"),
    "rolled": ("solid", "star"),
    "none": ("dot", "circle-open"),
}
"""How each line of :func:`shifted_accuracy` is drawn."""


@lru_cache
def _features(features: str) -> tuple[nn.Module, Tensor, Tensor, RoPE]:
    if features not in KERNEL_FEATURES:
        raise ValueError(f"features must be one of {KERNEL_FEATURES}, got {features!r}")
    kind, count = features.split(", ")
    draw = torch.Generator().manual_seed(1)
    q, k = torch.randn(2, 1, TOKENS, CHANNELS, generator=draw, dtype=torch.float64)
    q, k = (nn.functional.normalize(x, dim=-1) * 1.2 for x in (q, k))
    favor = FavorFeatures(CHANNELS, int(count), "orthogonal", stabilize=False, generator=draw)
    phi = ReLUFeatures() if kind == "ReLU" else favor.double()
    return phi, q, k, RoPE(int(count), base=BASE)


def _kernel(positions: Tensor, features: str, before: bool) -> Tensor:
    """Return products of features, divided by their mean absolute value, ``(tokens, tokens)``."""
    phi, q, k, after = _features(features)
    if before:
        q, k = RoPE(CHANNELS, base=BASE)(q, k, positions)
    a, b = phi(q), phi(k)
    if not before:
        a, b = after(a, b, positions)
    kernel: Tensor = (a @ b.mT)[0]
    return kernel / kernel.abs().mean()


class Fact(NamedTuple):
    """The effect of a shift on a kernel."""

    kernel: Tensor
    change: Tensor
    size: str  # of the change
    negative: float  # which share of the entries is


def _facts(shift: float, features: str) -> list[Fact]:
    """Return the kernel with a rotation before the feature map, and the one with it after."""
    start = torch.arange(TOKENS, dtype=torch.float64)[:, None]
    facts = []
    for before in (True, False):
        kernel = partial(_kernel, features=features, before=before)
        here, there = kernel(start), kernel(start + shift)
        error = shift_error(kernel, start, shift)
        size = f"{error:.0%}" if error > 1e-9 else "0%"
        facts.append(Fact(there, there - here, size, (there < 0).double().mean().item()))
    return facts


def shifted_kernels(shift: float, features: str) -> Drawn:
    """Draw the kernel of twelve tokens at shifted positions, rotated before and after φ.

    Above, the products of the features of query (row) and key (column), divided by their mean
    absolute value; a minus marks negative ones. Below, the change by the shift.

    Args:
        shift: Added to all positions.
        features: One of ``KERNEL_FEATURES``.

    Returns:
        A figure of four heat-maps with one colour scale.

    Raises:
        ValueError: If the features are unknown.
    """
    facts = _facts(shift, features)

    def entries(head: str, values: Tensor, *, marked: bool = False) -> Panel:
        marks = [["−" if marked and v < 0 else "" for v in row] for row in values.tolist()]
        hover = "query %{y}, key %{x}: %{z:.2f}"
        cells = heat(rounded(values, 2), hover=hover, text=marks, texttemplate="%{text}")
        rows = downwards(TOKENS, dtick=4)
        return Panel([cells], head, x=axis(dtick=4, **CELLS), y=rows, square=True)

    negative = facts[1].negative
    kind, count = features.split(", ")
    fig = panels(
        [
            entries("before φ", facts[0].kernel),
            entries(f"after φ, {negative:.0%} negative", facts[1].kernel, marked=True),
        ],
        [entries(f"change by the shift: {fact.size}", fact.change) for fact in facts],
        across=0.08,
        down=0.12,
        height=600,
        margin={"l": 30, "r": 10, "t": 34, "b": 74},
        coloraxis=colour_axis(DIVERGING, -LIMIT, LIMIT, y=-0.08),
    )
    return Drawn(
        fig,
        "Four heat maps show 12 queries as rows and 12 keys as columns. The two upper maps show "
        f"products of {int(count):,} {kind} features at positions shifted by {shift:g}. The two "
        "lower maps show how much the shift changes each product. With the rotation before φ, in "
        f"the left maps, no product is negative, and the relative change is {facts[0].size}. With "
        f"the rotation after φ, in the right maps, no product changes, but {negative:.0%} of the "
        "products are negative. Minus signs mark these products in the upper right map.",
    )


@computed
def _rolled(offset: Tensor, key: list[list[float]], products: list[float]) -> dict[str, Tensor]:
    """Return the features of a key that is rolled by its offset, and their product."""
    here = (torch.arange(OFFSETS + 1) == offset).double()
    return {
        "features": here @ torch.tensor(key).double(),
        "product": here @ torch.tensor(products).double(),
    }


def rolled_features(offset: int, cycles: str) -> Drawn:
    r"""Draw twelve features of a key, rolled by its offset, and the products at all offsets.

    Above, the features of the query as diamonds and those of the key as bars, with a colour for
    each cycle. Below, their products :math:`\phi(q)^\top \Pi^\delta\,\phi(k)`, and those of the
    same features rotated in pairs.

    Args:
        offset: That of the key, from 0 to 60.
        cycles: One of ``CYCLES``.

    Returns:
        A figure of two panels.

    Raises:
        ValueError: If the offset or the cycles are not among these.
    """
    if cycles not in CYCLES:
        raise ValueError(f"cycles must be one of {', '.join(CYCLES)}, got {cycles!r}")
    if offset not in range(OFFSETS + 1):
        raise ValueError(f"offset must be an integer from 0 to {OFFSETS}, got {offset}")
    roll, turn = Roll(CYCLES[cycles]), STRING(torch.arange(0.25, 3, 0.5)[None, :, None])
    draw = torch.Generator().manual_seed(26)
    query, key = torch.randn(2, 1, 1, turn.head_dim, generator=draw, dtype=torch.float64).relu()
    places = torch.arange(OFFSETS + 1)[:, None]
    rolled = roll.rotate(key.expand(-1, OFFSETS + 1, -1), places)[0]
    products = (rolled @ query[0, 0]).tolist()
    found = _rolled(offset, rolled.tolist(), products)
    between = torch.arange(4 * OFFSETS + 1)[:, None] / 4
    signed = turn.rotate(key.expand(-1, len(between), -1), between)[0] @ query[0, 0]
    colours = [
        colour
        for length, colour in zip(roll.cycles, PALETTE.values(), strict=False)
        for _ in range(length)
    ]
    numbers = list(range(turn.head_dim))
    features = Panel(
        [
            bars(numbers, found["features"], colours, hover="feature %{x}: %{y:.2f}"),
            dots(numbers, rounded(query[0, 0], 2), PALETTE["grey"], symbol="diamond", size=9),
        ],
        f"features: key rolled by {offset:g} (bars), query (diamonds)",
        x=axis("feature", dtick=1),
        y=axis(low=0, high=2.1, dtick=1),
    )
    weights = Panel(
        [
            line(between[:, 0].tolist(), rounded(signed, 2), PALETTE["grey"], width=1),
            bars(
                places[:, 0].tolist(),
                rounded(products, 2),
                COLOURS["relu"],
                hover="offset %{x}: %{y}",
            ),
            dots([offset], [found["product"]], PALETTE["red"]),
        ],
        "product: rolled (bars), rotated in pairs (line)",
        x=axis("offset δ", -1, OFFSETS + 1, dtick=12),
        y=axis(),
        shapes=[
            level(0, width=1),
            *(
                upright(at - 0.5, width=1, dash="dot")
                for at in range(roll.period, OFFSETS, roll.period)
            ),
        ],
    )
    fig = panels(
        features, weights, down=0.2, height=560, margin={"l": 40, "r": 10, "t": 34, "b": 48}
    )
    *others, last = map(str, roll.cycles)
    lengths = f"cycles of {', '.join(others)} and {last}" if others else f"one cycle of {last}"
    periods = " Dotted vertical lines mark these periods." if roll.period < OFFSETS else ""
    return Drawn(
        fig,
        "The upper panel is a bar chart of twelve features of a key, with diamonds for the same "
        f"twelve features of a query. The features of the key are rolled by {offset:g} in "
        f"{lengths}, and the product of query and key is {found['product']:.2f}. The lower panel "
        f"is a bar chart of this product against the offset, from 0 to {OFFSETS}, in which a dot "
        f"marks the chosen offset. No bar is negative, and the bars repeat after {roll.period} "
        f"tokens.{periods} A thin line shows the product if the same features are rotated in "
        f"pairs. The line oscillates around 0, and its smallest value is {signed.min():.2f}.",
    )


def shifted_accuracy(
    features: str,
    frequencies: str,
    *,
    recorded: Mapping[str, Mapping[str, Mapping[str, Sequence[Sequence[float]]]]],
    shifts: Sequence[int],
) -> Drawn:
    """Draw the accuracy of retrieving the symbol three tokens back, against a shift of positions.

    Args:
        features: A feature map in ``recorded``, "FAVOR+" or "ReLU".
        frequencies: A band in it.
        recorded: Feature map → frequencies → one of ``WAYS`` → accuracies, a row for each seed.
        shifts: Those of a row.

    Returns:
        A figure with a line for each way, and bars for the range over seeds.
    """
    told, drawn = [], []
    for way, (dash, symbol) in WAYS.items():
        runs = list(zip(*recorded[features][frequencies][way], strict=True))
        mean = [fmean(at) for at in runs]
        name = {"softmax": "softmax", "none": "none"}.get(way, features.lower().rstrip("+"))
        look: dict[str, Any] = {"color": COLOURS[name]}
        bars_of = {
            "array": rounded([max(at) - m for at, m in zip(runs, mean, strict=True)], 2),
            "arrayminus": rounded([m - min(at) for at, m in zip(runs, mean, strict=True)], 2),
        }
        drawn.append(
            line(
                list(range(len(shifts))),
                rounded(mean),
                COLOURS[name],
                CALLED.get(way, way),
                width=2,
                dash=dash,
                hover="%{y:.2f}",
                mode="lines+markers",
                marker={"symbol": symbol, "size": 8},
                error_y={**bars_of, **look, "thickness": 1, "width": 0},
            )
        )
        level_line = max(mean) - min(mean) < 0.005
        told.append(
            f"{SPOKEN[way]} the accuracy is {mean[0]:.2f} at every shift."
            if level_line
            else f"{SPOKEN[way]} the accuracy lies between {min(mean):.2f} and {max(mean):.2f}. It "
            f"is {mean[0]:.2f} without a shift and {mean[-1]:.2f} at the largest shift."
        )
    axes = layout(
        height=460,
        title_text=f"{features}, {frequencies} frequencies",
        xaxis=axis(
            "shift of all positions (tokens)", -0.2, len(shifts) - 0.8,
            tickvals=list(range(len(shifts))), ticktext=[f"{s:,}" for s in shifts],
        ),
        yaxis=axis("accuracy (share of symbols)", -0.03, 1.04),
        margin={"b": 130},
    )  # fmt: skip
    return Drawn(
        go.Figure(drawn, axes),
        "A line chart shows the accuracy of retrieving the symbol three tokens back, against a "
        f"shift of all positions from 0 to {shifts[-1]:,} tokens. It has seven lines with marks "
        "for the means, and a thin vertical line at each mark is the range over the seeds. The "
        f"feature map is {features}, with {frequencies} frequencies. {' '.join(told)}",
    )
