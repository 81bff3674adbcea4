"""Times of attention: those that were recorded, and the least that a machine needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from book.figures import marks
from book.figures.toeplitz_rpe import toeplitz_operations
from lab.explore import COLOURS, Drawn, Panel, panels
from lab.theory.cost import least_seconds, linear_products, moved_numbers, pair_products

__all__ = ["attention_times", "attention_work", "recorded_times"]

LENGTHS = [2**k for k in range(6, 18)]
NUMBER = 4  # bytes of a float32
METHODS = {  # name → label, colour, dash
    "softmax": ("softmax", "softmax", "solid"),
    "relu": ("ReLU", "relu", "solid"),
    "favor": ("FAVOR+", "favor", "solid"),
    "toeplitz": ("Toeplitz, rows", "toeplitz", "dot"),
    "toeplitz-fft": ("Toeplitz, FFT", "toeplitz", "longdash"),
}


def _softmax(n: int, d: int, m: int) -> dict[str, float]:
    return {"multiplications": pair_products(n, d, d), "exponentials": n * n}


def _relu(n: int, d: int, m: int) -> dict[str, float]:
    return {"multiplications": linear_products(n, d, d + 1)}


def _favor(n: int, d: int, m: int) -> dict[str, float]:
    projections = 2 * n * m * d
    return {
        "multiplications": projections + linear_products(n, m, d + 1),
        "exponentials": 2 * n * m,
    }


def _toeplitz(n: int, d: int, m: int) -> dict[str, float]:
    return {"multiplications": pair_products(n, m, d + 1)}


def _toeplitz_fft(n: int, d: int, m: int) -> dict[str, float]:
    return {"operations": toeplitz_operations(n, m, d)[1]}


WORK: dict[str, Callable[[int, int, int], dict[str, float]]] = {
    "softmax": _softmax,
    "relu": _relu,
    "favor": _favor,
    "toeplitz": _toeplitz,
    "toeplitz-fft": _toeplitz_fft,
}


def attention_work(method: str, n: int, d: int, m: int) -> dict[str, float]:
    """Return what one head has to do at least, not causal, in float32; :eq:`eq-intensity`.

    Args:
        method: One of ``"softmax"``, ``"relu"`` (as many features as channels), ``"favor"`` (with
            its projection), ``"toeplitz"`` (all pairs of tokens) and ``"toeplitz-fft"``, the last
            two on features that are given.
        n: Tokens.
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
"""Colour and dash of a method, its lengths, and milliseconds a head."""


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
        cliponaxis=False,
    )
    milliseconds = partial(marks.axis, type="log", dtick=1, exponentformat="power")
    fig = panels(
        Panel(
            lines,
            x=marks.tokens_axis([128, 1024, 8192], math.log10(56), math.log10(40_000)),
            y=milliseconds("ms a head", *decades),
            shapes=[marks.upright(tokens, width=1.5, dash="dot")],
        ),
        Panel([bars], x=milliseconds(f"ms a head, n = {tokens:,}, × {first}’s", *decades)),
        heights=(0.52, 0.32),
        height=600,
        margin={"l": 84, "r": 14, "t": 14, "b": 92},
        bargap=0.3,
    )
    words = "; ".join(f"{label} {text}" for label, text in told.items())
    return Drawn(
        fig,
        f"Recorded milliseconds a head against the number of tokens, {mask}, both logarithmic: "
        f"softmax rises most steeply. Bars at {tokens:,} "
        f"tokens, with the time over that of {first}: {words}.",
    )


def attention_times(
    tokens: int,
    channels: int,
    features: int,
    *,
    rates: Mapping[str, float],
    recorded: Mapping[str, Sequence[tuple[int, float]]],
) -> Drawn:
    """Draw the least times of one head against the length, and what sets them at one length.

    Args:
        tokens: Length whose bars are drawn.
        channels: Channels of queries, keys and values.
        features: Features of FAVOR+ and of the Toeplitz forms.
        rates: What the machine does in a second: multiplications, exponentials, operations, bytes.
        recorded: Name of a method → lengths and milliseconds that were measured with 64 channels
            and 64 features; drawn as dots in that state.

    Returns:
        A figure with curves above and bars below.
    """
    dots = recorded if channels == features == 64 else {}
    hover = "n = %{x:,}: %{y:.3g} ms"
    curves = []
    for name, (label, colour, dash) in METHODS.items():
        times = [_milliseconds(name, n, channels, features, rates) for n in LENGTHS]
        measured = dots.get(name, ())
        lengths, medians = [n for n, _ in measured], [ms for _, ms in measured]
        symbol = "circle-open" if dash == "longdash" else "circle"
        curves += [
            marks.line(LENGTHS, times, COLOURS[colour], label, width=2, dash=dash, hover=hover),
            marks.dots(lengths, medians, COLOURS[colour], size=8, symbol=symbol, hover=hover),
        ]
    least = {name: _milliseconds(name, tokens, channels, features, rates) for name in METHODS}
    limits = {name: _limit(name, tokens, channels, features, rates) for name in METHODS}
    shown = list(reversed(METHODS))
    bars = marks.bars(
        [least[name] for name in shown],
        [METHODS[name][0] for name in shown],
        [COLOURS[METHODS[name][1]] for name in shown],
        orientation="h",
        text=[f"{_short(least[name])}: {limits[name]}" for name in shown],
        textposition=["inside" if least[name] > 30 else "outside" for name in shown],
        insidetextanchor="end",
        cliponaxis=False,
    )
    milliseconds = partial(
        marks.axis, low=-3.2, high=4.7, type="log", dtick=2, exponentformat="power"
    )
    fig = panels(
        Panel(
            curves,
            x=marks.tokens_axis([64, 512, 4096, 32768], math.log10(56), math.log10(150_000)),
            y=milliseconds("ms a head"),
            shapes=[marks.upright(tokens, width=1.5, dash="dot")],
        ),
        Panel([bars], x=milliseconds("least ms a head, and what sets it")),
        heights=(0.55, 0.29),
        height=640,
        margin={"l": 108, "r": 14, "t": 30, "b": 92},
        bargap=0.3,
    )
    told = ", ".join(
        f"{label} {_short(least[name])} ({limits[name]})" for name, (label, _, _) in METHODS.items()
    )
    seen = " Dots are recorded medians." if dots else ""
    return Drawn(
        fig,
        f"Least times of one head against the number of tokens, with {channels} channels and "
        f"{features} features: softmax and Toeplitz by rows grow with the square of the length, "
        f"the others about in proportion.{seen} Bars at {tokens:,} tokens: {told}.",
    )


def _milliseconds(name: str, n: int, d: int, m: int, rates: Mapping[str, float]) -> float:
    return float(f"{1e3 * least_seconds(attention_work(name, n, d, m), rates):.3g}")


def _limit(name: str, n: int, d: int, m: int, rates: Mapping[str, float]) -> str:
    """Return which kind of work sets the least time."""
    work = attention_work(name, n, d, m)
    return max(work, key=lambda kind: work[kind] / rates[kind])


def _short(ms: float) -> str:
    return f"{ms:,.0f} ms" if ms >= 100 else f"{ms:.2g} ms"
