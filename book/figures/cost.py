"""What attention costs by the count: on the roofline, in generation, as a part of a whole."""

from __future__ import annotations

import math
from typing import Any

import plotly.graph_objects as go
import torch
from torch import Tensor

from book.figures.marks import axis, bars, dots, line, tokens_axis
from lab.explore import COLOURS, PALETTE, Drawn, Panel, computed, layout, panels, pick
from lab.theory.cost import (
    cache_numbers,
    linear_products,
    moved_numbers,
    pair_products,
    state_numbers,
)

__all__ = ["BYTES", "amdahl_bars", "kept_numbers", "other_machine", "roofline"]

NUMBER = 4  # bytes of a float32
SOFTMAX, STATE, REST = COLOURS["softmax"], COLOURS["relu"], PALETTE["grey"]


@computed
def _under_roof(
    tokens: Tensor, channels: Tensor, products: Tensor, moved: Tensor
) -> dict[str, Tensor]:
    """Return the multiplications for a byte of softmax and of a state, and how many are possible.

    ``possible`` is in billions per second; ``limit`` is 0 where memory decides, else 1.
    """
    n: Any = tokens  # the counts are of whole numbers, and hold for tensors of them
    d: Any = channels
    done: Any = [pair_products(n, d, d), linear_products(n, d, d + 1)]
    intensity = torch.stack(done) / (NUMBER * moved_numbers(n, d, d))
    possible = torch.minimum(intensity * moved, products * (1 + 0 * intensity))
    return {
        "intensity": intensity,
        "possible": possible / 1e9,
        "limit": (intensity * moved >= products).double(),
    }


def roofline(tokens: int, channels: int, products: float, moved: float) -> Drawn:
    """Draw softmax and a state under the roofline: :eq:`eq-roofline`, :eq:`eq-intensity`.

    Args:
        tokens: n.
        channels: d of queries, keys and values, which are the features of the state too.
        products: Multiplications that the machine does per second.
        moved: Bytes that it moves per second.

    Returns:
        A figure with a dot for each of the two on the roof.
    """
    found = _under_roof(tokens, channels, products, moved)
    low, high, top = 0.3, 5000.0, products / 1e9
    ridge = products / moved
    traces = [line([low, ridge, high], [low * moved / 1e9, top, top], REST, width=2)]
    told = []
    for number, (name, colour) in enumerate((("softmax", SOFTMAX), ("state", STATE))):
        x, y = found["intensity"][number], found["possible"][number]
        traces.append(line([x, x], [1, y], colour, width=1.5, dash="dot"))
        traces.append(
            dots([x], [y], colour, name, hover="%{x:.3g} per byte: %{y:.3g} billion per second")
        )
        told.append(f"{name} {x:,.5g}")
    limits = [pick(limit, "memory", "multiplication") for limit in found["limit"]]
    said = ", ".join(told)
    axes = layout(
        height=380,
        margin={"l": 54, "r": 14, "t": 44, "b": 84},
        title_text=f"{said} per byte",
        xaxis=axis("multiplications per byte", math.log10(low), math.log10(high), type="log",
                   tickvals=[1, 10, 100, 1000], ticktext=["1", "10", "100", "1,000"]),
        yaxis=axis("10⁹ multiplications per second", 0, 2, type="log", dtick=1),
    )  # fmt: skip
    return Drawn(
        go.Figure(traces, axes),
        "A line chart shows the possible multiplications per second, in billions, against the "
        "multiplications per byte moved, on logarithmic axes. The line rises along a slope, "
        f"where memory limits the speed, to a flat roof at {top:.3g} billion, where "
        f"multiplication limits the speed. Two dots on the line are for {channels:.0f} channels, "
        "and a dotted vertical line leads down from each dot. The dot of softmax with "
        f"{tokens:,.0f} tokens is at {found['intensity'][0]:,.5g} on the horizontal axis, where "
        f"{limits[0]} limits the speed. The dot of a state is at {found['intensity'][1]:,.5g}, "
        f"where {limits[1]} limits the speed.",
    )


MOST = 2**20  # tokens of a text
COUNTED = 12 * 12  # heads of a model
MIB = 2**20 / 2  # numbers of two bytes


@computed
def _kept(tokens: Tensor, features: Tensor) -> dict[str, Tensor]:
    """Return the MiB of a cache and of a state after so many tokens, and where they are equal."""
    n: Any = tokens
    m: Any = features
    cache: Any = COUNTED * cache_numbers(n, 64, 64) / MIB
    state: Any = COUNTED * state_numbers(m, 64) / MIB
    return {
        "cache": cache,
        "state": state,
        "level": torch.stack([state, state]),
        "equal": state_numbers(m, 64) / torch.tensor(cache_numbers(1, 64, 64)),
    }


def kept_numbers(tokens: int, features: int) -> Drawn:
    """Draw what a model keeps while it generates, with a cache and with states: :eq:`eq-kept`.

    Args:
        tokens: Generated so far.
        features: m of linear attention; softmax and values have 64 channels.

    Returns:
        A figure with two lines, a dot on each at the length, and a mark where they cross.
    """
    found = _kept(tokens, features)
    cache, state, equal = found["cache"], found["state"], found["equal"]
    hover = "%{x:,.0f} tokens: %{y:,.3g} MiB"
    ends = [COUNTED * cache_numbers(n, 64, 64) / MIB for n in (1, MOST)]
    traces = [
        line([1, MOST], ends, SOFTMAX, "cache of softmax", hover=hover),
        line([1, MOST], found["level"], STATE, "states", hover=hover),
        dots([tokens], [cache], SOFTMAX, hover=hover),
        dots([tokens], [state], STATE, hover=hover),
        dots([equal], [state], PALETTE["brown"], "equal", symbol="x", size=10, hover=hover),
    ]
    axes = layout(
        height=400,
        margin={"l": 54, "r": 14, "t": 44, "b": 84},
        title_text=f"cache {cache:,.1f} MiB, states {state:,.1f} MiB",
        xaxis=tokens_axis([1, 32, 1024, 32768, MOST], 0, math.log10(MOST)),
        yaxis=axis("MiB", -1.8, 5, type="log", dtick=1, exponentformat="power"),
    )
    return Drawn(
        go.Figure(traces, axes),
        "A line chart shows the memory, in MiB, that a model of 12 layers of 12 heads keeps, "
        f"against the number of tokens so far, from 1 to {MOST:,}, on logarithmic axes. The line "
        f"of the cache of softmax rises. The line of the states, with {features:,.0f} features, "
        f"is horizontal. Dots mark {tokens:,.0f} tokens, after which the cache takes {cache:,.1f} "
        f"MiB and the states take {state:,.1f} MiB. A cross marks where the two lines meet, at "
        f"{equal:,.0f} tokens.",
    )


FACTORS = [round(1.25**k, 3) for k in range(25)]  # to about 200


@computed
def _faster(share: Tensor, factor: Tensor) -> dict[str, Tensor]:
    """Return the times of the rest and of the part, before and after, and the whole's gains."""
    part = torch.stack([share, share / factor])
    factors = torch.tensor(FACTORS, dtype=torch.float64)
    return {
        "rest": (1 - share) * torch.ones(2, dtype=torch.float64),
        "part": part,
        "gain": 1 / (1 - share + share / factor),
        "gains": 1 / (1 - share + share / factors),
        "most": 1 / (1 - share) * torch.ones(2, dtype=torch.float64),
    }


def amdahl_bars(share: float, factor: float) -> Drawn:
    """Draw a time of which a part becomes faster, and how much faster the whole is: Amdahl's law.

    The gain is that of :eq:`eq-amdahl`.

    Args:
        share: p, the part's share of the time before.
        factor: f, how many times as fast the part becomes.

    Returns:
        A figure with the two times above, and the gain against f below.
    """
    found = _faster(share, factor)
    rows, part = ["after", "before"], COLOURS["favor"]
    (before, after), gain, most = found["part"], found["gain"], found["most"][0]
    look = {"orientation": "h", "hover": "%{x:.3f}"}
    times = [
        bars(list(reversed(found["rest"])), rows, REST, "the rest", **look),
        bars([after, before], rows, part, "the part", **look),
    ]
    curve = [
        line([1, FACTORS[-1]], found["most"], REST, "limit for any f", width=2, dash="dot"),
        line(FACTORS, found["gains"], part, hover="%{x:.3g} times: %{y:.2f}"),
        dots([factor], [gain], part, hover="%{x:.3g} times: %{y:.2f}"),
    ]
    fig = panels(
        Panel(times, x=axis("time", 0, 1.02, dtick=0.25), y={"type": "category"}),
        Panel(
            curve,
            f"the whole: {gain:.2f} times as fast, at most {most:.2f}",
            x=axis("speed-up of the part", 0, 2.3, type="log", tickvals=[1, 2, 5, 10, 50, 200]),
            y=axis("speed-up of the whole", 0.9, 4.1, dtick=1),
        ),
        heights=(0.25, 0.5),
        down=0.25,
        height=460,
        barmode="stack",
        margin={"l": 60, "r": 14, "t": 14, "b": 92},
    )
    return Drawn(
        fig,
        "A bar chart and a line chart show how much faster a whole becomes if one of its parts "
        "becomes faster. The two stacked horizontal bars above are the time before and after, "
        f"each divided into the part and the rest. Before, the part takes {before:.2f} of a total "
        f"time of 1. If the part becomes {factor:g} times as fast, it takes {after:.2g}, and the "
        "rest takes as long as before. The line chart below shows the speed-up of the whole "
        "against the speed-up of the part, on a logarithmic axis. A dot on the rising curve "
        f"marks this change, which makes the whole {gain:.2f} times as fast. A dotted horizontal "
        f"line at {most:.2f} is the limit of the curve.",
    )


TEXTS = sorted({round(2 ** (k / 8)) for k in range(129)})  # tokens, to 65,536
BYTES = {"float32": 4, "bfloat16": 2}


@computed
def _of_peak(ridge: Tensor, channels: Tensor, size: int) -> dict[str, Tensor]:
    """Return which share of a machine's multiplications softmax and a state can use at most.

    And the tokens from which on softmax can use all.
    """
    d: Any = channels
    state = linear_products(1, 1, d + 1) * d / (size * moved_numbers(1, d, d) * ridge)
    softmax = torch.tensor(TEXTS, dtype=torch.float64) / (2 * size * ridge)
    return {
        "softmax": softmax.clamp(max=1),
        "state": state.clamp(max=1) * torch.ones(2, dtype=torch.float64),
        "whole": 2 * size * ridge,
    }


def other_machine(ridge: float, channels: int, numbers: str) -> Drawn:
    """Draw how much of a machine softmax and a state can use, by its ridge: :eq:`eq-intensity`.

    Args:
        ridge: Multiplications that the machine does for each byte that it moves.
        channels: d.
        numbers: A name in ``BYTES``.

    Returns:
        A figure of two lines over the tokens.
    """
    found = _of_peak(ridge, channels, BYTES[str(numbers)])
    state, whole = found["state"][0], found["whole"]
    hover = "%{x:,} tokens: %{y:.0%}"
    traces = [
        line(TEXTS, found["softmax"], SOFTMAX, "softmax", hover=hover),
        line([1, TEXTS[-1]], found["state"], STATE, "state", hover=hover),
        dots([whole], [1], SOFTMAX, hover=hover),
    ]
    axes = layout(
        height=360,
        margin={"l": 60, "r": 14, "t": 44, "b": 84},
        title_text=f"softmax: 100% from {whole:,.0f} tokens; state: {state:.0%}",
        xaxis=tokens_axis([1, 16, 256, 4096, 65536], 0, math.log10(TEXTS[-1])),
        yaxis=axis("usable share of the full rate", 0, 1.05, tickformat=".0%"),
    )
    return Drawn(
        go.Figure(traces, axes),
        "A line chart shows the largest share of a machine's multiplications that attention can "
        f"use, against the number of tokens, on a logarithmic axis, in {numbers}. The machine "
        f"does {ridge:g} multiplications per byte moved. The line of softmax rises, and a dot "
        f"marks where it reaches 100%, at {whole:,.0f} tokens. The line of a state with "
        f"{channels:.0f} channels is horizontal at {state:.0%}.",
    )
