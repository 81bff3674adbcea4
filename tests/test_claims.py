"""What pages claim of records: each claim that is declared, and the words that say it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from book.claims import NUMBER, SAYS, SIGNIFICANT, faults, misquoted
from book.notes import note, noted
from book.verdicts import FAMILIES, MEASURES
from tools.ledger import cells, pages

ROOT = Path(__file__).resolve().parents[1]
ROLE = re.compile(r"\{(verdict|recorded)\}`([^`<]+)\s<([^:`>]+)(?:: ([^`>]+))?>`")
FOUND = [
    (role, (page.stem, *found))
    for page in pages(ROOT)
    for _, cell in cells(ROOT, page)
    if cell["cell_type"] == "markdown"
    for role, *found in ROLE.findall(re.sub(r"\s+", " ", cell["source"]))
]
ON_PAGES = [found for role, found in FOUND if role == "verdict"]
SCORES = [found for role, found in FOUND if role == "recorded"]
TURNED = {
    **{word: "worse" for part in ("ahead", "open") for word in SAYS[part].split()},
    SIGNIFICANT: "worse",
    **dict.fromkeys(SAYS["behind"].split(), "better"),
    "above": "below",
    "higher": "lower",
    "below": "above",
    "lower": "higher",
}
SIX = " | ".join(
    f"{name}, 4,000 steps"
    for name in (
        *("FAVOR+, RoPE", "circulant, SSD", "circulant, GLA"),
        *("gated delta rule", "ELU, SSD", "ELU, GLA"),
    )
)
TURNS = re.compile(
    r"\b(not|never|nowhere|nor|no|less than|more than|at (?:most|least)|hardly|cannot|neither)"
    r"\s+(?:[\w*]+\s+){0,4}\{(?:verdict|recorded)\}`"
)


def larger(words: str) -> Iterator[str]:
    """Yield the words with one of their numbers larger by two of its last digit."""
    for number in NUMBER.finditer(words):
        digits = len(number[0].partition(".")[2])
        other = f"{float(number[0]) + 2 * 10**-digits:.{digits}f}"
        yield f"{words[: number.start()]}{other}{words[number.end() :]}"


@pytest.mark.parametrize(("page", "words", "name", "cell"), SCORES)
def test_scores_agree_with_the_record_and_altered_ones_do_not(
    page: str, words: str, name: str, cell: str
) -> None:
    assert misquoted(words, name, cell) == []
    assert all(misquoted(altered, name, cell) for altered in larger(words))


def test_a_score_is_quoted_plainly() -> None:
    name, cells = (
        "named, by place",
        "moved cls axial at new places | moved cls learned at new places",
    )
    assert misquoted(".54 and .56", name, cells) == []
    assert misquoted(".54 to .56", name, cells) == []
    for words in (".56 and .54", ".54", ".54, .55 and .56", "not .54 to .56", ".54 to .56 by seed"):
        assert misquoted(words, name, cells), words
    assert misquoted(".54", "named, by places", cells)
    assert "'axial RoPE, then, picture'" in misquoted(".54", "named, large pictures", "axial")[0]


def test_every_measure_is_quoted() -> None:
    assert {name for _, _, name, _ in SCORES} == MEASURES.keys()


@pytest.mark.parametrize("name", FAMILIES)
def test_a_claim_is_what_its_record_tells(name: str) -> None:
    family = FAMILIES[name]
    assert {cell: family.tells(cell) for cell in family.claims} == family.claims


def test_a_claim_says_what_it_rests_on() -> None:
    assert note(FAMILIES["where rates begin"], ["distinct, from best, a quarter of the steps"]) == (
        "“Delta rule, keys are written once, rate of the rule from the best for random keys, a "
        "quarter of the steps” minus “Delta rule, keys are written once, rate of the rule from 1, "
        "a quarter of the steps”: −0.017 [−0.371, +0.337] (95% interval, corrected for 8 "
        "comparisons). Higher is better. 5 seeds of results/delta_start.py."
    )
    for name, said in (
        (
            "encoders at 1,600 steps",
            " (95% interval, corrected for 16 comparisons at 2 stages of the study). ",
        ),
        ("a Toeplitz bias in a ViT", " (95% interval). "),
    ):
        assert said in note(FAMILIES[name], [*FAMILIES[name].claims])


def test_a_cell_of_a_table_says_what_is_significant_and_opens_its_note() -> None:
    name = "sources at 4,000 steps"
    for cell, words in (("ELU, GLA", "1.9 better"), ("gated delta rule", "1.9")):
        found = noted("1.9", name, cell)
        assert found == (words, note(FAMILIES[name], [cell]))
    assert noted("1.9", name, "softmax, RoPE") == "1.9"


@pytest.mark.parametrize(("page", "words", "name", "cell"), ON_PAGES)
def test_words_agree_with_the_record_and_altered_ones_do_not(
    page: str, words: str, name: str, cell: str
) -> None:
    assert faults(words, name, cell) == []
    turned = re.sub(r"\w+", lambda word: TURNED.get(word[0].lower(), word[0]), words)
    assert turned != words
    assert faults(turned, name, cell)
    assert all(faults(altered, name, cell) for altered in larger(words))


LOOSE = (
    ("nowhere better by .21 to .25", "digits, less none", ""),
    ("not better, by .24", "mean, not class token, at 400 steps", "moved axial at new places"),
    ("not worse .14", "moved digits", "moved learned at new places"),
    ("none of eight is better", "digits, less none", ""),
    ("seven of eight are better", "digits, less none", ""),
    ("all three are within", "claims of the note", SIX),
    ("two are within", "claims of the note", SIX),
    ("both better, by .21 to .25", "digits, less none", ""),
    ("less than 4.5% better", "sources at 4,000 steps", "ELU, GLA"),
    ("hardly 4.5% better", "sources at 4,000 steps", "ELU, GLA"),
    ("no significant difference, and so equal", "where rates begin", ""),
    ("significant difference apart", "where rates begin", ""),
    ("0.9% above", "text at 4,000 steps", "circulant, SSD"),
    ("2.0% below", "text at 4,000 steps", "ELU, GLA"),
    ("2.4% above", "text at 4,000 steps", "FAVOR+, RoPE"),
    ("2.4% above, inconclusive", "text at 4,000 steps", "FAVOR+, RoPE"),
    ("2.4% below, suggestive", "text at 4,000 steps", "FAVOR+, RoPE"),
    ("4.5 better", "sources at 4,000 steps", "ELU, GLA"),
    (".24% better", "mean, not class token, at 400 steps", "moved axial at new places"),
    (".24 bits better", "mean, not class token, at 400 steps", "moved axial at new places"),
    ("0.59 better [1.15, 0.04]", "keys with the byte before", "SSD*"),
    ("significantly better by 2.4%, suggestive", "text at 4,000 steps", "FAVOR+, RoPE"),
    ("significantly worse by 2.4%", "text at 4,000 steps", "FAVOR+, RoPE"),
    ("significantly 2.0% below, inconclusive", "text at 4,000 steps", "ELU, GLA"),
    ("significant difference", "sources at 4,000 steps", "gated delta rule"),
    ("no difference", "sources at 4,000 steps", "gated delta rule"),
    ("no significant difference", "sources at 4,000 steps", "ELU, GLA"),
    ("inconclusive", "sources at 4,000 steps", "ELU, GLA"),
    ("no significant difference", "text at 1,000 steps", "ELU, GLA | ELU, SSD"),
    ("Significantly better by 4.5% [2.3, 6.8]", "sources at 4,000 steps", "ELU, GLA"),
    ("Significantly better by 4.5% [−2.3, 6.7]", "sources at 4,000 steps", "ELU, GLA"),
    ("significantly higher by 4.5%", "sources at 4,000 steps", "ELU, GLA"),
    ("significantly lower by 2.0%", "text at 4,000 steps", "ELU, GLA"),
    ("2.0% lower", "text at 4,000 steps", "ELU, GLA"),
    ("no significant difference [.07, .09]", "large pictures, less a learned table", "*then*"),
)
"""Words that are no claim of the record: turned round, loosened, or miscounted."""


@pytest.mark.parametrize(("words", "name", "cell"), LOOSE)
def test_a_claim_that_is_turned_or_loosened_is_refused(words: str, name: str, cell: str) -> None:
    assert faults(words, name, cell)


def test_what_is_said_so_and_holds_is_not_refused() -> None:
    for words, name, cell in (
        ("all six are within", "claims of the note", SIX),
        ("2.4% above, suggestive", "text at 4,000 steps", "FAVOR+, RoPE"),
        ("0.9% above, no significant difference", "text at 4,000 steps", "circulant, SSD"),
        ("eight of eight are better", "digits, less none", ""),
        ("no significant difference", "sources at 4,000 steps", "gated delta rule"),
        ("significantly better by 4.5%", "sources at 4,000 steps", "ELU, GLA"),
        ("2.0% below, inconclusive", "text at 4,000 steps", "ELU, GLA"),
        ("none is significant", "where rates begin", ""),
        ("Significantly better by 4.5% [2.3%, 6.7%]", "sources at 4,000 steps", "ELU, GLA"),
        ("significantly lower by 4.5%", "sources at 4,000 steps", "ELU, GLA"),
        ("no significant difference", "text at 4,000 steps", "FAVOR+, RoPE | ELU, GLA"),
        (
            "no significant difference [−.07, .09]",
            "large pictures, less a learned table",
            "*then*",
        ),
    ):
        assert faults(words, name, cell) == []


def test_nothing_before_a_claim_turns_it_round() -> None:
    for page in pages(ROOT):
        for _, cell in cells(ROOT, page):
            assert not TURNS.search(cell["source"]), page.stem
    assert TURNS.search("it is not {verdict}`.24 better <a: b>`")
    assert TURNS.search("it is not true that it is {verdict}`.24 better <a: b>`")


def test_an_unknown_claim_is_named() -> None:
    (told,) = faults("5 % better", "text at 1,000 steps", "ELU, GLU")
    assert "'ELU, GLU'" in told
    assert "'ELU, GLA'" in told
    (told,) = faults("5 % better", "text", "ELU, GLA")
    assert "'text at 1,000 steps'" in told
