"""What pages claim of records: each claim that is declared, and the words that say it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from book.claims import NUMBER, SAYS, faults
from book.verdicts import FAMILIES
from tools.ledger import cells, pages

ROOT = Path(__file__).resolve().parents[1]
ROLE = re.compile(r"\{verdict\}`([^`<]+)\s<([^:`>]+)(?:: ([^`>]+))?>`")
ON_PAGES = [
    (page.stem, *found)
    for page in pages(ROOT)
    for _, cell in cells(ROOT, page)
    if cell["cell_type"] == "markdown"
    for found in ROLE.findall(re.sub(r"\s+", " ", cell["source"]))
]
TURNED = {
    **{word: "behind" for part in ("ahead", "open") for word in SAYS[part].split()},
    **dict.fromkeys(SAYS["behind"].split(), "ahead"),
    "above": "below",
    "below": "above",
}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_claim_is_what_its_record_tells(name: str) -> None:
    family = FAMILIES[name]
    assert {cell: family.tells(cell) for cell in family.claims} == family.claims


@pytest.mark.parametrize(("page", "words", "name", "cell"), ON_PAGES)
def test_words_agree_with_the_record_and_altered_ones_do_not(
    page: str, words: str, name: str, cell: str
) -> None:
    assert faults(words, name, cell) == []
    turned = re.sub(r"\w+", lambda word: TURNED.get(word[0], word[0]), words)
    assert turned != words
    assert faults(turned, name, cell)
    for number in NUMBER.finditer(words):
        digits = len(number[0].partition(".")[2])
        larger = f"{float(number[0]) + 2 * 10**-digits:.{digits}f}"
        assert faults(f"{words[: number.start()]}{larger}{words[number.end() :]}", name, cell)


def test_an_unknown_claim_is_named() -> None:
    (told,) = faults("5 % ahead", "text at 1,000 steps", "ELU, GLU")
    assert "'ELU, GLU'" in told
    assert "'ELU, GLA'" in told
    (told,) = faults("5 % ahead", "text", "ELU, GLA")
    assert "'text at 1,000 steps'" in told
