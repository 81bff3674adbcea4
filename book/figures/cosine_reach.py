"""How strongly weights prefer nearby tokens, up to the horizon and beyond, and with more copies."""

from __future__ import annotations

import math
from functools import cache

import plotly.graph_objects as go
import torch
from torch import Tensor

from book.figures.marks import axis, bars, box, dots, downwards, line, rounded, segments
from book.names import display, wrapped
from lab.explore import COLOURS, PALETTE, Drawn, Panel, computed, layout, panels, pick
from lab.records import gather, read_record
from stringlib import FallingWeight, RampWeight
from stringlib.attention.ramp import gauss_nodes

__all__ = [
    "COPIES",
    "beyond_horizon",
    "more_copies",
    "nearest_share",
    "weighed_values",
]

LENGTH = 1000
NAMES = {
    "uniform": "No weight",
    "cosine": display("cosine"),
    "cosine-positive": display("cosine-positive"),
    "retnet": "Fixed decay (RetNet)",
}
DECAY = 63 / 64


@computed
def _shares(nearest: Tensor) -> dict[str, Tensor]:
    """Return the share of the nearest tokens under four weights."""
    share = nearest / LENGTH
    wave = (math.pi * share / 2).sin()
    positive = share + (math.pi * share).sin() / math.pi
    decay = (1 - DECAY**nearest) / (1 - DECAY**LENGTH)
    return {"shares": torch.stack([share, wave, positive, decay]), "edges": nearest.expand(2)}


def nearest_share(nearest: int) -> Drawn:
    """Draw four weights against the distance, and the share of the nearest of 1,000 tokens.

    The cosine of :eq:`eq-cosine-weight` and the positive form of :eq:`eq-cosine-positive` reach 0
    at the length.

    Args:
        nearest: How many tokens.

    Returns:
        A figure of the weights, and of the shares.
    """
    found = _shares(nearest)
    at = [10 * i for i in range(101)]
    x = torch.tensor(at).double() / LENGTH
    rows = {
        "uniform": torch.ones_like(x),
        "cosine": (math.pi / 2 * x).cos(),
        "cosine-positive": (math.pi / 2 * x).cos() ** 2,
        "retnet": DECAY ** (LENGTH * x),
    }
    fig = panels(
        Panel(
            [
                *(line(at, rounded(row), COLOURS[name], NAMES[name]) for name, row in rows.items()),
                line(found["edges"], [0, 1.05], PALETTE["grey"], width=1.5, dash="dot"),
            ],
            x=axis("distance (tokens)", 0, LENGTH),
            y=axis("weight", 0, 1.05, dtick=0.5),
        ),
        Panel(
            [
                bars([wrapped(name, 12) for name in NAMES.values()], found["shares"],
                     [COLOURS[name] for name in NAMES], hover="%{x}: %{y:.1%}")
            ],
            y=axis("share of the weight", 0, 1.05, tickformat=".0%", dtick=0.5),
        ),
        heights=(0.5, 0.3),
        down=0.19,
        height=470,
        title_text=f"the nearest {nearest:.0f} tokens get {found['shares'][1]:.1%} with the cosine",
        showlegend=False,
    )  # fmt: skip
    even, wave, positive, decay = found["shares"]
    return Drawn(
        fig,
        "A line chart and a bar chart compare four weights. The line chart above shows each "
        "weight against the distance, from 0 to 1,000 tokens. The line without a weight is "
        "constant. The line of the cosine weight is flat at distance 0 and falls to 0 at 1,000 "
        "tokens. The line of the positive cosine weight is flat at distance 0 too, and lies "
        "below that of the cosine weight. The line of the fixed decay falls fastest and is close "
        f"to 0 beyond 250 tokens. A dotted vertical line marks {nearest:.0f} tokens. The bar "
        f"chart below shows the share of the total weight that the nearest {nearest:.0f} tokens "
        f"get. This share is {even:.1%} without a weight, {wave:.1%} with the cosine weight, "
        f"{positive:.1%} with the positive cosine weight, and {decay:.1%} with the fixed decay.",
    )


TOKENS, REACH = 64, 130


@computed
def _means(horizon: Tensor) -> dict[str, Tensor]:
    """Return the outputs of all tokens for values 0 to 63, those in range, and both ends."""
    place = torch.arange(TOKENS).double()
    angles = math.pi / 2 * place / horizon
    waves = torch.stack([angles.cos(), angles.sin()])  # products of two are the weights
    means = ((waves @ place) @ waves) / (waves.sum(-1) @ waves)
    middle = (TOKENS - 1) / 2
    outside = (means - middle).abs() > middle + 1e-9
    return {
        "means": torch.where((means - middle).abs() < REACH, means, math.nan),
        "ends": torch.stack([means[0], means[-1]]),
        "outside": outside.double().sum(-1),
    }


def beyond_horizon(horizon: float) -> Drawn:
    """Draw the outputs of tokens with equal features for the values 0 to 63, under a cosine weight.

    Not causal, :eq:`eq-cosine-weight`: within the horizon each output is a mean.

    Args:
        horizon: M, in tokens, of 64.

    Returns:
        A figure of one line over a band of all possible means.
    """
    found = _means(horizon)
    first, last = found["ends"]
    outside = found["outside"]
    look = {"fillcolor": PALETTE["grey"], "opacity": 0.2, "layer": "below"}
    axes = layout(
        height=360,
        title_text=f"M = {horizon:.0f}: first output {first:.0f}, last output {last:.0f}",
        xaxis=axis("position", -0.5, TOKENS - 0.5, dtick=8),
        yaxis=axis("output", 31.5 - REACH, 31.5 + REACH, dtick=63, tick0=0),
        shapes=[{**box(-0.5, TOKENS - 0.5, 0, TOKENS - 1, width=0), **look}],
    )
    drawn = line(None, found["means"], COLOURS["cosine"], mode="lines+markers",
                 marker={"size": 4}, hover="position %{x}: %{y:.1f}")  # fmt: skip
    return Drawn(
        go.Figure([drawn], axes),
        f"A line chart shows the outputs of {TOKENS} tokens, with a dot for each token, against "
        f"the position, under a cosine weight with the horizon {horizon:.0f}. The values are the "
        "numbers from 0 to 63, and a shaded band marks their range. The number of outputs "
        f"outside the band is {outside:.0f} of {TOKENS}. The first output is {first:.0f}, and the "
        f"last output is {last:.0f}. Outputs that are far outside the band are not drawn.",
    )


COPIES = ("2", "3", "4", "5", "6")
"""The numbers of copies of :func:`more_copies`."""


def more_copies(copies: str) -> Drawn:
    """Draw a ramp and the best falling polynomial with as many copies, each divided by its mean.

    They are :eq:`eq-ramp-weight` and :eq:`eq-falling-weight`; at distance 0 they are as high as
    their *heights*, :eq:`eq-falling-best`.

    Args:
        copies: One of ``COPIES``.

    Returns:
        A figure of two lines.
    """
    power = int(copies) - 1
    shown, heights, tenths = [], [], []
    for weight, height in (
        (RampWeight(LENGTH, power), power + 1),
        (FallingWeight(LENGTH, power), 1 / gauss_nodes(power)[0]),
    ):
        row = weight.matrix(LENGTH, LENGTH)[-1].flip(0)
        tenths.append((row[: LENGTH // 10].sum() / row.sum()).item())
        shown.append(rounded(height * row[::20] / row[0], 2))
        heights.append(height)
    at = [step / 50 for step in range(50)]
    drawn = [
        line(at, row, COLOURS[name], said, dash=dash, hover="%{x} M: %{y:.2f}")
        for row, name, said, dash in zip(
            shown,
            ("ramp", "falling"),
            map(display, ("ramp", "falling")),
            ("dash", "solid"),
            strict=True,
        )
    ]
    title = f"nearest tenth: {tenths[0]:.0%} (ramp), {tenths[1]:.0%} (polynomial)"
    relation = (
        "The two curves coincide."
        if power < 3
        else "The polynomial starts higher than the ramp and falls faster near distance 0."
    )
    axes = layout(
        height=360,
        title_text=title,
        xaxis=axis("distance, as a share of the horizon M", 0, 1, dtick=0.2),
        yaxis=axis("weight / mean weight", 0, 9.2),
    )
    return Drawn(
        go.Figure(drawn, axes),
        "A line chart shows two weights, each divided by its mean, against the distance, as a "
        "share of the horizon. The dashed line is a ramp, and the solid line is the best falling "
        f"polynomial for {copies} copies of the features. Both lines fall to 0 at the horizon. "
        f"{relation} At distance 0 the ramp has the value {heights[0]:.2f}, and the polynomial "
        f"has the value {heights[1]:.2f}. The nearest tenth of the tokens gets {tenths[0]:.0%} of "
        f"the weight with the ramp and {tenths[1]:.0%} with the polynomial.",
    )


AWAY = torch.arange(TOKENS).double() / TOKENS
WEIGHED = {
    "none (1)": ("relu", "relu", AWAY**0),
    "cosine (2)": ("cosine", "cosine", (math.pi / 2 * AWAY).cos()),
    "ramp (2)": ("ramp", "ramp", 1 - AWAY),
    "positive (3)": ("cosine-positive", "cosine-positive", (math.pi / 2 * AWAY).cos() ** 2),
    "1 − sine (3)": ("cosine-phase", "cosine-positive", 1 - (math.pi / 2 * AWAY).sin()),
    "ramp² (3)": ("ramp-squared", "ramp-squared", (1 - AWAY) ** 2),
    "decay 7/8": ("retnet", "retnet", (7 / 8) ** (TOKENS * AWAY)),
}
"""Weights of :func:`weighed_values`, each with its method, its colour and its values."""

SPOKEN = {
    "none (1)": "a constant (no weight)",
    "cosine (2)": "the cosine",
    "ramp (2)": "the ramp",
    "positive (3)": "the positive form",
    "1 − sine (3)": "one minus a sine",
    "ramp² (3)": "the squared ramp",
    "decay 7/8": "a decay of 7/8 per token",
}

KEYS, VALUES, FIRST = 8, 4, 20  # of the study; the first query that can be chosen here


@cache
def _recorded() -> list[tuple[list[float], float]]:
    """Return the accuracy of each seed, and the one the weight allows, in the order of WEIGHED."""
    data = read_record("cosformer")["data"]
    found = gather(data, "accuracy", "method")
    return [(found[name], data["ceiling"][name]) for name, _, _ in WEIGHED.values()]


def _totals(weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weight of each value of each token's key, ``(TOKENS, VALUES)``, and the last."""
    draw = torch.Generator().manual_seed(5)
    keys, values = (torch.randint(n, (TOKENS,), generator=draw) for n in (KEYS, VALUES))
    places = torch.arange(TOKENS)
    same = (keys[:, None] == keys).tril(-1)
    away = (places[:, None] - 1 - places).clamp(min=0)
    written = torch.nn.functional.one_hot(values, VALUES).double()
    seen = same * weights[away]
    last = torch.where(same, places, -1).amax(-1).clamp(min=0)
    return seen @ written, written[last]


@computed
def _asked(token: Tensor, totals: list[list[float]], last: list[list[float]]) -> dict[str, Tensor]:
    """Return the weights of the values for a token, the last and the others, and which is first."""
    here = (torch.arange(FIRST, TOKENS) == token).double()
    weights = here @ torch.tensor(totals, dtype=torch.float64)
    held = here @ torch.tensor(last, dtype=torch.float64)
    weights = weights / weights.sum(-1)
    ahead = (weights > weights.amax(-1) - 1e-9).double()
    return {
        "last": weights * held,
        "others": weights * (1 - held),
        "held": (held * torch.arange(VALUES).double()).sum(-1),
        "status": (ahead * held).sum(-1) * ahead.sum(-1).clamp(max=2),
    }


def weighed_values(weight: str, token: int) -> Drawn:
    """Draw the weights of the values of a key in a sequence, and the accuracy with each weight.

    Args:
        weight: A name in ``WEIGHED``.
        token: Position of the query that asks for the last value of its key, from 20 to 63.

    Returns:
        A figure of four bars, and a row for each weight with its seeds and the accuracy it allows.
    """
    names, rows, chosen = list(WEIGHED), _recorded(), str(weight)
    totals, last = _totals(WEIGHED[chosen][2])
    found = _asked(token, totals[FIRST:].tolist(), last[FIRST:].tolist())
    colour = COLOURS[WEIGHED[chosen][1]]
    held = pick(found["held"], *"ABCD")
    status = pick(
        found["status"],
        "does not have the highest bar",
        "has the highest bar",
        "shares the highest bar",
    )
    height = pick(
        found["status"],
        "is not the highest",
        "is the highest",
        "is as high as one other bar and higher than the rest",
    )
    beside = torch.linspace(-0.2, 0.2, len(rows[0][0])).tolist()
    allowed = [((end, at - 0.36), (end, at + 0.36)) for at, (_, end) in enumerate(rows)]
    look = {"fillcolor": PALETTE["grey"], "opacity": 0.2, "layer": "below"}
    row = names.index(chosen)
    fig = panels(
        Panel(
            [
                bars([*"ABCD"], found["others"], PALETTE["grey"], "earlier values",
                     hover="%{x}: %{y:.0%}"),
                bars([*"ABCD"], found["last"], colour, "the last value", hover="%{x}: %{y:.0%}"),
            ],
            f"position {token:.0f}: last value {held} {status}",
            y=axis("share of the weight", 0, 1, dtick=0.5, tickformat=".0%"),
        ),
        Panel(
            [
                segments(allowed, PALETTE["grey"], "accuracy that the weight allows"),
                dots(
                    rounded([a for seeds, _ in rows for a in seeds]),
                    rounded([at + dy for at in range(len(names)) for dy in beside]),
                    [COLOURS[c] for _, c, _ in WEIGHED.values() for _ in beside],
                    size=6,
                    hover="%{x:.3f}",
                ),
            ],
            x=axis("accuracy", 0.5, 1, dtick=0.1),
            y=downwards(len(names), tickvals=list(range(len(names))), ticktext=names),
            shapes=[{**box(0.5, 1, row - 0.5, row + 0.5, width=0), **look}],
        ),
        heights=(0.3, 0.6),
        down=0.09,
        height=560,
        barmode="stack",
        margin={"l": 96, "r": 12, "t": 34, "b": 92},
    )  # fmt: skip
    seeds, allows = rows[row]
    return Drawn(
        fig,
        "The upper panel is a bar chart of the shares of the total weight that the four values A "
        f"to D of one key get, for the query at position {token:.0f} of {TOKENS} tokens. The "
        f"chosen weight is {SPOKEN[chosen]}. The last value of the key is {held}, and the bar of "
        f"{held} {height}. The lower panel is a dot plot of the accuracy with each of seven "
        "weights, in a row for each weight. In each row eight dots are the seeds, and a vertical "
        "line marks the accuracy that the weight allows. Accuracy is lowest without a weight and "
        "highest with the decay. In the shaded row, which belongs to the chosen weight, the dots "
        f"lie between {min(seeds):.3f} and {max(seeds):.3f}, and the line is at {allows:.3f}.",
    )
