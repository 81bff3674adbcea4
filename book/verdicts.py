"""Every claim of a page that rests on a record: what is compared, among how many, and what is said.

A :class:`Family` holds all comparisons that are looked at together; its size is the number of its
claims, so it cannot be forgotten. The whole book is corrected in one way, by Bonferroni: "ahead"
and "behind" hold among all of the family, what holds only alone is suggestive, the rest is open.

A page says a claim as ``{verdict}`5 % ahead <text at 1,000 steps: ELU, GLA>```. Its words have to
agree with the record in direction and in every number, see :func:`faults`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from operator import itemgetter

from book.recorded import at_places, data, measured
from lab.theory.perplexity import perplexity
from lab.theory.spread import difference, mean
from results import extrapolation, language_rates

Runs = Mapping[str, Sequence[float]]
"""Cell → one number a seed."""
SAYS = {
    "ahead": "ahead gain gains helps worth",
    "behind": "behind lose loses lost hurts costs",
    "suggestive": "suggestive",
    "open": "open told nothing",
}
"""What a claim is made of → words that say it."""
NUMBER = re.compile(r"\d*\.?\d+")


@dataclass(frozen=True)
class Family:
    """Comparisons that are corrected together.

    Attributes:
        record: The study.
        runs: Returns what it measured.
        against: What each cell is compared with, or cell → that.
        claims: Cell → what its comparison tells, for all that were looked at: "ahead" (better,
            also where less is better), "behind", either after "suggestive, ", or "open".
        unit: What stands behind a number.
        less: Whether less is better.
        shown: A difference in that unit.
    """

    record: str
    runs: Callable[[], Runs]
    against: str | Mapping[str, str]
    claims: Mapping[str, str]
    unit: str = ""
    less: bool = False
    shown: Callable[[float], float] = float

    def other(self, cell: str) -> str:
        """Return what a cell is compared with."""
        return self.against if isinstance(self.against, str) else self.against[cell]

    def pair(self, cell: str) -> tuple[Sequence[float], Sequence[float]]:
        """Return what a cell measured, and what the other one did."""
        runs = self.runs()
        return runs[cell], runs[self.other(cell)]

    def found(self, cell: str) -> tuple[float, float, float]:
        """Return mean and interval of a comparison, corrected, in the unit of the text."""
        low_mid_high = difference(*self.pair(cell), comparisons=len(self.claims))
        return tuple(map(self.shown, low_mid_high))  # type: ignore[return-value]

    def tells(self, cell: str) -> str:
        """Return what the record tells of a comparison, in the words of ``claims``."""
        for comparisons, held in ((len(self.claims), ""), (1, "suggestive, ")):
            _, low, high = difference(*self.pair(cell), comparisons=comparisons)
            if not low < 0 < high:
                side = "behind" if (low > 0) == self.less else "ahead"
                return f"{held}{side}"
        return "open"


def percent(bits: float) -> float:
    """Return by how many percent a difference of bits a byte changes the perplexity."""
    return 100 * (perplexity(bits) - 1)


@cache
def rates() -> Runs:
    """Return bits a byte of each model at the rate that was best for it on held-out text."""
    bits, scored = (measured("language_rates", itemgetter(k)) for k in ("bits", "chosen by"))
    best = {}
    for name in language_rates.METHODS:
        cells = [f"{name}, rate {rate:g}" for rate in language_rates.RATES]
        best[name] = bits[min(cells, key=lambda cell: mean(scored[cell]))]
    return best


@cache
def bits(study: str, what: str = "bits") -> Runs:
    """Return a number of each run."""
    return measured(study, itemgetter(what))


@cache
def fit() -> Runs:
    """Return the last losses on the text that was read, in bits a byte."""
    return measured("language_long", lambda run: mean(run["losses"][-5:]) / math.log(2))


@cache
def second() -> Runs:
    """Return the bits a byte of the second of two copies."""
    return measured("repeats", lambda run: run["bits"]["second"])


@cache
def redrawn() -> Runs:
    """Return bits a byte with the rows of the training, and with new ones."""
    found = {}
    for rows, name in (("own rows", "bits"), ("new rows", "redrawn")):
        for cell, values in measured("language_redraw", itemgetter(name)).items():
            found[f"{cell}, {rows}"] = values
    return found


@cache
def places(study: str) -> Runs:
    """Return accuracies at the places of the training, and at the others."""
    found = {}
    for where, known in (("known", True), ("new", False)):
        for name, row in measured(study, at_places(known)).items():
            found[f"{name} at {where} places"] = row
    return found


@cache
def reading_on() -> Runs:
    """Return bits a byte of each method: after 64 bytes and 1,024, and from place 512 on.

    There also those of a window of 64 that slides along.
    """
    steps = list(zip(extrapolation.EDGES[:-1], extrapolation.EDGES[1:], strict=True))
    late = [(i, b - a) for i, (a, b) in enumerate(steps) if a >= 512]
    found: dict[str, list[float]] = {}
    for cell in data("extrapolation")["cells"].values():
        for run in cell["runs"]:
            if "window" not in run:  # needles
                continue
            for method, read in run["read"].items():
                for at, bits in (("64", read["lengths"][0]), ("1,024", read["lengths"][-1])):
                    found.setdefault(f"{method} at {at}", []).append(bits)
                for how, places in (("whole", read["places"]), ("window", run["window"])):
                    bits = sum(places[i] * n for i, n in late) / sum(n for _, n in late)
                    found.setdefault(f"{method}, {how}", []).append(bits)
    return found


SOFTMAX = "softmax, RoPE"
BITS = partial(Family, unit="bits a byte", less=True)
PERPLEXITY = partial(Family, unit="% of perplexity", less=True, shown=percent)
POOLS = ("none", "learned", "axial", "mixed", "circulant")
WHERE = ("known", "new")
READERS = (
    *("rope", "pi", "ntk", "yarn", "sinusoidal", "rope tuned", "pi tuned"),
    *("alibi", "kerple-log", "kerple-power", "t5", "gla", "none"),
)
FAMILIES = {
    "text at 1,000 steps": PERPLEXITY(
        record="language_rates",
        runs=rates,
        against=SOFTMAX,
        claims={
            "softmax, KERPLE": "suggestive, ahead",
            "softmax, T5": "open",
            "half softmax, half circulant, RoPE": "suggestive, behind",
            "FAVOR+, RoPE": "behind",
            "C-CosGate": "behind",
            "C-CosGate, RoPE": "behind",
            "C-CosGate, RoPE, ramp": "behind",
            "circulant, SSD": "open",
            "circulant, GLA": "open",
            "ELU, SSD": "ahead",
            "ELU, GLA": "ahead",
            "gated delta rule": "open",
        },
    ),
    "text at 4,000 steps": PERPLEXITY(
        record="language_long",
        runs=lambda: bits("language_long"),
        against=SOFTMAX,
        claims={
            "softmax, KERPLE": "open",
            "softmax, T5": "open",
            "half softmax, half circulant, RoPE": "open",
            "FAVOR+, RoPE": "suggestive, behind",
            "C-CosGate": "behind",
            "C-CosGate, RoPE": "suggestive, behind",
            "C-CosGate, RoPE, ramp": "suggestive, behind",
            "circulant, SSD": "open",
            "circulant, GLA": "suggestive, ahead",
            "ELU, SSD": "open",
            "ELU, GLA": "open",
            "gated delta rule": "open",
        },
    ),
    "text read in training": BITS(
        record="language_long",
        runs=fit,
        against=SOFTMAX,
        claims={
            "softmax, KERPLE": "open",
            "softmax, T5": "suggestive, ahead",
            "half softmax, half circulant, RoPE": "suggestive, behind",
            "FAVOR+, RoPE": "behind",
            "C-CosGate": "behind",
            "C-CosGate, RoPE": "behind",
            "C-CosGate, RoPE, ramp": "behind",
            "circulant, SSD": "open",
            "circulant, GLA": "open",
            "ELU, SSD": "suggestive, ahead",
            "ELU, GLA": "ahead",
            "gated delta rule": "suggestive, ahead",
        },
    ),
    "second copy": BITS(
        record="repeats",
        runs=second,
        against=SOFTMAX,
        claims={
            "half softmax, half circulant, RoPE": "open",
            "FAVOR+, RoPE": "behind",
            "C-CosGate, RoPE": "behind",
            "circulant, SSD": "behind",
            "ELU, GLA": "behind",
            "gated delta rule": "behind",
        },
    ),
    "rows drawn anew": BITS(
        record="language_redraw",
        runs=redrawn,
        against={
            "every 10, new rows": "fixed, new rows",
            "fixed, own rows": "every 10, new rows",
            "learned, own rows": "fixed, own rows",
        },
        claims={
            "every 10, new rows": "ahead",
            "fixed, own rows": "ahead",
            "learned, own rows": "ahead",
        },
    ),
    "ListOps": Family(
        record="listops",
        runs=lambda: bits("listops", "accuracy"),
        against=SOFTMAX,
        claims={
            "softmax": "open",
            "FAVOR+": "behind",
            "circulant": "suggestive, behind",
            "circulant, RoPE": "open",
            "ReLU": "suggestive, behind",
            "ReLU, cosine": "behind",
            "ELU, GLA": "suggestive, ahead",
            "ELU, SSD": "ahead",
        },
    ),
    "mean, not class token, at 400 steps": Family(
        record="vision",
        runs=lambda: places("vision"),
        against={
            f"moved {n} at {w} places": f"moved cls {n} at {w} places" for n in POOLS for w in WHERE
        },
        claims={f"moved {n} at {w} places": "open" for n in POOLS for w in WHERE}
        | {"moved axial at new places": "ahead", "moved mixed at new places": "suggestive, ahead"},
    ),
    "mean, not class token, at 1,600 steps": Family(
        record="class_token",
        runs=lambda: places("class_token"),
        against={
            f"mean: {n} at {w} places": f"cls: {n} at {w} places" for n in POOLS for w in WHERE
        },
        claims={f"mean: {n} at {w} places": "open" for n in POOLS for w in WHERE}
        | {"mean: mixed at new places": "suggestive, ahead"},
    ),
    "text read on": BITS(
        record="extrapolation",
        runs=reading_on,
        against={f"{n} at 1,024": f"{n} at 64" for n in READERS},
        claims={f"{n} at 1,024": "behind" for n in READERS}
        | {f"{n} at 1,024": "open" for n in ("kerple-log", "kerple-power", "gla")}
        | {"pi tuned at 1,024": "suggestive, ahead", "alibi at 1,024": "suggestive, behind"},
    ),
    "text, against a window": BITS(
        record="extrapolation",
        runs=reading_on,
        against={f"{n}, whole": f"{n}, window" for n in READERS},
        claims={f"{n}, whole": "behind" for n in READERS}
        | {f"{n}, whole": "open" for n in ("kerple-log", "kerple-power", "gla")},
    ),
}
"""Name → comparisons of one record that are looked at together."""


def faults(words: str, name: str, cell: str) -> list[str]:
    """Return what is wrong with the words that a page has for a claim.

    Args:
        words: As they stand on the page.
        name: The family.
        cell: What is compared.
    """
    known = FAMILIES[name].claims if name in FAMILIES else {}
    if cell not in known:
        return [f"there is no claim {name!r}: {cell!r}, expected one of {[*known] or [*FAMILIES]}"]
    family = FAMILIES[name]
    found, claim, says = family.found(cell), family.claims[cell], SAYS
    wrong = []
    spoken = set(re.findall("[a-z]+", words.lower()))
    if spoken & {"above", "below"}:  # an estimate, whatever can be told
        says, claim = {"above": "above", "below": "below"}, "above" if found[0] > 0 else "below"
    for part, synonyms in says.items():
        if (part in claim) != bool(spoken & set(synonyms.split())):
            wrong.append(f"{words!r} {'does not say' if part in claim else 'says'} {part!r}")
    numbers = NUMBER.findall(words)  # the mean, and perhaps both ends of the interval
    for number, value in zip(numbers, found if len(numbers) == 3 else found[:1], strict=False):
        digits = len(number.partition(".")[2])
        if float(number) != round(abs(value), digits):
            held = f"{value:.{digits + 1}f}".replace("-", "−")
            wrong.append(f"{words!r} says {number}, the record {held} {family.unit}".rstrip())
    if len(numbers) not in (0, 1, 3):
        wrong.append(f"{words!r} must have a mean, or a mean and both ends of its interval")
    return wrong
