"""Questions at the end of a chapter: the page checks an answer, says why, and remembers it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.site.reader import DESKTOP, PHONE, Reader

KEPT = "JSON.parse(localStorage.getItem('book-reader'))?.answers"


def chapter(pages: list[Path], stem: str) -> str:
    return next(page for page in pages if page.stem == stem).as_uri()


def asked(window: Reader, pages: list[Path], stem: str, number: int) -> Any:
    """Open a chapter and return one of its questions."""
    window.page.goto(chapter(pages, stem))
    return window.page.locator(".book-question").nth(number)


def test_a_number_may_be_tried_again_and_is_remembered(browser: Any, pages: list[Path]) -> None:
    window = Reader(browser, **DESKTOP)
    box = asked(window, pages, "02_rope", 1)  # 15 tokens
    field, told, fold = (box.locator(name) for name in ("input", "[role=status]", "details"))
    tries = {
        "fifteen": "Write a number",
        "-15": "has the wrong sign",
        "30": "off by a factor of two",
        "4": "4 is too small",
        "1e4": "1e4 is too large",
        "10,000": "10,000 is too large",
    }
    for text, said in tries.items():
        field.fill(text)
        box.locator("button").click()
        assert said in told.inner_text()
        assert fold.get_attribute("open") is None
    for text in ("30/2", "15.1", "1.5e1", " 15 "):  # within 1%
        window.page.reload()
        field.fill(text)
        field.press("Enter")
        assert told.inner_text() == "Right. Read why."
        assert fold.locator("p").last.is_visible()
    assert window.page.evaluate(KEPT) == {"notebooks/02_rope.html": {"1": " 15 "}}
    window.page.reload()
    assert fold.locator(".book-value").inner_text() == "Answer: 15 tokens."
    window.page.goto(chapter(pages, "intro"))
    window.page.evaluate("localStorage.removeItem('book-reader')")  # as its button does
    box = asked(window, pages, "02_rope", 1)
    assert box.locator("input").input_value() == ""
    assert fold.get_attribute("open") is None
    window.close()


@pytest.mark.parametrize("place", [0, 2])
def test_a_choice_is_made_once(place: int, browser: Any, pages: list[Path]) -> None:
    window = Reader(browser, **DESKTOP)
    box = asked(window, pages, "01_why_positions", 0)  # the third is right
    radios, told = box.locator("input"), box.locator("[role=status]")
    radios.first.focus()
    for _ in range(place):
        window.page.keyboard.press("ArrowDown")
    window.page.keyboard.press("Enter")
    for _ in range(2):
        said = (
            "Right. Read why."
            if place == 2
            else "Not this one, but: those of the two the. Read why."
        )
        assert told.inner_text() == said
        assert box.locator("input:disabled").count() == radios.count()
        assert radios.nth(place).is_checked()
        assert box.locator("details p").last.is_visible()
        assert box.locator("li.book-shown").count() == 1
        window.page.reload()
    window.close()


def test_a_question_is_shown_by_a_key_and_heard_as_one(reader: Reader, pages: list[Path]) -> None:
    box = asked(reader, pages, "02_rope", 0)
    field, summary = box.locator("input"), box.locator("summary")
    assert box.get_attribute("aria-label") == "Question 1"
    told_by = [f"#{name}" for name in field.get_attribute("aria-describedby").split()]
    words = [reader.page.locator(name).inner_text() for name in told_by]
    assert "32 pairs" in words[0]
    assert words[1] == "pairs"
    assert box.get_by_label("Your answer").count() == 1
    summary.press("Enter")
    assert box.locator(".book-value").is_visible()
    assert summary.inner_text() == "Hide"
    summary.press("Enter")
    assert not box.locator(".book-value").is_visible()


def test_without_a_script_the_answer_stands_in_a_fold(browser: Any, pages: list[Path]) -> None:
    page = browser.new_context(**PHONE, java_script_enabled=False).new_page()
    page.goto(chapter(pages, "02_rope"))
    box = page.locator(".book-question").first
    assert box.locator("input").count() == 0
    assert not box.locator(".book-value").is_visible()
    box.locator("summary").tap()
    assert box.locator(".book-value").inner_text() == "Answer: 18 pairs."
