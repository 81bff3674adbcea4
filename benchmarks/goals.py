"""Goals of the project for times and memory, and whether measured tables reach them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.timing import ratios, summary, unsteady

MODES = ("forward", "forward and backward")
BOUND = "its bound"
UNSTEADY = "  unsteady"


@dataclass(frozen=True)
class Goal:
    """Limit for the time or memory of one contestant divided by that of another contestant.

    Attributes:
        one: Name of the contestant in the numerator.
        other: Name of the contestant in the denominator, or ``BOUND`` for the least time that the
            machine allows. None means that the value of ``one`` is not divided.
        shape: Name of the shape at which the goal is measured.
        at_least: Smallest ratio that meets the goal.
        at_most: Largest ratio that meets the goal, if ``at_least`` is None.
        mode: Mode of the measurement, without or with gradients.
        threads: Number of threads.
        of: Measured quantity. ``"times_ms"`` is the time, ``"peak_mb"`` the largest memory in use
            during a call, in MB, and ``"saved_mb"`` the memory that is kept for the backward pass,
            in MB.
    """

    one: str
    other: str | None
    shape: str
    at_least: float | None = None
    at_most: float | None = None
    mode: str = MODES[1]
    threads: int = 2
    of: str = "times_ms"

    def said(self, layouts: dict[str, str], shapes: dict[str, str]) -> str:
        """Return the goal in words, with the layouts of contestants and the sizes of the shape."""
        names = [
            f"{n} [{layouts[n]}]" if layouts.get(n) else n for n in (self.one, self.other) if n
        ]
        what = {"times_ms": "", "peak_mb": "peak of ", "saved_mb": "kept by "}[self.of]
        unit = "" if self.other else " MB"
        wanted = f"≥ {self.at_least:g}" if self.at_most is None else f"≤ {self.at_most:g}"
        threads = f"{self.threads} thread{'s' * (self.threads > 1)}"
        place = f"{shapes[self.shape]}, {self.mode}, {threads}"
        return f"{what}{' / '.join(names)} {wanted}{unit} ({place})"

    def over(self, value: float) -> float:
        """Return the factor by which a value misses the goal. A factor of at most 1 meets it."""
        return value / self.at_most if self.at_least is None else self.at_least / value

    @property
    def ours(self) -> str:
        """Name of the contestant that the goal wants to be fast."""
        return self.one if self.at_least is None or self.other in (None, BOUND) else self.other

    def value(self, block: dict[str, Any]) -> tuple[float, float, float] | None:
        """Return the value of the goal in a table: lower quartile, median and upper quartile.

        If the table belongs to another shape, mode or number of threads, or lacks a contestant, the
        result is None.
        """
        place = (block["shape"]["name"], block["mode"], block["threads"])
        found = block.get(self.of, {})
        if place != (self.shape, self.mode, self.threads) or self.one not in found:
            return None
        if self.other == BOUND:
            low, middle, high = summary(found[self.one])
            least = block["least_ms"][self.one]
            return low / least, middle / least, high / least
        if self.other is not None and self.other not in found:
            return None
        if self.of == "times_ms":
            return summary(ratios(found, self.one, self.other or self.one))
        ratio = found[self.one] / (found[self.other] if self.other else 1)
        return ratio, ratio, ratio


def outcomes(
    goals: Sequence[Goal], said: Sequence[str], blocks: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the outcome of each goal in the measured tables.

    A row has the ratio, whether the ratio meets the goal, the factor by which it misses the goal,
    and the time of our contestant divided by its bound.
    """
    rows: list[dict[str, Any]] = []
    for goal, words in zip(goals, said, strict=True):
        row: dict[str, Any] = {"goal": words, "ratio": None, "met": None}
        for block in blocks:
            found = goal.value(block)
            if found is None:
                continue
            over, ours = sorted(map(goal.over, found)), goal.ours
            row |= {"ratio": [round(x, 3) for x in found], "met": over[1] <= 1}
            row["over"] = [round(x, 3) for x in over]
            row["bound"] = round(summary(block["times_ms"][ours])[1] / block["least_ms"][ours], 1)
        rows.append(row)
    return rows


def print_goals(rows: Sequence[dict[str, Any]]) -> None:
    """Print for each goal whether it is met."""
    print("\nGoals (one / the other, median over the rounds and quartiles)")
    for row in rows:
        if row["ratio"] is None:
            print(f"  not measured  {row['goal']}")
        else:
            low, middle, high = row["ratio"]
            verdict = "pass" if row["met"] else "MISS"
            mark = UNSTEADY if unsteady((low, middle, high)) else ""
            print(f"  {verdict} {middle:7.2f}  {row['goal']}  [{low:.2f} to {high:.2f}]{mark}")
