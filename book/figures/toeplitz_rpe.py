"""A Toeplitz matrix in a circulant matrix, its cost, biases that are kernels, and offsets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import plotly.graph_objects as go
import torch
from torch import Tensor

from book.figures.marks import (
    CELLS,
    axis,
    bars,
    box,
    broken,
    dots,
    downwards,
    heat,
    level,
    line,
    rounded,
    significant,
    through,
    tokens_axis,
)
from book.names import display, drawn_as
from lab.explore import COLOURS, PALETTE, Drawn, Panel, computed, layout, panels, pick
from lab.explore.style import DIVERGING

__all__ = [
    "offset_on_grid",
    "own_kind_votes",
    "power_bias",
    "toeplitz_circulant",
    "toeplitz_memory",
    "toeplitz_operations",
    "toeplitz_times",
]

CHANNELS = 64  # of the values
LENGTHS = [2**k for k in range(4, 18)]


def toeplitz_operations(length: Any, features: Any, channels: Any = CHANNELS) -> tuple[Any, Any]:
    r"""Count additions and multiplications of one head's sums, equation :eq:`eq-toeplitz-cost`.

    A real FFT of length L counts as :math:`\tfrac52 L \log_2 L`.

    Args:
        length: Number of tokens n, or a tensor; so are the others.
        features: Number of features m.
        channels: Number of channels of the values, to which the column of ones is added.

    Returns:
        Those of the n × n matrix, and those of two FFTs of length 2n for each feature and column.
    """
    columns = channels + 1
    by_matrix = 2.0 * length**2 * (features + columns)
    halvings = (2 * length).log2() if isinstance(length, Tensor) else math.log2(2 * length)
    return by_matrix, features * columns * 2 * 2.5 * 2 * length * halvings


@computed
def _counted(length: Tensor, features: Tensor) -> dict[str, Tensor]:
    """Return the operations of both ways, at all lengths and at one, and that one's thousands."""
    lengths = torch.cat([torch.tensor(LENGTHS, dtype=torch.float64), length[None]])
    columns = CHANNELS + 1
    by_matrix = 2 * lengths**2 * (features + columns)
    by_fft = 10 * features * columns * lengths * (2 * lengths).log2()
    both = torch.stack([by_matrix, by_fft])
    power = (both[:, -1].log10() / 3).floor().clamp(max=4)
    return {
        "curves": both[:, :-1],
        "here": both[:, -1],
        "power": power,
        "short": both[:, -1] / 1000**power,
    }


def toeplitz_circulant(tokens: int, length: int, features: int) -> Drawn:
    """Draw the circulant matrix around a Toeplitz matrix, and two curves of operations.

    Args:
        tokens: Size of the matrix that is drawn.
        length: Number of tokens whose operations are marked.
        features: Number of features; values have 64 channels.

    Returns:
        A figure with the matrices above and the curves below.
    """
    size = 2 * tokens
    column = [-k for k in range(tokens)] + [None] + list(range(tokens - 1, 0, -1))
    cells = [[column[(i - j) % size] for j in range(size)] for i in range(size)]
    bare = {**CELLS, "showticklabels": False}
    rows = downwards(size, showticklabels=False)

    def table(
        head: str, z: list[list[Any]], text: list[list[str]], scale: Any, **more: Any
    ) -> Panel:
        letters = {"size": 14}
        drawn = heat(z, scale, text=text, texttemplate="%{text}", textfont=letters, xgap=1, ygap=1)
        return Panel([drawn], head, x=bare, y=rows, **more)

    known = [[1]] * tokens + [[0]] * tokens
    marked = ([[0, "#c9ced4"], [1, PALETTE["teal"]]], 0, 1)
    frame = box(-0.5, tokens - 0.5, -0.5, tokens - 0.5, width=3, color=PALETTE["red"])
    matrix = table(
        "offset j − i of each entry; C is framed",
        cells,
        [["" if c is None else str(c) for c in row] for row in cells],
        (DIVERGING, -2.5 * (tokens - 1), 2.5 * (tokens - 1)),  # pale, so the numbers stand out
        shapes=[frame],
        width=0.8,
    )
    given = [[f"x<sub>{i}</sub>" if i < tokens else "0"] for i in range(size)]
    found = [[f"y<sub>{i}</sub>" if i < tokens else ""] for i in range(size)]
    counted = _counted(length, features)
    here = counted["here"]
    by_matrix, by_fft = (
        f"{short:.3g}{pick(power, '', ' thousand', ' million', ' billion', ' trillion')}"
        for short, power in zip(counted["short"], counted["power"], strict=True)
    )
    colour, hover = COLOURS["toeplitz"], "n = %{x:,}: %{y:.2s}"
    curves = []
    for way, (name, dash) in enumerate((("n × n matrix", "solid"), ("FFT", "dash"))):
        curves += [
            line(LENGTHS, counted["curves"][way], colour, name, width=2, dash=dash, hover=hover),
            dots([length], [here[way]], colour, hover=hover),
        ]
    below = Panel(
        curves,
        f"operations: matrix {by_matrix}, FFT {by_fft}",
        x=tokens_axis([16, 128, 1024, 8192, 65536], math.log10(13), math.log10(160_000)),
        y=axis(low=4, high=13, type="log", dtick=3, exponentformat="power"),
    )
    fig = panels(
        [
            matrix,
            table("x", known, given, marked, width=0.08),
            table("y", known, found, marked, width=0.08),
        ],
        below,
        heights=(0.51, 0.38),
        across=0.03,
        down=0.11,
        height=680,
        margin={"l": 54, "r": 14, "t": 34, "b": 70},
    )
    return Drawn(
        fig,
        f"The upper panel is a diagram of a circulant matrix of size {size}. Its upper left "
        f"block, which is framed, is a Toeplitz matrix of size {tokens}, and each entry shows its "
        f"offset. The circulant matrix multiplies a vector of {tokens} numbers x and {tokens} "
        f"zeros. The first {tokens} results are y, the product of the Toeplitz matrix and x. The "
        "lower panel is a line chart of the number of operations against the number of tokens, "
        "on logarithmic axes. The solid line of the n × n matrix is steeper than the dashed line "
        f"of the FFT, and the two lines cross. Dots mark {length:,.0f} tokens. There, with "
        f"{features:g} features, the matrix takes {by_matrix} operations and the FFT takes "
        f"{by_fft} operations.",
    )


IMAGES, PATCHES = 256, 196


@computed
def _memory(features: Tensor) -> dict[str, Tensor]:
    """Return MiB of the algorithm's arrays, their ratio to the matrix, and where they meet."""
    lengths = torch.tensor([*LENGTHS, PATCHES], dtype=torch.float64)
    numbers = features * CHANNELS * (4 * lengths + 2)  # products, complex spectrum, result
    mib = IMAGES * 4 * numbers / 2**20
    return {
        "curve": mib[:-1],
        "here": mib[-1],
        "times": numbers[-1] / PATCHES**2,
        "meet": 4 * features * CHANNELS,
    }


def toeplitz_memory(features: int) -> Drawn:
    """Draw the memory of the algorithm's arrays and of the matrix, against the number of tokens.

    For 256 images, float32: :eq:`eq-toeplitz-algorithm` keeps products, their spectrum and the
    result, of m times 64 numbers per token.

    Args:
        features: m.

    Returns:
        A figure of two lines.
    """
    found = _memory(features)
    matrix = [IMAGES * 4 * n**2 / 2**20 for n in LENGTHS]
    here, small = found["here"], IMAGES * 4 * PATCHES**2 / 2**20
    red, grey = COLOURS["toeplitz"], PALETTE["grey"]
    drawn = [
        line(LENGTHS, matrix, grey, "n × n matrices", hover="n = %{x:,}: %{y:.3s} MiB"),
        line(LENGTHS, found["curve"], red, "algorithm 1", hover="n = %{x:,}: %{y:.3s} MiB"),
        dots([PATCHES, PATCHES], [here, small], [red, grey]),
    ]
    times, meet = found["times"], found["meet"]
    axes = layout(
        height=380,
        title_text=f"algorithm 1: {times:.0f} × at {PATCHES} tokens, equal at {meet:,.0f}",
        xaxis=tokens_axis([16, 128, 1024, 8192, 65536], math.log10(13), math.log10(160_000)),
        yaxis=axis("memory (MiB)", -1, 8, type="log", dtick=2, exponentformat="power"),
    )
    return Drawn(
        go.Figure(drawn, axes),
        "A line chart shows the memory in MiB against the number of tokens, on logarithmic axes, "
        f"with {features:.0f} features. The line of the n × n matrices is twice as steep as the "
        f"line of algorithm 1. Dots mark {PATCHES} tokens, where the arrays of algorithm 1 take "
        f"{here:,.0f} MiB and the matrices take {small:.1f} MiB, so algorithm 1 takes {times:.0f} "
        f"times as much memory. The lines cross at {meet:,.0f} tokens.",
    )


WAYS = {
    "algorithm 1": ("none", "solid", "algorithm 1"),
    "fft": ("toeplitz", "solid", "FFT"),
    "softmax": ("softmax", "solid", "Softmax, fused"),
}


def toeplitz_times(
    run: str,
    features: str,
    *,
    recorded: Mapping[str, Mapping[str, Mapping[str, Sequence[tuple[int, float]]]]],
) -> Drawn:
    """Draw recorded times divided by that of the matrix, and operations :eq:`eq-toeplitz-cost`.

    Args:
        run: Whose times, a name in ``recorded``.
        features: m, a name in that.
        recorded: Run → features → one of ``WAYS`` → numbers of tokens, with the median time
            divided by that of the matrix.

    Returns:
        A figure of a line for each way, and of the ratio of the operations of FFT and matrix.
    """
    found, m = recorded[str(run)][str(features)], int(features)
    lengths = [round(64 * 2 ** (k / 2)) for k in range(19)]
    costs = {n: toeplitz_operations(n, m) for n in range(2, 8192)}
    counted = next(n for n, (matrix, fft) in costs.items() if fft < matrix)
    pairs = [toeplitz_operations(n, m) for n in lengths]
    hover = "n = %{x:,}: %{y:.3g} times the matrix"
    drawn = [
        line(lengths, significant([fft / matrix for matrix, fft in pairs]), COLOURS["toeplitz"],
             "FFT, by operations", width=1.5, dash="dot", hover=hover)
    ]  # fmt: skip
    for way, (colour, dash, label) in WAYS.items():
        x, y = zip(*found[way], strict=True)
        drawn.append(
            line(x, significant(y), COLOURS[colour], label, dash=dash, hover=hover,
                 mode="lines+markers", marker={"size": 6})
        )  # fmt: skip
    slower = [n for n, ratio in found["fft"] if ratio > 1]
    faster = [n for n, ratio in found["fft"] if ratio < 1]
    clock = f"{faster[0]:,}" if faster else f"above {slower[-1]:,}"
    axes = layout(
        height=420,
        margin={"l": 54, "r": 14, "t": 44, "b": 100},
        title_text=f"FFT faster from {counted:,} (operations), {clock} (time)",
        xaxis=tokens_axis([64, 512, 4096, 32768], math.log10(56), math.log10(40_000)),
        yaxis=axis("time / time of the matrix", math.log10(0.2), math.log10(300), type="log",
                   tickvals=[0.3, 1, 3, 10, 30, 100]),
        shapes=[{**level(1, width=2), "xref": "x domain"}],
    )  # fmt: skip
    soft, last = found["softmax"][-1][1], found["softmax"][-1][0]
    at_512 = [dict(found[way])[512] for way in ("algorithm 1", "fft")]
    measured = (
        f"between {slower[-1]:,} and {faster[0]:,} tokens"
        if faster
        else f"above {slower[-1]:,} tokens, the largest recorded length"
    )
    return Drawn(
        go.Figure(drawn, axes),
        f"A line chart shows recorded times ({run}, {features} features), divided by the time of "
        "the plain matrix, against the number of tokens, on logarithmic axes. Solid lines with "
        "dots are for algorithm 1, for the FFT and for fused softmax, and a horizontal line "
        f"marks the time of the matrix. At 512 tokens algorithm 1 takes {at_512[0]:.3g} times as "
        f"long as the matrix, and the FFT takes {at_512[1]:.3g} times as long. Beyond 512 tokens "
        "both ratios fall. A dotted line shows the number of operations of the FFT divided by "
        f"that of the matrix. The FFT takes fewer operations than the matrix from {counted:,} "
        "tokens on. In the recorded times, the length at which the FFT becomes faster is "
        f"{measured}. At {last:,} tokens fused softmax takes {soft:.2g} times as long as the "
        "matrix.",
    )


POWERS = [round(0.05 * i, 2) for i in range(1, 61)]
PLACES = [round(0.1 * i, 1) for i in range(-20, 21)]


@computed
def _power(power: Tensor) -> dict[str, Tensor]:
    """Return the bias at all places and at the whole ones, and the form on 1, -2, 1."""
    bias = -(torch.tensor(PLACES, dtype=torch.float64).abs() ** power)
    form = 2 * (4 - 2**power)
    return {"bias": bias, "points": bias[::10], "form": form}


def power_bias(power: float) -> Drawn:
    r"""Draw a bias :math:`-|\delta|^p`, and the form of :eq:`eq-toeplitz-cpd` on 1, -2, 1.

    Args:
        power: p.

    Returns:
        A figure of the bias, and of the form against all powers.
    """
    found = _power(power)
    form, colour = found["form"], COLOURS["kerple-power"]
    forms = [round(2 * (4 - 2**p), 3) for p in POWERS]
    fig = panels(
        [
            Panel(
                [
                    line(PLACES, found["bias"], colour, hover="%{x}: %{y:.2f}"),
                    dots([-2, -1, 0, 1, 2], found["points"], colour, size=9),
                ],
                "bias",
                x=axis("offset", -2.1, 2.1, dtick=1),
                y=axis(low=-8.3, high=0.5, dtick=2),
            ),
            Panel(
                [
                    line(POWERS, forms, PALETTE["grey"], hover="p = %{x}: %{y:.2f}"),
                    dots([power], [form], colour),
                ],
                "quadratic form",
                x=axis("power p", 0, 3.1, dtick=1),
                y=axis(low=-8.6, high=7, dtick=2),
                shapes=[level(0, width=1)],
            ),
        ],
        height=330,
        title_text=f"p = {power:g}: the quadratic form is {form:.2f}",
        margin={"t": 64, "l": 34},
    )
    return Drawn(
        fig,
        "Two line charts show a bias and a quadratic form. The left chart shows the bias of "
        f"power {power:g} against the offset, from -2 to 2, with a dot at each integer offset. "
        "The bias is 0 at offset 0 and falls on both sides. The right chart shows the quadratic "
        "form for the coefficients 1, -2 and 1 against the power. The line falls, is 0 at power "
        f"2, and is negative for larger powers. A dot marks power {power:g}, where the quadratic "
        f"form is {form:.2f}.",
    )


SIDE = 14


@computed
def _places(offset: Tensor) -> dict[str, Tensor]:
    """Return rows and columns of the one or two grid offsets that have an offset of the index."""
    row = (offset / SIDE).floor()
    rows = torch.stack([row, row + 1])
    columns = offset - SIDE * rows
    there = (rows.abs() < SIDE) & (columns.abs() < SIDE)
    ends = torch.where(there, torch.stack([columns, rows]), math.nan)
    return {
        "ends": ends,
        "arrows": broken(0 * ends.mT, ends.mT),
        "one": torch.where(there[0], torch.stack([rows[0], columns[0]]), ends[:, 1].flip(0)),
        "count": there.double().sum(-1) - 1,
    }


def offset_on_grid(offset: int) -> Drawn:
    """Draw which steps on a grid of 14 by 14 patches have one offset in reading order.

    Args:
        offset: j - i of the index, from -195 to 195.

    Returns:
        A figure of the plane of steps.
    """
    found = _places(offset)
    (across, up), red = found["ends"], COLOURS["toeplitz"]
    down, right = found["one"]
    steps = pick(
        found["count"],
        "one step, drawn as a line from the origin. This step has the",
        "two steps, drawn as lines from the origin. One step has the",
    )
    other = pick(
        found["count"],
        "",
        " The other step has a row offset that is larger by 1 and a column offset that is "
        "smaller by 14.",
    )
    axes = layout(
        height=420,
        title_text=f"offset {offset:.0f}: {pick(found['count'], 'one step', 'two steps')}",
        xaxis=axis("columns to the right", -15, 15, dtick=7, constrain="domain"),
        yaxis=axis("rows down", 15, -15, dtick=7, scaleanchor="x", constrain="domain"),
    )
    drawn = [
        through(found["arrows"], PALETTE["grey"], width=1.5),
        dots(across, up, red, size=13, hover="rows %{y}, columns %{x}"),
        dots([0], [0], PALETTE["grey"], size=8),
    ]
    return Drawn(
        go.Figure(drawn, axes),
        f"A diagram shows steps on a grid of {SIDE} by {SIDE} patches, with the row offset "
        "(positive is down) against the column offset (positive is to the right). The offset "
        f"{offset:.0f} in reading order belongs to {steps} row offset {down:.0f} and the column "
        f"offset {right:.0f}.{other}",
    )


KINDS, SYMBOLS, SEQUENCES, TOKENS = 4, 8, 64, 48  # of the task *kind*
DECAYS = (0.6, 0.65, 0.7, 0.75, 0.8, 0.85)  # of what a bias gives the past, the best is drawn
STEPS = 30  # of the curve, from 1 to 1,000
SEEN, OWN, DECAY = "BEBAGCBDFAHC", (3, 7, 10), 0.75  # the example: symbols, nearest first


@cache
def _allowed() -> list[float]:
    """Return how often the largest vote is right, by what a token's own kind weighs more."""
    draw = torch.Generator().manual_seed(0)
    size = (SEQUENCES, TOKENS)
    symbols, kinds = (torch.randint(n, size, generator=draw) for n in (SYMBOLS, KINDS))
    places = torch.arange(TOKENS)
    alike = (kinds[:, :, None] == kinds[:, None]).tril(-1)
    last = torch.where(alike, places, -1).amax(-1)
    wanted = torch.where(last < 0, -1, symbols.gather(1, last.clamp(min=0)))
    votes = torch.nn.functional.one_hot(symbols, SYMBOLS).double()
    curve = []
    for step in range(STEPS + 1):
        factor = 1000 ** (step / STEPS)
        shares = []
        for decay in DECAYS:
            past = (decay ** (places[:, None] - places).double()).tril(-1)
            totals = (past * torch.where(alike, factor, 1.0)) @ votes
            right = (totals.argmax(-1) == wanted)[wanted >= 0]
            shares.append(right.double().mean().item())
        curve.append(max(shares))
    return curve


@computed
def _voted(factor: Tensor, curve: list[float]) -> dict[str, Tensor]:
    """Return the example's weights, own kind and others, whether A wins, and what is allowed."""
    own = torch.zeros(len(SEEN), dtype=torch.float64)
    own[list(OWN)] = 1
    past = DECAY ** torch.arange(len(SEEN)).double()
    weights = past * (1 + (factor - 1) * own)
    weights = weights / weights.sum()
    names = sorted({*SEEN})
    of = torch.tensor([[float(seen == name) for name in names] for seen in SEEN]).double()
    totals = weights @ of
    place = STEPS * factor.log10() / 3
    near = (1 - (place - torch.arange(STEPS + 1)).abs()).clamp(min=0)
    return {
        "own": weights * own,
        "others": weights * (1 - own),
        "totals": totals[:2],
        "right": (totals[0] > totals[1:].amax(-1)).double(),
        "share": (near * torch.tensor(curve, dtype=torch.float64)).sum(-1),
    }


RECORDED = {"softmax": (3.8, 0.772), "FAVOR+": (39.4, 0.959)}
"""What a token's own kind weighs in two trained models, and the mean accuracy of eight seeds."""


def own_kind_votes(factor: float) -> Drawn:
    """Draw the weights of symbols of a token's own kind, and how often the largest is right.

    Weights as in :eq:`eq-toeplitz-attention`: the bias falls with the distance to the past, and
    the features give a token's own kind a factor.

    Args:
        factor: Weight of the own kind divided by that of the others.

    Returns:
        A figure of an example's weights, and of the accuracy against the factor.
    """
    curve = _allowed()
    found = _voted(factor, curve)
    red, grey = COLOURS["toeplitz"], PALETTE["grey"]
    back = list(range(1, len(SEEN) + 1))
    a, b = found["totals"]
    factors = [1000 ** (step / STEPS) for step in range(STEPS + 1)]
    fig = panels(
        Panel(
            [
                bars(back, found["others"], grey, "other kinds", hover="%{y:.2f}"),
                bars(back, found["own"], red, "own kind", hover="%{y:.2f}"),
            ],
            f"A gets {a:.2f}, B gets {b:.2f}: {pick(found['right'], 'wrong', 'right')}",
            x=axis("earlier symbols, nearest first", 0.4, len(SEEN) + 0.6, tickvals=back,
                   ticktext=[*SEEN]),
            y=axis("weight", 0, 1, dtick=0.5),
        ),
        Panel(
            [
                line(rounded(factors), rounded(curve), grey, hover="×%{x:.3g}: %{y:.2f}"),
                dots([factor], [found["share"]], red, size=17),
                *(
                    dots([x], [y], COLOURS[drawn_as(name)], display(name), size=10,
                         symbol="diamond", hover="×%{x:.3g}: %{y:.3f}")
                    for name, (x, y) in RECORDED.items()
                ),
            ],
            f"factor {factor:.3g}: {found['share']:.0%} of the predictions right",
            x=axis("weight of the own kind / weight of other kinds", 0, 3, type="log",
                   tickvals=[1, 10, 100, 1000], ticktext=["1", "10", "100", "1,000"]),
            y=axis("accuracy", 0.3, 1.03, dtick=0.2),
        ),
        heights=(0.4, 0.44),
        down=0.21,
        height=520,
        barmode="stack",
        margin={"l": 54, "r": 14, "t": 34, "b": 100},
    )  # fmt: skip
    points = " and ".join(
        f"{display(name)} reached an accuracy of {y:.2f} with the factor {x:.3g}"
        for name, (x, y) in RECORDED.items()
    )
    return Drawn(
        fig,
        f"The upper panel is a bar chart of the weights of {len(SEEN)} earlier symbols, the "
        "nearest first. The weights fall with the distance, and symbols of the token's own kind "
        f"get {factor:.3g} times the weight of other symbols at the same distance. The last "
        f"symbol of the own kind is A. All symbols A together get the weight {a:.2f}, all symbols "
        f"B together get the weight {b:.2f}, and the prediction is "
        f"{pick(found['right'], 'wrong', 'right')}. The lower panel is a line chart of the "
        "accuracy on random sequences, against the factor that multiplies the weights of the own "
        "kind, from 1 to 1,000 on a logarithmic axis. The line rises towards 1. A large dot "
        f"marks the chosen factor, at which the accuracy is {found['share']:.0%}. Two diamonds "
        f"show the recorded study. {points}.",
    )
