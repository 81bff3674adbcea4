"""Comparisons as a picture: seeds, means and intervals, beside the line of no difference."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
from IPython.display import display
from matplotlib.axes import Axes

from book.family import Family
from book.figures.marks import listed
from book.names import wrapped
from book.verdicts import FAMILIES
from lab.explore import COLOURS, Table
from lab.explore.style import MUTED, TEXT

SVG = "image/svg+xml"
WIDEST = 26
"""Letters in a line of a label."""
Panel = tuple[str, Mapping[str, str]]
"""A family, and words that the text uses → cell."""


def forest(
    panels: Mapping[str, Panel],
    *,
    colour: Callable[[str], str],
    label: str,
    caption: str,
    width: float = 5.2,
    span: tuple[float, float] | None = None,
) -> Table:
    """Draw each panel on the one scale of all, and return the numbers, folded.

    A row is shaded, and its mean a dot, where the difference holds among the whole family.
    Where a claim has a limit other than 0, the row has a dotted mark there.

    Args:
        panels: Title → family and rows, from above to below.
        colour: Cell → the method that it is drawn as.
        label: What the axis measures.
        caption: Of the numbers.
        width: Of a panel in inches, 3.4 where two stand side by side.
        span: The ends of the axis, if not all that is drawn.
    """
    each = [(FAMILIES[name], cell) for name, rows in panels.values() for cell in rows.values()]
    reach = [x for family, cell in each for x in _ends(family, cell)]
    low, high = span or (min(reach), max(reach))
    margin = 0.04 * (high - low)
    for title, (name, rows) in panels.items():
        words = [wrapped(word, WIDEST, "\n") for word in rows]
        lines = 1 + 0.45 * max(word.count("\n") for word in words)
        height = 0.9 + 0.27 * lines * len(rows) + 0.25 * bool(title)
        fig, axis = plt.subplots(figsize=(width, height))
        axis.axvline(0, color=TEXT, lw=1)
        for row, cell in enumerate(rows.values()):
            _draw(axis, FAMILIES[name], cell, row, COLOURS[colour(cell)])
        axis.set(yticks=range(len(rows)), yticklabels=words, ylim=(len(rows) - 0.4, -0.6))
        axis.set(xlim=(low - margin, high + margin), xlabel=label, title=title)
        axis.tick_params(axis="y", length=0, labelsize=11 if lines == 1 else 9.5)
        axis.grid(visible=False, axis="y")  # every row has its interval
        display(fig, metadata={SVG: {"alt": _alt(FAMILIES[name], title, rows, label)}})
        plt.close(fig)
    words = [*dict.fromkeys(word for _, rows in panels.values() for word in rows)]
    columns: dict[str, Sequence[Any]] = {"compared": words}
    for title, (name, rows) in panels.items():
        columns[title or label] = [
            FAMILIES[name].found(rows[word]) if word in rows else "" for word in words
        ]
    digits = 1 if each[0][0].unit.startswith("%") else 3
    return Table(columns, caption=caption, digits=digits, folded=True)


def _ends(family: Family, cell: str) -> tuple[float, ...]:
    """Return all that a row shows."""
    return (0.0, *family.found(cell)[1:], *map(family.shown, family.gaps(cell)))


def _draw(axis: Axes, family: Family, cell: str, row: int, colour: str) -> None:
    """Draw a row: seeds, interval and mean."""
    mean, low, high = family.found(cell)
    held = family.claims[cell] in ("ahead", "behind")
    if held:
        axis.axhspan(row - 0.5, row + 0.5, color=MUTED, alpha=0.12, lw=0)
    if cell in family.limits:
        limit = family.shown(family.limits[cell])
        axis.plot([limit, limit], [row - 0.45, row + 0.45], color=MUTED, ls=":", lw=1.5)
    look: dict[str, Any] = {"color": colour, "solid_capstyle": "butt"}
    axis.plot([low, high], [row, row], lw=1.8, **look)
    # one path for all seeds, and no marker: a page has hundreds of them
    seeds = [x for gap in family.gaps(cell) for x in (*[family.shown(gap)] * 2, math.nan)]
    ticks = [row + 0.18, row + 0.38, math.nan] * (len(seeds) // 3)
    axis.plot(seeds, ticks, lw=1.2, alpha=0.7, **look)
    if held:
        axis.plot([mean, mean], [row, row], lw=7, color=colour, solid_capstyle="round")
    else:
        axis.plot([mean, mean], [row - 0.2, row + 0.2], lw=2.2, **look)


VERDICTS = {
    "ahead": "significantly better",
    "behind": "significantly worse",
    "suggestive, ahead": "better (suggestive)",
    "suggestive, behind": "worse (suggestive)",
    "open": "inconclusive",
}
"""What the record says of a comparison → the words for it."""


def verdict(family: Family, cell: str) -> str:
    """Return what the record says of a comparison; of one with a limit, on which side it is."""
    words = VERDICTS[family.claims[cell]]
    most = family.limits.get(cell, 0)
    if not family.less or most <= 0:
        return words
    sides = {"better": "below", "worse": "above", "inconclusive": "inconclusive about"}
    limit = f"the limit of {family.shown(most):.3g}"
    return re.sub("|".join(sides), lambda word: f"{sides[word[0]]} {limit}", words)


def _alt(family: Family, title: str, rows: Mapping[str, str], label: str) -> str:
    """Return what a panel shows, in words; the numbers are in the table under it."""
    found: dict[str, list[str]] = {}
    for words, cell in rows.items():
        found.setdefault(verdict(family, cell), []).append(f"“{words}”")
    sentences = [
        f"{f'The forest plot “{title}”' if title else 'A forest plot'} shows the {label}, in a row "
        "for each comparison.",
        "An upright mark or a thick bar is a mean, a horizontal line is its 95% interval, and "
        "small ticks are the seeds. A vertical line at 0 marks no difference.",
    ]
    if any(family.claims[cell] in ("ahead", "behind") for cell in rows.values()):
        sentences.append("Rows with a significant difference are shaded.")
    if any(cell in family.limits for cell in rows.values()):
        sentences.append("A dotted upright mark in a row is its limit.")
    for says, those in found.items():
        subject = f"The rows {listed(those)} are" if len(those) > 1 else f"The row {those[0]} is"
        sentences.append(f"{subject} {says}.")
    return " ".join([*sentences, "The table below has the numbers."])
