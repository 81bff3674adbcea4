"""The least time that a machine needs for attention, and which of its limits sets it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import plotly.graph_objects as go

from stringlib.explore.figures.toeplitz import toeplitz_operations
from stringlib.explore.style import COLOURS, layout
from stringlib.theory.cost import least_seconds, linear_products, moved_numbers, pair_products

__all__ = ["attention_times", "attention_times_text", "attention_work"]

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


def attention_times(
    tokens: int,
    channels: int,
    features: int,
    *,
    rates: Mapping[str, float],
    recorded: Mapping[str, Sequence[tuple[int, float]]],
) -> go.Figure:
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
    fig = go.Figure()
    same = channels == features == 64
    for name, (label, colour, dash) in METHODS.items():
        times = [_milliseconds(name, n, channels, features, rates) for n in LENGTHS]
        fig.add_scatter(
            x=LENGTHS, y=times, name=label, line={"color": COLOURS[colour], "dash": dash}
        )
        dots = recorded.get(name, ()) if same else ()
        fig.add_scatter(
            x=[n for n, _ in dots],
            y=[ms for _, ms in dots],
            mode="markers",
            marker={
                "color": COLOURS[colour],
                "size": 8,
                "symbol": "circle-open" if dash == "longdash" else "circle",
            },
            showlegend=False,
        )
    fig.update_traces(hovertemplate="n = %{x:,}: %{y:.3g} ms<extra></extra>")
    shown = list(reversed(METHODS))
    bars = [_milliseconds(name, tokens, channels, features, rates) for name in shown]
    fig.add_bar(
        x=bars,
        y=[METHODS[name][0] for name in shown],
        orientation="h",
        marker={"color": [COLOURS[METHODS[name][1]] for name in shown]},
        text=[
            f"{_short(ms)}: {_limit(name, tokens, channels, features, rates)}"
            for name, ms in zip(shown, bars, strict=True)
        ],
        textposition=["inside" if ms > 30 else "outside" for ms in bars],
        insidetextanchor="end",
        cliponaxis=False,
        hoverinfo="skip",
        showlegend=False,
        xaxis="x2",
        yaxis="y2",
    )
    line = {"type": "line", "xref": "x", "yref": "y domain", "y0": 0, "y1": 1}
    return fig.update_layout(
        layout(
            height=640,
            margin={"l": 108, "r": 14, "t": 30, "b": 92},
            bargap=0.3,
            xaxis={
                "type": "log",
                "anchor": "y",
                "title": {"text": "tokens n"},
                "tickvals": [64, 512, 4096, 32768],
                "ticktext": ["64", "512", "4,096", "32,768"],
                "range": [math.log10(56), math.log10(150_000)],
            },
            yaxis={
                "domain": [0.45, 1],
                "type": "log",
                "range": [-3.2, 4.7],
                "dtick": 2,
                "title": {"text": "ms a head"},
                "exponentformat": "power",
            },
            xaxis2={
                "anchor": "y2",
                "type": "log",
                "range": [-3.2, 4.7],
                "dtick": 2,
                "title": {"text": "least ms a head, and what sets it"},
                "exponentformat": "power",
            },
            yaxis2={"domain": [0, 0.29], "anchor": "x2"},
            shapes=[{**line, "x0": tokens, "x1": tokens, "line": {"width": 1.5, "dash": "dot"}}],
        )
    )


def attention_times_text(
    tokens: int,
    channels: int,
    features: int,
    *,
    rates: Mapping[str, float],
    recorded: Mapping[str, Sequence[tuple[int, float]]],
) -> str:
    """Say what :func:`attention_times` shows in a state."""
    bars = ", ".join(
        f"{label} {_short(_milliseconds(name, tokens, channels, features, rates))} "
        f"({_limit(name, tokens, channels, features, rates)})"
        for name, (label, _, _) in METHODS.items()
    )
    dots = " Dots are recorded medians." if channels == features == 64 and recorded else ""
    return (
        f"Least times of one head against the number of tokens, with {channels} channels and "
        f"{features} features: softmax and Toeplitz by rows grow with the square of the length, "
        f"the others about in proportion.{dots} Bars at {tokens:,} tokens: {bars}."
    )


def _milliseconds(name: str, n: int, d: int, m: int, rates: Mapping[str, float]) -> float:
    return float(f"{1e3 * least_seconds(attention_work(name, n, d, m), rates):.3g}")


def _limit(name: str, n: int, d: int, m: int, rates: Mapping[str, float]) -> str:
    """Return which kind of work sets the least time."""
    work = attention_work(name, n, d, m)
    return max(work, key=lambda kind: work[kind] / rates[kind])


def _short(ms: float) -> str:
    return f"{ms:,.0f} ms" if ms >= 100 else f"{ms:.2g} ms"
