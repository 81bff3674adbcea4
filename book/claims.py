"""The words that a page has for a claim, held to the record.

A page says a claim as ``{verdict}`significantly better by 5% <text at 1,000 steps: ELU, GLA>```,
and what it says of several as ``<family: one | another>`` or, of all, ``<family>``; * stands for
any text. A score alone is ``{recorded}`.88 to .91 <measure: one | another>```.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from book.family import Family
from book.verdicts import FAMILIES, MEASURES
from lab.theory.spread import mean

SAYS = {
    "ahead": "better faster within",
    "behind": "worse slow",
    "suggestive": "suggestive",
    "open": "inconclusive",
}
"""What a claim is made of → words that say it."""
SIGNIFICANT = "significant"
"""Beside "no", as in "no significant difference": nothing is significant in any cell."""
SURE = "significantly"
"""Says that a direction holds among all of the family; never beside "suggestive"."""
DENIES = "no none not nothing nowhere neither cannot"
"""Words that turn others round, so they stand beside "significant" alone."""
PLAIN = """
    a all and apart are as at be bits both by byte difference everywhere from in is it of on
    per significantly that the to with
    others perplexity record rope seen sequences settings share softmax times
"""
"""What else may stand there; any other word may say less, more, or the opposite."""
NUMBER = re.compile(r"\d*\.?\d+")
ENDS = re.compile(r"\[([−+-]?)(\d*\.?\d+)%?, ([−+-]?)(\d*\.?\d+)%?\]")
"""Both ends of an interval."""
COUNTS = (
    *("no", "one", "two", "three", "four", "five", "six"),
    *("seven", "eight", "nine", "ten", "eleven", "twelve"),
)
ESTIMATES = {"above": 1, "higher": 1, "below": -1, "lower": -1}
"""Words for the sign of a mean."""
BESIDE = "against and between by every on per seed to"
"""What may stand beside a score."""


def cells_of(name: str, cells: str) -> list[str]:
    """Return the cells that a claim is of: those between bars, or all of the family.

    Raises:
        ValueError: If there is no such claim.
    """
    return _matching(name, cells, FAMILIES, FAMILIES[name].claims if name in FAMILIES else ())


def scores_of(name: str, cells: str) -> dict[str, Sequence[float]]:
    """Return what was measured, cell → one number per seed, of the cells between bars.

    Raises:
        ValueError: If there is no such measure or cell.
    """
    runs = MEASURES[name].runs() if name in MEASURES else {}
    return {cell: runs[cell] for cell in _matching(name, cells, MEASURES, runs)}


def _matching(name: str, cells: str, names: Iterable[str], known: Iterable[str]) -> list[str]:
    asked = []
    for pattern in cells.split(" | ") if cells else ["*"]:
        matching = [cell for cell in known if fnmatchcase(cell, pattern)]
        if not matching:
            told = [*known] or [*names]
            raise ValueError(f"there is no {name!r}: {pattern!r}, expected one of {told}")
        asked += matching
    return asked


def misquoted(words: str, name: str, cells: str) -> list[str]:
    """Return what is wrong with the words that a page has for scores.

    They have the mean of one cell, the means of several with "and" or "against" between, in their
    order, or the least and the largest of them with "to". With "seed" these are the least and the
    largest of all runs.

    Args:
        words: As they stand on the page.
        name: The measure.
        cells: What was measured.
    """
    try:
        scores = scores_of(name, cells)
    except ValueError as error:
        return [str(error)]
    spoken = re.findall("[a-z]+", words.lower())
    known = f"{BESIDE} {MEASURES[name].unit}".split()
    wrong = [f"has {word!r} beside a score" for word in spoken if word not in known]
    if "seed" in spoken:
        right = sorted(score for row in scores.values() for score in row)
    else:
        right = [mean(row) for row in scores.values()]
    numbers = NUMBER.findall(words)
    if {"and", "against"} & {*spoken} and "between" not in spoken:
        if len(numbers) != len(right):
            wrong.append(f"has {len(numbers)} numbers for {len(right)} cells")
    else:
        right = [min(right), max(right)]
        numbers = numbers * 2 if len(numbers) == 1 else numbers
        if len(numbers) != 2:
            wrong.append("must have one number, or the least and the largest")
    return [f"{words!r} {fault}" for fault in (*wrong, *_other(zip(numbers, right, strict=False)))]


def faults(words: str, name: str, cells: str) -> list[str]:
    """Return what is wrong with the words that a page has for a claim.

    Of one comparison they have its mean, or its mean and after it, in brackets, both ends of its
    interval, in the direction of the mean where the words have one. Of several they have the least
    and the largest mean, or one number if they round to it, and in brackets the ends of all
    intervals. A count is that of all comparisons; "six of twelve" counts those of a kind. "Above"
    and "below" say a mean, and beside it what is not held.

    Args:
        words: As they stand on the page.
        name: The family.
        cells: What is compared.
    """
    try:
        asked = cells_of(name, cells)
    except ValueError as error:
        return [str(error)]
    family = FAMILIES[name]
    spoken = re.findall("[a-z]+", words.lower())
    return [f"{words!r} {fault}" for fault in (
        *_unknown(spoken), *_direction(spoken, family, asked), *_numbers(words, family, asked),
        *_unit(words, family),
    )]  # fmt: skip


def _unknown(spoken: list[str]) -> list[str]:
    """Return words whose part in a claim nobody has settled."""
    known = {*" ".join((*SAYS.values(), SIGNIFICANT, DENIES, PLAIN, *COUNTS, *ESTIMATES)).split()}
    return [f"has {word!r}, which may turn or loosen it" for word in spoken if word not in known]


def _unit(words: str, family: Family) -> list[str]:
    """Return a unit that is not the record's."""
    if not NUMBER.search(words):
        return []
    percent, times, bits = (unit in words for unit in ("%", "times", "bits"))
    right = (
        percent == family.unit.startswith("%")
        and times == (family.unit == "times")
        and ("bits" in family.unit or not bits)
    )
    return [] if right else [f"must be in {family.unit or 'plain numbers'}"]


def _direction(spoken: list[str], family: Family, cells: list[str]) -> list[str]:
    """Return where words and claims differ."""
    held = [family.claims[cell] for cell in cells]
    said = {part for part, words in SAYS.items() if {*spoken} & {*words.split()}}
    denied = bool({*spoken} & {*DENIES.split()})
    if SIGNIFICANT in spoken:
        if not denied:
            return ["says 'significant', and not what"]
        if not said and not {*spoken} & {*ESTIMATES}:
            certain = [cell for cell in cells if family.claims[cell] in ("ahead", "behind")]
            return [f"denies what the record tells: {certain}"] if certain else []
        said.add("open")
    if denied and said != {"open"}:
        return ["denies what it says"]
    counted = [n for n in spoken if n in COUNTS and n not in DENIES.split()]
    if "of" in spoken and len(counted) == 2:
        kind = ", ".join(part for part in ("suggestive", "open", "ahead", "behind") if part in said)
        right = [COUNTS[held.count(kind)], COUNTS[len(held)]]
        return [] if counted == right else [f"counts {counted} that are {kind}, the record {right}"]
    wrong = [f"counts {n!r} of {len(held)}" for n in counted if COUNTS.index(n) != len(held)]
    if SURE in spoken and not {*held} <= {"ahead", "behind"}:
        wrong.append(f"says {SURE!r} of what is not")
    if "within" in spoken and not {*cells} <= family.limits.keys():
        wrong.append("says 'within' of what has no limit")
    wrong += ["says 'both' of more, or of one"] if "both" in spoken and len(held) != 2 else []
    parts = [{*claim.split(", ")} for claim in held]
    estimates = {ESTIMATES[word] for word in spoken if word in ESTIMATES}
    if estimates:  # where it is, whatever is held of it
        parts = [those - {"ahead", "behind"} for those in parts]
        found = {1 if family.found(cell)[0] > 0 else -1 for cell in cells}
        wrong += [] if estimates == found else [f"says {estimates}, the record {found}"]
    for part in SAYS:
        if any((part in those) != (part in said) for those in parts):
            wrong.append(f"{'says' if part in said else 'does not say'} {part!r}")
    return wrong


def _numbers(words: str, family: Family, cells: list[str]) -> list[str]:
    """Return which numbers are not the record's."""
    found = [family.found(cell) for cell in cells]
    pairs: list[tuple[str, float]] = []
    spoken = {*re.findall("[a-z]+", words.lower())}
    directed = spoken & {*ESTIMATES, *SAYS["ahead"].split(), *SAYS["behind"].split()}
    for one, low, other, high in ENDS.findall(words):
        along = [_along(*ends) for ends in found] if directed else found
        least, largest = min(x for _, x, _ in along), max(x for _, _, x in along)
        pairs += [(_signed(one, low), least), (_signed(other, high), largest)]
    if numbers := NUMBER.findall(ENDS.sub("", words)):
        means = sorted(abs(middle) for middle, _, _ in found)
        right = [means[0], means[-1]] if len(cells) > 1 and len(numbers) == 2 else means
        numbers = numbers * len(right) if len(numbers) == 1 else numbers
        if len(numbers) != len(right):
            return ["must have a mean, or of several the least and largest, and ends in brackets"]
        pairs += zip(numbers, right, strict=True)
    return [f"{fault} {family.unit}".rstrip() for fault in _other(pairs)]


def _along(middle: float, low: float, high: float) -> tuple[float, float, float]:
    """Return a mean and its interval in the direction of the mean, which words have said."""
    return (middle, low, high) if middle >= 0 else (-middle, -high, -low)


def _signed(sign: str, number: str) -> str:
    return f"-{number}" if sign in ("-", "−") else number


def _other(pairs: Iterable[tuple[str, float]]) -> list[str]:
    """Return which numbers are not what stands beside them, rounded."""
    return [
        f"says {number}, the record {value:.{digits + 1}f}"
        for number, value in pairs
        for digits in [len(number.partition(".")[2])]
        if float(number) != round(value, digits)
    ]
