"""Accuracy by position, clues for a direction, and the least difference that a test shows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import plotly.graph_objects as go
import torch
from torch import Tensor

from book.figures.marks import (
    CELLS,
    axis,
    box,
    dots,
    downwards,
    heat,
    level,
    line,
    rounded,
    segments,
    significant,
    upright,
)
from book.names import display
from lab.explore import COLOURS, PALETTE, Drawn, Panel, computed, layout, panels, pick
from lab.explore.style import SEQUENTIAL

__all__ = [
    "READERS",
    "accuracy_places",
    "direction_clues",
    "finer_patches",
    "performer_places",
    "told_differences",
]

CANVAS, KNOWN = 5, 3  # positions of a digit in a row, and those of the training
READERS = ("mean", "class token")
COARSE, FINE = 4, 8  # patches in a row, of the training and at twice the resolution
SPACINGS = [round(0.02 * i, 2) for i in range(5, 76)]
FURTHEST = 2  # cells from the corner of the training to the opposite one

Places = Sequence[Sequence[float]]
"""The accuracy at each position of the canvas."""


def accuracy_places(encoder: str, *, recorded: Mapping[str, Mapping[str, Places]]) -> Drawn:
    """Draw the accuracy at each position of a canvas, read by the mean and by a class token.

    Args:
        encoder: A name in ``recorded``.
        recorded: Encoder → one of ``READERS`` → accuracies, row by row; what is not there was
            not trained.

    Returns:
        A figure of two maps; a frame holds the training positions.
    """
    bare: dict[str, Any] = {"showticklabels": False}
    frame = box(-0.5, KNOWN - 0.5, -0.5, KNOWN - 0.5, width=3, color=PALETTE["red"])
    row, told = [], []
    for reader in READERS:
        places = recorded[str(encoder)].get(reader)
        if places is None:
            z: Any = [[None] * CANVAS] * CANVAS
            said, words = "not trained", "the map is empty, because this model was not trained"
        else:
            z = places
            known, new = _means(places)
            said = f"{known:.2f} known, {new:.2f} new"
            words = f"the mean accuracy is {known:.2f} at known and {new:.2f} at new positions"
        drawn = heat(
            z,
            (SEQUENTIAL, 0, 1),
            "%{z:.2f}",
            text=[["" if v is None else f"{v:.2f}" for v in line] for line in z],
            texttemplate="%{text}",
            xgap=1,
            ygap=1,
        )
        own: dict[str, Any] = {"x": {**CELLS, **bare}, "y": downwards(CANVAS, **bare)}
        row.append(Panel([drawn], f"{reader}:<br>{said}", shapes=[frame], square=True, **own))
        article = "the" if reader == "mean" else "a"
        told.append(f"If {article} {reader} is read out, {words}.")
    fig = panels(row, across=0.08, height=330, margin={"l": 12, "r": 12, "t": 56, "b": 12})
    return Drawn(
        fig,
        "Two heat maps show the accuracy at the 25 positions of a canvas of 5 by 5, for models "
        f"{_with(str(encoder))}. The left map is for models that read out the mean, and the right "
        "map is for models that read out a class token. A frame surrounds the nine positions in "
        f"training, at the upper left. {' '.join(told)}",
    )


def _with(encoder: str) -> str:
    """Say which position encoding a model has, as the end of a sentence."""
    if encoder == "none":
        return "without a position encoding"
    name = display(encoder)
    return f"with a {name.lower()}" if name.endswith("embedding") else f"with {name}"


def _means(places: Places) -> tuple[float, float]:
    """Return the mean accuracy at the training positions, and at the others."""
    known = [v for line in places[:KNOWN] for v in line[:KNOWN]]
    rest = [v for line in places[:KNOWN] for v in line[KNOWN:]] + [
        v for line in places[KNOWN:] for v in line
    ]
    return sum(known) / len(known), sum(rest) / len(rest)


@computed
def _finer(spacing: Tensor) -> dict[str, Tensor]:
    """Return the positions of the fine patches, and the share of pairs that are new."""
    numbers = torch.arange(FINE).double()
    middle = (COARSE - 1) / 2
    row = middle + spacing * (numbers - (FINE - 1) / 2)
    steps = (numbers[:, None] - numbers).abs()
    spacings = torch.cat([torch.tensor(SPACINGS).double(), spacing[None]])
    # as far as two patches of the training at most, along a row; and along a column as well
    near = (spacings[:, None, None] * steps <= COARSE - 1 + 1e-9).double().mean((1, 2))
    share = 100 * (1 - near**2)
    square = torch.stack([row[None].expand(FINE, FINE), row[:, None].expand(FINE, FINE)])
    return {"places": square.flatten(1), "shares": share[:-1], "here": share[-1:]}


def finer_patches(spacing: float) -> Drawn:
    """Draw the positions of 64 patches beside those of the training, and the share of new offsets.

    Args:
        spacing: From one of the 64 patches to the next, where neighbours in training are 1 apart.

    Returns:
        A figure of two panels with positions in the image's square, and the share of pairs of
        patches that are further apart than any in training, against the spacing.
    """
    found = _finer(spacing)
    known = [float(i) for i in range(COARSE)]
    row, column = (list(x) for x in zip(*[(c, r) for r in known for c in known], strict=True))
    bare: dict[str, Any] = {**CELLS, "showticklabels": False}
    (here,), (across, down) = found["here"], found["places"]
    places = Panel(
        [
            dots(row, column, PALETTE["grey"], "training", size=12, symbol="square-open"),
            dots(across, down, PALETTE["blue"], "64 patches", size=6),
        ],
        f"neighbours {spacing:.2f} apart",
        x=axis(low=-4, high=7, **bare),
        y=axis(low=7, high=-4, **bare),
        square=True,
    )
    shares = Panel(
        [
            line(
                SPACINGS,
                found["shares"],
                PALETTE["blue"],
                hover="%{x:.2f} apart: %{y:.0f}%",
            ),
            dots([spacing], found["here"], PALETTE["red"], size=13),
        ],
        f"{here:.0f}% of pairs are further apart<br>than in training",
        x=axis("distance of neighbours", 0.1, 1.5, tickvals=[0.5, 1, 1.5]),
        y=axis(low=-3, high=103, ticksuffix="%", dtick=50),
    )
    fig = panels(
        [places, shares], across=0.16, height=336, margin={"l": 12, "r": 14, "t": 52, "b": 84}
    )
    return Drawn(
        fig,
        "The left panel is a diagram of the positions of 64 patches, as dots whose neighbours "
        f"are {spacing:.2f} apart. Squares mark the positions of the 16 patches in training, "
        "whose neighbours are 1 apart. The right panel is a line chart of the percentage of "
        "pairs that are further apart than any pair in training, against the distance of "
        f"neighbours. The line rises. A dot marks the distance {spacing:.2f}, at which the "
        f"percentage is {here:.0f}%.",
    )


@computed
def _clues(place: Tensor, shift: Tensor) -> dict[str, Tensor]:
    """Return the scores of both directions against the shift and at one shift, and who is right."""
    first = torch.stack([torch.zeros_like(shift), torch.full_like(shift, FURTHEST), shift])
    second = first + 1
    by_place = place * (first + second - 1)
    on, back = second - first + by_place, first - second + by_place
    right = (on[-1] > 0).double() + (back[-1] < 0).double()
    return {
        "on": on[:2],
        "back": back[:2],
        "here": torch.stack([on[-1], back[-1]]),
        "one": shift[None],
        "next": shift[None] + 1,
        "right": right,
    }


def direction_clues(place: float, shift: float) -> Drawn:
    """Draw the score of a direction, computed from offset and position, against the position.

    A mark a and a mark b are neighbours along an axis. The score b - a + p (a + b - 1) is to be
    positive where b is further on. In the corner of the training, the cells 0 and 1, a + b is 1.

    Args:
        place: The weight p of the position.
        shift: How many cells the pair is away from the corner of the training.

    Returns:
        A figure of two panels with the pair both ways round, and its scores against the shift.
    """
    found = _clues(place, shift)
    blue, orange = PALETTE["blue"], PALETTE["orange"]
    one, two = found["one"], found["next"]
    look: dict[str, Any] = {
        "textfont": {"color": "#ffffff", "size": 14},
        "textposition": "middle center",
    }
    pair = Panel(
        [
            dots([*one, *two], [0, 0], blue, size=26, text=["a", "b"], **look),
            dots([*two, *one], [1, 1], orange, size=26, text=["a", "b"], **look),
        ],
        "four cells in a row (frame: training cells)",
        x=axis(low=-0.5, high=3.5, dtick=1, zeroline=False),
        y=axis(low=1.6, high=-0.6, showticklabels=False, **CELLS),
        shapes=[box(-0.5, 1.5, -0.55, 1.55, width=3, color=PALETTE["red"])],
    )
    ends, here = [0, FURTHEST], found["here"]
    on, back = here
    scores = Panel(
        [
            line(ends, found["on"], blue, "b after a", hover="%{y:.1f}"),
            line(ends, found["back"], orange, "b before a", hover="%{y:.1f}"),
            dots([shift, shift], here, [blue, orange], size=13),
        ],
        f"scores {on:.1f} and {back:.1f}: {pick(found['right'], 'none', 'one', 'both')} right",
        x=axis("cells from the training corner", -0.08, FURTHEST + 0.08, dtick=1),
        y=axis("score", -5.3, 5.3, dtick=2),
        shapes=[level(0, width=2)],
    )
    fig = panels(
        pair,
        scores,
        heights=[1, 2.2],
        down=0.16,
        height=480,
        margin={"l": 48, "r": 14, "t": 34, "b": 90},
    )
    return Drawn(
        fig,
        "The upper panel is a diagram of two marks a and b in both orders on a row of four "
        "cells, with a frame around the two cells of training. The lower panel is a line chart "
        "of the score of each order against the distance from the training corner, from 0 to "
        f"{FURTHEST} cells. The straight lines start at 1 for b after a and at -1 for b before a, "
        f"and the weight of the position is {place:g}. A horizontal line marks score 0. Dots mark "
        f"the distance of {shift:g} cells, where the scores are {on:.1f} and {back:.1f}, and "
        f"{pick(found['right'], 'no', 'one', 'each')} score has the right sign.",
    )


def performer_places(
    features: str,
    seed: str,
    *,
    recorded: Mapping[str, Mapping[str, tuple[str, Sequence[tuple[float, float]]]]],
    sizes: tuple[float, float],
) -> Drawn:
    """Draw the accuracy of performers at the training positions and at others.

    Args:
        features: A feature map in ``recorded``.
        seed: "mean", or the number of a seed.
        recorded: Feature map → words for a way → its method, and known and new positions by seed.
        sizes: The mean accuracy of softmax at known and at new positions.

    Returns:
        A figure with a row for each way, all seeds small and the chosen one or the mean large.
    """
    ways = recorded[features]
    names = [name.replace(", ", ",<br>") for name in ways]
    rows = list(range(len(ways)))
    colours = [COLOURS[method] for method, _ in ways.values()]
    runs = [list(zip(*pairs, strict=True)) for _, pairs in ways.values()]
    if seed == "mean":
        said, chosen = "mean of the seeds", [[sum(v) / len(v) for v in both] for both in runs]
    else:
        said, chosen = f"seed {seed}", [[v[int(seed) - 1] for v in both] for both in runs]
    known, new = (rounded([both[i] for both in chosen]) for i in (0, 1))
    each = [(x, row) for row, both in enumerate(runs) for x in (*both[0], *both[1])]
    small, at = zip(*each, strict=True)
    ends = [((a, row), (b, row)) for a, b, row in zip(known, new, rows, strict=True)]
    traces = [
        dots(rounded(small, 2), at, [colours[row] for row in at], size=4, opacity=0.6),
        segments(ends, PALETTE["grey"], width=1.5),
        dots(known, rows, colours, size=11, hover="known positions %{x:.2f}"),
        dots(new, rows, colours, size=11, symbol="circle-open", hover="new positions %{x:.2f}"),
    ]
    traces[3].marker.line.width = 2
    axes = layout(
        height=420,
        title_text=f"{features}, {said}",
        xaxis=axis("accuracy (known ●, new ○)", 0.1, 0.93, dtick=0.2),
        yaxis=downwards(len(rows), tickvals=rows, ticktext=names),
        margin={"l": 136, "r": 14, "t": 44, "b": 56},
        shapes=[
            {**upright(at, width=1.5, dash=dash, color=COLOURS["softmax"]), "yref": "y domain"}
            for at, dash in zip(sizes, ("dash", "dot"), strict=True)
        ],
    )
    at_known, at_new = (max(zip(means, ways, strict=True)) for means in (known, new))
    least = min(zip(new, ways, strict=True))
    return Drawn(
        go.Figure(traces, axes),
        f"A dot plot shows the accuracy of performers with {features} features at known and at "
        "new positions of the canvas, in a row for each encoding. One row has no encoding, and "
        f"{len(ways) - 1} rows have an encoding. Large marks, filled for known and hollow for new "
        f"positions, show {'the ' if seed == 'mean' else ''}{said}, and small dots show all "
        f"seeds. A dashed vertical line marks {sizes[0]:.2f}, the mean accuracy of softmax at "
        f"known positions, and a dotted one marks {sizes[1]:.2f}, that at new positions. At known "
        f"positions the highest accuracy is {at_known[0]:.2f}, for {_way(at_known[1])}. At new "
        f"positions the highest accuracy is {at_new[0]:.2f}, for {_way(at_new[1])}, and the "
        f"lowest is {least[0]:.2f}, for {_way(least[1])}.",
    )


def _way(name: str) -> str:
    """Return the name of a way without a comma, for the middle of a sentence."""
    return name.replace("Toeplitz, ", "Toeplitz bias with ").replace(", ", " ")


PICTURES = [100, 100_000]
QUANTILE = 1.96
DIGITS, IMAGENET = 450, 50_000  # test images
PUBLISHED = {  # top-1 accuracy of a learned table, axial and mixed RoPE, by Heo et al.
    "DeiT-S at 224": (80.4, 80.9, 80.9),
    "DeiT-S at 384": (79.4, 80.0, 81.8),
    "DeiT-B at 224": (83.4, 83.6, 83.8),
    "DeiT-B at 384": (82.8, 83.9, 84.4),
}


@lru_cache
def _differences() -> list[tuple[str, str, int, float]]:
    """Return words, method, number of test images and difference in points, of what is known."""
    from book.verdicts import FAMILIES  # which reads the records

    axial = display("axial")
    gap, *_ = FAMILIES["digits, less none"].found("digits axial")
    found = [(f"{display('none')} minus {axial}, digits", "none", DIGITS, -100 * gap)]
    for cell in FAMILIES["digits, less axial"].claims:
        name = cell.removeprefix("digits ")
        gap, *_ = FAMILIES["digits, less axial"].found(cell)
        found.append(
            (f"{display(name)} minus {axial}, digits", name.partition("-")[0], DIGITS, 100 * gap)
        )
    for where, (table, *rotary) in PUBLISHED.items():
        for name, top in zip(("axial", "mixed"), rotary, strict=True):
            found.append(
                (
                    f"{display(name)} minus {display('learned')}, {where}",
                    name,
                    IMAGENET,
                    top - table,
                )
            )
    return found


@computed
def _told(pictures: Tensor, disagree: Tensor) -> dict[str, Tensor]:
    """Return the least difference that so many test images can show, in points."""
    ends = torch.cat([torch.tensor(PICTURES).double(), pictures[None]])
    least = 100 * QUANTILE * (disagree / ends).sqrt()
    return {"least": least[:2], "here": least[2:], "pictures": pictures[None]}


def told_differences(pictures: int, disagree: float) -> Drawn:
    """Draw the least difference of two accuracies that a test can show, and differences found.

    If one of two models alone is right on a share d of n images, their difference has the
    standard error √(d/n) if in truth there is none.

    Args:
        pictures: Of the test, n.
        disagree: The share d.

    Returns:
        A figure of a line and dots, on logarithmic axes.
    """
    found = _told(pictures, disagree)
    words, methods, sizes, gaps = zip(*_differences(), strict=True)
    (here,) = found["here"]
    traces = [
        line(PICTURES, found["least"], PALETTE["grey"], "two standard errors", hover="%{y:.1f}"),
        dots(
            sizes,
            significant([abs(gap) for gap in gaps], 2),
            [COLOURS[name] for name in methods],
            "measured differences",
            size=10,
            hovertext=words,
            hover="%{hovertext}: %{y}",
        ),
        dots(found["pictures"], found["here"], PALETTE["red"], "here", size=13, symbol="diamond"),
    ]
    axes = layout(
        height=380,
        title_text=f"{pictures:,.0f} images can show<br>a difference of {here:.1f} points",
        xaxis=axis(
            "test images", 1.9, 5.3, type="log",
            tickvals=[100, 1000, 10_000, 100_000], ticktext=["100", "1,000", "10,000", "100,000"],
        ),
        yaxis=axis(
            "difference of accuracies, points", math.log10(0.05), math.log10(40), type="log",
            tickvals=[0.1, 1, 10], ticktext=["0.1", "1", "10"],
        ),
        margin={"b": 96},
    )  # fmt: skip
    return Drawn(
        go.Figure(traces, axes),
        "A line chart shows the smallest difference of two accuracies that a test can show, in "
        f"points, against the number of test images, from {PICTURES[0]} to {PICTURES[-1]:,}, on "
        f"two logarithmic axes. The straight line falls. A diamond marks {pictures:,.0f} test "
        f"images. If exactly one of the two models is right on {disagree:.0%} of the images, they "
        f"can show a difference of {here:.1f} points. Dots are {len(gaps)} measured differences, "
        f"{sizes.count(DIGITS)} with {DIGITS} test images and {sizes.count(IMAGENET)} with "
        f"{IMAGENET:,}.",
    )
