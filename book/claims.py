"""The words that a page has for a claim, held to the record.

A page says a claim as ``{verdict}`5 % ahead <text at 1,000 steps: ELU, GLA>```, and what it says of
several as ``<family: one | another>`` or, of all, ``<family>``; * stands for any text.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

from book.family import Family
from book.verdicts import FAMILIES

SAYS = {
    "ahead": "ahead gain gains helps better worth within faster",
    "behind": "behind lose loses lost hurts costs worse slow",
    "suggestive": "suggestive",
    "open": "open nothing level",
}
"""What a claim is made of → words that say it; "told" with a word of ``DENIES`` says "open" too."""
TELLS = "told tells"
DENIES = "no none not nothing nowhere neither cannot"
"""Words that turn others round, so they stand beside "told" alone, where all is open."""
PLAIN = """
    a all and apart are as at be bits both by byte everywhere from in is it of on that the to with
    others perplexity record rope seen sequences settings share softmax times
"""
"""What else may stand there; any other word may say less, more, or the opposite."""
NUMBER = re.compile(r"\d*\.?\d+")
ENDS = re.compile(r"\(([−-]?)(\d*\.?\d+) to ([−-]?)(\d*\.?\d+)\)")
COUNTS = (
    *("no", "one", "two", "three", "four", "five", "six"),
    *("seven", "eight", "nine", "ten", "eleven", "twelve"),
)
ESTIMATES = ("above", "below")


def cells_of(name: str, cells: str) -> list[str]:
    """Return the cells that a claim is of: those between bars, or all of the family.

    Raises:
        ValueError: If there is no such claim.
    """
    known = [*FAMILIES[name].claims] if name in FAMILIES else []
    asked = []
    for pattern in cells.split(" | ") if cells else ["*"]:
        matching = [cell for cell in known if fnmatchcase(cell, pattern)]
        if not matching:
            told = known or [*FAMILIES]
            raise ValueError(f"there is no claim {name!r}: {pattern!r}, expected one of {told}")
        asked += matching
    return asked


def faults(words: str, name: str, cells: str) -> list[str]:
    """Return what is wrong with the words that a page has for a claim.

    Of one comparison they have its mean, or its mean and behind it, in brackets, both ends of its
    interval; of several the least and the largest mean, or one number if they round to it, and in
    brackets the ends of all intervals. A count is that of all comparisons; "six of twelve" counts
    those of a kind. "Above" and "below" say a mean, and beside it what is not held.

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
        *_unknown(spoken), *_direction(spoken, family, asked), *_numbers(words, family, asked)
    )]  # fmt: skip


def _unknown(spoken: list[str]) -> list[str]:
    """Return words whose part in a claim nobody has settled."""
    known = {*" ".join((*SAYS.values(), TELLS, DENIES, PLAIN, *COUNTS, *ESTIMATES)).split()}
    return [f"has {word!r}, which may turn or loosen it" for word in spoken if word not in known]


def _direction(spoken: list[str], family: Family, cells: list[str]) -> list[str]:
    """Return where words and claims differ."""
    held = [family.claims[cell] for cell in cells]
    said = {part for part, words in SAYS.items() if {*spoken} & {*words.split()}}
    denied = bool({*spoken} & {*DENIES.split()})
    if {*spoken} & {*TELLS.split()}:
        if not denied:
            return ["says 'told', and not what"]
        said.add("open")
    if denied and said != {"open"}:
        return ["denies what it says"]
    counted = [n for n in spoken if n in COUNTS and n not in DENIES.split()]
    if "of" in spoken and len(counted) == 2:
        kind = ", ".join(part for part in ("suggestive", "open", "ahead", "behind") if part in said)
        right = [COUNTS[held.count(kind)], COUNTS[len(held)]]
        return [] if counted == right else [f"counts {counted} that are {kind}, the record {right}"]
    wrong = [f"counts {n!r} of {len(held)}" for n in counted if COUNTS.index(n) != len(held)]
    wrong += ["says 'both' of more, or of one"] if "both" in spoken and len(held) != 2 else []
    parts = [{*claim.split(", ")} for claim in held]
    if estimates := {*spoken} & {*ESTIMATES}:  # where it is, whatever is held of it
        parts = [those - {"ahead", "behind"} for those in parts]
        found = {ESTIMATES[family.found(cell)[0] < 0] for cell in cells}
        wrong += [] if estimates == found else [f"says {estimates}, the record {found}"]
    for part in SAYS:
        if any((part in those) != (part in said) for those in parts):
            wrong.append(f"{'says' if part in said else 'does not say'} {part!r}")
    return wrong


def _numbers(words: str, family: Family, cells: list[str]) -> list[str]:
    """Return which numbers are not the record's."""
    found = [family.found(cell) for cell in cells]
    pairs: list[tuple[str, float]] = []
    for one, low, other, high in ENDS.findall(words):
        least, largest = min(x for _, x, _ in found), max(x for _, _, x in found)
        pairs += [("-"[: len(one)] + low, least), ("-"[: len(other)] + high, largest)]
    if numbers := NUMBER.findall(ENDS.sub("", words)):
        means = sorted(abs(middle) for middle, _, _ in found)
        right = [means[0], means[-1]] if len(cells) > 1 and len(numbers) == 2 else means
        numbers = numbers * len(right) if len(numbers) == 1 else numbers
        if len(numbers) != len(right):
            return ["must have a mean, or of several the least and largest, and ends in brackets"]
        pairs += zip(numbers, right, strict=True)
    return [
        f"says {number}, the record {value:.{digits + 1}f} {family.unit}".rstrip()
        for number, value in pairs
        for digits in [len(number.partition(".")[2])]
        if float(number) != round(value, digits)
    ]
