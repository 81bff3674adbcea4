"""Formulas in the pages: as wide as MathJax sets them, without a script, copied as TeX."""

from __future__ import annotations

import html
import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
from fontTools.ttLib import TTFont

from _ext import book_math
from tests.site.reader import Reader

WIDTHS = """() => [...document.querySelectorAll("math")].map(one =>
  one.getBoundingClientRect().width / parseFloat(getComputedStyle(one).fontSize))"""
MATHJAX_WIDTHS = """formulas => formulas.map(([tex, display]) => {
  const drawn = MathJax.tex2svg(tex, {display}).querySelector("svg");
  return Number(drawn.getAttribute("viewBox").split(" ")[2]) / 1000;  // in em
})"""
CONFIG = "window.MathJax = {startup: {typeset: false}, tex: {macros: {R: '\\\\mathbb{R}'}}}"
# looked at, and right: small fractions stand closer here, the brackets of a binomial further apart
LOOKED_AT = {
    r"\frac14, \frac1{16}, \frac1{64}, \frac1{256}",
    r"\sqrt{\binom pr}\,(j/M)^r",
}
PLANCK = "\U0001d455"  # a place without a letter: h is ℎ
COPY = """() => {
  const clipboard = new DataTransfer();
  document.dispatchEvent(new ClipboardEvent("copy", {clipboardData: clipboard, bubbles: true}));
  return clipboard.getData("text/plain");
}"""
TORN = """() => [...document.querySelectorAll(".bd-article .math > math")].filter(one => {
  const next = one.parentElement.nextSibling;
  if (next?.nodeType !== Node.TEXT_NODE || !/^[.,;:)]/.test(next.data)) { return false; }
  const comma = document.createRange();
  comma.setStart(next, 0);
  comma.setEnd(next, 1);
  return comma.getBoundingClientRect().left < one.getBoundingClientRect().right - 4;
}).map(one => one.textContent)"""


@pytest.fixture(scope="module")
def formulas(pages: list[Path]) -> list[str]:
    """Every formula of the book, as MathML, each once."""
    texts = (page.read_text(encoding="utf8") for page in pages)
    found = [*dict.fromkeys(one for text in texts for one in book_math.FORMULA.findall(text))]
    assert len(found) > 2500
    return found


def tex(formula: str) -> tuple[str, bool]:
    """Return a formula's TeX, and whether it stands on a line of its own."""
    said = re.search(r"<annotation[^>]*>(.*?)</annotation>", formula, re.DOTALL)
    return html.unescape(said[1]), 'display="block"' in formula


def test_every_formula_is_as_wide_as_mathjax_sets_it(
    formulas: list[str], site: Path, browser: Any, tmp_path: Path
) -> None:
    """MathJax is another program with fonts of its own: what Temml misreads has another width."""
    window = browser.new_page()
    styles = (site / "_static" / "book-math.css").as_uri()
    inline = "math { display: inline math !important; min-width: 0 !important; }"
    body = "".join(f"<p>{one}</p>" for one in formulas)
    page = tmp_path / "formulas.html"
    page.write_text(
        f"<!doctype html><meta charset=utf8><link rel=stylesheet href='{styles}'>"
        f"<style>{inline} p {{ width: 4000px }}</style><body>{body}",
        encoding="utf8",
    )
    window.goto(page.as_uri())
    window.evaluate("document.fonts.ready.then(() => null)")
    got = window.evaluate(WIDTHS)

    wheel = importlib.util.find_spec("sphinx-mathjax-offline").submodule_search_locations
    window.set_content("<p></p>")
    window.evaluate(CONFIG)
    window.add_script_tag(path=Path(next(iter(wheel))) / "static" / "mathjax" / "tex-svg.js")
    window.evaluate("async () => { await MathJax.startup.promise; }")
    want = window.evaluate(MATHJAX_WIDTHS, [tex(one) for one in formulas])
    window.close()

    off = {
        source: f"{here:.2f} em, MathJax {there:.2f}"
        for (source, _), here, there in zip(map(tex, formulas), got, want, strict=True)
        if abs(here - there) > max(0.12 * there, 0.6)
    }
    assert off.keys() == LOOKED_AT, off
    assert 0.95 < sum(got) / sum(want) < 1.05


def test_the_font_has_every_character(site: Path, formulas: list[str]) -> None:
    known = TTFont(site / "_static" / "book-math.woff2").getBestCmap().keys()
    needed = book_math.characters(formulas)
    assert {chr(c) for c in needed - known} <= {"\u2061", PLANCK}


def test_formulas_stand_without_a_script(plain: Any, site: Path) -> None:
    plain.goto((site / "notebooks" / "02_rope.html").as_uri())
    shown = plain.locator("article section section .math > math")
    assert shown.count() > 100
    assert shown.first.bounding_box()["width"] > 0
    assert not plain.locator("annotation").first.is_visible()


def test_what_is_copied_has_its_formulas_in_tex(reader: Reader, site: Path) -> None:
    reader.open(site / "notebooks" / "02_rope.html", draw=False)
    box = reader.page.locator(".bd-article p:has(> .math)").first
    want = box.evaluate(
        "p => [...p.querySelectorAll('annotation')].map(one => `$${one.textContent}$`)"
    )
    box.evaluate("p => getSelection().selectAllChildren(p)")
    copied = reader.page.evaluate(COPY)
    assert all(one in copied for one in want)
    assert copied.count("$") == 2 * len(want)


def test_a_comma_stays_on_the_line_of_its_formula(phone: Reader, site: Path) -> None:
    phone.open(site / "notebooks" / "02_rope.html", draw=False)
    assert phone.page.evaluate(TORN) == []
