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
HIGHEST = {"book-figure": 362, "book-live": 590}
"""Pixels of a picture: the rest of a page cannot stay empty because a high one does not fit."""
WRONG = """(highest) => {
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
    if (inner.height > highest[box.classList[0]]) { say(`${inner.height} pixels high`); }
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
}"""


def on_paper(page: Any) -> tuple[int, list[str]]:
    """Return how many figures and instruments a page prints, and what is wrong with them."""
    page.set_viewport_size(PAPER)
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    count, wrong = page.evaluate(WRONG, HIGHEST)
    return count, wrong


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
    assert on_paper(window.page) == (len(whole.select(".book-figure, .book-live")), [])
    cover = window.page.locator(".book-cover")
    assert cover.bounding_box()["y"] < 20
    assert "Position Encodings and Linear Attention" in cover.inner_text()
    assert cover.locator("img").evaluate("image => image.naturalWidth") > 0
    assert cover.evaluate("box => getComputedStyle(box).breakAfter") == "page"
    assert not window.complaints
    window.close()


@pytest.mark.parametrize("name", ["book/try", "notebooks/25_positions_that_tokens_decide"])
def test_a_page_prints_its_figures_and_the_posters_of_its_instruments(
    name: str, browser: Any, site: Path
) -> None:
    window = Reader(browser, color_scheme="dark", **DESKTOP)
    window.page.goto((site / f"{name}.html").as_uri())
    window.page.pdf(format="A4")  # asks for the pictures that nobody has come near
    count, wrong = on_paper(window.page)
    assert (count > 0, wrong) == (True, [])
    for box in window.page.locator(".book-live").all():
        key = box.get_attribute("id")
        assert box.inner_text().strip() == f"Interactive version: {name}.html#{key}"
    window.close()


def test_a_page_prints_no_shadow_as_a_picture_and_every_column(browser: Any, site: Path) -> None:
    window = Reader(browser, color_scheme="light", **DESKTOP)
    window.page.goto((site / "book" / "released_models.html").as_uri())
    assert b"/DCTDecode" not in window.page.pdf(format="A4")
    on_paper(window.page)
    assert window.page.locator("td.book-amount").first.is_visible()
    window.close()
