"""What one head on a grid can attend to, what trained heads reach, and the mean of many heads."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from book.figures.marks import CELLS, axis, dots, downwards, heat, line, listed, rounded, segments
from book.names import display, wrapped
from lab.explore import COLOURS, PALETTE, Drawn, Panel, computed, panels, pick
from lab.explore.style import SEQUENTIAL
from stringlib.kernels.rotation import geometric_frequencies

__all__ = [
    "crossed_waves",
    "mean_of_heads",
    "neighbour_accuracies",
    "separable_weights",
    "symbols_asked",
]

REACH, WAVES, HEADS = 13, 12, 8  # patches to either side; magnitudes of 48 channels; heads
RING = 10  # patches away, where directions are compared
NEAR = 3  # patches to either side, around one query
DISTANCES = [round(0.25 * i, 2) for i in range(4 * REACH + 1)]


@computed
def _mean(spread: Tensor) -> dict[str, Tensor]:
    """Return the mean score over heads that are rotated evenly: on a map, and along two directions.

    And the least and the largest on a ring around the query.
    """
    first = torch.arange(HEADS, dtype=torch.float64) / HEADS * spread.deg2rad()
    turn = torch.stack([first, first + math.pi / 2])  # the two directions of each head
    theta = geometric_frequencies(WAVES, 10.0)

    def score(row: Tensor, column: Tensor) -> Tensor:
        along = row[..., None, None] * turn.cos() + column[..., None, None] * turn.sin()
        waves = torch.stack([(along * speed).cos() for speed in theta]).mean(0)
        return waves.mean((-1, -2))

    steps = torch.arange(-REACH, REACH + 1, dtype=torch.float64)
    far = torch.tensor(DISTANCES, dtype=torch.float64)
    lines = [score(far, 0 * far), score(far * 0.5**0.5, far * 0.5**0.5)]
    around = torch.linspace(0, math.pi / 2, 31, dtype=torch.float64)
    ring = score(RING * around.cos(), RING * around.sin())
    return {
        "map": score(steps[:, None], steps),
        "lines": torch.stack(lines),
        "ends": torch.stack([ring.amin(-1), ring.amax(-1)]),
        "uneven": ((ring.amax(-1) - ring.amin(-1)) > 0.05).double(),
        "shape": (spread > 1).double() + (spread > 75).double(),
    }


def mean_of_heads(spread: float) -> Drawn:
    """Draw the mean score over heads with perpendicular directions, each head rotated further.

    Every head starts as :eq:`eq-grid-start`; the mean goes to a mean of Bessel functions.

    Args:
        spread: Degrees over which the directions of the heads are spread evenly, at most 90.

    Returns:
        A figure of a map of offsets, and of the score along a row and along a diagonal.
    """
    found = _mean(spread)
    low, high = found["ends"]
    shape = pick(
        found["shape"],
        "a plus, whose arms are the row and the column of the query",
        "a hill that is higher in some directions than in others",
        "a round hill around the query",
    )
    around = pick(found["uneven"], "is almost the same in each", "depends on the")
    far = torch.tensor(DISTANCES, dtype=torch.float64)
    law = torch.special.bessel_j0(far[:, None] * geometric_frequencies(WAVES, 10.0)).mean(-1)
    colour, hover = COLOURS["mixed"], "distance %{x}: %{y:.2f}"
    square = {**CELLS, "tickvals": [REACH - RING, REACH, REACH + RING],
              "ticktext": [f"−{RING}", "0", f"{RING}"]}  # fmt: skip
    fig = panels(
        Panel(
            [heat(found["map"], (SEQUENTIAL, -0.1, 0.9), "score %{z:.2f}")],
            f"at distance {RING}: scores from {low:.2f} to {high:.2f}",
            x=square,
            y=downwards(2 * REACH + 1, **{k: square[k] for k in ("tickvals", "ticktext")}),
            square=True,
        ),
        Panel(
            [
                line(DISTANCES, found["lines"][0], colour, "along a row", hover=hover),
                line(DISTANCES, found["lines"][1], PALETTE["orange"], "diagonally", hover=hover),
                line(DISTANCES, rounded(law), PALETTE["grey"], "mean of J₀", width=2, dash="dot"),
            ],
            x=axis("distance (patches)", 0, REACH),
            y=axis("score", -0.15, 1.05, dtick=0.5),
        ),
        heights=(0.62, 0.28),
        down=0.1,
        height=560,
        margin={"l": 48, "r": 12, "t": 30, "b": 84},
    )
    return Drawn(
        fig,
        f"The upper panel is a heat map of the mean score of {HEADS} heads for every offset from "
        f"the query, from -{REACH} to {REACH} rows and columns. The directions of the heads are "
        f"spread evenly over {spread:g} degrees. The high scores form {shape}. At a distance of "
        f"{RING} patches the mean score {around} direction, and the largest mean score at this "
        f"distance is {high:.2f}. The lower panel is a line chart of the score against the "
        f"distance from the query, from 0 to {REACH} patches. Three lines start at 1 and fall. "
        "They are the mean score along a row, the mean score along a diagonal and, dotted, the "
        "mean of Bessel functions.",
    )


@computed
def _product(rows: Tensor, columns: Tensor) -> dict[str, Tensor]:
    """Return the weights of the four diagonal neighbours, and their sums on either diagonal."""
    row, column = (torch.stack([p, 0 * p, 1 - p]) for p in (rows, columns))
    weights = row[:, None] * column
    return {
        "weights": weights,
        "sums": torch.stack([weights[0, 0] + weights[2, 2], weights[0, 2] + weights[2, 0]]),
        "wanted": torch.stack([weights[0, 0], weights[2, 2]]),
    }


def separable_weights(rows: float, columns: float) -> Drawn:
    """Draw what an axial head can give its diagonal neighbours: a product, :eq:`eq-grid-separable`.

    A score that is a sum over coordinates makes weights that are products, here of two shares.

    Args:
        rows: Share of the row above; the row below has the rest.
        columns: Share of the column on the left; the right one has the rest.

    Returns:
        A figure of the nine weights around the query.
    """
    found = _product(rows, columns)
    (right, wrong), (first, second) = found["sums"], found["wanted"]
    ticks: dict[str, Any] = {"tickvals": [0, 1, 2], "ticktext": ["−1", "0", "1"]}
    texts = [[f"{w:.2f}" if (i != 1 and j != 1) else "" for j, w in enumerate(row)]
             for i, row in enumerate(found["weights"])]  # fmt: skip
    fig = panels(
        Panel(
            [
                heat(found["weights"], (SEQUENTIAL, 0, 1), text=texts, texttemplate="%{text}",
                     xgap=2, ygap=2, textfont={"size": 15})
            ],
            f"weight on the two neighbours {right:.2f},<br>on the other diagonal {wrong:.2f}",
            x=axis("column", **CELLS, **ticks),
            y=downwards(3, **ticks, title="row"),
            square=True,
        ),
        height=346,
        margin={"l": 54, "r": 12, "t": 46, "b": 48},
    )  # fmt: skip
    return Drawn(
        fig,
        "A heat map with three rows and three columns shows the attention weights of the nine "
        "patches around a query. Each weight is the share of its row times the share of its "
        f"column. The row above has share {rows:g}, and the column on the left has share "
        f"{columns:g}. The neighbour at (−1, −1) gets weight {first:.2f}, and the neighbour at "
        f"(1, 1) gets {second:.2f}. These two neighbours together get weight {right:.2f}, and the "
        f"neighbours at (−1, 1) and (1, −1) together get weight {wrong:.2f}.",
    )


def _map(weights: Any, texts: list[list[str]], marks: Sequence[Any], head: str) -> Panel:
    """Return the map of the weights around a query, with a text in some of the cells."""
    ticks: dict[str, Any] = {
        "tickvals": [*range(2 * NEAR + 1)],
        "ticktext": [f"{n}".replace("-", "−") for n in range(-NEAR, NEAR + 1)],
    }
    cells = heat(weights, (SEQUENTIAL, 0, 0.5), "weight %{z:.3f}", text=texts,
                 texttemplate="%{text}", xgap=1, ygap=1)  # fmt: skip
    across = axis("columns to the right", -0.5, 2 * NEAR + 0.5, **CELLS, **ticks)
    return Panel([cells, *marks], head, x=across, square=True,
                 y=downwards(2 * NEAR + 1, title="rows down", **ticks))  # fmt: skip


@computed
def _crossed(turn: Tensor, sharpness: Tensor) -> dict[str, Tensor]:
    """Return the weights of a head whose waves all have a crest at both neighbours.

    And the sums on the two diagonals, and the ends of the directions of its waves.
    """
    angle = turn.deg2rad() + torch.tensor([0, math.pi / 2], dtype=torch.float64)
    ways = torch.stack([angle.cos(), angle.sin()], -1)  # (row, column) of each
    steps = torch.arange(-NEAR, NEAR + 1, dtype=torch.float64)
    offsets = torch.stack([steps[:, None] + 0 * steps, 0 * steps[:, None] + steps], -1)
    # up to half a turn per patch, so that crests are narrow
    speeds = (torch.arange(WAVES, dtype=torch.float64) + 0.5) * (math.pi / WAVES)

    def waves(at: Tensor) -> Tensor:
        return ((at @ ways.mT)[..., None] * speeds).cos()

    # crests of half the height at either: cos a cos b = (cos(a − b) + cos(a + b)) / 2
    scores = (waves(offsets) * waves(torch.ones(2, dtype=torch.float64))).mean((-1, -2))
    weights = (sharpness * scores).flatten().softmax(-1).view(2 * NEAR + 1, 2 * NEAR + 1)
    corners = weights[NEAR - 1 : NEAR + 2, NEAR - 1 : NEAR + 2]
    return {
        "weights": weights,
        "asked": torch.stack([corners[0, 0], corners[2, 2]]),
        "other": torch.stack([corners[0, 2], corners[2, 0]]),
        "sums": torch.stack([corners[0, 0] + corners[2, 2], corners[0, 2] + corners[2, 0]]),
        "ends": torch.stack([NEAR - NEAR * ways, NEAR + NEAR * ways], 1),
    }


def crossed_waves(turn: float, sharpness: float) -> Drawn:
    """Draw the weights of a head built for two diagonal neighbours: :eq:`eq-grid-separable`.

    Its waves, :eq:`eq-grid-score`, have two perpendicular directions, as :eq:`eq-grid-start`, and
    have crests at both neighbours.

    Args:
        turn: Degrees by which the directions are rotated; at 0 the head is axial.
        sharpness: What multiplies the mean over the waves, before softmax.

    Returns:
        A figure of the weights around the query, and of the two directions.
    """
    found = _crossed(turn, sharpness)
    right, wrong = found["sums"]
    texts = [["" for _ in range(2 * NEAR + 1)] for _ in range(2 * NEAR + 1)]
    for at, pair in ((1, found["asked"]), (-1, found["other"])):
        for sign, weight in zip((-1, 1), pair, strict=True):
            texts[NEAR + sign][NEAR + sign * at] = f"{weight:.2f}"
    reads = [((start[1], start[0]), (end[1], end[0])) for start, end in found["ends"]]
    marks = [segments(reads, PALETTE["orange"], width=1.5)]
    fig = panels(
        _map(
            found["weights"],
            texts,
            marks,
            f"weight on the two neighbours {right:.2f},<br>on the other diagonal {wrong:.2f}",
        ),
        height=416,
        margin={"l": 54, "r": 12, "t": 46, "b": 48},
    )
    return Drawn(
        fig,
        f"A heat map shows the attention weights of {2 * NEAR + 1} by {2 * NEAR + 1} cells around "
        f"a query, for offsets from -{NEAR} to {NEAR} rows and columns. The waves of the head run "
        "in two perpendicular directions, which two thin lines through the query show. They are "
        f"rotated by {turn:g} degrees from the axes. The waves have their maxima at (−1, −1) and "
        f"(1, 1), and the scores are multiplied by {sharpness:g} before softmax. The cells at "
        f"(−1, −1) and (1, 1) get the same weight, together {right:.2f}. The cells at (−1, 1) and "
        f"(1, −1), on the other diagonal, together get weight {wrong:.2f}.",
    )


def _symbols(upper: str, lower: str) -> Tensor:
    """Return symbols of the cells around a query, the two that count as given."""
    generator = torch.Generator().manual_seed(1)
    size = 2 * NEAR + 1
    symbols = (torch.rand(size, size, generator=generator) < 0.5).double()
    symbols[NEAR - 1, NEAR - 1], symbols[NEAR + 1, NEAR + 1] = float(upper), float(lower)
    return symbols


@computed
def _asked(score: Tensor, upper: str, lower: str) -> dict[str, Tensor]:
    """Return the weights of a head that looks for a 1 above and a 0 below, and what it reads."""
    symbols = _symbols(upper, lower)
    wanted = torch.zeros_like(symbols)
    wanted[NEAR - 1, NEAR - 1] = symbols[NEAR - 1, NEAR - 1]
    wanted[NEAR + 1, NEAR + 1] = 1 - symbols[NEAR + 1, NEAR + 1]
    weights = (score * wanted).flatten().softmax(-1).view_as(wanted)
    sums = torch.stack([weights[NEAR - 1, NEAR - 1], weights[NEAR + 1, NEAR + 1]])
    return {"weights": weights, "read": (weights * symbols).sum(), "two": sums}


def symbols_asked(upper: str, lower: str, score: float) -> Drawn:
    """Draw the weights of a head that looks for ones at one offset and for zeros at another.

    Every key's score is a sum over coordinates, :eq:`eq-grid-separable`, one for each symbol.

    Args:
        upper: What the neighbour at (−1, −1) holds, 0 or 1; the head looks there for a 1.
        lower: What the neighbour at (1, 1) holds; the head looks there for a 0.
        score: What it gives to what it looks for; every other key gets 0.

    Returns:
        A figure of the weights around the query, with the symbols.
    """
    found = _asked(score, str(upper), str(lower))
    read, (above, below) = found["read"], found["two"]
    texts = [[f"{symbol:.0f}" for symbol in row] for row in _symbols(str(upper), str(lower))]
    places = [NEAR - 1, NEAR + 1]
    ring: dict[str, Any] = {"symbol": "circle-open", "size": 24, "marker_line_width": 2.5}
    marks = [dots(places, places, PALETTE["orange"], **ring)]
    fig = panels(
        _map(found["weights"], texts, marks, f"weighted share of ones: {read:.0%}"),
        height=400,
        margin={"l": 54, "r": 12, "t": 30, "b": 48},
    )
    right = int(upper) + int(lower)
    return Drawn(
        fig,
        f"A heat map shows the attention weights of {2 * NEAR + 1} by {2 * NEAR + 1} cells around "
        "a query, with the symbol of each cell, 0 or 1, as a number. The head gives score "
        f"{score:g} to a 1 at (−1, −1) and to a 0 at (1, 1), and score 0 to every other key. "
        f"Rings mark these two neighbours. The upper neighbour holds a {upper} and gets weight "
        f"{above:.2f}. The lower neighbour holds a {lower} and gets weight {below:.2f}. The "
        f"weighted share of ones is {read:.0%}, and the correct number of ones in the two "
        f"neighbours is {right}.",
    )


def _called(name: str) -> str:
    """Return the display name of an encoder of the study, of which one has two heads."""
    one = name.removesuffix("-2")
    return display(one) + (", two heads" if one != name else "")


TASKS = {
    "one": "the task “one” (one neighbour)",
    "two": "the task “two” (two neighbours)",
    "two-content": "the task “two-content” (two neighbours, with content)",
}
SIZES = {"as trained": "of the training size", "12 × 12": "of 12 × 12 patches"}


def neighbour_accuracies(
    task: str,
    grids: str,
    *,
    recorded: Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]],
    tests: Mapping[str, tuple[float, Mapping[str, float]]],
) -> Drawn:
    """Draw the accuracy of every seed of each encoder in one task, and p against axial RoPE.

    Args:
        task: A name in ``recorded``.
        grids: On which grids, a name in ``recorded`` of the task.
        recorded: Task → grids → encoder → the accuracy of each seed.
        tests: "Task, grids" → the share of the commonest answer, and encoder → p against axial.

    Returns:
        A figure of a row for each encoder, with its mean and p on the right.
    """
    found, (guess, levels) = recorded[str(task)][str(grids)], tests[f"{task}, {grids}"]
    called = {name: _called(name) for name in found}
    rows, count = list(range(len(found))), len(next(iter(found.values())))
    beside = torch.linspace(-0.3, 0.3, count).tolist()
    means = {name: sum(seeds) / count for name, seeds in found.items()}
    said = {name: f"{mean:.2f}" + (f", p {levels[name]:.3f}" if name in levels else "")
            for name, mean in means.items()}  # fmt: skip
    traces = [
        line([guess, guess], [-0.5, len(rows) - 0.5], PALETTE["grey"], "most frequent answer",
             width=1.5, dash="dot"),
        dots(
            rounded([a for seeds in found.values() for a in seeds]),
            rounded([row + dy for row in rows for dy in beside]),
            [COLOURS[name.removesuffix("-2")] for name, seeds in found.items() for _ in seeds],
            size=7,
            hover="%{x:.3f}",
        ),
        dots([1.06] * len(rows), rows, "rgba(0,0,0,0)", text=[*said.values()],
             textposition="middle right"),
    ]  # fmt: skip
    fig = panels(
        Panel(
            traces,
            f"task “{task}”, {grids}; right: mean, p",
            x=axis("accuracy", 0, 1.62, tickvals=[0, 0.25, 0.5, 0.75, 1]),
            y=downwards(
                len(rows), tickvals=rows, ticktext=[wrapped(name, 12) for name in called.values()]
            ),
        ),
        height=360,
        margin={"l": 96, "r": 8, "t": 34, "b": 84},
    )
    told = " ".join(f"The mean of {called[name]} is {mean:.2f}." for name, mean in means.items())
    if levels:
        low = [called[name] for name, p in levels.items() if p < 0.05]  # not corrected
        told += (
            f" In the comparison with {display('axial')}, the uncorrected p is below 0.05 for "
            f"{listed(low) if low else 'no encoder'}."
        )
    return Drawn(
        fig,
        f"A dot plot shows the accuracy of {len(found)} encoders, in a row for each encoder, in "
        f"{TASKS[task]}, on grids {SIZES[grids]}. Each encoder has {count} dots, one for each "
        f"seed, and its mean is printed on the right. {told} A dotted vertical line marks "
        f"{guess:.2f}, the accuracy of a model that always gives the most frequent answer.",
    )
