"""Share of weight of the nearest tokens; bits per byte and perplexity of recorded models."""

from __future__ import annotations

import functools
import math
from typing import Any

import plotly.graph_objects as go
import torch
from torch import Tensor

from book.cells import coloured
from book.figures.marks import axis, bars, dots, line, rounded, segments
from book.names import display, wrapped
from lab.explore import COLOURS, PALETTE, Drawn, computed, layout, pick
from lab.records import read_record
from lab.theory.spread import interval, mean

__all__ = [
    "FLOORS",
    "RESULTS",
    "lead_by_step",
    "leads_in_units",
    "method",
    "near_share",
    "nearest_tokens",
    "said",
    "unit_strictness",
    "within_percent",
]

NEAR = 4
"""Tokens whose share the alternative text gives."""
COUNTS = sorted({*(2**e for e in range(11)), *(3 * 2**e for e in range(9))})  # 1 to 1024


def near_share(weights: list[float], near: int) -> float:
    """Return the share of all weight that is on the last ``near`` tokens, :eq:`eq-near-share`.

    Args:
        weights: The weight at distance 0, 1, 2 …
        near: How many of the nearest tokens.
    """
    return math.fsum(weights[:near]) / math.fsum(weights)


@computed
def _shares(length: Tensor, half_life: Tensor) -> dict[str, Tensor]:
    """Return the share of the nearest tokens for each of ``counts``, and of the nearest four."""
    distances = torch.arange(COUNTS[-1], dtype=torch.float64)
    weights = {
        "uniform": (distances < length).double(),
        "cosine": (distances / length * math.pi / 2).cos(),
        "gla": 2 ** (distances / -half_life),
    }
    # as many points for every length, so that a slider moves them instead of drawing anew
    counts = torch.tensor(COUNTS, dtype=torch.float64).minimum(length)
    within = torch.cat([counts, torch.tensor([NEAR])])[:, None] > distances
    seen = torch.stack([*weights.values()]) * (distances < length)
    shares = (seen @ within.double().mT) / seen.sum(-1, keepdim=True)
    near = shares[:, -1]
    return {
        "counts": counts,
        **dict(zip(weights, shares, strict=True)),
        "cosine_wins": (near[1] > near[2]).double(),
    }


def nearest_tokens(length: int, half_life: int) -> Drawn:
    """Draw the share of the nearest k tokens, for every k, under three position weights.

    Args:
        length: Tokens that a query attends to, itself included; also the horizon of the cosine.
        half_life: Tokens after which the decay has lost a half.

    Returns:
        A figure with three curves.
    """
    found = _shares(length, half_life)
    names = {
        "uniform": "no weight",
        "cosine": f"cosine, M = {length:g}",
        "gla": f"decay, half-life {half_life:g}",
    }
    curves = [
        line(
            found["counts"],
            found[name][:-1],
            COLOURS[name],
            label,
            hover="nearest %{x}: %{y:.1%}",
        )
        for name, label in names.items()
    ]
    axes = layout(
        height=400,
        margin={"l": 54, "r": 14, "t": 44, "b": 96},
        title_text=f"a query attends to {length:g} tokens",
        xaxis=axis(
            "number k of nearest tokens", 0, 3.02, type="log", tickvals=[1, 4, 16, 64, 256, 1024]
        ),
        yaxis=axis("share of the weight on the k nearest", 0, 1.03, tickformat=".0%"),
    )
    fig = go.Figure(curves, axes)
    fig.add_vline(NEAR, line={"color": COLOURS["uniform"], "dash": "dot", "width": 1})
    shares = {name: found[name][-1] for name in names}
    return Drawn(
        fig,
        f"A line chart shows the share of the position weight on the k nearest of {length:g} "
        "tokens against k, on a logarithmic axis. The three lines are for a decay with half-life "
        f"{half_life:g}, the cosine weight and no weight, and all of them rise to 100%. A dotted "
        f"vertical line marks k = {NEAR}, where the line of "
        f"{pick(found['cosine_wins'], 'the decay', 'the cosine weight')} is the highest of the "
        f"three. The nearest {NEAR} tokens get {shares['gla']:.1%} of the weight with the decay, "
        f"{shares['cosine']:.1%} with the cosine weight and {shares['uniform']:.1%} without a "
        "weight.",
    )


BITS = [round(0.005 * i, 3) for i in range(31)]


@computed
def _more(unit: Tensor) -> dict[str, Tensor]:
    """Return by how many per cent perplexity grows with bits per byte; the bits of 5% and 10%."""
    bits = torch.tensor(BITS, dtype=torch.float64)
    shares = torch.tensor([0.05, 0.1], dtype=torch.float64)
    return {"more": 100 * (2 ** (unit * bits) - 1), "strict": (1 + shares).log2() / unit}


def unit_strictness(unit: float) -> Drawn:
    """Draw the difference in perplexity for a difference in bits per byte, :eq:`eq-perplexity`.

    Args:
        unit: Bytes c per unit of perplexity.

    Returns:
        A figure with a line for this unit and one for bytes; dots at 5% and at 10%.
    """
    found = _more(unit)
    of_bytes = [round(100 * (2**b - 1), 3) for b in BITS]
    five, ten = found["strict"]
    hover = "%{x:.3f} bits: %{y:.1f}%"
    traces = [
        line(
            BITS, of_bytes, PALETTE["grey"], "units of one byte", width=2, dash="dot", hover=hover
        ),
        line(BITS, found["more"], PALETTE["blue"], f"units of {unit:g} bytes", hover=hover),
        dots(found["strict"], [5, 10], PALETTE["red"], "5% and 10%", hover=hover),
    ]
    axes = layout(
        height=360,
        margin={"l": 54, "r": 14, "t": 44, "b": 84},
        title_text=f"a difference of 5% is {five:.3f} bits per byte",
        xaxis=axis("difference in bits per byte", 0, 0.15, dtick=0.05),
        yaxis=axis("difference in perplexity, %", 0, 30, dtick=10),
    )
    return Drawn(
        go.Figure(traces, axes),
        "A line chart shows the difference in perplexity, in percent, against the difference in "
        "bits per byte, from 0 to 0.15. Both lines rise from 0. The dotted line is for units of "
        f"one byte, and the solid line is for units of {unit:g} bytes. Two dots on the solid line "
        f"mark a difference in perplexity of 5%, which is {five:.3f} bits per byte, and a "
        f"difference of 10%, which is {ten:.3f} bits per byte.",
    )


BASE = "softmax, RoPE"
"""The model that the others are compared with."""
FLOORS = (3.34, 2.53, 2.29)
"""Bits per byte of tables that count after one, two and three bytes, as the chapter finds."""
LOGGED = [*range(0, 4000, 100), 3999]
"""Steps whose losses are recorded."""


def method(name: str) -> str:
    """Return the method whose colour a model has, or a cell of a claim about one."""
    return coloured(name, "language")


def said(name: str) -> str:
    """Return the display name of a model."""
    return display(name, model=True)


RESULTS = {
    **{
        said(name): (name, f"{copied or name}, alone")
        for name, copied in {
            "softmax, RoPE": "",
            "softmax, KERPLE": "",
            "softmax, T5": "",
            "FAVOR+, RoPE": "",
            "C-CosGate": "",
            "C-CosGate, RoPE": "",
            "C-CosGate, RoPE, ramp": "",
            "circulant, SSD": "",
            "circulant, GLA": "",
            "ELU, SSD": "SSD",
            "ELU, GLA": "GLA",
            "gated delta rule": "",
            "half softmax, half circulant, RoPE": "",
        }.items()
    },
    **{
        f"Hybrid: softmax + {name}": ("", f"{kind} and a head of softmax, alone")
        for kind, name in {
            "FAVOR+, RoPE": "FAVOR+ (orthogonal)",
            "SSD": "SSD decay",
            "GLA": "GLA decay",
            "gated delta rule": "gated delta rule",
        }.items()
    },
}
"""Display name → the model's name in the studies of text, and in that of copies."""


@functools.cache
def _recorded(study: str, what: str) -> dict[str, list[Any]]:
    """Return what each run of each model of a study has, the models with the least bits first."""
    cells = read_record(study)["data"]["cells"]
    order = sorted(cells, key=lambda name: sum(run["bits"] for run in cells[name]["runs"]))
    return {name: [run[what] for run in cells[name]["runs"]] for name in order}


@computed
def _within(percent: Tensor, unit: Tensor, bits: list[list[float]], base: int) -> dict[str, Tensor]:
    """Return the bits that a percentage allows, where they end, and who is within by its mean."""
    means = torch.tensor(bits, dtype=torch.float64).mean(-1)
    more = (1 + percent / 100).log2() / unit
    within = (means <= means[base] + more).double()
    return {
        "more": more,
        "limit": (means[base] + more).expand(2),
        "count": within.sum(-1) - 1,
        "shown": (0.2 + 0.7 * within)[:, None].expand(-1, len(bits[0])).flatten(),
    }


def within_percent(percent: float, unit: float) -> Drawn:
    """Draw the bits per byte of models and a limit of perplexity: :eq:`eq-perplexity`.

    Args:
        percent: Of perplexity, by which a model may be above softmax with RoPE.
        unit: Bytes c per unit of perplexity.

    Returns:
        A figure with a row for each model, and the limit.
    """
    recorded = _recorded("language", "bits")
    names, bits = [said(name) for name in recorded], [*recorded.values()]
    found = _within(percent, unit, bits, [*recorded].index(BASE))
    colours = [COLOURS[method(name)] for name in recorded]
    rows = range(len(names))
    each = [(row, value) for row in rows for value in bits[row]]
    spans: dict[str, list[Any]] = {shade: [] for shade in colours}
    for row, shade in enumerate(colours):
        low, high = interval(bits[row])
        spans[shade].append(((low, row + 0.3), (high, row + 0.3)))
    ends = [-0.6, len(names) - 0.5]
    words = ["1 byte", "2", "3"]
    pillars = [((x, ends[0]), (x, ends[1])) for x in FLOORS]
    traces = [
        segments(pillars, PALETTE["grey"], width=1),
        dots(FLOORS, [-1.1] * len(FLOORS), PALETTE["grey"], size=1, text=words,
             textposition="middle center"),
        line(found["limit"], ends, PALETTE["red"], width=2),
        *(segments(spans[shade], shade).update(opacity=0.5) for shade in spans),
        dots(
            [x for _, x in each], [row for row, _ in each], [colours[row] for row, _ in each],
            size=8, hover="%{x:.2f} bits per byte",
        ),
    ]  # fmt: skip
    traces[-1].marker.opacity = found["shown"]
    axes = layout(
        height=840,
        margin={"l": 158, "r": 14, "t": 44, "b": 48},
        title_text=f"within {percent:g}% ({found['more']:.3f} bits per byte): "
        f"{found['count']:.0f} of {len(names) - 1}",
        xaxis=axis("bits per byte of the test text", 1.72, 3.6, dtick=0.5),
        yaxis=axis(low=len(names) - 0.4, high=-1.6, tickvals=[*rows], showgrid=False,
                   zeroline=False, ticktext=[wrapped(name, 25) for name in names]),
    )  # fmt: skip
    means = {name: sum(v) / len(v) for name, v in zip(names, bits, strict=True)}
    least, most = (end(means, key=means.__getitem__) for end in (min, max))
    return Drawn(
        go.Figure(traces, axes),
        f"A dot plot shows the bits per byte of {len(names)} models, in a row for each model, "
        "with a dot for each of five seeds and a thick line for the 95% interval of the mean. "
        f"The lowest mean is {means[least]:.2f}, of {least}, and the highest mean is "
        f"{means[most]:.2f}, of {most}. A tall vertical line marks a perplexity {percent:g}% "
        f"above that of {said(BASE)}, which is {found['more']:.3f} bits per byte more. Left of "
        f"this line are the means of {found['count']:.0f} of the {len(names) - 1} other models, "
        "and the dots of all models right of it are pale. Three thin vertical lines mark tables "
        "that count which byte follows the last one, two and three bytes. The tables need "
        f"{FLOORS[0]}, {FLOORS[1]} and {FLOORS[2]} bits per byte.",
    )


@computed
def _in_units(unit: Tensor, bits: list[float]) -> dict[str, Tensor]:
    """Return the difference in perplexity of each model in per cent, the least and the largest."""
    percent = 100 * ((unit * torch.tensor(bits, dtype=torch.float64)).exp2() - 1)
    return {"percent": percent, "ends": torch.stack([percent.amin(-1), percent.amax(-1)])}


def leads_in_units(unit: float) -> Drawn:
    """Draw differences in perplexity from softmax with RoPE, in a unit: :eq:`eq-perplexity`.

    Args:
        unit: Bytes c per unit of perplexity.

    Returns:
        A figure of bars, in percent.
    """
    recorded = _recorded("language_long", "bits")
    base = mean(recorded[BASE])
    models = [name for name in recorded if name not in (BASE, "C-CosGate")]
    bits = {said(name): mean(recorded[name]) - base for name in models}
    found = _in_units(unit, [*bits.values()])
    least, most = found["ends"]
    rows = bars(
        found["percent"],
        [wrapped(name, 25) for name in bits],
        [COLOURS[method(name)] for name in models],
        orientation="h",
        hover="%{x:.1f}%",
    )
    axes = layout(
        height=600,
        margin={"l": 164, "r": 14, "t": 44, "b": 68},
        title_text=f"units of {unit:g} bytes: {least:+.1f}% to {most:+.1f}%",
        xaxis=axis("difference from<br>softmax + RoPE, %", -20, 34, dtick=10),
        yaxis={"type": "category", "range": [len(bits) - 0.5, -0.5]},
        bargap=0.35,
    )
    first, *_, last = sorted(bits, key=lambda name: bits[name])
    return Drawn(
        go.Figure(rows, axes),
        f"A horizontal bar chart shows the difference in perplexity from {said(BASE)}, in "
        f"percent, after 4,000 steps, for units of {unit:g} bytes. It has one bar for each of "
        f"{len(bits)} models, and a bar to the left of 0 is a lower perplexity. The lowest "
        f"difference is {least:+.1f}%, of {first}. The highest difference is {most:+.1f}%, of "
        f"{last}.",
    )


@computed
def _leads_at(step: Tensor, steps: list[int], leads: list[list[float]]) -> dict[str, Tensor]:
    """Return the differences at a step, the least and the largest, and the step for each model."""
    here = (torch.tensor(steps, dtype=torch.float64) == step).double()
    now = (torch.tensor(leads, dtype=torch.float64) * here).sum(-1)
    return {
        "now": now,
        "ends": torch.stack([now.amin(-1), now.amax(-1)]),
        "step": step.expand(len(leads)),
    }


LED = ("ELU, GLA", "ELU, SSD", "circulant, SSD", "C-CosGate, RoPE, ramp", "FAVOR+, RoPE")


def lead_by_step(step: int) -> Drawn:
    """Draw how many bits per byte models are below softmax with RoPE during training.

    Args:
        step: One of ``LOGGED``.

    Returns:
        A figure with a line for each model, and a dot at the step.
    """
    recorded = _recorded("language_long", "losses")
    losses = {name: torch.tensor(recorded[name], dtype=torch.float64) for name in (BASE, *LED)}
    leads = [rounded(((losses[BASE] - losses[name]) / math.log(2)).mean(0), 4) for name in LED]
    found = _leads_at(step, LOGGED, leads)
    names, colours = [said(name) for name in LED], [COLOURS[method(name)] for name in LED]
    last, first = found["ends"]
    looks = zip(names, leads, colours, strict=True)
    traces = [
        line(LOGGED, values, shade, name, width=2, hover="step %{x:,}: %{y:.2f} bits per byte",
             dash="dash" if colours.index(shade) != k else None)
        for k, (name, values, shade) in enumerate(looks)
    ]  # fmt: skip
    traces.append(
        dots(found["step"], found["now"], colours, size=10, hover="%{y:.2f} bits per byte")
    )
    axes = layout(
        height=470,
        margin={"l": 54, "r": 18, "t": 44, "b": 168},
        title_text=f"step {step:,g}: from {last:+.2f} to {first:+.2f} bits per byte",
        xaxis=axis("training step", 0, LOGGED[-1]),
        yaxis=axis("bits per byte below softmax + RoPE", -1.5, 0.7),
    )
    told = " ".join(
        f"The line of {name} is at {lead:+.2f} at this step."
        for name, lead in zip(names, found["now"], strict=True)
    )
    return Drawn(
        go.Figure(traces, axes),
        "A line chart shows by how many bits per byte of training batches a model is better than "
        f"{said(BASE)}, against the training step, from 0 to {LOGGED[-1]:,}. There is one line "
        f"for each of {len(names)} models, and a line above 0 means fewer bits than {said(BASE)}. "
        f"Dots mark step {step:,g}. {told}",
    )
