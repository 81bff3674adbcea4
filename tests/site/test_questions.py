"""Questions at the end of a chapter: the page checks an answer, says why, and remembers it.

How a number is judged is tested in tests/test_page_scripts.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.site.reader import Reader, reload_until

KEPT = "JSON.parse(localStorage.getItem('book-reader'))?.answers"
NUMBER = "document.querySelectorAll('.book-question')[1].querySelector('input')"
DISABLED = "document.querySelector('.book-question input:disabled')"


def asked(page: Any, site: Path, stem: str, number: int) -> Any:
    """Open a chapter and return one of its questions."""
    page.goto((site / "notebooks" / f"{stem}.html").as_uri())
    return page.locator(".book-question").nth(number)


def test_a_number_may_be_tried_again_and_is_remembered(fresh: Reader, site: Path) -> None:
    page, box = fresh.page, asked(fresh.page, site, "02_rope", 1)  # 15 tokens
    field, told, fold = (box.locator(name) for name in ("input", "[role=status]", "details"))
    field.fill("1e4")
    box.locator("button").click()
    assert "1e4 is too large" in told.inner_text()
    assert fold.get_attribute("open") is None
    for text in ("15.1", " 1.5e1 "):
        page.reload()
        field.fill(text)
        field.press("Enter")
        assert told.inner_text() == "Right. The explanation is below."
        assert fold.locator("p").last.is_visible()
    assert page.evaluate(KEPT) == {"notebooks/02_rope.html": {"1": " 1.5e1 "}}
    page.reload()
    reload_until(page, f"{NUMBER}.value")
    assert fold.locator(".book-value").inner_text() == "Answer: 15 tokens."
    page.goto((site / "book" / "intro.html").as_uri())
    page.evaluate("localStorage.removeItem('book-reader')")  # as its button does
    box = asked(page, site, "02_rope", 1)
    reload_until(page, f"!({KEPT}) && !{NUMBER}.value")
    assert box.locator("input").input_value() == ""
    assert fold.get_attribute("open") is None


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (0, "Not right. The answer is: those of the two copies of the. The explanation is below."),
        (2, "Right. The explanation is below."),
    ],
)
def test_a_choice_is_made_once(place: int, said: str, fresh: Reader, site: Path) -> None:
    page, box = fresh.page, asked(fresh.page, site, "01_why_positions", 0)
    radios = box.locator("input")
    radios.first.focus()
    for _ in range(place):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    for _ in range(2):
        assert box.locator("[role=status]").inner_text() == said
        assert box.locator("input:disabled").count() == radios.count()
        assert radios.nth(place).is_checked()
        assert box.locator("details p").last.is_visible()
        assert box.locator("li.book-shown").count() == 1
        page.reload()
        reload_until(page, DISABLED)


def test_a_question_is_shown_by_a_key_and_heard_as_one(reader: Reader, site: Path) -> None:
    box = asked(reader.page, site, "02_rope", 0)
    field, summary = box.locator("input"), box.locator("summary")
    assert box.get_attribute("aria-label") == "Question 1"
    told_by = [f"#{name}" for name in field.get_attribute("aria-describedby").split()]
    words = [reader.page.locator(name).inner_text() for name in told_by]
    assert "32 pairs" in words[0]
    assert words[1] == "pairs"
    assert box.get_by_label("Your answer").count() == 1
    summary.press("Enter")
    assert box.locator(".book-value").is_visible()
    assert summary.inner_text() == "Hide the answer"
    summary.press("Enter")
    assert not box.locator(".book-value").is_visible()


def test_without_a_script_the_answer_stands_in_a_fold(plain: Any, site: Path) -> None:
    box = asked(plain, site, "02_rope", 0)
    assert box.locator("input").count() == 0
    assert not box.locator(".book-value").is_visible()
    box.locator("summary").tap()
    assert box.locator(".book-value").inner_text() == "Answer: 18 pairs."
