"""Compute how time grows with length, and from which length one contestant is faster."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

LONG = 1024
"""Growth is fitted from this length on: below it a call costs more than the work."""


@dataclass(frozen=True)
class Ladder:
    """Shapes that differ only in length, and the contestants that are compared at them.

    Attributes:
        name: Words for what is compared.
        shapes: Names of the shapes.
        reference: Name of the contestant with which all others are compared.
        others: Names of the other contestants.
    """

    name: str
    shapes: tuple[str, ...]
    reference: str
    others: tuple[str, ...]


def growth(lengths: Sequence[float], times: Sequence[float]) -> float | None:
    """Return the slope of log time against log length by least squares; None for one length."""
    if len(lengths) < 2:
        return None
    x, y = ([math.log(v) for v in values] for values in (lengths, times))
    return statistics.linear_regression(x, y).slope


def crossover(
    lengths: Sequence[float], reference: Sequence[float], other: Sequence[float]
) -> float | None:
    """Return the length above which ``other`` takes less time than ``reference``.

    Between two lengths, the logarithm of the ratio is interpolated linearly in the logarithm of the
    length. If ``other`` is faster at all lengths, the result is the first length. If it is not
    faster at the last length, the result is None.
    """
    gaps = [math.log(b / a) for a, b in zip(reference, other, strict=True)]
    if not gaps or gaps[-1] >= 0:
        return None
    for i in range(len(gaps) - 1, 0, -1):
        if gaps[i - 1] >= 0:
            part = gaps[i - 1] / (gaps[i - 1] - gaps[i])
            return lengths[i - 1] * (lengths[i] / lengths[i - 1]) ** part
    return lengths[0]


def scaling(ladder: Ladder, blocks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the growth and the crossovers of a ladder for each mode and number of threads."""
    rows = []
    places = dict.fromkeys((b["mode"], b["threads"]) for b in blocks)
    for mode, threads in places:
        here = [
            (b["shape"]["seq"], {n: statistics.median(t) for n, t in b["times_ms"].items()})
            for b in blocks
            if (b["mode"], b["threads"]) == (mode, threads) and b["shape"]["name"] in ladder.shapes
        ]
        here.sort(key=lambda pair: pair[0])
        for name in (ladder.reference, *ladder.others):
            both = [
                (n, t[ladder.reference], t[name])
                for n, t in here
                if {name, ladder.reference} <= set(t)
            ]
            if not both:
                continue
            lengths, reference, own = zip(*both, strict=True)
            long = [(n, t) for n, _, t in both if n >= LONG]
            slope = growth([n for n, _ in long], [t for _, t in long])
            ahead = None if name == ladder.reference else crossover(lengths, reference, own)
            rows.append(
                {
                    "contestant": name,
                    "mode": mode,
                    "threads": threads,
                    "growth": None if slope is None else round(slope, 3),
                    "ahead_from": None if ahead is None else round(ahead),
                    "longest": lengths[-1],
                }
            )
    return {"name": ladder.name, "reference": ladder.reference, "rows": rows}


def print_scaling(found: dict[str, Any]) -> None:
    """Print the growth and the crossovers of one ladder."""
    print(
        f"\n{found['name']}: time grows as a power of the length (from {LONG} on); "
        f"faster than {found['reference']} from"
    )
    for row in found["rows"]:
        power = "-" if row["growth"] is None else f"{row['growth']:.2f}"
        ahead = "-" if row["ahead_from"] is None else f"{row['ahead_from']}"
        threads = f", {row['threads']} threads" if row["threads"] else ""
        print(f"  {row['contestant']:26} {power:>6} {ahead:>8}   {row['mode']}{threads}")
