"""What the project wants to reach, and what a table says of it."""

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
    """Time of one contestant / time of another, at one place of the tables, and how far it may go.

    Attributes:
        one: A contestant.
        other: Another, or ``BOUND``, the least time that the machine allows.
        shape: Name of the shape.
        at_least: The least that is wanted.
        at_most: The most, where there is no least.
        mode: With gradients or without.
        threads: Their number.
        of: ``"times_ms"``; ``"peak_mb"``, the most memory in use during a call, of the one alone
            and in MB if other is None; or ``"saved_mb"``, what is kept for the backward pass.
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
        """Say it in words, with the layout of each contestant and the sizes of the shape."""
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
        """Return how many times the goal a value is: it is met up to 1."""
        return value / self.at_most if self.at_least is None else self.at_least / value

    @property
    def ours(self) -> str:
        """The contestant that the goal is about: it should take little time."""
        return self.one if self.at_least is None or self.other in (None, BOUND) else self.other

    def value(self, block: dict[str, Any]) -> tuple[float, float, float] | None:
        """Return what a table has to say: quartile, median, quartile; None if nothing."""
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
    """Return what the tables say of each goal.

    Its ratio, whether that meets it, how many times the goal it is, and our time over its bound.
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
    """Print which goals are reached."""
    print("\nGoals (one / the other, median over the rounds and quartiles)")
    for row in rows:
        if row["ratio"] is None:
            print(f"  not measured  {row['goal']}")
        else:
            low, middle, high = row["ratio"]
            verdict = "pass" if row["met"] else "MISS"
            mark = UNSTEADY if unsteady((low, middle, high)) else ""
            print(f"  {verdict} {middle:7.2f}  {row['goal']}  [{low:.2f} to {high:.2f}]{mark}")
