"""The pages to look things up: terms, formulas and symbols."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.site.reader import ROOT, Reader

SHOWN = (
    "[...document.querySelectorAll('{}')]"
    ".filter(e => e.checkVisibility()).map(e => e.id || e.textContent)"
)
# what a box cuts off and does not let the reader scroll to
CUT = """() => [...document.querySelectorAll("math[display=block]")].filter(formula => {
  const right = formula.getBoundingClientRect().right;
  for (let box = formula.parentElement; box && !box.matches("article"); box = box.parentElement) {
    if (/auto|scroll/.test(getComputedStyle(box).overflowX)) { return false; }
    if (right > box.getBoundingClientRect().right + 1) { return true; }
  }
}).map(formula => formula.closest("[id]").id)"""


@pytest.mark.parametrize(
    ("page", "items", "typed", "left", "gone"),
    [
        ("equations", ".book-formula, h2", "rope_pair", "eq-rope-pair", "eq-circulant"),
        ("equations", ".book-formula, h2", "Rotary position", "eq-layout", "eq-circulant"),
        ("terms", "dl.glossary dt", "kernelized FEATURES", "term-Linear-attention", "term-ALiBi"),
        ("terms", "dl.glossary dt", "gqa", "term-Grouped-query-attention", "term-Gate"),
    ],
)
def test_a_long_list_is_narrowed_by_what_is_typed(
    page: str, items: str, typed: str, left: str, gone: str, phone: Reader, site: Path
) -> None:
    phone.open(site / "book" / f"{page}.html")
    before = phone.page.evaluate(SHOWN.format(items))
    field = phone.page.get_by_label("Show only")
    field.fill(typed)
    after = phone.page.evaluate(SHOWN.format(items))
    assert {left, gone} <= set(before)
    assert left in after
    assert gone not in after
    assert len(after) < len(before)
    assert re.fullmatch(r"\d+ of \d+", phone.page.locator(".book-filter output").inner_text())
    assert field.bounding_box()["height"] >= 44
    # a link to what is hidden shows it again
    phone.page.evaluate("id => { location.hash = '#' + id; }", gone)
    phone.page.wait_for_function("id => document.getElementById(id).checkVisibility()", arg=gone)
    assert phone.page.evaluate(SHOWN.format(items)) == before


def test_without_javascript_the_lists_are_whole(plain: Any, site: Path) -> None:
    plain.goto((site / "book" / "equations.html").as_uri())
    assert plain.locator(".book-formula").count() > 100
    assert plain.locator(".book-filter").count() == 0
    text = plain.locator(".book-formula details p").first
    assert not text.is_visible()
    plain.locator(".book-formula summary").first.press("Enter")
    assert text.is_visible()


def test_no_formula_is_cut_off_on_a_phone(phone: Reader, site: Path) -> None:
    phone.open(site / "book" / "equations.html")
    assert phone.page.locator("math[display=block]").count() > 100
    assert phone.page.evaluate(CUT) == []


def test_every_term_leads_to_a_chapter_and_types_no_number(site: Path) -> None:
    text = (ROOT / "book" / "terms.md").read_text(encoding="utf8")
    entries = text.partition("```{glossary}\n")[2].partition("\n```")[0]
    found = re.findall(r"^(\S.*)\n((?:^\S.*\n)*)((?:^(?: .*)?\n?)+)", entries, re.MULTILINE)
    heads = [head for head, _, _ in found]
    assert len(heads) > 100
    assert heads == sorted(heads, key=str.lower)
    for head, _, definition in found:
        assert re.search(r"\]\(\.\./notebooks/\w+\.ipynb(?:#[\w-]+)?\)", definition), head
        assert not re.search(r"[Cc]hapter \d", definition), head


def test_a_chapter_with_symbols_of_its_own_says_so_and_no_other() -> None:
    text = (ROOT / "book" / "notation.md").read_text(encoding="utf8")
    groups = re.findall(r"^### \[.+\]\(\.\./notebooks/(\w+)\.ipynb\)$", text, re.MULTILINE)
    told = "../book/notation.md#"
    chapters = (ROOT / "notebooks").glob("*.ipynb")
    saying = [p.stem for p in chapters if told in p.read_text(encoding="utf8")]
    assert sorted(groups) == sorted(saying)
