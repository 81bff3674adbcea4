"""Weights of decays, how products of decays are computed, and what markers delete."""

from __future__ import annotations

import math
from typing import Any

import plotly.graph_objects as go
import torch
from torch import Tensor

from book.figures.marks import CELLS, axis, bars, dots, downwards, heat, line, pin, through, upright
from lab.explore import COLOURS, PALETTE, Drawn, Panel, computed, layout, panels, pick
from lab.explore.style import SEQUENTIAL
from stringlib.attention.decay import decay_mask

__all__ = [
    "decay_memory",
    "halved_chunk",
    "markers_and_decays",
    "memory_of_decay",
    "products_of_decays",
]

TOKENS, FACT = 48, 12
CONSTANT, GATED = COLOURS["retnet"], COLOURS["ssd"]


@computed
def _memory(gamma: Tensor, reset: Tensor, kept: Tensor) -> dict[str, Tensor]:
    """Return the factor of each token for both decays, and its weight at the last token."""
    constant = gamma.expand(TOKENS)
    gated = torch.where(torch.arange(TOKENS) == reset, kept, 1.0)
    decays = torch.stack([constant, gated])
    # the last token's row of the mask: the product of all decays after a token
    later = torch.cat([decays[:, 1:], torch.ones(2, 1, dtype=torch.float64)], -1)
    left = later.log().flip(-1).cumsum(-1).flip(-1).exp()
    return {"decays": decays, "left": left}


def decay_memory(gamma: float, reset: float, kept: float) -> Drawn:
    """Draw the weight of every past token at the last one, and the decays of all tokens.

    Args:
        gamma: The constant decay.
        reset: The one token at which the other decay is not 1.
        kept: Its value there.

    Returns:
        A figure with two panels, weights above, decays below.
    """
    found = _memory(gamma, reset, kept)
    constant, gated = found["left"]
    places, colours, widths = list(range(TOKENS)), (CONSTANT, GATED), (3.5, 2)
    left = [
        _steps(places, row, colour, width, f"{name} decay")
        for name, row, colour, width in zip(
            ("constant", "gated"), found["left"], colours, widths, strict=True
        )
    ]
    factors = [
        _steps(places, row, colour, width)
        for row, colour, width in zip(found["decays"], colours, widths, strict=True)
    ]
    facts = constant[FACT], gated[FACT]
    stars = dots(
        [FACT, FACT],
        facts,
        list(colours),
        symbol="star",
        hover="weight: %{y:.2f}",
    )
    tokens: dict[str, Any] = {"range": [-0.8, TOKENS - 0.2], "dtick": 4}
    shares = axis(low=-0.06, high=1.08, dtick=0.5)
    fact = upright(FACT, color=PALETTE["grey"], width=1, dash="dot")
    fig = panels(
        Panel(
            [*left, stars],
            f"weight at token {TOKENS - 1} (token {FACT}: {facts[0]:.2f} and {facts[1]:.2f})",
            x={**tokens, "showticklabels": False},
            y=shares,
            shapes=[{**fact, "layer": "below"}],
        ),
        Panel(
            factors,
            "decay at each token",
            x=axis("token", **tokens),
            y=shares,
        ),
        heights=(0.58, 0.3),
        down=0.12,
        height=460,
        margin={"l": 40, "r": 14, "t": 30, "b": 92},
    )
    return Drawn(
        fig,
        f"Two line charts with a dot for each of {TOKENS} tokens compare a constant decay with a "
        "gated decay. The upper chart shows the weight that each token has at the last token. "
        f"Under the constant decay of {gamma:g} the weight of the first token is "
        f"{constant[0]:.2f}, and that of the last token is 1. Under the gated decay every token "
        f"before token {reset:.0f} has a weight of {gated[0]:.2f}. Token {reset:.0f} and all "
        f"later tokens have a weight of 1. Stars and a dotted vertical line mark token {FACT}. "
        f"The weight of token {FACT} is {facts[0]:.2f} under the constant decay, and "
        f"{facts[1]:.2f} under the gated decay. The lower chart shows the decay at each token. "
        f"The constant decay is a horizontal line at {gamma:g}. The gated decay is {kept:g} at "
        f"token {reset:.0f} and 1 at all other tokens.",
    )


def _steps(
    x: list[int], y: list[float], colour: str, width: float, name: str | None = None
) -> go.Scatter:
    """Return a line with dots; without a name it has steps."""
    return line(
        x,
        y,
        colour,
        name,
        width=width,
        line_shape="linear" if name else "hvh",
        mode="lines+markers",
        marker={"size": 5},
        hover="token %{x}: %{y:.3f}",
    )


DISTANCES = sorted({round(2 ** (i / 5)) for i in range(71)})
HEADS = range(8)


@computed
def _weights(memory: Tensor) -> dict[str, Tensor]:
    """Return a constant decay, its weights at all distances, and its half-life."""
    log = torch.log1p(-1 / memory)
    weights = (log * torch.tensor(DISTANCES, dtype=torch.float64)).exp()
    return {
        "decay": log.exp(),
        "weights": weights,
        "half": -math.log(2) / log,
        "at_memory": (log * memory).exp(),
    }


def memory_of_decay(memory: float) -> Drawn:
    r"""Draw the weights of a constant decay against distance, and half-lives of known heads.

    Those of RetNet are by :eq:`eq-retnet-decay`, those of ALiBi have the decays :math:`2^{-1-h}`
    as logarithms.

    Args:
        memory: The sum of all weights, 1 / (1 - decay), in tokens.

    Returns:
        A figure of one line with a mark at the memory, and two rows of dots at half of the weight.
    """
    found = _weights(memory)
    lives = {
        "retnet": [-math.log(2) / math.log1p(-(2.0 ** (-5 - h))) for h in HEADS],
        "alibi": [math.log(2) * 2.0 ** (1 + h) for h in HEADS],
    }
    drawn = [
        line(DISTANCES, found["weights"], PALETTE["blue"], "weight", hover="%{x}: %{y:.2f}"),
        pin(memory, found["at_memory"], PALETTE["blue"]),
    ]
    for name, called, size, symbol in (
        ("retnet", "half-lives, RetNet", 15, "circle-open"),
        ("alibi", "half-lives, ALiBi", 8, "circle"),
    ):
        at = [float(f"{life:.3g}") for life in lives[name]]
        drawn.append(
            dots(
                at,
                [0.5] * 8,
                COLOURS[name],
                called,
                size=size,
                symbol=symbol,
                hover="half at %{x:.3g} tokens",
            )
        )
    half, decay = found["half"], found["decay"]
    axes = layout(
        height=360,
        title_text=f"γ = {decay:.4f}: memory {memory:.0f}, half-life {half:.1f}",
        xaxis=axis("distance (tokens)", 0, 4.1, type="log", tickvals=[1, 10, 100, 1000, 10_000]),
        yaxis=axis("weight", -0.03, 1.05),
    )
    return Drawn(
        go.Figure(drawn, axes),
        f"A line chart shows the weight of a token under a constant decay of {decay:.4f}, against "
        "the distance in tokens on a logarithmic axis. The weight falls with the distance. A "
        f"vertical line up to a dot on the curve marks the effective memory of {memory:.0f} "
        f"tokens, where the weight is {found['at_memory']:.2f}. The weight is one half at the "
        f"half-life of {half:.1f} tokens. At the height of one half, rings mark the half-lives of "
        "the eight heads of RetNet, and filled dots mark the half-lives of eight heads of ALiBi. "
        "The marks of each model are equally spaced, because the half-life about doubles from "
        "one head to the next.",
    )


LARGEST = math.log10(torch.finfo(torch.float32).max)
SMALLEST = math.log10(1.4e-45)  # what float32 keeps, below its normal numbers
BACK = 10
TOKENS_FAR = [round(10 ** (1 + i / 20)) for i in range(61)]


@computed
def _products(decay: Tensor) -> dict[str, Tensor]:
    """Return powers of ten: a running product, its reciprocal, and their product ten tokens back.

    Each where float32 has it, and the first token whose reciprocal overflows.
    """
    power = decay.log10()
    tokens = torch.tensor(TOKENS_FAR, dtype=torch.float64)
    product = (tokens + 1) * power
    kept = torch.where(product > SMALLEST, product, math.nan)
    turned = torch.where(-product < LARGEST, -product, math.nan)
    weight = torch.where(-product < LARGEST, BACK * power, math.nan)
    return {"curves": torch.stack([kept, turned, weight]), "last": (-LARGEST / power).floor()}


def products_of_decays(decay: float) -> Drawn:
    """Draw the running product of a constant decay and its reciprocal, as far as float32 goes.

    Args:
        decay: Decay of every token.

    Returns:
        A figure of three lines; the weight is a product of the other two.
    """
    found = _products(decay)
    names = ("Γ (query)", "1/Γ (key)", f"weight, {BACK} tokens back")
    colours = (PALETTE["blue"], PALETTE["magenta"], PALETTE["orange"])
    drawn = [
        line(TOKENS_FAR, curve, colour, name, hover="token %{x}: 10^%{y:.1f}")
        for curve, name, colour in zip(found["curves"], names, colours, strict=True)
    ]
    limit = [round(LARGEST, 2)] * 2
    drawn.append(line([10, 10_000], limit, PALETTE["grey"], "largest float32", dash="dot", width=2))
    last = found["last"]
    axes = layout(
        height=400,
        title_text=f"1/Γ overflows float32 from token {last:,.0f} on",
        xaxis=axis("token", 1, 4, type="log", dtick=1),
        yaxis=axis("logarithm (base 10)", -50, 50),
        margin={"b": 96},
    )
    return Drawn(
        go.Figure(drawn, axes),
        "A line chart shows the logarithms (base 10) of three products against the token, from "
        f"10 to 10,000 on a logarithmic axis. Every token has a decay of {decay:g}. The line of "
        "the running product Γ falls. The line of the reciprocal 1/Γ rises until it reaches the "
        f"dotted horizontal line of the largest float32 number at token {last:,.0f}. The weight "
        f"of a key {BACK} tokens back, the product of Γ at the query and 1/Γ at the key, is a "
        f"horizontal line that also ends at token {last:,.0f}.",
    )


CHUNK, LEVELS = 64, 6
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth")
DECAYS = [round(0.98 - 0.22 * math.sin(2.4 * t) ** 4, 2) for t in range(CHUNK)]
DECAYS[22] = 0.3


def _level(query: int, key: int) -> int | None:
    """Return the halving that separates a pair, from 1; None unless the key comes before."""
    return LEVELS + 1 - (query ^ key).bit_length() if key < query else None


@computed
def _parted(query: Tensor, key: Tensor) -> dict[str, Tensor]:
    """Return a pair's cut, the block that it makes, and the decays on both sides of it."""
    key = torch.minimum(key, query - 1)  # no token attends to a later one
    sizes = 2.0 ** torch.arange(LEVELS - 1, -1, -1).double()  # of the halves, level by level
    level = ((query / sizes).floor() == (key / sizes).floor()).double().sum()
    size = 2.0 ** (LEVELS - 1 - level)
    cut = (query / size).floor() * size - 1
    ends = torch.stack([cut - size, cut, cut + size]) + 0.5
    decays, tokens = torch.tensor(DECAYS, dtype=torch.float64), torch.arange(CHUNK).double()
    of_key, of_query = (tokens > key) & (tokens <= cut), (tokens > cut) & (tokens <= query)
    halves = torch.stack([of_query, of_key])
    parts = torch.where(halves, decays.log(), 0.0).sum(-1).exp()
    sides = torch.where(halves, decays, 0.0)
    return {
        "pair": torch.stack([key, query]),
        "level": level,
        "cut": cut,
        "frame": torch.stack([ends[[0, 1, 1, 0, 0]], ends[[1, 1, 2, 2, 1]]]),
        "sides": torch.cat([sides, (decays - sides.sum(0))[None]]),
        "weights": torch.cat([parts, (parts[0] * parts[1])[None]]),
    }


def halved_chunk(query: float, key: float) -> Drawn:
    """Draw by which halving of a chunk a pair is computed: :eq:`eq-decay-halves`.

    Args:
        query: Position of the query in a chunk of 64, from 1.
        key: Position of the key; the one before the query, if it is not before it.

    Returns:
        A figure of a map, the pairs by the level of their cut, and of one feature's decays.
    """
    found = _parted(query, key)
    (at_key, at_query), cut, level = found["pair"], found["cut"], found["level"]
    of_query, of_key, weight = found["weights"]
    blue, orange, red = PALETTE["blue"], PALETTE["orange"], PALETTE["red"]
    # a row ends before its own token, and the first has none: half of the map takes no room
    levels = [[_level(i, j) for j in range(max(i, 1))] for i in range(CHUNK)]
    ring: dict[str, Any] = {"symbol": "circle-open", "size": 13, "marker_line_width": 3}
    pairs = [
        heat(levels, (SEQUENTIAL, 0.4, 6.2), "query %{y}, key %{x}: level %{z}"),
        through(found["frame"], red, width=2.5),
        dots([at_key], [at_query], red, **ring),
    ]
    sides = [
        bars(list(range(CHUNK)), side, colour, name, hover="token %{x}: %{y:.2f}")
        for side, colour, name in zip(
            found["sides"], (blue, orange, PALETTE["grey"]),
            ("multiplies the query", "multiplies the key", "neither"), strict=True,
        )
    ]  # fmt: skip
    word = pick(level, *ORDINALS)
    ticks: dict[str, Any] = {"dtick": 16}
    fig = panels(
        Panel(
            pairs,
            f"query {at_query:g}, key {at_key:g}: {word} halving",
            x=axis(None, -0.5, CHUNK - 0.5, **CELLS, **ticks),
            y=axis("query", **downwards(CHUNK, **ticks)),
            square=True,
        ),
        Panel(
            sides,
            f"w = {of_query:.3f} · {of_key:.3f} = {weight:.3f}",
            x=axis("token", -0.5, CHUNK - 0.5, **ticks),
            y=axis("decay", 0, 1.05, dtick=0.5),
        ),
        heights=(0.7, 0.2),
        down=0.14,
        height=500,
        barmode="overlay",
        margin={"l": 46, "r": 14, "t": 30, "b": 92},
    )
    return Drawn(
        fig,
        "The upper panel is a map with a row for each query and a column for each earlier key in "
        f"a chunk of {CHUNK} tokens. The map has {LEVELS} shades, one for each halving. The first "
        "halving makes one large square below the diagonal. Each later halving makes twice as "
        f"many squares of half the side. A ring marks the pair of query {at_query:g} and key "
        f"{at_key:g}, which is separated by the {word} halving, after token {cut:g}. A frame "
        "surrounds the square of this halving that contains the pair. The lower panel is a bar "
        "chart of the decay of one feature at each token. The decays after the key up to the cut "
        f"have the product {of_key:.3f}, which multiplies the key. The decays after the cut up to "
        f"the query have the product {of_query:.3f}, which multiplies the query. The product of "
        f"these two factors is the weight {weight:.3f}.",
    )


MARKED = "aAb|Ab‖bAB|Ba‖aB"
"""Symbols of two classes, where | deletes the lower-case letters and ‖ the upper-case ones."""


def _seen() -> list[bool | None]:
    """Return for each token whether its symbol occurred since its marker; None at markers."""
    answers: list[bool | None] = []
    seen: set[str] = set()
    for token in MARKED:
        if token in "|‖":
            seen = {s for s in seen if s.isupper() == (token == "|")}
            answers.append(None)
        else:
            answers.append(token in seen)
            seen.add(token)
    return answers


ASKED = [t for t, answer in enumerate(_seen()) if answer is not None]
YES = torch.tensor([bool(_seen()[t]) for t in ASKED])


@computed
def _marked(number: Tensor, own: Tensor, other: Tensor, symbol: Tensor) -> dict[str, Tensor]:
    """Return each symbol's earlier weight in the state, by a number and by a vector per token.

    And of each the least weight for the answer yes, and the largest for no.
    """
    same = torch.tensor([[a == b for b in MARKED] for a in MARKED]).double().tril(-1)
    found = []
    for large in (False, True):
        clears = "‖" if large else "|"
        mine, theirs = (
            torch.tensor([token in marks for token in MARKED]) for marks in (clears, "|‖")
        )
        vector = torch.where(mine, own, torch.where(theirs, other, symbol))
        scalar = torch.where(theirs, number, symbol)
        sums = (decay_mask(torch.stack([scalar, vector]).log()) * same).sum(-1)
        found.append(torch.where(torch.tensor([t.isupper() == large for t in MARKED]), sums, 0.0))
    asked = torch.stack(found).sum(0)[:, ASKED]
    yes, no = torch.where(YES, asked, math.nan), torch.where(YES, math.nan, asked)
    ends = torch.stack(
        [torch.where(YES, asked, 9.0).amin(-1), torch.where(YES, 0.0, asked).amax(-1)], -1
    )
    return {"yes": yes, "no": no, "ends": ends,
            "apart": (ends[:, 0] > ends[:, 1] + 1e-9).double()}  # fmt: skip


def markers_and_decays(number: float, own: float, other: float, symbol: float) -> Drawn:
    """Draw the earlier weight of each symbol when markers of two classes decay the state.

    Args:
        number: Decay at a marker, where it is one number: :eq:`eq-decay-state`.
        own: Where it is a vector, the decay at a marker of the features of its own class.
        other: That of the features of the other class.
        symbol: Decay of all features at a symbol, for both.

    Returns:
        A figure with two panels, a number and a vector.
    """
    found = _marked(number, own, other, symbol)
    both = zip(
        ("scalar", "vector"), (COLOURS["ssd"], COLOURS["gla"]),
        found["yes"], found["no"], found["ends"], found["apart"], strict=True,
    )  # fmt: skip
    rows: list[Panel] = []
    weights = []
    x = axis(None, -0.6, len(MARKED) - 0.4, tickvals=list(range(len(MARKED))),
             ticktext=list(MARKED), tickangle=0, zeroline=False)  # fmt: skip
    marks = [
        {**upright(t, color=PALETTE["grey"], width=1, dash="dot"), "layer": "below"}
        for t, token in enumerate(MARKED) if token in "|‖"
    ]  # fmt: skip
    for name, colour, yes, no, (least, most), apart in both:
        names = ("answer yes", "answer no") if not rows else (None, None)
        hover = "weight: %{y:.2f}"
        traces = [
            dots(ASKED, yes, colour, names[0], size=12, hover=hover),
            dots(ASKED, no, PALETTE["grey"], names[1], size=11, symbol="x", hover=hover),
        ]
        found_apart = pick(apart, "mixed", "separated")
        head = f"{name} decay: {found_apart} (yes ≥ {least:.2f}, no ≤ {most:.2f})"
        rows.append(Panel(traces, head, x=x, y=axis("weight", -0.2, 2.25, dtick=1), shapes=marks))
        weights.append(
            f"With a {name} decay all dots are at {least:.2f} or above, and all crosses are at "
            f"{most:.2f} or below, so {pick(apart, 'no threshold', 'a threshold')} separates them."
        )
    fig = panels(*rows, down=0.2, height=430, margin={"l": 46, "r": 14, "t": 30, "b": 64})
    return Drawn(
        fig,
        "Two dot plots, one for a scalar decay and one for a vector decay, show the weight that "
        "earlier occurrences of each symbol have in the state. The horizontal axis is the "
        f"sequence {' '.join(MARKED)}. Dots are symbols that have occurred since the last marker "
        "of their class, and crosses are all other symbols. Dotted vertical lines are at the "
        f"markers. The decay at a symbol is {symbol:g} in both panels. The scalar decay at a "
        f"marker is {number:g}. The vector decay at a marker is {own:g} for the features of the "
        f"marker's own class, and {other:g} for the features of the other class. "
        f"{' '.join(weights)}",
    )
