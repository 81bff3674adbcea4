"""Longer texts than in training: scores, windows of biases, text, and needles."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
import torch
from torch import Tensor

from book.cells import shown
from book.figures.marks import axis, bars, box, dots, line, rounded
from book.names import display
from lab.explore import COLOURS, Drawn, Panel, computed, layout, panels, pick
from lab.theory.extrapolation import seen_turns
from lab.theory.spread import interval
from results.extrapolation import EDGES, LENGTHS
from stringlib import RoPE

__all__ = [
    "LENGTH_METHODS",
    "NAMES",
    "above_window",
    "beyond_training",
    "bracketed",
    "heard_window",
    "lost_and_found",
    "read_on",
    "stale_cache",
]

TRAINED, DIM, FAST = 64, 16, 4
WIDTH, RIDGE = 4, 1e-3  # of the preference −log(1 + Δ/4), and of the fit
LENGTH_METHODS = {"rope": "unscaled", "pi": "interpolation", "ntk": "NTK-aware", "yarn": "YaRN"}
"""Name of a method → its name in the figure."""
SCALED = {
    "rope": "without scaling",
    "pi": "with interpolation",
    "ntk": "with NTK-aware scaling",
    "yarn": "with YaRN",
}
"""Name of a method → what a sentence says of it."""
NAMES = {
    name: shown(name, "extrapolation")
    for name in (
        *("rope", "pi", "ntk", "yarn", "rope tuned", "pi tuned", "sinusoidal", "alibi"),
        *("kerple-log", "kerple-power", "t5", "gla", "none"),
    )
}
"""Name of a method in the record → its display name."""
SHORT = {
    name: {"gla": "GLA decay", "none": "no position encoding"}.get(
        name, label.removeprefix("RoPE, ")
    )
    for name, label in NAMES.items()
}
"""Name of a method in the record → a short name for the label of a dot, and for a sentence."""


def bracketed(middle: float, low: float, high: float) -> str:
    """Return a mean and, in brackets, its interval, with two digits."""
    ends = (_hundredths(x).replace("-", "−") for x in (middle, low, high))
    return "{} [{}, {}]".format(*ends)


PAIRS, LARGEST = DIM // 2, 16
NEAR = 4, TRAINED - 1  # distances whose scores the alternative text gives


def _slowing(method: str) -> tuple[list[float], list[float]]:
    """Return the kept share of each pair, and the power of the scale by which the rest falls."""
    turns = seen_turns(RoPE(DIM).frequencies(), TRAINED)[0, :, 0]
    ramp = ((turns - 1) / (FAST - 1)).clamp(0, 1).tolist()
    whole, none = [1.0] * PAIRS, [0.0] * PAIRS
    return {
        "rope": (whole, whole),
        "pi": (none, whole),
        "ntk": (none, [i / (PAIRS - 1) for i in range(PAIRS)]),
        "yarn": (ramp, whole),
    }[method]


def _waves(distances: Tensor, frequencies: Tensor) -> Tensor:
    """Return cosines and sines at distances ``(n, 1)``."""
    angles = distances * frequencies
    return torch.cat([angles.cos(), angles.sin()], -1)


def _preference(distances: Tensor) -> Tensor:
    return -torch.log1p(distances / WIDTH)


def _fitted() -> list[float]:
    """Return the amplitudes of the waves that fit the preference best in training."""
    near = torch.arange(TRAINED, dtype=torch.float64)
    A, wish = _waves(near[:, None], RoPE(DIM).frequencies()[0, :, 0]), _preference(near)
    damped = A.mT @ A + RIDGE * TRAINED * torch.eye(DIM, dtype=A.dtype)
    return torch.linalg.solve(damped, A.mT @ wish).tolist()


@computed
def _beyond(
    scale: Tensor, keep: list[float], power: list[float], fit: list[float], shown: list[int]
) -> dict[str, Tensor]:
    """Return the score at the distances that are shown, with gaps, and the angles that are new.

    Also the scores at ``NEAR``, and the least and the largest score beyond training.
    """
    theta, kept = RoPE(DIM).frequencies()[0, :, 0], torch.tensor(keep, dtype=torch.float64)
    slowed = theta * (kept + (1 - kept) * scale ** -torch.tensor(power, dtype=torch.float64))
    amplitudes = torch.tensor(fit, dtype=torch.float64)[:, None]
    places, length = torch.tensor(shown, dtype=torch.float64)[:, None], scale * TRAINED
    beyond = torch.arange(TRAINED, LARGEST * TRAINED).double()[:, None]
    scores, far = (_waves(at, slowed) @ amplitudes for at in (places, beyond))
    inside = beyond < length
    ends = [torch.where(inside, far, 1e9).amin(), torch.where(inside, far, -1e9).amax()]
    met = (slowed * length / (2 * math.pi)).clamp(max=1)
    new = (met - seen_turns(theta, TRAINED).clamp(max=1)).clamp(min=0)
    return {
        "scores": torch.where(places <= length, scores, math.nan)[:, 0],
        "near": torch.stack([scores[shown.index(at), 0] for at in NEAR]),
        "far": torch.stack(ends),
        "new": new,
        "meet": (new > 0.005).double().sum(-1),
    }


def beyond_training(method: str, scale: float) -> Drawn:
    """Draw a score against distance far beyond training, and the angles that are new.

    Eight pairs of RoPE are fitted, by least squares, to a preference for near keys at the 64
    distances of training.  Above, the score of that head at up to ``64 * scale`` tokens; below,
    for each pair the share of the circle that it met in training and the share that is new.

    Args:
        method: One of ``LENGTH_METHODS``.
        scale: How many times as long the text is, above 1 and at most 16.

    Returns:
        A figure with two panels.
    """
    method = str(method)
    name = f"{LENGTH_METHODS[method]}, text {scale:g} times as long"
    curve = torch.unique(torch.logspace(0, 10, 161, base=2).round()).long().tolist()
    shown = sorted({*curve, *NEAR})
    found = _beyond(scale, *_slowing(method), _fitted(), shown)
    seen = seen_turns(RoPE(DIM).frequencies(), TRAINED)[0, :, 0].clamp(max=1)
    grey, colour = COLOURS["none"], COLOURS[method]

    def share(of: Any, name: str, colour: str, **look: Any) -> go.Bar:
        return bars(None, of, colour, name, hover="pair %{x}: %{y:.0%}", **look)

    preference = rounded(_preference(torch.tensor(shown)))
    trained = box(1, TRAINED - 1, 0, 1, width=0)
    shade = {"yref": "domain", "fillcolor": grey, "opacity": 0.15, "layer": "below"}
    ticks = [1, 4, 16, 64, 256, 1024]
    fig = panels(
        Panel(
            [
                line(shown, preference, grey, "preference for nearby keys", width=2, dash="dot"),
                line(
                    shown,
                    found["scores"],
                    colour,
                    "fitted score",
                    hover="%{x} tokens: %{y:.2f}",
                ),
            ],
            x=axis("distance of the key (tokens)", 0, 3.02, type="log", tickvals=ticks),
            y=axis("score", -6.2, 2.4),
            shapes=[{**trained, **shade}],
        ),
        Panel(
            [
                share(rounded(seen, 4), "occurred in training", grey, opacity=0.45),
                share(found["new"], "new at test", colour),
            ],
            x=axis("pair, from high to low frequency", dtick=1, showgrid=False),
            y=axis("share of the circle", 0, 1.05, tickformat=".0%"),
        ),
        heights=(0.54, 0.26),
        down=0.2,
        height=520,
        barmode="stack",
        margin={"l": 48, "r": 12, "t": 34, "b": 92},
        title_text=name,
    )
    near, last = found["near"]
    low, high = found["far"]
    return Drawn(
        fig,
        f"Two panels show RoPE {SCALED[method]} for a text {scale:g} times as long as in "
        "training. The upper panel is a line chart of the score of a key against its distance in "
        "tokens, on a logarithmic axis. A shaded band covers the distances in training, up to "
        f"{TRAINED - 1}. A solid line is the score, which is {near:.1f} at distance {NEAR[0]} and "
        f"{last:.1f} at distance {TRAINED - 1}. At the larger distances of this text the score is "
        f"between {low:.1f} and {high:.1f}. A dotted line shows the preference for near keys to "
        "which the score was fitted, and this line continues to fall. The lower panel is a bar "
        "chart with one stacked bar per pair, from high to low frequency. A bar consists of the "
        "share of the circle whose angles occurred in training, and the share whose angles are "
        f"new at test. Of the {PAIRS} pairs, {found['meet']:.0f} meet new angles.",
    )


APART = 40
KEYS = list(range(0, 481, 4))  # positions of the key


@computed
def _stale(scale: Tensor, power: list[float]) -> dict[str, Tensor]:
    """Return the score of a key that is rotated again, and that of a key from the cache.

    All pairs of query and key have length 1 and the same direction.
    """
    theta = RoPE(DIM).frequencies()[0, :, 0]
    slowed = theta * scale ** -torch.tensor(power, dtype=torch.float64)
    places = torch.tensor(KEYS, dtype=torch.float64)[:, None]
    kept = (slowed * APART + (slowed - theta) * places).cos().sum(-1)
    anew = (slowed * APART).cos().sum(-1)
    ends = torch.stack([kept.amin(), kept.amax()])
    return {
        "anew": anew.expand(2),
        "kept": kept,
        "ends": ends,
        "differs": ((ends - anew).abs().amax() > 0.005).double(),
    }


def stale_cache(scale: float) -> Drawn:
    """Draw the score of a query with a key that was rotated before the scale changed.

    Args:
        scale: Scale s of the query, NTK-aware, :eq:`eq-scale-ntk`; the key was rotated for 1.

    Returns:
        A figure of two curves against the position of the key, 40 tokens before the query.
    """
    found = _stale(scale, _slowing("ntk")[1])
    anew, (low, high) = found["anew"], found["ends"]
    where = pick(
        found["differs"],
        "With a key from the cache the score is the same everywhere, because s = 1 is no scaling",
        "With a key from the cache the score changes with the position of the key",
    )
    axes = layout(
        height=350,
        margin={"l": 54, "r": 14, "t": 44, "b": 96},
        title_text=f"rotated again {anew[0]:.1f}, from the cache {low:.1f} to {high:.1f}",
        xaxis=axis("position of the key (tokens)", 0, KEYS[-1], dtick=100),
        yaxis=axis("score", -3, 7.5, dtick=2),
    )
    curves = [
        line(KEYS, found["kept"], COLOURS["ntk"], "key from the cache", hover="%{x}: %{y:.2f}"),
        line([0, KEYS[-1]], anew, COLOURS["none"], "key rotated again", dash="dash"),
    ]
    return Drawn(
        go.Figure(curves, axes),
        f"A line chart shows the score of a query and a key that is {APART} tokens before the "
        f"query, against the position of the key, from 0 to {KEYS[-1]} tokens. The query is "
        f"rotated with the scale s = {scale:g}. If the key is rotated again with this scale, the "
        f"score is {anew[0]:.1f} at every position, which a horizontal dashed line shows. "
        f"{where}. The solid line of this key has its lowest point at {low:.1f} and its highest "
        f"point at {high:.1f}.",
    )


LONGEST = 16_384
READ = sorted({round(2 ** (k / 4)) for k in range(57)})  # lengths of a curve, to the longest


@computed
def _windows(tokens: Tensor, r1: Tensor, inverse: Tensor) -> dict[str, Tensor]:
    """Return the windows of KERPLE's logarithm and of ALiBi for all lengths, and at one length.

    Also the share of the weight beyond the trained length.
    """
    distances = (0 * r1 + 1).expand(LONGEST).cumsum(0) - 1  # a program would store an arange
    weights = torch.stack([(1 + distances / 4) ** -r1, (-distances / inverse).exp()])
    sums = weights.cumsum(-1)
    here = (weights * (distances < tokens)).sum(-1)
    near = sums[:, TRAINED - 1]
    return {
        "curves": sums.index_select(-1, torch.tensor(READ) - 1),
        "here": here,
        "wider": (here[1] > here[0]).double(),
        "beyond": 1 - near / here,
    }


def heard_window(tokens: int, r1: float, inverse: float) -> Drawn:
    """Draw to how many tokens a head attends, with KERPLE's logarithm and with ALiBi.

    The effective windows of :eq:`eq-extra-kerple`, with :math:`r_2 = 1/4`, and of
    :eq:`eq-extra-alibi`, for contents that score alike.

    Args:
        tokens: n in the text, from 64 on.
        r1: The power of KERPLE's weights.
        inverse: One over ALiBi's slope.

    Returns:
        A figure of two curves against the length, with a dot at n.
    """
    found = _windows(tokens, r1, inverse)
    names = {name: display(name) for name in ("kerple-log", "alibi")}
    traces, said = [], []
    for i, (name, label) in enumerate(names.items()):
        hover = "%{x:,} tokens: window %{y:.1f}"
        traces += [
            line(READ, found["curves"][i], COLOURS[name], label, hover=hover),
            dots([tokens], [found["here"][i]], COLOURS[name], hover=hover),
        ]
        said.append(f"{label.partition(' (')[0]} {found['beyond'][i]:.0%}")
    wide = pick(found["wider"], "The line of KERPLE is higher", "The line of ALiBi is higher")
    told = ", ".join(said)
    ticks = [1, 8, 64, 512, 4096]
    axes = layout(
        height=380,
        margin={"l": 54, "r": 14, "t": 44, "b": 84},
        title_text=f"weight beyond {TRAINED}: {told}",
        xaxis=axis("number of tokens n", 0, math.log10(LONGEST), type="log",
                   tickvals=[*ticks, LONGEST], ticktext=[f"{n:,}" for n in (*ticks, LONGEST)]),
        yaxis=axis("effective window (tokens)", 0, 4.2, type="log", tickvals=ticks),
        shapes=[{**box(1, TRAINED, 0, 1, width=0), "yref": "y domain", "opacity": 0.15,
                 "fillcolor": COLOURS["none"], "layer": "below"}],
    )  # fmt: skip
    return Drawn(
        go.Figure(traces, axes),
        "A line chart shows the effective window of a head, in tokens, against the number of "
        f"tokens of the text, from 1 to {LONGEST:,}, on logarithmic axes. A shaded band covers "
        f"the lengths up to the training length, {TRAINED}. Dots mark a text of {tokens:,.0f} "
        f"tokens, where {names['kerple-log']} with r₁ = {r1:g} has a window of "
        f"{found['here'][0]:.1f} tokens. {names['alibi']} with slope 1/{inverse:g} has a window "
        f"of {found['here'][1]:.1f} tokens. {wide} at this length. {names['kerple-log']} gives "
        f"{found['beyond'][0]:.0%} of the weight to tokens beyond the nearest {TRAINED}, and "
        f"{names['alibi']} gives {found['beyond'][1]:.0%}.",
    )


Seeds = Mapping[str, tuple[str, Sequence[Sequence[float]]]]
"""Name of a method → its colour, and a row of numbers for each seed."""


def _hundredths(number: float) -> str:
    """Return a number with two digits, and no sign before a zero."""
    return f"{round(number, 2) + 0.0:.2f}"


def _others(number: int) -> str:
    """Return how many other methods have something, as the begin of a sentence."""
    if number < 2:
        return ("no other method has", "one other method has")[number]
    return f"{number} other methods have"


def _among(
    method: str, recorded: Seeds, x: Sequence[float], place: Callable[[float], float] = float
) -> list[go.Scatter]:
    """Return the curves of all methods in grey, and of one its interval and curve in colour."""

    def mean(name: str, colour: str, **look: Any) -> go.Scatter:
        values = torch.tensor(recorded[name][1], dtype=torch.float64).mean(0).tolist()
        said = [f"{NAMES[name]}: {_hundredths(v)} bits per byte" for v in values]
        y = rounded([place(v) for v in values])
        return line(x, y, colour, hover="%{text}", text=said, **look)

    colour, rows = recorded[method]
    low, high = zip(*map(interval, zip(*rows, strict=True)), strict=True)
    rim = rounded([place(v) for v in (*high, *low[::-1])])
    return [
        *(mean(name, COLOURS["none"], width=1, opacity=0.5) for name in recorded),
        line([*x, *x[::-1]], rim, COLOURS[colour], width=0, fill="toself", opacity=0.25,
             fillcolor=COLOURS[colour]),
        mean(method, COLOURS[colour], mode="lines+markers", marker={"size": 6, "opacity": 1}),
    ]  # fmt: skip


def read_on(method: str, *, recorded: Seeds) -> Drawn:
    """Draw the bits per byte of one method among all, against how many bytes it reads.

    Args:
        method: A name in ``recorded``.
        recorded: Bits per byte at each of the study's lengths.

    Returns:
        A figure with a curve for each method, and one of them in colour with its interval.
    """
    means = {
        name: torch.tensor(rows, dtype=torch.float64).mean(0).tolist()
        for name, (_, rows) in recorded.items()
    }
    values = means[method]
    fewer = sum(row[-1] < values[-1] for row in means.values())
    axes = layout(
        height=380,
        title_text=f"{NAMES[method]}:<br>{values[0]:.2f} at 64 bytes, {values[-1]:.2f} at 1,024",
        title_y=0.95,  # plotly lifts a title of two lines
        xaxis=axis("bytes read", math.log10(58), math.log10(1130), type="log",
                   tickvals=LENGTHS, ticktext=[f"{n:,}" for n in LENGTHS]),
        yaxis=axis("bits per byte", 2, 5.8, dtick=1),
    )  # fmt: skip
    return Drawn(
        go.Figure(_among(method, recorded, LENGTHS), axes),
        "A line chart shows the bits per byte of the same text against the number of bytes that "
        f"are read, from {LENGTHS[0]} to {LENGTHS[-1]:,} on a logarithmic axis. It has "
        f"{len(recorded)} lines, one per method. The line of “{NAMES[method]}” is thick, with "
        f"dots and a band for its 95% interval. This method needs {values[0]:.2f} bits per byte "
        f"if 64 bytes are read, and {values[-1]:.2f} bits per byte if 1,024 bytes are read. At "
        f"1,024 bytes, {_others(fewer)} a lower mean.",
    )


def _bent(bits: float) -> float:
    """Return a number on a scale that is linear near 0 and logarithmic far from it."""
    return math.asinh(bits / 0.05)


def above_window(method: str, *, recorded: Seeds) -> Drawn:
    """Draw the bits per byte of one method among all, minus those of a sliding window.

    Args:
        method: A name in ``recorded``.
        recorded: Bits per byte above the window between each two of the study's ``EDGES``.

    Returns:
        A figure with a curve for each method, and one of them in colour with its interval.
    """
    ends = list(itertools.pairwise(EDGES))
    places = [round(math.sqrt(max(a, 4) * b), 1) for a, b in ends]
    values = torch.tensor(recorded[method][1], dtype=torch.float64).mean(0)
    widths = torch.tensor([b - a for a, b in ends], dtype=torch.float64)
    near = torch.tensor([b <= TRAINED for _, b in ends])
    far = torch.tensor([a >= EDGES[-1] // 2 for a, _ in ends])
    first, last = (
        _hundredths((values[part] @ widths[part] / widths[part].sum()).item()).replace("-", "−")
        for part in (near, far)
    )
    ticks = [-0.1, 0, 0.1, 0.5, 1, 3]
    axes = layout(
        height=380,
        title_text=f"{NAMES[method]}:<br>{first} to position 64, {last} from 512 on",
        title_y=0.95,  # plotly lifts a title of two lines
        xaxis=axis("position in the text", math.log10(6), math.log10(1130), type="log",
                   tickvals=[8, *LENGTHS[::2]], ticktext=["8", "64", "256", "1,024"]),
        yaxis=axis("bits per byte minus sliding window", _bent(-0.12), _bent(4),
                   tickvals=rounded([_bent(t) for t in ticks]),
                   ticktext=[f"{t:g}".replace("-", "−") for t in ticks]),
        shapes=[{**box(4, TRAINED, 0, 1, width=0), "yref": "y domain", "opacity": 0.15,
                 "fillcolor": COLOURS["none"], "layer": "below"}],
    )  # fmt: skip
    return Drawn(
        go.Figure(_among(method, recorded, places, _bent), axes),
        "A line chart shows bits per byte minus the bits per byte with a sliding window of 64 "
        "bytes, against the position in a text of 1,024 bytes, on a logarithmic axis. It has "
        f"{len(recorded)} lines, one per method. A shaded band covers the positions in training. "
        f"The line of “{NAMES[method]}” is thick, with dots and a band for its 95% interval. The "
        f"mean difference of this method is {first} up to position 64, and {last} from position "
        "512 on.",
    )


def lost_and_found(
    tokens: str, *, recorded: Mapping[str, Mapping[str, tuple[float, float]]]
) -> Drawn:
    """Draw the increase in bits per byte of each method on text, and the share of needles found.

    Args:
        tokens: Length of the text, a name in ``recorded``.
        recorded: Tokens → method → bits per byte minus those at 64, and share of needles found.

    Returns:
        A figure of a dot for each method, with its name.
    """
    found = recorded[str(tokens)]
    lost, needles = ([round(pair[i], 3) + 0.0 for pair in found.values()] for i in (0, 1))
    marks = dots(
        lost,
        needles,
        [COLOURS[name] for name in found],
        size=10,
        hover="%{text}: %{x:.2f} more bits per byte, %{y:.2f} found",
        text=[SHORT[name] for name in found],
        textposition=["middle left" if x > 1.4 else "middle right" for x in lost],
    )
    axes = layout(
        height=400,
        title_text=f"{tokens} tokens, 64 in training",
        xaxis=axis("increase in bits per byte on text", -0.15, 3, dtick=1),
        yaxis=axis("share of needles found", 0.3, 1.05, dtick=0.2),
    )
    worst = min(found, key=lambda name: found[name][1])
    most = max(found, key=lambda name: found[name][0])
    many = sum(share >= 0.95 for _, share in found.values())
    shares = " ".join(
        f"{name} needs {_hundredths(found[key][0])} bits per byte more on text and finds "
        f"{found[key][1]:.2f} of the needles."
        for key, name in (("pi", "Position interpolation"), ("alibi", "ALiBi"))
    )
    return Drawn(
        go.Figure(marks, axes),
        f"A scatter plot shows the share of needles found among {tokens} tokens against the "
        f"increase in bits per byte on text, relative to reading 64 bytes. It has {len(found)} "
        f"dots, one per method, each with the name of its method. {many} of the methods find at "
        f"least 0.95 of the needles. {NAMES[worst]} finds the smallest share, "
        f"{found[worst][1]:.2f}. {NAMES[most]} has the largest increase on text, "
        f"{found[most][0]:.2f} bits per byte. {shares}",
    )
