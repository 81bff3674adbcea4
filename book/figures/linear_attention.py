"""Causal sums by pairs, by a state and by chunks; their cost, and what a state recalls."""

from __future__ import annotations

import math
from collections.abc import Mapping

import plotly.graph_objects as go
import torch
from torch import Tensor

from book.figures.marks import (
    axis,
    bars,
    box,
    dots,
    downwards,
    heat,
    line,
    listed,
    pin,
    rounded,
    significant,
    through,
    tokens_axis,
    upright,
)
from book.names import display
from lab.explore import COLOURS, PALETTE, Drawn, Panel, computed, layout, panels
from lab.explore.style import DIVERGING, SEQUENTIAL
from lab.theory.capacity import crosstalk_error, least_error

__all__ = [
    "PAIR_COUNTS",
    "counted_products",
    "crosstalk",
    "recalled_pairs",
    "taylor_weights",
    "three_forms",
    "turned_query",
]

TOKENS, FEATURES, CHANNELS = 8, 4, 3
STATE, OWN = PALETTE["orange"], PALETTE["teal"]
LENGTHS = [round(2 ** (i / 4)) for i in range(12, 61)]  # tokens, 8 to 32,768
PAIRS = sorted({round(2 ** (i / 6)) for i in range(61)})  # in a state, 1 to 1,024
SCORES = [round(0.1 * i, 1) for i in range(-40, 41)]
DIM = 64  # channels of a head


def _example() -> tuple[Tensor, Tensor, Tensor]:
    """Return features of queries and keys, and values with a column of ones."""
    draw = torch.Generator().manual_seed(4)
    phi_q, phi_k = 1.5 * torch.rand(2, TOKENS, FEATURES, generator=draw, dtype=torch.float64)
    v = 2 * torch.rand(TOKENS, CHANNELS, generator=draw, dtype=torch.float64) - 1
    return phi_q, phi_k, torch.cat([v, torch.ones(TOKENS, 1, dtype=torch.float64)], -1)


def _parts(token: int, chunk: int) -> dict[str, Tensor]:
    """Return the matrix, the two states and the two parts of the sums of a token."""
    phi_q, phi_k, u = _example()
    first, matrix = token - token % chunk, (phi_q @ phi_k.mT).tril()
    before = phi_k[:first].mT @ u[:first]
    own = matrix[token, first : token + 1] @ u[first : token + 1]
    now = phi_k[: token + 1].mT @ u[: token + 1]
    return {
        "matrix": matrix,
        "before": before,
        "now": now,
        "by state": phi_q[token] @ before,
        "own": own,
        "by row": matrix[token] @ u,
    }


def three_forms(token: int, chunk: int) -> Drawn:
    """Draw the sums of one token: from the state before its chunk and from its own chunk.

    Top left the matrix of similarities, with the row of the token framed: keys from the state, and
    keys of its own chunk. Top right the two parts of its sums, which add up to the row times the
    values. Below the state before the chunk and the state after the token.

    Args:
        token: The token t, from 0.
        chunk: Tokens per chunk: 1 is the recurrence, all of them the matrix form.

    Returns:
        A figure with four panels.
    """
    token, chunk = int(token), int(chunk)
    parts, first = _parts(token, chunk), token - token % chunk
    similarities = [
        [x if key <= query else None for key, x in enumerate(row)]
        for query, row in enumerate(parts["matrix"].tolist())
    ]
    names = [*(f"v{c}" for c in range(CHANNELS)), "1"]
    shown = list(range(TOKENS))
    matrix = heat(
        rounded(similarities, 2),
        (SEQUENTIAL, 0, 6),
        "query %{y}, key %{x}: %{z:.2f}",
        x=shown,
        y=shown,
        xgap=1,
        ygap=1,
    )
    framed = [(-0.5, first - 0.5, STATE), (first - 0.5, token + 0.5, OWN)]
    frames = [
        box(left, right, token - 0.5, token + 0.5, width=3, color=colour)
        for left, right, colour in framed[first == 0 :]
    ]

    hover = "%{y:.2f}"

    def sums(part: str, colour: str, name: str) -> go.Bar:
        return bars(names, parts[part].tolist(), colour, name, hover=hover)

    whole = dots(
        names,
        parts["by row"].tolist(),
        PALETTE["grey"],
        "whole row",
        size=22,
        symbol="line-ew",
        marker_line={"width": 3, "color": PALETTE["grey"]},
        hover=hover,
    )

    def state(sums: Tensor, head: str) -> Panel:
        cells = heat(
            sums.tolist(),
            (DIVERGING, -8, 8),
            x=names,
            y=[f"φ{a}" for a in range(FEATURES)],
            xgap=2,
            ygap=2,
            texttemplate="%{z:.1f}",
            textfont={"size": 11},
        )
        rows = downwards(FEATURES, type="category")
        return Panel([cells], head, x=axis(type="category", showgrid=False), y=rows)

    fig = panels(
        [
            Panel(
                [matrix],
                "query (row), key (column)",
                x={"dtick": 1, "showgrid": False},
                y=downwards(TOKENS, dtick=1),
                shapes=frames,
            ),
            Panel(
                [
                    sums("by state", STATE, "from the state"),
                    sums("own", OWN, "from its own chunk"),
                    whole,
                ],
                f"sums of token {token}",
                x={"type": "category"},
                y=axis(low=-8, high=19),
            ),
        ],
        [
            state(parts["before"], f"state before token {first}"),
            state(parts["now"], f"state after token {token}"),
        ],
        heights=(0.45, 0.37),
        down=0.18,
        height=560,
        barmode="relative",
        margin={"l": 34, "r": 12, "t": 34, "b": 96},
    )
    by_state, own, row = (parts[name][-1].item() for name in ("by state", "own", "by row"))
    others = f"keys {first} to {token}" if first < token else f"key {token}"
    earlier = f"keys 0 to {first - 1}" if first > 1 else "key 0"
    size = f"{chunk} tokens" if chunk > 1 else "1 token"
    frames_said = (
        f"In the row of token {token} one frame marks {earlier}, which the state contains, and a "
        f"second frame marks {others}, which the chunk of the token contains."
        if first
        else f"In the row of token {token} one frame marks {others}, which the chunk of the token "
        "contains; the state before this chunk is empty."
    )
    return Drawn(
        fig,
        f"Four panels show causal linear attention at token {token}, with {size} per chunk. The "
        "upper left panel is a heat map of the similarities of 8 queries and 8 keys, which form "
        f"a triangle, because no query attends to a later key. {frames_said} The upper right "
        "panel is a bar chart of four sums of the token, with one stacked bar for each of three "
        "value channels and one for the denominator. To the denominator the state contributes "
        f"{by_state:.2f} and the chunk {own:.2f}. A horizontal mark on each bar shows the sum "
        f"over the whole row, which is {row:.2f} for the denominator. The two lower "
        f"panels are tables of the state before token {first} and of the state after token "
        f"{token}, with one row for each of four features and one column for each sum.",
    )


@computed
def _taylor(score: Tensor, order: int) -> dict[str, Tensor]:
    """Return the Taylor polynomial of the exponential at all scores, and both at one."""
    s = torch.cat([torch.tensor(SCORES, dtype=torch.float64), score[None]])
    total: Tensor = sum(s**n / math.factorial(n) for n in range(order + 1))  # type: ignore[assignment]
    there, true = total[-1], score.exp()
    return {"weights": total[:-1], "here": torch.stack([true, there]), "ratio": there / true}


def taylor_weights(score: float, order: str) -> Drawn:
    """Draw the weight of a key by a Taylor polynomial and by the exponential.

    Args:
        score: s, query times key over √d.
        order: The highest power, an even one: such a polynomial is positive everywhere.

    Returns:
        A figure with two lines, and a dot on each.
    """
    found, power = _taylor(score, int(order)), int(order)
    features = sum(16**n for n in range(power + 1))
    soft, ours = COLOURS["softmax"], PALETTE["teal"]
    drawn = [
        line(SCORES, significant(math.exp(s) for s in SCORES), soft, "exponential"),
        line(SCORES, found["weights"], ours, "Taylor polynomial"),
        dots([score, score], found["here"], [soft, ours]),
    ]
    ticks = {"tickvals": [0.01, 0.1, 1, 10], "ticktext": ["0.01", "0.1", "1", "10"]}
    axes = layout(
        height=360,
        title_text=f"polynomial / exponential = {found['ratio']:.3g} ({features:,} features)",
        xaxis=axis("score s", -4, 4),
        yaxis=axis("weight (not normalised)", -2, 2, type="log", **ticks),
    )
    return Drawn(
        go.Figure(drawn, axes),
        "A line chart shows the weight of a key before the division, on a logarithmic axis, "
        "against the score s from -4 to 4. The exponential is a straight line that rises to the "
        f"right. The curve of the Taylor polynomial with powers up to {power} touches the "
        "straight line near score 0, lies above the line at the left edge and below it at the "
        f"right edge. A dot on each curve marks score {score:g}, where the polynomial is "
        f"{found['ratio']:.3g} times the exponential. With 16 channels the polynomial takes "
        f"{features:,} features.",
    )


@computed
def _counted(features: Tensor, chunk: Tensor) -> dict[str, Tensor]:
    """Return multiplications for each token in three ways, by the number of tokens."""
    n, m, w = torch.tensor(LENGTHS, dtype=torch.float64), features, features + 1
    pairs, state = n * (m + w), 2 * m * w
    chunks = chunk * (m + w) + (2 - chunk / n) * m * w
    return {
        "pairs": pairs,
        "state": state.expand(len(LENGTHS)),
        "chunks": torch.where(n >= chunk, chunks, math.nan),
        "crossing": state / (m + w),
        "level": state,
    }


def counted_products(features: int, chunk: int) -> Drawn:
    """Draw the cost per token of all pairs, of one state and of chunks: :eq:`eq-linear-cost`.

    Args:
        features: Features of a query and of a key, m, and channels of a value.
        chunk: Tokens per chunk.

    Returns:
        A figure with logarithmic axes; a dot marks where one state costs as much as all pairs.
    """
    found = _counted(features, chunk)
    crossing, most, chunks = found["crossing"], found["pairs"][-1], found["chunks"][-1]
    soft, linear = COLOURS["softmax"], COLOURS["relu"]
    hover = "%{x} tokens: %{y:,.0f}"
    drawn = [
        line(LENGTHS, found["pairs"], soft, "all pairs", hover=hover),
        line(LENGTHS, found["state"], linear, "one state", hover=hover),
        line(LENGTHS, found["chunks"], linear, "chunks (causal)", dash="dash", hover=hover),
        dots([crossing], [found["level"]], linear),
    ]
    axes = layout(
        height=380,
        title_text=f"one state is cheaper from {crossing:,.0f} tokens on",
        xaxis=tokens_axis([16, 128, 1024, 8192], 0.9, 4.52),
        yaxis=axis(
            "multiplications per token", 2, 7.6, type="log", dtick=1, exponentformat="power"
        ),
    )
    return Drawn(
        go.Figure(drawn, axes),
        "A line chart shows the number of multiplications per token against the number of "
        f"tokens, from 8 to 32,768, on two logarithmic axes, for {features:g} features. The line "
        f"of all pairs rises in proportion to the number of tokens. A dot marks {crossing:,.0f} "
        "tokens, where this line crosses the horizontal line of one state. A dashed line shows "
        f"attention in chunks of {chunk:g} and is nearly horizontal. At the right edge all pairs "
        f"take {most:,.0f} multiplications per token, one state takes {found['level']:,.0f}, and "
        f"the chunks take {chunks:,.0f}.",
    )


@computed
def _crosstalk(pairs: Tensor, overlap: Tensor) -> dict[str, Tensor]:
    """Return the error among any number of pairs, and at one, with the right value's weight."""
    n = torch.cat([torch.tensor(PAIRS, dtype=torch.float64), pairs[None]])
    spread = overlap**2 + (1 - overlap**2) / DIM
    error: Tensor = crosstalk_error(n, overlap, spread)  # type: ignore[arg-type, assignment]
    return {"error": error[:-1], "here": error[-1], "right": 1 / (1 + (pairs - 1) * overlap)}


def crosstalk(pairs: int, overlap: float) -> Drawn:
    """Draw the error of recall against the number of pairs, :eq:`eq-linear-crosstalk`.

    Args:
        pairs: Pairs in the state, n.
        overlap: Mean similarity of a query with a wrong key, if that with the right one is 1.

    Returns:
        A figure with the error and, dotted, the bound :eq:`eq-linear-capacity` of 64 features.
    """
    found = _crosstalk(pairs, overlap)
    right, error = found["right"], found["here"]
    drawn = [
        line(PAIRS, found["error"], COLOURS["relu"], "mean-field approximation",
             hover="%{x} pairs: %{y:.2f}"),
        line(PAIRS, rounded([least_error(n, DIM) for n in PAIRS]), PALETTE["grey"],
             "lower bound, 64 features", dash="dot"),
        pin(pairs, error, COLOURS["relu"]),
    ]  # fmt: skip
    axes = layout(
        height=380,
        title_text=f"weight of the right value: {right:.1%}",
        xaxis=axis("pairs n", 0, 3.02, type="log", tickvals=[1, 4, 16, 64, 256, 1024]),
        yaxis=axis("error of the value", 0, 1.1, dtick=0.25),
    )
    return Drawn(
        go.Figure(drawn, axes),
        "A line chart shows the error of a recalled value against the number n of stored pairs, "
        "from 1 to 1,024, on a logarithmic axis. The solid line is the mean-field approximation "
        f"for an overlap of {overlap:g}, that is, for wrong keys whose mean similarity with a "
        f"query is {overlap:g} times the similarity of the right key. A vertical line up to a dot "
        f"marks n = {pairs:g}, where the error is {error:.2f} and the right value has {right:.1%} "
        "of the weight. The dotted line is the lower bound for 64 features. This bound is 0 up "
        "to 64 pairs and then rises towards 1.",
    )


PAIR_COUNTS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
"""Numbers of pairs in the recorded study."""

SIGNED = PALETTE["brown"]
NAMES = {
    "ReLU": display("relu"),
    "random": display("favor"),
    "signed": "Signed features",
    "least squares": "Least squares",
}
"""Map of the record → display name, where it is no name of a registry."""
MAPS = {
    "softmax": (COLOURS["softmax"], "solid"),
    "elu": (COLOURS["elu"], "solid"),
    "ReLU": (COLOURS["relu"], "solid"),
    "random": (COLOURS["favor"], "solid"),
    "signed": (SIGNED, "dash"),
    "least squares": (PALETTE["magenta"], "solid"),
}


def _called(name: str) -> str:
    """Return the display name of a map."""
    return NAMES[name] if name in NAMES else display(name)


def recalled_pairs(
    features: str,
    *,
    recorded: Mapping[str, Mapping[str, Mapping[str, list[float]]]],
    overlaps: Mapping[str, float],
) -> Drawn:
    """Draw the recall of random pairs: the error of a value, and the share decoded.

    Args:
        features: How many ReLU and random features, a name in ``recorded``.
        recorded: Features → ``"error"`` or ``"decoded"`` → map → a mean for each of
            ``PAIR_COUNTS``.
        overlaps: For ReLU and elu ρ, from which :eq:`eq-linear-crosstalk` is drawn.

    Returns:
        A figure with two panels; the bound is :eq:`eq-linear-capacity` for 64 features.
    """
    found, grey = recorded[features], PALETTE["grey"]
    hover = "%{x} pairs: %{y:.3f}"

    def curves(measure: str, named: bool) -> list[go.Scatter]:
        return [
            line(PAIR_COUNTS, rounded(found[measure][name]), colour,
                 _called(name) if named else None, dash=dash, hover=hover)
            for name, (colour, dash) in MAPS.items()
        ]  # fmt: skip

    theory = [
        line(
            PAIR_COUNTS,
            rounded([crosstalk_error(n, r, r**2 + (1 - r**2) / DIM) for n in PAIR_COUNTS]),
            grey,
            "mean-field approximation" if name == "relu" else None,
            width=1.5,
            dash="dash",
        )
        for name, r in overlaps.items()
    ]
    least = [least_error(n, DIM) for n in PAIR_COUNTS]
    bound = line(PAIR_COUNTS, rounded(least), grey, "lower bound, 64 features", width=2, dash="dot")
    pairs = axis("pairs n", -0.1, 3.1, type="log", tickvals=[1, 4, 16, 64, 256, 1024])
    sixty_four = [upright(DIM, width=1, dash="dot", color=grey)]
    at = PAIR_COUNTS.index(DIM)
    error, decoded = (found[measure]["ReLU"][at] for measure in ("error", "decoded"))
    fig = panels(
        Panel(
            [*curves("error", named=True), *theory, bound],
            "error of the value",
            x=pairs,
            y=axis(low=-0.03, high=1.1, dtick=0.25),
            shapes=sixty_four,
        ),
        Panel(
            curves("decoded", named=False),
            "share decoded",
            x=pairs,
            y=axis(low=-0.03, high=1.05, dtick=0.25),
            shapes=sixty_four,
        ),
        heights=(0.43, 0.37),
        down=0.2,
        height=600,
        title_text=f"ReLU, 64 pairs: error {error:.3f}, decoded {decoded:.0%}",
        margin={"l": 44, "r": 14, "t": 64, "b": 122},
    )
    order = [_called(name) for name in sorted(MAPS, key=lambda name: found["error"][name][at])]
    return Drawn(
        fig,
        "Two line charts show six methods against the number of stored pairs, from 1 to 1,024 on "
        f"a logarithmic axis. A dotted vertical line marks 64 pairs. {_called('ReLU')} and "
        f"{_called('random')} have {features} features. The upper chart shows the error of a "
        "recalled value. Two thin dashed lines are the mean-field approximation, which the lines "
        f"of {_called('ReLU')} and {_called('elu')} follow. A dotted line far below them is the "
        "lower bound for 64 features, which the line of least squares follows. In order of "
        f"increasing error with 64 pairs, the methods are {listed(order)}. The lower chart shows "
        f"the share of the values that are decoded. With 64 pairs {_called('ReLU')} has an error "
        f"of {error:.2f} and decodes {decoded:.0%} of the values.",
    )


KEYS = [[1.2, 0.4], [0.5, 1.1], [-0.8, 0.9], [-1.0, -0.6], [0.9, -0.9]]
SPOKEN = [1.0, -1.0, -1.0, 1.0, 0.5]  # their values
ANGLES = list(range(0, 361, 2))
FAR = 30  # an output beyond this is a gap in its line


@computed
def _turned(angle: Tensor) -> dict[str, Tensor]:
    """Return the outputs of three attentions for queries at all angles, and at one, last."""
    k, v, angles = (torch.tensor(x, dtype=torch.float64) for x in (KEYS, SPOKEN, ANGLES))
    at = torch.cat([angles, angle[None]]) * (math.pi / 180)
    q = torch.stack([at.cos(), at.sin()], -1)
    similarities = {
        "softmax": (q @ k.mT / math.sqrt(2)).exp(),
        "relu": q.relu() @ k.relu().mT,
        "signed": q @ k.mT,
    }
    found, here = {}, []
    for name, weights in similarities.items():
        total = weights.sum(-1)
        none = total == 0  # the package returns the numerator, 0
        out = (weights @ v[:, None])[:, 0] / torch.where(none, 1.0, total)
        found[name] = torch.where(out.abs() > FAR, math.nan, out)[:-1]
        here += [out[-1], total[-1]]
    return {**found, "here": torch.stack(here), "query": torch.cat([0 * q[-1:], q[-1:]]).mT}


def turned_query(angle: float) -> Drawn:
    """Draw the output for a query of length 1 that rotates, and where its denominator is 0.

    Args:
        angle: Angle of the query in degrees.

    Returns:
        A figure of the five keys and the query, and of the outputs against its angle.
    """
    found = _turned(angle)
    soft, _, relu, _, signed, total = found["here"]
    across = torch.tensor(KEYS).double().sum(0).flip(0) * torch.tensor([-1.0, 1.0]).double()
    ends = [rounded([-x, x]) for x in (1.7 * across / across.norm()).tolist()]
    grey = PALETTE["grey"]
    colours = {1.0: PALETTE["orange"], -1.0: PALETTE["blue"], 0.5: PALETTE["orange"]}
    plane = Panel(
        [
            through(ends, grey, "signed features: denominator 0", width=1.5, dash="dash"),
            dots(
                [k[0] for k in KEYS],
                [k[1] for k in KEYS],
                [colours[v] for v in SPOKEN],
                size=13,
                text=[f"{v:g}" for v in SPOKEN],
                textposition=[*["top center"] * 3, "bottom center", "middle left"],
            ),
            through(found["query"], PALETTE["red"], "query", width=4),
        ],
        "keys with their values, and the query",
        x=axis(low=-1.75, high=1.75, dtick=1),
        y=axis(low=-1.45, high=1.45, dtick=1),
        square=True,
    )
    looks = {
        "softmax": (COLOURS["softmax"], "solid"),
        "relu": (COLOURS["relu"], "solid"),
        "signed": (SIGNED, "solid"),
    }
    hover = "%{x}°: %{y:.2f}"
    outputs = [
        line(ANGLES, found[name], colour, _called(name), dash=dash, hover=hover)
        for name, (colour, dash) in looks.items()
    ]
    marks = [colour for colour, _ in looks.values()]
    fig = panels(
        plane,
        Panel(
            [*outputs, dots([angle] * 3, [soft, relu, signed], marks, hover=hover)],
            "output",
            x=axis("angle of the query", 0, 360, dtick=90, ticksuffix="°"),
            y=axis(low=-7, high=7, dtick=2),
        ),
        heights=(0.46, 0.36),
        down=0.16,
        height=600,
        title_text=f"signed features: denominator {total:.2f}, output {signed:.1f}",
        margin={"l": 34, "r": 14, "t": 64, "b": 96},
    )
    return Drawn(
        fig,
        "The upper panel is a diagram of five keys in the plane, labelled with their values from "
        f"-1 to 1, and a query at an angle of {angle:g} degrees. A dashed line through the origin "
        "marks the queries for which the denominator of signed features is 0. The lower panel is "
        "a line chart of the outputs of softmax, ReLU and signed features against the angle of "
        "the query, from 0 to 360 degrees. Dots mark this query, for which softmax returns "
        f"{soft:.2f} and ReLU returns {relu:.2f}. With signed features the denominator is "
        f"{total:.2f} and the output is {signed:.1f}. The line of signed features leaves the plot "
        "near 138 and 318 degrees, where the denominator is 0. ReLU returns 0 between 180 and "
        "270 degrees. The line of softmax stays between -1 and 1.",
    )
