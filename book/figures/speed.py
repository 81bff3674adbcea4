"""Times of attention: those that were recorded, and the least that a machine needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from statistics import median
from typing import Any

import plotly.graph_objects as go
import torch
from torch import Tensor

from benchmarks.goals import MODES
from benchmarks.recorded import Compared, ladder, rates, records
from book.figures import marks
from book.figures.toeplitz_rpe import toeplitz_operations
from book.names import display, wrapped
from book.recorded import data
from lab.explore import COLOURS, Drawn, Panel, computed, layout, panels, pick
from lab.explore.style import PALETTE
from lab.records import gather
from lab.theory.cost import linear_products, moved_numbers, pair_products

__all__ = ["attention_times", "attention_work", "peer_times", "recorded_times"]

LENGTHS = [2**k for k in range(6, 18)]
NUMBER = 4  # bytes of a float32
METHODS = {  # name → label, colour, dash
    "softmax": (display("softmax"), "softmax", "solid"),
    "relu": (display("relu"), "relu", "solid"),
    "favor": (display("favor"), "favor", "solid"),
    "toeplitz": (f"{display('toeplitz')}, by rows", "toeplitz", "dot"),
    "toeplitz-fft": (f"{display('toeplitz')}, by FFT", "toeplitz", "longdash"),
}


def _softmax(n: Any, d: Any, m: Any) -> dict[str, Any]:
    return {"multiplications": pair_products(n, d, d), "exponentials": n * n}


def _relu(n: Any, d: Any, m: Any) -> dict[str, Any]:
    return {"multiplications": linear_products(n, d, d + 1)}


def _favor(n: Any, d: Any, m: Any) -> dict[str, Any]:
    projections = 2 * n * m * d
    return {
        "multiplications": projections + linear_products(n, m, d + 1),
        "exponentials": 2 * n * m,
    }


def _toeplitz(n: Any, d: Any, m: Any) -> dict[str, Any]:
    return {"multiplications": pair_products(n, m, d + 1)}


def _toeplitz_fft(n: Any, d: Any, m: Any) -> dict[str, Any]:
    return {"operations": toeplitz_operations(n, m, d)[1]}


WORK: dict[str, Callable[[Any, Any, Any], dict[str, Any]]] = {
    "softmax": _softmax,
    "relu": _relu,
    "favor": _favor,
    "toeplitz": _toeplitz,
    "toeplitz-fft": _toeplitz_fft,
}


def attention_work(method: str, n: Any, d: Any, m: Any) -> dict[str, Any]:
    """Return what one head has to do at least, not causal, in float32; :eq:`eq-intensity`.

    Args:
        method: One of ``"softmax"``, ``"relu"`` (as many features as channels), ``"favor"`` (with
            its projection), ``"toeplitz"`` (all pairs of tokens) and ``"toeplitz-fft"``, the last
            two on features that are given.
        n: Tokens; a number, as d and m, or a tensor.
        d: Channels of queries, keys and values.
        m: Features.

    Returns:
        Multiplications (each with its addition) in matrix products, exponentials, operations of
        real FFTs, and bytes moved, under these names.

    Raises:
        ValueError: If there is no such method.
    """
    if method not in WORK:
        raise ValueError(f"method must be one of {list(WORK)}, got {method!r}")
    width = m if method.startswith("toeplitz") else d
    return WORK[method](n, d, m) | {"bytes": NUMBER * moved_numbers(n, width, d)}


Curve = tuple[str, str, Sequence[int], Sequence[float]]
"""Colour and dash of a method, its lengths, and milliseconds per head."""


def recorded_times(
    tokens: int,
    mask: str,
    *,
    recorded: Mapping[str, Mapping[str, Curve]],
    decades: tuple[float, float] = (-2.2, 3.8),
) -> Drawn:
    """Draw recorded times of one head against the length, and compare them at one length.

    Args:
        tokens: Length whose bars are drawn.
        mask: Whose times: one of the names of ``recorded``.
        recorded: Name of a mask → label of a method → its times; the first method is the one that
            the others are compared with.
        decades: Where the axes of milliseconds begin and end, as powers of ten.

    Returns:
        A figure with curves above and bars below, for the methods with a time at that length.
    """
    hover = "n = %{x:,}: %{y:.3g} ms"
    lines = [
        marks.line(
            list(lengths),
            marks.significant(times),
            COLOURS[colour],
            label,
            width=2,
            dash=dash,
            hover=hover,
            mode="lines+markers",
        )
        for label, (colour, dash, lengths, times) in recorded[mask].items()
    ]
    at = {
        label: dict(zip(lengths, times, strict=True)).get(tokens)
        for label, (_, _, lengths, times) in recorded[mask].items()
    }
    here = {label: ms for label, ms in at.items() if ms is not None}
    first, base = next(iter(here.items()))
    told = {
        label: _short(ms) + ("" if label == first else f", {ms / base:.2g} ×")
        for label, ms in here.items()
    }
    shown = list(reversed(here))
    bars = marks.bars(
        marks.significant([here[label] for label in shown]),
        shown,
        [COLOURS[recorded[mask][label][0]] for label in shown],
        orientation="h",
        text=[told[label] for label in shown],
        textposition=["inside" if here[label] > 10 else "outside" for label in shown],
        insidetextanchor="end",
        constraintext="none",
        cliponaxis=False,
    )
    milliseconds = partial(marks.axis, type="log", dtick=1, exponentformat="power")
    fig = panels(
        Panel(
            lines,
            x=marks.tokens_axis([128, 1024, 8192], math.log10(56), math.log10(40_000)),
            y=milliseconds("ms per head", *decades),
            shapes=[marks.upright(tokens, width=1.5, dash="dot")],
        ),
        Panel([bars], x=milliseconds(f"ms at n = {tokens:,} (and multiple of {first})", *decades)),
        heights=(0.52, 0.32),
        height=600,
        margin={"l": 84, "r": 14, "t": 14, "b": 92},
        bargap=0.3,
    )
    others = " ".join(
        f"The time of {label} is {_short(ms)}." for label, ms in here.items() if label != first
    )
    faster = sum(ms < base for ms in here.values())
    count = faster or "none"
    return Drawn(
        fig,
        "The upper panel is a line chart of the recorded milliseconds per head "
        f"{SETTINGS.get(mask, mask)} against the number of tokens, on logarithmic axes, with "
        f"{len(lines)} lines, one per method. The line of {first} rises most steeply. A dotted "
        f"vertical line marks {tokens:,} tokens. The lower panel is a horizontal bar chart of the "
        "time at this number of tokens, on a logarithmic axis, with one bar per method. There "
        f"{first} takes {_short(base)}, and {count} of the {len(here) - 1} other methods "
        f"{'is' if faster == 1 else 'are'} faster. {others}",
    )


SETTINGS = {
    "not causal": "without a mask",
    "causal": "under a causal mask",
    "forward": "in a forward pass",
    "training": "in a forward and backward pass",
}
"""Name of a control's value → what a sentence says of it."""
RUNS = dict(zip(("forward", "with gradients"), MODES, strict=True))


def peer_times(run: str, threads: str, *, recorded: Mapping[str, Sequence[Compared]]) -> Drawn:
    """Draw our time divided by a peer's: a row for each pair, a dot for each shape.

    Args:
        run: ``"forward"`` or ``"with gradients"``.
        threads: ``"1"`` or ``"2"``.
        recorded: ``"ours / peer"`` → the ratios of times, wherever both were measured.

    Returns:
        A figure of two traces, where we are faster and where the peer is.
    """
    order = sorted(recorded, key=lambda pair: median(x[-1][1] for x in recorded[pair]))
    shown = [
        (pair, where, ratio)
        for pair in order
        for where, mode, on, ratio in recorded[pair]
        if (mode, on) == (RUNS[str(run)], int(threads))
    ]
    traces = []
    for ahead, colour, name in (
        (False, PALETTE["grey"], "stringlib is faster"),
        (True, PALETTE["red"], "the peer is faster"),
    ):
        found = [x for x in shown if (x[-1][1] > 1) is ahead]
        traces.append(
            marks.dots(
                marks.significant([ratio[1] for *_, ratio in found]),
                [order.index(pair) for pair, *_ in found],
                colour,
                name,
                size=8,
                hover="%{hovertext}<extra></extra>",
                hovertext=[
                    f"{where}: {middle:.2f}, quartiles {low:.2f} to {high:.2f}"
                    for _, where, (low, middle, high) in found
                ],
                opacity=0.8,
            )
        )
    told = f"the peer is faster in {len(traces[1].x)} of {len(shown)} cases"
    ticks = [0.03, 0.1, 0.3, 1, 3]
    axes = layout(
        height=660,
        title_text=told,
        xaxis=marks.axis(
            "time, stringlib ÷ peer", math.log10(0.01), math.log10(4), type="log",
            tickvals=ticks, ticktext=[f"{x:g}" for x in ticks],
        ),
        yaxis=marks.axis(
            low=-0.6, high=len(order) - 0.4, tickvals=[*range(len(order))],
            ticktext=[f"<b>{pair.replace(' / ', '</b><br>')}" for pair in order],
            tickfont={"size": 10}, zeroline=False,
        ),
        shapes=[{**marks.upright(1, width=1), "yref": "paper"}],
        margin={"l": 150, "r": 12, "t": 40, "b": 84},
    )  # fmt: skip
    ratios = {ratio[1]: pair for pair, _, ratio in shown}
    low, high = min(ratios), max(ratios)
    where = {"forward": "in a forward pass", "with gradients": "in a forward and backward pass"}
    return Drawn(
        go.Figure(traces, axes),
        "A dot plot shows the time of stringlib divided by the time of another library, the "
        f"peer, on a logarithmic axis, {where[str(run)]} with "
        f"{'one thread' if str(threads) == '1' else 'two threads'}. There are {len(order)} rows, "
        "one per pair of implementations, and each dot is one shape of the inputs. A vertical "
        f"line marks the ratio 1. For {len(traces[1].x)} of the {len(shown)} dots the ratio is "
        f"above 1, so the peer is faster. The smallest ratio, {low:.2f}, is in the row "
        f"“{ratios[low]}”. The largest ratio, {high:.2f}, is in the row “{ratios[high]}”.",
    )


KINDS = ("multiplications", "exponentials", "operations", "bytes")
TIMED = 64  # channels and features of the times that were recorded


@cache
def _machine() -> list[float]:
    """Return how much of each of ``KINDS`` the machine of the record does in a second."""
    best = rates(records("limits")["cpu"])
    return [float(f"{best[kind]:.3g}") for kind in KINDS]


@cache
def _medians() -> dict[str, list[tuple[int, float]]]:
    """Return name of a method → lengths, and the milliseconds per head that it took there."""
    attention = records("attention")["cpu"]
    names = {"softmax": "SDPA", "relu": "ReLU", "favor": "FAVOR+ attention"}
    found = {name: ladder(attention, called)[:2] for name, called in names.items()}
    ways = gather(data("toeplitz_crossover"), "ms", "kind", "m", "n")["forward"][TIMED]
    for name, way in (("toeplitz", "matrix"), ("toeplitz-fft", "fft")):
        rows = {n: row[way] for n, row in ways.items() if way in row}
        found[name] = list(rows), list(rows.values())
    return {
        name: [(n, round(median(row), 3)) for n, row in zip(*rows, strict=True)]
        for name, rows in found.items()
    }


@computed
def _least(
    tokens: Tensor, channels: Tensor, features: Tensor, a_second: list[float], seen: list[float]
) -> dict[str, Tensor]:
    """Return the least milliseconds of each method at all lengths and at one, and what sets that.

    And the times that were recorded, if the sizes are theirs.
    """
    n = torch.cat([torch.tensor(LENGTHS, dtype=torch.float64), tokens[None]])
    times, limits = [], []
    for method in METHODS:
        work = attention_work(method, n, channels, features)
        spent = torch.stack(
            [work.get(kind, 0 * n) / rate for kind, rate in zip(KINDS, a_second, strict=True)]
        )
        longest = spent.amax(0)
        times.append(1e3 * longest)
        number = torch.arange(len(KINDS)).double()[:, None]
        limits.append(torch.where(spent == longest, number, 0.0).amax(0)[-1])
    least = torch.stack(times)
    here = least[:, -1]
    size = 10.0 ** (here.log10().floor() - 2)
    theirs = (channels == TIMED) & (features == TIMED)
    return {
        "times": least[:, :-1],
        "here": here,
        "short": (here / size).round() * size,  # three digits
        "limits": torch.stack(limits),
        "seen": torch.where(theirs, torch.tensor(seen, dtype=torch.float64), math.nan),
        "theirs": theirs.double(),
    }


def attention_times(tokens: int, channels: int, features: int) -> Drawn:
    """Draw the least times of one head against the length, and what sets them at one length.

    The rates of the machine are those of the record; dots are medians that were measured with 64
    channels and 64 features, drawn in that state.

    Args:
        tokens: Length whose bars are drawn.
        channels: Channels of queries, keys and values.
        features: Features of FAVOR+ and of the Toeplitz forms.

    Returns:
        A figure with curves above and bars below.
    """
    dots = _medians()
    seen = [ms for name in METHODS for _, ms in dots[name]]
    found = _least(tokens, channels, features, _machine(), seen)
    hover = "n = %{x:,}: %{y:.3g} ms"
    curves, drawn = [], 0
    for (name, (label, colour, dash)), times in zip(METHODS.items(), found["times"], strict=True):
        lengths = [n for n, _ in dots[name]]
        medians = found["seen"][drawn : drawn + len(lengths)]
        drawn += len(lengths)
        symbol = "circle-open" if dash == "longdash" else "circle"
        curves += [
            marks.line(LENGTHS, times, COLOURS[colour], label, width=2, dash=dash, hover=hover),
            marks.dots(lengths, medians, COLOURS[colour], size=8, symbol=symbol, hover=hover),
        ]
    limits = [pick(limit, *KINDS) for limit in found["limits"]]
    told = [f"{ms:,.9g} ms" for ms in found["short"]]
    labels = [label for label, _, _ in METHODS.values()]
    bars = marks.bars(
        found["here"][::-1],
        [wrapped(label, 16) for label in labels[::-1]],
        [COLOURS[colour] for _, colour, _ in METHODS.values()][::-1],
        orientation="h",
        text=[f"{ms}: {limit}" for ms, limit in zip(told, limits, strict=True)][::-1],
        textposition="auto",  # inside where it fits
        insidetextanchor="end",
        cliponaxis=False,
    )
    milliseconds = partial(
        marks.axis, low=-3.7, high=5.5, type="log", dtick=2, exponentformat="power"
    )
    fig = panels(
        Panel(
            curves,
            x=marks.tokens_axis([64, 512, 4096, 32768], math.log10(56), math.log10(150_000)),
            y=milliseconds("ms per head"),
            shapes=[marks.upright(tokens, width=1.5, dash="dot")],
        ),
        Panel([bars], x=milliseconds("least time (ms), and what limits it")),
        heights=(0.48, 0.36),
        height=760,
        margin={"l": 114, "r": 14, "t": 30, "b": 132},
        bargap=0.3,
    )
    said = " ".join(
        f"{label} needs at least {ms}, limited by {limit}."
        for label, ms, limit in zip(labels, told, limits, strict=True)
    )
    dotted = pick(found["theirs"], "", " Dots are the recorded medians.")
    return Drawn(
        fig,
        "The upper panel is a line chart of the least time of one head, in milliseconds, against "
        f"the number of tokens, from {LENGTHS[0]} to {LENGTHS[-1]:,}, on logarithmic axes, with "
        f"{channels:g} channels and {features:g} features. It has {len(METHODS)} lines, one per "
        f"method. The line of {labels[0]} and the dotted line of {labels[3]} rise with the square "
        f"of the number of tokens, and the other lines rise about in proportion to this "
        f"number.{dotted} A "
        f"dotted vertical line marks {tokens:,.0f} tokens. The lower panel is a horizontal bar "
        "chart of the least time at this number of tokens, on a logarithmic axis, with one bar "
        f"per method. {said}",
    )


def _short(ms: float) -> str:
    return f"{ms:,.0f} ms" if ms >= 100 else f"{ms:.2g} ms"
