"""Comparisons of a record that are looked at together, and corrected together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lab.theory.spread import difference, unpaired

Runs = Mapping[str, Sequence[float]]
"""Cell → one number per seed."""


@dataclass(frozen=True)
class Family:
    """Comparisons, seed by seed, whose number is that of the claims and so cannot be forgotten.

    The whole book is corrected in one way, by Bonferroni: "ahead" and "behind" hold among all of
    the family, what holds only alone is suggestive, the rest is open.

    Attributes:
        record: The study, or several, with commas between.
        runs: Returns what it measured.
        against: What each cell is compared with, or cell → that.
        claims: Cell → what its comparison tells, for all that were looked at: "ahead" (better,
            also where less is better), "behind", either after "suggestive, ", or "open".
        unit: What stands behind a number.
        less: Whether less is better.
        shown: A difference in that unit.
        limits: Cell → what its difference is held against, where that is not 0.
        looks: How often they were looked at, while seeds were added: each time is a comparison.
        paired: Whether numbers belong together: of one seed, or of one round of a benchmark.
    """

    record: str
    runs: Callable[[], Runs]
    against: str | Mapping[str, str]
    claims: Mapping[str, str]
    unit: str = ""
    less: bool = False
    shown: Callable[[float], float] = float
    limits: Mapping[str, float] = field(default_factory=dict)
    looks: int = 1
    paired: bool = True

    @property
    def comparisons(self) -> int:
        """The number of comparisons that are corrected together."""
        return self.looks * len(self.claims)

    def other(self, cell: str) -> str:
        """Return what a cell is compared with."""
        return self.against if isinstance(self.against, str) else self.against[cell]

    def gaps(self, cell: str) -> list[float]:
        """Return how far a cell is from the other one, for each seed."""
        runs = self.runs()
        return [a - b for a, b in zip(runs[cell], runs[self.other(cell)], strict=True)]

    def gap(self, cell: str, comparisons: int) -> tuple[float, float, float]:
        """Return the difference of the means, and its interval."""
        runs = self.runs()
        between = difference if self.paired else unpaired
        return between(runs[cell], runs[self.other(cell)], comparisons)

    def found(self, cell: str) -> tuple[float, float, float]:
        """Return mean and interval of a comparison, corrected, in the unit of the text."""
        middle, low, high = map(self.shown, self.gap(cell, self.comparisons))
        return middle, low, high

    def tells(self, cell: str) -> str:
        """Return what the record tells of a comparison, in the words of ``claims``."""
        limit = self.limits.get(cell, 0)
        for comparisons, held in ((self.comparisons, ""), (1, "suggestive, ")):
            _, low, high = self.gap(cell, comparisons)
            if not low <= limit <= high:
                return f"{held}{'behind' if (low > limit) == self.less else 'ahead'}"
        return "open"


def opened(cells: Iterable[str], **told: Iterable[str]) -> dict[str, str]:
    """Return claims that are all open, but for the cells that are named with what they tell."""
    claims = dict.fromkeys(cells, "open")
    for tells, those in told.items():
        claims |= dict.fromkeys(those, tells.replace("_", ", "))
    return claims
