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

    def met(self, value: float) -> bool:
        """Return whether a measured ratio or peak reaches it."""
        return value >= (self.at_least or 0) and value <= (self.at_most or float("inf"))

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
    """Return what the tables say of each goal."""
    rows: list[dict[str, Any]] = []
    for goal, words in zip(goals, said, strict=True):
        found = next((v for block in blocks if (v := goal.value(block)) is not None), None)
        ratio = None if found is None else [round(x, 3) for x in found]
        rows.append({"goal": words, "ratio": ratio, "met": found and goal.met(found[1])})
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
