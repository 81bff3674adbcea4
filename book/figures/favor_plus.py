"""Random features against the exponential that they estimate: errors, and what makes them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import plotly.graph_objects as go
import torch
from torch import Tensor

from book.figures.marks import axis, bars, dots, line, rounded, significant, upright, won
from book.names import display
from lab.explore import COLOURS, PALETTE, Drawn, Panel, computed, layout, panels
from lab.theory.variance import (
    hyperbolic_mse,
    optimal_mse,
    orthogonal_gain,
    orthogonal_mse,
    positive_mse,
    trigonometric_mse,
)
from stringlib.attention.favor import FavorFeatures, optimal_alpha

__all__ = [
    "DISPLAY",
    "DISTANCE_SIZES",
    "FAVOR_KINDS",
    "MAPS",
    "SQUARES",
    "causal_habits",
    "cosine_errors",
    "favor_distance",
    "favor_error",
    "features_needed",
    "orthogonal_gains",
    "redrawn_means",
]

DISPLAY = {
    **{kind: display(f"favor-{kind}") for kind in ("iid", "hadamard", "circulant")},
    **{kind: display(f"favor-{kind}") for kind in ("unit-circulant", "optimal")},
    **{kind: display(kind) for kind in ("hyperbolic", "optimal-hyperbolic", "trigonometric")},
    "orthogonal": display("favor"),
}
"""Names of the recorded study → what readers see."""

DIM, DRAWS, SIZES = 64, 1000, (16, 32, 64, 128, 256)
BINS = [0.1 * i for i in range(31)]  # of the relative estimate; the last holds all beyond
FAVOR_KINDS = ("iid", "orthogonal", "circulant", "hyperbolic", "optimal")  # the last: iid rows
NAMES = {
    "iid": "favor-iid",
    "orthogonal": "favor",
    "circulant": "favor-circulant",
    "hyperbolic": "hyperbolic",
    "optimal": "favor-optimal",
}
COSINES = [round(i / 40 - 1, 3) for i in range(81)]
SQUARES = [round(0.1 * i, 1) for i in range(1, 81)]
"""The values of ‖z‖² at which the gain of orthogonal rows is drawn."""

TEMPERATURES = [round(10 ** (i / 40 - 1), 3) for i in range(77)]  # inverse ones, 0.1 to 8


@cache
def _along(projection: str) -> tuple[Tensor, Tensor]:
    """Return ωᵀz for a fixed z of length 1, and ‖ω‖²: each ``(DRAWS, 256)``, float64."""
    phi = FavorFeatures(
        DIM, SIZES[-1], projection, heads=DRAWS, generator=torch.Generator().manual_seed(0)
    )
    z = torch.randn(DIM, generator=torch.Generator().manual_seed(1))
    rows = phi.projection_matrix()
    return (rows @ (z / z.norm())).double(), rows.square().sum(-1).double()


@cache
def _estimates(kind: str, square: float, size: int) -> Tensor:
    """Return estimates with ``size`` features, divided by the true value."""
    if kind == "hyperbolic":  # both signs of half as many rows
        exponents = math.sqrt(square) * _along("orthogonal")[0][:, : size // 2]
        return (exponents.cosh() * math.exp(-square / 2)).mean(-1)
    alpha = optimal_alpha(square, DIM) if kind == "optimal" else 0.0
    along, squares = (x[:, :size] for x in _along("iid" if kind == "optimal" else kind))
    exponents = 2 * alpha * squares + math.sqrt((1 - 4 * alpha) * square) * along
    return (exponents - square / 2).exp().mean(-1) * (1 - 4 * alpha) ** (DIM / 2)


def _theory(kind: str, square: float, size: int) -> float | None:
    """Return the root of the mean squared error, where this chapter has a formula for it."""
    x = torch.tensor(square, dtype=torch.float64)
    if kind == "circulant":
        return None
    if kind == "hyperbolic":
        return orthogonal_mse(x, size // 2, DIM, hyperbolic=True).sqrt().item()
    if kind == "optimal":
        return optimal_mse(x, size, DIM, optimal_alpha(square, DIM)).sqrt().item()
    mse = positive_mse(x, size) if kind == "iid" else orthogonal_mse(x, size, DIM)
    return mse.sqrt().item()


def _shares(estimates: Tensor) -> list[float]:
    """Return the share of the estimates in each bin, in percent."""
    place = (estimates / BINS[1]).floor().long().clamp(max=len(BINS) - 1)
    return rounded(100 * torch.bincount(place, minlength=len(BINS)) / len(estimates), 2)


def favor_error(length: float, size: int, kind: str) -> Drawn:
    """Draw the error of random features against their number, and the estimates themselves.

    Above: the root mean squared error of an estimate of exp(xᵀy), divided by the true value, for
    every number of features; lines are formulas, dots 1,000 draws of W.  Below: those estimates
    divided by the true value, for the chosen number of features.

    Args:
        length: The length of z = x + y.
        size: Number of features m.
        kind: One of ``FAVOR_KINDS``.

    Returns:
        A figure with two panels.
    """
    square, colour, grey = length**2, COLOURS[NAMES[kind]], PALETTE["grey"]
    sizes = list(SIZES)
    draws = {m: _estimates(kind, square, m) for m in SIZES}
    measured = {m: (e - 1).square().mean().sqrt().item() for m, e in draws.items()}
    chosen = draws[size]
    median = chosen.median().item()
    hover = "%{x:.2f}, %{y:.3g}"

    def curve(of: str, colour: str, name: str, dash: str = "solid") -> go.Scatter:
        error = significant([_theory(of, square, m) for m in SIZES])
        return line(sizes, error, colour, name, width=2, dash=dash, hover=hover)

    errors = [
        curve("iid", grey, "formula, independent rows", "dash"),
        curve(kind, colour, "formula, chosen features"),
        dots(
            sizes,
            significant(measured.values()),
            colour,
            "measured, chosen features",
            size=[15 if m == size else 8 for m in SIZES],
            hover=hover,
        ),
    ]
    middles = rounded([b + BINS[1] / 2 for b in BINS], 2)
    shares = bars(middles, _shares(chosen), colour, hover=hover)
    middle = line([round(median, 2)] * 2, [0, 60], grey, "median", width=2, dash="dot", hover=hover)
    fig = panels(
        Panel(
            errors,
            x=axis("number of features m", type="log", tickvals=sizes),
            y=axis("relative error", -2.2, 1.6, type="log", tickvals=[0.01, 0.1, 1, 10]),
        ),
        Panel(
            [shares, middle],
            x=axis("estimate / true value (last bar: all above 3)", 0, 3.1),
            y=axis("% of draws", 0, 60),
            shapes=[upright(1, width=1.5)],
        ),
        heights=(0.42, 0.38),
        down=0.2,
        height=560,
        margin={"l": 54, "r": 14, "t": 34, "b": 92},
        bargap=0.05,
    )
    formula = (
        "This chapter has no formula for the chosen features."
        if kind == "circulant"
        else "A solid line, the formula for the chosen features, covers the dashed line."
        if kind == "iid"
        else "A solid line shows the formula for the chosen features."
    )
    return Drawn(
        fig,
        f"Two panels show estimates with {DISPLAY[kind]} for a vector z of length {length:g}. The "
        "upper panel is a line chart of the relative error against the number of features, from "
        "16 to 256, on logarithmic axes. Dots mark the measured errors, and a dashed line shows "
        f"the formula for independent rows, which falls to the right. {formula} With {size} "
        f"features, the largest dot, the measured error is {measured[size]:.2g}. The lower panel "
        "is a histogram of 1,000 estimates, each divided by the true value, so that a vertical "
        "line at 1 marks the true value. The last bar is for all estimates above 3. The median "
        f"of the estimates, marked by a dotted vertical line, is {median:.2f}.",
    )


@computed
def _by_cosine(length: Tensor, features: Tensor) -> dict[str, Tensor]:
    """Return kind → relative error of the estimate for vectors of one length, at all cosines."""
    cosines = torch.tensor(COSINES, dtype=torch.float64)
    together, apart = (2 * length**2 * (1 + sign * cosines) for sign in (1, -1))
    return {
        "trigonometric": (2 * trigonometric_mse(apart, 1) / features).sqrt(),
        "positive": (positive_mse(together, 1) / features).sqrt(),
        "hyperbolic": (2 * hyperbolic_mse(together, 1) / features).sqrt(),
    }


def cosine_errors(length: float, features: int) -> Drawn:
    """Draw the relative error of three kinds of features against the angle of x and y.

    Equations :eq:`eq-favor-mse-positive`, :eq:`eq-favor-mse-hyperbolic` and
    :eq:`eq-favor-mse-trigonometric`.

    Args:
        length: Of x and of y.
        features: Number of features m; trigonometric and hyperbolic ones have two per row.

    Returns:
        A figure with one line per kind.
    """
    found = _by_cosine(length, features)
    colours = {
        "trigonometric": PALETTE["grey"],
        "positive": COLOURS["favor-iid"],
        "hyperbolic": COLOURS["hyperbolic"],
    }
    called = {kind: display(kind) for kind in ("trigonometric", "hyperbolic")}
    called["positive"] = display("favor-iid")
    lines = [
        line(COSINES, errors, colours[kind], called[kind], hover="cosine %{x}: %{y:.3g}")
        for kind, errors in found.items()
    ]
    ticks = {"tickvals": [0.01, 0.1, 1, 10, 100], "ticktext": ["0.01", "0.1", "1", "10", "100"]}
    most, middle = found["positive"][-1], COSINES.index(0)
    axes = layout(
        height=380,
        title_text=f"{features:,.0f} features: relative error up to {most:.3g}",
        xaxis=axis("cosine between x and y", -1, 1),
        yaxis=axis("relative error", -2, 2, type="log", **ticks),
    )
    return Drawn(
        go.Figure(lines, axes),
        "A line chart shows the relative error, on a logarithmic axis, against the cosine "
        f"between two vectors x and y of length {length:g}, with {features:,.0f} features. The "
        f"error of {called['trigonometric']} falls from {found['trigonometric'][0]:.3g} at cosine "
        f"-1 to 0 at cosine 1. The line of {called['hyperbolic']} is the mirror image of that "
        f"line and rises from 0. The error of {called['positive']} also rises from 0, and is "
        f"highest at cosine 1, with {most:.3g}. At cosine 0 the error of {called['positive']} is "
        f"{found['positive'][middle]:.3g}, and the error of the two other kinds is "
        f"{found['hyperbolic'][middle]:.3g}.",
    )


@computed
def _gains(features: Tensor, square: Tensor, gain: list[float]) -> dict[str, Tensor]:
    """Return the error of orthogonal rows divided by that of independent ones, at ``SQUARES``.

    With one sign and with both; and each at ``square``.
    """
    squares, short = (
        torch.tensor(SQUARES, dtype=torch.float64),
        torch.tensor(gain, dtype=torch.float64),
    )
    alone = positive_mse(squares, 1) / features

    def pairs(rows: Tensor) -> Tensor:  # that are orthogonal, a share of all
        full = (rows / DIM).floor()
        rest = rows - DIM * full
        return (full * DIM * (DIM - 1) + rest * (rest - 1)) / rows**2

    one = 1 - short * pairs(features) / alone
    both = (2 * hyperbolic_mse(squares, 1) / features - short * pairs(features / 2)) / alone
    here = torch.stack([torch.where(squares == square, x, 0.0).sum(-1) for x in (one, both)])
    return {"orthogonal": one, "both": both, "here": here}


def orthogonal_gains(features: int, square: float) -> Drawn:
    r"""Draw the error of orthogonal rows as a share of that of independent ones.

    Equation :eq:`eq-favor-orthogonal`.

    Args:
        features: An even number of features m, in 64 channels.
        square: :math:`\|z\|^2`, one of ``SQUARES``.

    Returns:
        A figure with two lines, and a dot on each.
    """
    gain = orthogonal_gain(torch.tensor(SQUARES, dtype=torch.float64), DIM).tolist()
    found = _gains(features, square, gain)
    one, both = found["here"]
    hover = "‖z‖² = %{x}: %{y:.2f}"
    colours = [COLOURS["favor"], COLOURS["hyperbolic"]]
    drawn = [
        line(SQUARES, found["orthogonal"], colours[0], display("favor"), hover=hover),
        line(
            SQUARES, found["both"], colours[1], f"{display('hyperbolic')}, orthogonal", hover=hover
        ),
        line([0, 8], [1, 1], COLOURS["favor-iid"], width=1.5, dash="dot"),
        dots([square, square], found["here"], colours),
    ]
    axes = layout(
        height=380,
        margin={"b": 110},
        title_text=f"relative error: FAVOR+ {one:.0%}, hyperbolic {both:.0%}",
        xaxis=axis("‖z‖²", 0, 8),
        yaxis=axis("error relative to independent rows", 0, 1.08, tickformat=".0%"),
    )
    return Drawn(
        go.Figure(drawn, axes),
        f"A line chart shows the mean squared error of {features:g} features with orthogonal "
        "rows, divided by the error of equally many positive features with independent rows, "
        "against ‖z‖² from 0 to 8. A dotted horizontal line marks 100%, and no line rises above "
        f"it. Dots mark ‖z‖² = {square:g}, where the ratio of {display('favor')} is {one:.0%}, "
        f"and the ratio of {display('hyperbolic')} is {both:.0%}. The hyperbolic features use "
        f"both signs of half as many rows. The line of {display('favor')} first falls and then "
        f"rises. The line of {display('hyperbolic')} is lowest at the left edge, where ‖z‖² is "
        "close to 0. At the right edge both lines come near 100%.",
    )


@computed
def _needed(temperature: Tensor) -> dict[str, Tensor]:
    """Return the features that beat uniform attention, at all temperatures and at one, last."""
    grid = torch.tensor(TEMPERATURES, dtype=torch.float64)
    t = torch.cat([grid, temperature[None]])
    rho = 1 / (1 - 8 * optimal_alpha(2 * t, DIM))
    price = ((1 + rho) ** 2 / (4 * rho)) ** (DIM / 2)
    left = {
        "favor": (2 * t).exp() - t.exp(),
        "optimal": price * ((2 * rho * t).exp() - ((3 * rho - 1) * t / 2).exp()),
        "both": 2 * ((2 * t).cosh() - t.cosh()),
    }
    found = {name: DIM * of / t**2 for name, of in left.items()}
    curves = {name: needed[: len(grid)] for name, needed in found.items()}
    return curves | {"here": torch.stack([needed[-1] for needed in found.values()])}


def features_needed(temperature: float) -> Drawn:
    """Draw how many features beat uniform attention on spread tokens, by the first-order rule.

    The error of independent rows after dividing, by :eq:`eq-favor-attention-error`, is set equal
    to the error of uniform attention. Heads have 64 channels.

    Args:
        temperature: t, the squared norm of queries and keys: an inverse temperature.

    Returns:
        A figure with one line per kind, and a dot on each.
    """
    found = _needed(temperature)
    favor, optimal, both = found["here"]
    kinds = {  # where t is large the first and the last lie on each other
        "favor": (display("favor-iid"), COLOURS["favor-iid"], "solid"),
        "optimal": (display("favor-optimal"), COLOURS["favor-optimal"], "solid"),
        "both": (display("hyperbolic"), COLOURS["hyperbolic"], "dash"),
    }
    drawn = [
        line(TEMPERATURES, found[kind], colour, name, dash=dash, hover="t = %{x}: %{y:,.0f}")
        for kind, (name, colour, dash) in kinds.items()
    ]
    drawn.append(dots([temperature] * 3, found["here"], [row[1] for row in kinds.values()]))
    drawn.append(line([0.1, 8], [DIM, DIM], PALETTE["grey"], f"d = {DIM}", width=1.5, dash="dot"))
    axes = layout(
        height=400,
        margin={"b": 110},
        title_text=f"t = {temperature:g}: FAVOR+ needs {favor:,.0f}, FAVOR++ {optimal:,.0f}",
        xaxis=axis("squared norm t", -1, 0.92, type="log", tickvals=[0.1, 0.3, 1, 3, 8]),
        yaxis=axis("features needed", 1.6, 7.1, type="log", dtick=1, exponentformat="power"),
    )
    return Drawn(
        go.Figure(drawn, axes),
        "A line chart shows the number of features needed for a lower error than that of uniform "
        "attention, against the squared norm t, from 0.1 to 8, on logarithmic axes. A dotted "
        f"horizontal line at {DIM}, the number of channels, lies below all three curves. Dots "
        f"mark t = {temperature:g}, where {display('favor-iid')} needs {favor:,.0f} features, "
        f"{display('favor-optimal')} needs {optimal:,.0f}, and {display('hyperbolic')}, a dashed "
        f"curve, needs {both:,.0f}. The curve of {display('favor-iid')} is lowest near t = 0.64. "
        f"From t = 2 on all curves rise steeply, and the curve of {display('favor-optimal')} "
        "rises the least.",
    )


MAPS = {
    "iid": (display("favor-iid"), COLOURS["favor-iid"], "solid"),
    "orthogonal": (display("favor"), COLOURS["favor"], "solid"),
    "hyperbolic": (display("hyperbolic"), COLOURS["hyperbolic"], "solid"),
    "optimal": (display("favor-optimal"), COLOURS["favor-optimal"], "solid"),
    "optimal-hyperbolic": (display("optimal-hyperbolic"), COLOURS["favor-optimal"], "dash"),
    "trigonometric": (display("trigonometric"), PALETTE["teal"], "dash"),
}
"""Maps of the recorded study → name, colour and dash in :func:`favor_distance`."""

DISTANCE_SIZES = [16, 32, 64, 128, 256, 512, 1024, 2048]
"""Numbers of features of that study."""


def _listed(names: Sequence[str]) -> str:
    """Return names as a list in a sentence."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)


def favor_distance(
    tokens: str,
    t: str,
    *,
    recorded: Mapping[str, Mapping[str, Mapping[str, Any]]],
) -> Drawn:
    """Draw the distance of attention weights from softmax, relative to uniform attention.

    Args:
        tokens: A name in ``recorded``: how queries and keys lie.
        t: Their squared norm, an inverse temperature.
        recorded: Tokens → t → ``"line"``, the distance of the linear kernel divided by that of
            uniform attention; a name in ``MAPS``, that of random features for each of
            ``DISTANCE_SIZES``; and ``"least"``, name → the number from which on every seed beats
            uniform attention, or None.

    Returns:
        A figure with one line per map, and a diamond where it has won.
    """
    found, sizes = recorded[tokens][str(t)], DISTANCE_SIZES
    hover = "m = %{x}: %{y:.2f}"
    drawn = [
        line(sizes, significant(found[kind]), colour, name, dash=dash, hover=hover)
        for kind, (name, colour, dash) in MAPS.items()
    ]
    wins = {kind: found["least"][kind] for kind in MAPS}
    colours = {kind: colour for kind, (_, colour, _) in MAPS.items()}
    drawn.append(won(sizes, found, wins, colours, hover))
    edges = [sizes[0], sizes[-1]]
    straight = round(found["line"], 2)
    drawn.append(line(edges, [1, 1], PALETTE["grey"], display("uniform"), width=2))
    drawn.append(
        line(edges, [straight] * 2, PALETTE["grey"], "Linear kernel 1 + qᵀk", width=2, dash="dot")
    )
    count = sum(m is not None for m in wins.values())
    ticks = [0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5]
    axes = layout(
        height=490,
        title_text=f"{tokens}, t = {t}: {count} of {len(wins)} maps beat uniform weights",
        xaxis=axis("number of features m", 1.1, 3.4, type="log", tickvals=sizes),
        yaxis=axis(
            "distance relative to uniform attention", -1.78, 0.85, type="log", tickvals=ticks,
            ticktext=[f"{y:g}" for y in ticks],
        ),
        margin={"b": 160},
    )  # fmt: skip
    winners = sorted((kind for kind in MAPS if wins[kind]), key=lambda kind: wins[kind])
    losers = [name for kind, (name, _, _) in MAPS.items() if not wins[kind]]
    if winners:
        beats = [
            f"With up to 2,048 features {count} of {len(wins)} maps are better than uniform "
            "attention on all seeds."
        ]
        beats += [
            f"A diamond marks {m:,} features for {_listed([MAPS[kind][0] for kind in group])}."
            for m in sizes
            if (group := [kind for kind in winners if wins[kind] == m])
        ]
        beats += [f"The maps without a diamond are {_listed(losers)}."] if losers[1:] else []
        beats += [f"The map without a diamond is {losers[0]}."] if len(losers) == 1 else []
    else:
        beats = [
            f"With up to 2,048 features {count} of {len(wins)} maps were better than uniform "
            "attention on all seeds."
        ]
    return Drawn(
        go.Figure(drawn, axes),
        "A line chart shows the distance of attention weights from the weights of softmax, "
        "divided by the distance of uniform attention, against the number of features, from 16 "
        f"to 2,048, for {tokens} tokens at t = {t}. Both axes are logarithmic. There is one line "
        "for each of six feature maps, through the medians of twelve seeds. A horizontal line at "
        f"1 marks uniform attention, and a dotted horizontal line at {straight} marks the linear "
        "kernel. A diamond on a line marks the number of features from which on the map is better "
        f"than uniform attention on all seeds. {' '.join(beats)}",
    )


def redrawn_means(
    features: str, *, recorded: Mapping[str, Mapping[str, list[float]]], draws: Sequence[int]
) -> Drawn:
    """Draw the distance of two means over draws of W from softmax, against the number of draws.

    Args:
        features: Features per draw, a name in ``recorded``.
        recorded: Features → ``"weights"``, the distance of the mean of the weights for each of
            ``draws``, and ``"estimates"``, that of the weights of the mean of the estimates.
        draws: Numbers of draws.

    Returns:
        A figure of two lines.
    """
    found, draws = recorded[features], [*draws]
    looks = {
        "weights": ("mean of the attention weights", PALETTE["red"]),
        "estimates": ("attention weights from the mean estimate", COLOURS["favor"]),
    }
    drawn = [
        line(draws, significant(found[of]), colour, name, mode="lines+markers",
             hover="%{x:,} draws: %{y:.3g}")
        for of, (name, colour) in looks.items()
    ]  # fmt: skip
    weights, estimates = (significant(found[of], 2)[-1] for of in looks)
    ticks = [1, 4, 16, 64, 256, 1024]
    errors = [0.003, 0.01, 0.03, 0.1, 0.3, 1]
    axes = layout(
        height=360,
        title_text=f"after {draws[-1]:,} draws: weights {weights:g}, estimates {estimates:g}",
        xaxis=axis(
            "number of draws of W", -0.1, 3.42, type="log", tickvals=ticks,
            ticktext=[f"{n:,}" for n in ticks],
        ),
        yaxis=axis(
            "distance from softmax", -2.6, 0.2, type="log", tickvals=errors,
            ticktext=[f"{e:g}" for e in errors],
        ),
    )  # fmt: skip
    return Drawn(
        go.Figure(drawn, axes),
        "A line chart shows the relative distance of attention weights from softmax against the "
        f"number of draws of {features} features, from 1 to {draws[-1]:,}, on logarithmic axes. "
        "The line of the weights computed from the mean of the estimates falls in a straight "
        f"line to {estimates:g}. The line of the mean of the weights starts at the same point, "
        f"but bends away from the other line and ends higher, at {weights:g}.",
    )


TOKENS, FEW, ROWS = 12, 8, 32  # tokens, channels and random rows of a small example


@cache
def _causal_example() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return queries, keys, rows and values: two of 1, two of -1, and so on."""
    draw = torch.Generator().manual_seed(3)
    rows = torch.randn(ROWS, FEW, generator=draw).double()
    q, k = torch.randn(2, TOKENS, FEW, generator=draw).double() * 2 / math.sqrt(FEW)
    return q, k, rows, 1 - 2 * (torch.arange(TOKENS) % 4 >= 2).double()


@computed
def _causal_outputs(
    factor: Tensor, query: list[Any], key: list[Any], squares: list[Any], v: list[float]
) -> dict[str, Tensor]:
    """Return the outputs of three causal attentions if the last key is ``factor`` times as long.

    For the products of queries and keys with the rows, and the halves of their squared lengths.
    """
    given = [torch.tensor(x, dtype=torch.float64) for x in (query, key, squares, v)]
    u_q, own, (half_q, half_k), values = given
    times = torch.cat([torch.ones(TOKENS - 1).double(), factor[None]])[:, None]
    u_k, past = times * own, torch.ones(TOKENS, TOKENS).double().tril()
    log_q, log_k = u_q - half_q[:, None], u_k - times * times * half_k[:, None]

    def outputs(queries: Tensor, keys: Tensor) -> Tensor:
        seen = (queries @ keys.mT) * past
        return (seen @ values[:, None])[:, 0] / seen.sum(-1)

    own_q, own_k = log_q.amax(-1, keepdim=True), log_k.amax(-1, keepdim=True)
    phi = (log_q - own_q).exp()
    early = (log_q - u_q.amax(-1, keepdim=True)).exp() + 1e-4  # before the norm is subtracted
    late = (log_k - u_k.flatten().amax(-1)).exp() + 1e-4
    found = {
        "kept": outputs(phi, (log_k - own_k.flatten().amax(-1)).exp()),
        "forgotten": outputs(phi, (log_k - own_k).exp()),
        "habits": outputs(early, late),
    }
    off = [(found[name] - found["kept"])[:-1].abs().amax(-1) for name in ("forgotten", "habits")]
    return {**found, "off": torch.stack(off)}


def causal_habits(factor: float) -> Drawn:
    """Draw the outputs of causal attention with random features, and the effect of two habits.

    With the scales of :eq:`eq-favor-scaled-keys` a new last key changes no earlier output.

    Args:
        factor: How many times as long the last key is.

    Returns:
        A figure of the outputs with scales kept, with scales forgotten, and with two habits.
    """
    q, k, rows, v = _causal_example()
    squares = torch.stack([x.square().sum(-1) / 2 for x in (q, k)])
    fixed = [x.tolist() for x in (q @ rows.mT, k @ rows.mT, squares, v)]
    found = _causal_outputs(factor, *fixed)
    forgotten, habits = found["off"]
    places = list(range(1, TOKENS + 1))
    average = rounded(v.cumsum(0) / torch.tensor(places))
    hover = "position %{x}: %{y:.2f}"
    looks = {
        "kept": ("scales kept", COLOURS["favor"], 4, "solid"),
        "forgotten": ("scales forgotten", PALETTE["brown"], 2, "dot"),
        "habits": ("maximum too early, constant added", PALETTE["red"], 2.5, "solid"),
    }
    drawn = [
        line(places, average, PALETTE["grey"], "average of the values so far", width=2, dash="dash")
    ]
    drawn += [
        line(places, found[of], colour, name, width=width, dash=dash, hover=hover)
        for of, (name, colour, width, dash) in looks.items()
    ]
    axes = layout(
        height=400,
        title_text=f"with both habits: errors up to {habits:.2f}",
        xaxis=axis("position", 0.7, TOKENS + 0.3, dtick=1),
        yaxis=axis("output", -1.1, 1.1, dtick=0.5),
        margin={"b": 110},
    )
    return Drawn(
        go.Figure(drawn, axes),
        "A line chart shows the outputs of causal attention against the position, from 1 to 12. "
        f"The norm of the last key is multiplied by {factor:g}. In the widest line the scales are "
        "kept, and the first 11 outputs do not depend on the last key. In the dotted line the "
        f"scales are forgotten, and these 11 outputs are wrong by up to {forgotten:.2f}. In the "
        "third line the maximum is taken too early and a constant is added, and the 11 outputs "
        f"are wrong by up to {habits:.2f}. The longer the last key is, the closer the third line "
        "comes to a dashed line, which shows the average of the values so far.",
    )
