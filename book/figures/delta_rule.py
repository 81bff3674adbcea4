"""The delta rule: overwriting, repeated writes, chunks, the noise of a rate, and counting."""

from __future__ import annotations

import math
from typing import Any

import plotly.graph_objects as go
import torch
from torch import Tensor

from book.figures.marks import (
    CELLS,
    axis,
    bars,
    broken,
    colour_axis,
    dots,
    downwards,
    heat,
    line,
    through,
)
from lab.explore import COLOURS, PALETTE, Drawn, Panel, computed, layout, panels, pick
from lab.explore.style import DIVERGING

__all__ = [
    "chunk_of_writes",
    "noise_of_rates",
    "order_of_decay",
    "repeated_writes",
    "two_keys_count",
    "written_twice",
]

KEYS = "AB"
WRITES = (("A", 2.0), ("B", 1.5), ("A", -1.0))
RATES = [round(0.01 * i, 2) for i in range(1, 151)]
ADDS, REPLACES, LATEST = COLOURS["identity"], COLOURS["delta"], PALETTE["brown"]


@computed
def _states(beta: Tensor, angle: Tensor, decay: Tensor) -> dict[str, Tensor]:
    """Return keys, and states before and after every write with what they answer after each.

    ``adds`` and ``replaces`` are ``(2, writes + 1)``, answers ``(2 states, 2 keys, writes)``.
    """
    turn = angle.deg2rad()
    keys = torch.stack(
        [torch.stack([turn.cos() * 0 + 1, turn * 0]), torch.stack([turn.cos(), turn.sin()])]
    )
    adds, replaces = [torch.zeros(2).double()], [torch.zeros(2).double()]
    for name, value in WRITES:
        key, left = keys[KEYS.index(name)], decay * replaces[-1]
        adds.append(decay * adds[-1] + value * key)
        replaces.append(left + beta * (value - left @ key) * key)
    states = torch.stack([torch.stack(adds), torch.stack(replaces)])
    upright = torch.stack([-keys[:, 1], keys[:, 0]], -1)
    written = torch.tensor([[KEYS.index(name), value] for name, value in WRITES])
    feet = written[:, 1:] * keys[written[:, 0].long()]
    along = 9 * upright[written[:, 0].long()]
    side = torch.tensor([[-0.3], [0.3]])  # of its arrow, where a key's name stands
    return {
        "adds": states[0].mT,
        "replaces": states[1].mT,
        "answers": keys @ states[:, 1:].mT,
        "solutions": broken(feet - along, feet + along),
        "arrows": broken(keys * 0, keys).unflatten(-1, (2, 3)).transpose(0, 1),
        "names": (keys + side * upright).mT,
    }


def written_twice(beta: float, angle: float, decay: float) -> Drawn:
    r"""Draw the path of two states through three writes, and what they answer: :eq:`eq-delta-rule`.

    Values are numbers and keys have two channels, so a state is a point of the plane. The states
    that answer a key with a given value are a line perpendicular to the key. The delta rule moves
    the state toward that line, and with :math:`\beta = 1` to its nearest point.

    Args:
        beta: Rate of the delta rule.
        angle: Degrees between the keys A and B.
        decay: Factor of both states before each write.

    Returns:
        A figure of the plane, and of the answers to either key after each write.
    """
    found = _states(beta, angle, decay)
    looks: dict[str, Any] = {
        "adds": (ADDS, "square", "sum"),
        "replaces": (REPLACES, "circle", "delta rule"),
    }
    lines = through(found["solutions"], LATEST, width=1)
    arrows = [through(arrow, PALETTE["grey"], width=5) for arrow in found["arrows"]]
    names = go.Scatter(
        x=found["names"][0], y=found["names"][1], text=[*KEYS], mode="text", hoverinfo="skip",
        showlegend=False, textfont={"size": 15},
    )  # fmt: skip
    plane = [lines, *arrows, names]
    for path, (colour, symbol, name) in looks.items():
        plane.append(
            through(found[path], colour, name, width=2, mode="lines+markers",
                 marker={"size": [4, 9, 9, 13], "symbol": symbol, "opacity": 1},
                 hover="after %{pointNumber} writes: (%{x:.2f}, %{y:.2f})")
        )  # fmt: skip
    ticks = [f"{name} ← {value:g}".replace("-", "−") for name, value in WRITES]
    answers = []
    for number, name in enumerate(KEYS):
        latest = [
            next((v for k, v in WRITES[n::-1] if k == name), None) for n in range(len(WRITES))
        ]
        traces: list[Any] = [
            dots(ticks_at := list(range(len(WRITES))), latest, LATEST,
                 "latest value" if name == "A" else None, size=24, symbol="line-ew",
                 marker_line={"width": 3, "color": LATEST}, hover="%{y:g}")
        ]  # fmt: skip
        for said, (colour, symbol, _) in zip(found["answers"], looks.values(), strict=True):
            traces.append(
                line(ticks_at, said[number], colour, width=1.5, mode="lines+markers",
                     marker={"size": 9, "symbol": symbol}, hover="%{y:.2f}")
            )  # fmt: skip
        answers.append(
            Panel(
                traces,
                f"answer to {name}",
                x={
                    "tickvals": ticks_at,
                    "ticktext": ticks,
                    "range": [-0.4, 2.4],
                    "zeroline": False,
                },
                y=axis(low=-3.2, high=4.6, dtick=2),
            )
        )
    fig = panels(
        Panel(
            plane,
            "state: sum (grey) and delta rule (blue)",
            x=axis(low=-3.2, high=4.5, dtick=1),
            y=axis(low=-2.4, high=2.4, dtick=1),
            square=True,
        ),
        answers,
        heights=(0.56, 0.3),
        down=0.14,
        height=560,
        margin={"l": 34, "r": 12, "t": 30, "b": 96},
    )
    *writes, final = (f"{v:g} under {k}" for k, v in WRITES)
    adds, replaces = found["answers"]
    last = dict(WRITES)
    ends = " ".join(
        f"After the last write, the answer of the sum to {name} is {adds[i][-1]:.2f}, and that of "
        f"the delta rule is {replaces[i][-1]:.2f}. The latest value of {name} is {last[name]:g}."
        for i, name in enumerate(KEYS)
    )
    return Drawn(
        fig,
        "The upper panel is a plane with the paths of two states, a sum and the delta rule, and "
        "with arrows for the keys A and B. The values are written in this order: "
        f"{', '.join(writes)} and {final}. The keys A and B are {angle:g} degrees apart. The rate "
        f"of the delta rule is {beta:g}, and the decay of both states is {decay:g}. Three thin "
        "lines in the plane belong to the three writes. Each line contains all states whose "
        "answer to the key of the write is the written value. The two lower panels are line "
        "charts of the answers of both states to A and to B after each write, in which "
        f"horizontal marks show the latest value. {ends}",
    )


TIMES = 24


@computed
def _repeated(rate: Tensor, length: Tensor) -> dict[str, Tensor]:
    """Return the answers after 0 to 24 writes of a 1 under one key, and what a write leaves."""
    factor = 1 - rate * length.square()
    error = factor ** torch.arange(TIMES + 1).double()
    shown = torch.where(error.abs() <= 4, 1 - error, math.nan)
    kind = (factor.abs() > 1 + 1e-9).double() * 2 + (
        (factor < -1e-9) & (factor.abs() <= 1)
    ).double()
    return {"answers": shown, "factor": factor, "kind": kind}


def repeated_writes(rate: float, length: float) -> Drawn:
    r"""Draw the answer to one key while the value 1 is written under it again and again.

    By :eq:`eq-delta-overwrite` each write multiplies the error by :math:`1 - \beta\|k\|^2`, which
    :eq:`eq-delta-norm` bounds.

    Args:
        rate: That of the delta rule.
        length: Of the key.

    Returns:
        A figure of one line.
    """
    found = _repeated(rate, length)
    factor = found["factor"]
    drawn = [
        line([0, TIMES], [1, 1], LATEST, "value written", dash="dot", width=1.5),
        line(None, found["answers"], REPLACES, "answer", mode="lines+markers",
             marker={"size": 7}, hover="after %{x} writes: %{y:.2f}"),
    ]  # fmt: skip
    axes = layout(
        height=360,
        title_text=f"each write multiplies the error by {factor:.2f}",
        xaxis=axis("number of writes", -0.5, TIMES + 0.5),
        yaxis=axis("answer to the key", -3.2, 5.2),
    )
    kind = pick(found["kind"], "approaches 1", "alternates around 1", "diverges")
    return Drawn(
        go.Figure(drawn, axes),
        f"A line chart shows the answer to a key of norm {length:g} against the number of writes, "
        f"from 0 to {TIMES}, with a dot for each write. Every write stores the value 1 under this "
        f"key at rate {rate:g}. A dotted line marks the value 1. Each write multiplies the error "
        f"by {factor:.2f}, so the answer {kind}.",
    )


CHUNK = "ABABAB"
VALUES = [2.0, 1.5, 1.0, 0.5, 1.0, 1.5]


@computed
def _solved(rate: Tensor, angle: Tensor, decay: Tensor) -> dict[str, Tensor]:
    """Return the A of a chunk, the inverse of I + A, and what tokens write, alone and together."""
    turn = angle.deg2rad()
    two = torch.stack([torch.stack([turn.cos() * 0 + 1, turn * 0]),
                       torch.stack([turn.cos(), turn.sin()])])  # fmt: skip
    keys = two[[KEYS.index(name) for name in CHUNK]]
    tokens = torch.arange(len(CHUNK)).double()
    mask = decay ** (tokens[:, None] - tokens).clamp(min=0)
    below = (rate * (keys @ keys.mT) * mask).tril(-1)
    eye = torch.eye(len(CHUNK)).double()
    twice = below @ below
    inverse = (eye - below) @ (eye + twice) @ (eye + twice @ twice)  # the eighth power is 0
    inverse = torch.where(inverse.abs() > 1e-13, inverse, 0.0)  # no entry is "-0.00"
    alone = rate * torch.tensor(VALUES, dtype=torch.float64)
    return {"below": below, "inverse": inverse, "alone": alone, "written": inverse @ alone}


def chunk_of_writes(rate: float, angle: float, decay: float) -> Drawn:
    r"""Draw the system of :eq:`eq-delta-chunk` for six tokens with two alternating keys.

    Args:
        rate: That of the delta rule.
        angle: Degrees between the keys A and B.
        decay: Of every token.

    Returns:
        A figure of two maps, A and the inverse of I + A, and of bars, what each token writes.
    """
    found = _solved(rate, angle, decay)
    ticks: dict[str, Any] = {"tickvals": list(range(len(CHUNK))), "ticktext": list(CHUNK)}
    places = list(range(len(CHUNK)))
    maps = [
        Panel(
            [heat(found[name], hover="row %{y}, column %{x}: %{z:.2f}", xgap=1, ygap=1)],
            head,
            x={**CELLS, **ticks, "tickangle": 0},
            y=downwards(len(CHUNK), **ticks),
            square=True,
        )
        for name, head in (("below", "A"), ("inverse", "(I + A)⁻¹"))
    ]
    writes = [
        bars(places, found["alone"], ADDS, "alone: β v", hover="%{y:.2f}"),
        bars(places, found["written"], REPLACES, "after earlier tokens: u", hover="%{y:.2f}"),
    ]
    fig = panels(
        maps,
        Panel(
            writes,
            "number written by each token (key A or B)",
            x={**ticks, "tickangle": 0, "range": [-0.6, len(CHUNK) - 0.4], "zeroline": False},
            y=axis(None, -4.6, 7.6, dtick=2),
        ),
        heights=(0.56, 0.36),
        across=0.12,
        down=0.16,
        height=470,
        bargap=0.25,
        margin={"l": 34, "r": 14, "t": 30, "b": 64},
        coloraxis={**colour_axis(DIVERGING, -1.5, 1.5, y=0), "showscale": False},
    )
    last, alone, written = found["inverse"][-1], found["alone"], found["written"]
    return Drawn(
        fig,
        "Two heat maps and a bar chart show a chunk of six tokens whose keys alternate between A "
        f"and B, which are {angle:g} degrees apart. The rate is {rate:g}, and the decay is "
        f"{decay:g}. The upper left map shows the entries of the matrix A, which is zero on and "
        "above the diagonal, and the upper right map shows those of the inverse of I + A. In the "
        f"last row of the inverse, the two entries left of the diagonal are {last[3]:.2f} and "
        f"{last[4]:.2f}. In the bar chart below, two bars for each token show the number that the "
        "token would write alone and the number that it writes after the earlier tokens. Alone, "
        f"the third token would write {alone[2]:.2f}. After the earlier tokens, the third token "
        f"writes {written[2]:.2f}. Alone, the last token would write {alone[5]:.2f}. After the "
        f"earlier tokens, the last token writes {written[5]:.2f}.",
    )


STEPS = 12


@computed
def _ordered(rate: Tensor, decay: Tensor) -> dict[str, Tensor]:
    """Return the answers to a key that is cleared again and again, by either order."""
    factors = torch.stack([decay * (1 - rate), decay - rate])
    left = factors[:, None] ** torch.arange(STEPS + 1).double()
    shown = torch.where(left.abs() <= 4, left, math.nan)
    return {"left": shown, "factors": factors, "away": (factors[1].abs() > 1 + 1e-9).double()}


def order_of_decay(rate: float, decay: float) -> Drawn:
    """Draw the answer to a key while the value 0 is written under it again and again.

    Once the state decays before the error is taken, :eq:`eq-delta-gated`, and once after.

    Args:
        rate: That of the delta rule; the key has norm 1.
        decay: Of every token.

    Returns:
        A figure of two lines.
    """
    found = _ordered(rate, decay)
    first, after = found["factors"]
    drawn = [
        line(None, answers, colour, name, dash=dash, mode="lines+markers",
             marker={"size": 8, "symbol": symbol}, hover="after %{x} writes: %{y:.2f}")
        for answers, colour, name, dash, symbol in zip(
            found["left"], (COLOURS["gated-delta"], PALETTE["red"]),
            ("decay first", "error first"), (None, "dot"), ("circle", "x"),
            strict=True,
        )
    ]  # fmt: skip
    axes = layout(
        height=360,
        title_text=f"factor per write: {first:.2f} (decay first), {after:.2f} (error first)",
        xaxis=axis("number of writes of the value 0", -0.4, STEPS + 0.4, dtick=2),
        yaxis=axis("answer to the key", -4.2, 4.2, dtick=2),
    )
    return Drawn(
        go.Figure(drawn, axes),
        "A line chart shows the answer to a key against the number of writes of the value 0 "
        f"under this key, from 0 to {STEPS}. Both lines start at an answer of 1. The rate is "
        f"{rate:g}, and the decay is {decay:g}. For the solid line with dots, the state decays "
        f"before the error is computed, and each write multiplies the answer by {first:.2f}. For "
        "the dotted line with crosses, the error is computed before the decay, and each write "
        f"multiplies the answer by {after:.2f}. The answer on the dotted line "
        f"{pick(found['away'], 'stays bounded', 'diverges')}.",
    )


PAIRS = 24


@computed
def _turned(angle: Tensor) -> dict[str, Tensor]:
    """Return where pairs of writes take a state, and after how many it is back, if ever."""
    keys = torch.stack([angle * 0, angle.deg2rad()])
    keys = torch.stack([keys.cos(), keys.sin()], -1)
    mirrors = torch.eye(2).double() - 2 * keys[:, :, None] * keys[:, None]
    pair, states = mirrors[1] @ mirrors[0], [torch.eye(2).double()[0]]
    for _ in range(PAIRS):
        states.append(pair @ states[-1])
    path = torch.stack(states)
    away = (path[1:] - path[0]).square().sum(-1) > 1e-6
    back = torch.where(away, PAIRS, torch.arange(1, PAIRS + 1)).double().amin(-1)
    return {"path": path.mT, "keys": broken(-1.3 * keys, 1.3 * keys), "back": back,
            "many": (back > 1).double(), "never": away.double().amin(-1)}  # fmt: skip


def two_keys_count(angle: float) -> Drawn:
    """Draw the path of a state under two alternating keys, at the rate 2 and without values.

    Two factors of :eq:`eq-delta-rule` are two reflections, and their product is a rotation.

    Args:
        angle: Degrees between the keys.

    Returns:
        A figure of the plane.
    """
    found = _turned(angle)
    pairs = f"{found['back']:.0f} {pick(found['many'], 'pair', 'pairs')} of writes"
    said = f"{pick(found['never'], 'back', 'not back')} after {pairs}"
    drawn = [
        through(found["keys"], PALETTE["grey"], "keys", width=4),
        through(found["path"], REPLACES, "state", width=1, mode="lines+markers",
                marker={"size": 10, "opacity": 1}, hover="after %{pointNumber} pairs"),
        dots([1], [0], LATEST, "start", size=14),
    ]  # fmt: skip
    axes = layout(
        height=420,
        title_text=said,
        xaxis=axis(low=-1.4, high=1.4, dtick=1, constrain="domain"),
        yaxis=axis(low=-1.4, high=1.4, dtick=1, scaleanchor="x", constrain="domain"),
    )
    return Drawn(
        go.Figure(drawn, axes),
        "A diagram shows a state of two channels as a dot in the plane after each pair of "
        "writes, and a thin line joins the dots. The rate of the writes is 2. Two thick lines "
        f"through the origin are the two keys, which are {angle:g} degrees apart. All dots lie on "
        "a circle, because each pair of writes rotates the state by twice the angle between the "
        f"keys. A larger dot marks the start, and the state is {said}.",
    )


@computed
def _noise(load: Tensor) -> dict[str, Tensor]:
    """Return the noise-to-signal ratio of the delta rule, divided by that of a sum, at all rates.

    It is :eq:`eq-delta-noise` divided by the load.  Also return the best rate, and the rate from
    which on a sum is better, each with its ratio.
    """
    rates = torch.tensor(RATES, dtype=torch.float64)
    eta = rates * (2 - rates)
    kept = -torch.expm1(-eta * load) / (eta * load)
    noise = (kept * (1 + torch.expm1(2 * rates * load) / (2 * rates)) - 1) / load
    least = noise.amin(-1)
    best = torch.where(noise == least, rates, 0.0).amax(-1)
    worse = torch.where((rates > best) & (noise > 1), rates, RATES[-1]).amin(-1)
    at = torch.where(rates == worse, noise, 0.0).amax(-1)
    return {"noise": noise, "rates": torch.stack([best, worse]), "at": torch.stack([least, at])}


def noise_of_rates(load: float) -> Drawn:
    """Draw the noise-to-signal ratio of the delta rule, divided by that of a sum, against the rate.

    Args:
        load: Pairs per channel.

    Returns:
        A figure of one line; dots mark the best rate and the rate from which on a sum is better.
    """
    found = _noise(load)
    (best, worse), (least, _) = found["rates"], found["at"]
    drawn = [
        line([0, RATES[-1]], [1, 1], ADDS, "a sum", dash="dot"),
        line(RATES, found["noise"], REPLACES, "delta rule", hover="rate %{x}: %{y:.2f}"),
        dots(found["rates"], found["at"], LATEST),
    ]
    axes = layout(
        height=360,
        title_text=f"at the best rate {best:.2f}: {least:.0%} of the ratio of a sum",
        xaxis=axis("rate β", 0, 1.5),
        yaxis=axis("noise-to-signal ratio (sum = 1)", 0.55, 1.6, dtick=0.2),
    )
    return Drawn(
        go.Figure(drawn, axes),
        "A line chart shows the noise-to-signal ratio of the delta rule, divided by the ratio of "
        f"a sum, against the rate, from 0 to 1.5. The load, in pairs per channel, is {load:g}. "
        f"The line begins at 1 and falls to {least:.2f} at rate {best:.2f}, which a dot marks. "
        "From there the line rises. A dotted horizontal line at 1 is the ratio of a sum, and a "
        f"second dot marks rate {worse:.2f}, near which the delta rule crosses this line.",
    )
