"""The book on paper: a cover, every figure and instrument as its poster, nothing over the text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.site.reader import DESKTOP, Reader
from tools.pdf import joined

PAGES = ("book/intro", "book/walk", "notebooks/20_vision_transformer")
PAPER = {"width": 673, "height": 1000}
"""What is between the margins of A4."""
LONGEST = 362
"""Pixels: no poster is higher on paper, so that no more than a third of a page stays empty."""
WRONG = """() => {
  const rect = (node) => node.getBoundingClientRect(), found = [];
  const boxes = [...document.querySelectorAll(".book-figure, .book-live")];
  for (const box of boxes) {
    const name = box.id, say = (what) => found.push(`${name}: ${what}`);
    const shown = [...box.querySelectorAll(".book-poster, .book-plot, .live-poster")]
      .filter((node) => node.checkVisibility());
    if (shown.length !== 1) { say(`${shown.length} pictures`); continue; }
    const [picture] = shown, outer = rect(box), inner = rect(picture);
    if (picture.matches("img") ? !picture.naturalWidth : !picture.querySelector("svg")) {
      say("an empty picture");
    }
    if (inner.height < 80 || inner.width < 200) { say("a small picture"); }
    if (inner.top < outer.top - 1 || inner.bottom > outer.bottom + 1
        || inner.left < outer.left - 1 || inner.right > outer.right + 1) {
      say("a picture larger than its box");
    }
    if (inner.height > LONGEST) { say(`${inner.height} pixels high`); }
    const texts = document.createTreeWalker(
      box.closest(".bd-article"), NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
      const text = texts.currentNode;
      if (!text.data.trim() || picture.contains(text)
          || !text.parentElement.checkVisibility()) { continue; }
      const range = document.createRange();
      range.selectNode(text);
      for (const line of range.getClientRects()) {
        if (line.bottom > inner.top + 2 && line.top < inner.bottom - 2
            && line.right > inner.left + 2 && line.left < inner.right - 2) {
          say(`a picture over "${text.data.trim().slice(0, 40)}"`);
          break;
        }
      }
    }
  }
  return [boxes.length, found];
}""".replace("LONGEST", str(LONGEST))


def test_the_printed_book_begins_with_a_cover_and_no_picture_lies_on_text(
    browser: Any, site: Path, tmp_path: Path
) -> None:
    whole = joined(site, [(name, "") for name in PAGES])
    assert whole.head is not None
    whole.head.insert(0, whole.new_tag("base", href=(site / "book" / "intro.html").as_uri()))
    path = tmp_path / "whole.html"
    path.write_text(str(whole), encoding="utf8")
    window = Reader(browser, color_scheme="light", **DESKTOP)
    window.page.goto(path.as_uri())
    window.page.emulate_media(media="print")
    window.page.set_viewport_size(PAPER)
    count, wrong = window.page.evaluate(WRONG)
    assert (count, wrong) == (len(whole.select(".book-figure, .book-live")), [])
    cover = window.page.locator(".bd-article-container .book-cover:first-child")
    assert "Position Encodings and Linear Attention" in cover.inner_text()
    assert cover.locator("img").evaluate("image => image.naturalWidth") > 0
    assert cover.evaluate("box => getComputedStyle(box).breakAfter") == "page"
    assert not window.complaints
    window.close()


@pytest.mark.parametrize("name", ["book/try", "notebooks/02_rope"])
def test_a_page_prints_the_posters_of_its_instruments(name: str, browser: Any, site: Path) -> None:
    window = Reader(browser, color_scheme="dark", **DESKTOP)
    window.page.goto((site / f"{name}.html").as_uri())
    window.page.pdf(format="A4")  # asks for pictures that nobody has come near
    window.page.emulate_media(media="print")
    window.page.set_viewport_size(PAPER)
    boxes = window.page.locator(".book-live")
    for box in boxes.all():
        picture = box.locator(".live-poster")
        assert picture.evaluate("image => image.naturalWidth") > 0
        key = box.get_attribute("id")
        assert box.inner_text().strip() == f"Interactive version: {name}.html#{key}"
    assert boxes.count() > 0
    window.close()
