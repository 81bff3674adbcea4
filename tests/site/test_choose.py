"""The page that chooses a method: its tables sort, and the front page's questions lead to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.site.reader import WINDOWS, Reader

COLUMN = """([table, head]) => {
  const n = [...table.tHead.rows[0].cells].findIndex(c => c.textContent.trim() === head);
  return [...table.tBodies[0].rows].map(row => row.cells[n].textContent.trim());
}"""


def test_every_table_sorts_by_every_heading(site: Path, reader: Reader) -> None:
    reader.open(site / "book" / "choose.html")
    tables = reader.page.query_selector_all("table.book-sortable")
    assert len(tables) == 2
    for table in tables:
        heads = [h.text_content().strip() for h in table.query_selector_all("thead th")]
        before = sorted(reader.page.evaluate(COLUMN, [table, heads[0]]))
        for head, button in zip(heads, table.query_selector_all("thead button"), strict=True):
            button.focus()
            for key, said in (("Enter", "ascending"), ("Space", "descending")):
                button.press(key)
                cells = reader.page.evaluate(COLUMN, [table, head])
                sorted_by = table.query_selector_all("th[aria-sort]")
                assert [h.get_attribute("aria-sort") for h in sorted_by] == [said]
                known = [cell for cell in cells if cell != "–"]
                assert cells == known + ["–"] * (len(cells) - len(known))
                numbers = [float(c.split()[0].replace(",", "").replace("−", "-")) for c in known
                           if c.lstrip("+−")[:1].isdigit()]  # fmt: skip
                assert numbers == sorted(numbers, reverse=said == "descending")
        assert sorted(reader.page.evaluate(COLUMN, [table, heads[0]])) == before


def test_names_stay_in_sight_while_a_table_scrolls(site: Path, phone: Reader) -> None:
    phone.open(site / "book" / "choose.html")
    for table in phone.page.query_selector_all("table.book-sortable"):
        name = table.query_selector("tbody th")
        box = table.evaluate_handle("t => t.parentElement").as_element()
        assert box.get_attribute("tabindex") == "0"
        assert box.get_attribute("aria-label")
        box.evaluate("b => { b.scrollLeft = 200; }")
        assert name.bounding_box()["x"] == pytest.approx(box.bounding_box()["x"], abs=2)


def test_without_a_script_the_tables_stand(site: Path, browser: Any) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((site / "book" / "choose.html").as_uri())
    rows = [len(t.query_selector_all("tbody tr")) for t in page.query_selector_all("table")]
    assert min(rows) > 10
    assert page.query_selector("table.book-sortable button") is None
    context.close()


def test_every_question_of_the_front_page_has_its_answer(site: Path, reader: Reader) -> None:
    reader.open(site / "book" / "intro.html")
    links = reader.page.query_selector_all(".book-front a[href^='choose.html#']")
    targets = [link.get_attribute("href") for link in links]
    assert len(targets) >= 4
    for target in targets:
        reader.page.goto((site / "book").as_uri() + "/" + target)
        place = reader.page.query_selector("#" + target.partition("#")[2])
        assert place.bounding_box()["y"] < reader.page.viewport_size["height"]


@pytest.mark.parametrize("window", WINDOWS)
def test_the_front_page_fits(site: Path, readers: dict[str, Reader], window: str) -> None:
    """Figure, questions and results: one screen of a laptop, two of a phone."""
    reader = readers[window]
    size = reader.page.viewport_size
    if window == "desktop":
        reader.page.set_viewport_size({"width": 1440, "height": 900})
    reader.open(site / "book" / "intro.html")
    reader.page.evaluate("scrollTo(0, 0)")
    screen = 900 if window == "desktop" else 2 * size["height"]
    for part in (".book-front .book-panel", ".book-front li:last-child"):
        for found in reader.page.query_selector_all(part):
            box = found.bounding_box()
            assert box["y"] + box["height"] <= screen
    reader.page.set_viewport_size(size)
