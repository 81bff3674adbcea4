"""The map of methods, and tables that sort."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import pytest

from _ext import book_methods, book_released
from book import methods
from tests.site.reader import WINDOWS, Reader

SHOWN = """() => [...document.querySelectorAll(".book-method")]
  .filter(row => row.checkVisibility()).map(row => row.id)"""
COLUMN = """([table, head]) => {
  const n = [...table.tHead.rows[0].cells].findIndex(c => c.textContent.trim() === head);
  return [...table.tBodies[0].rows].map(row => row.cells[n].textContent.trim());
}"""


@pytest.mark.parametrize(
    ("page", "count"),
    [("book/released_models", len(book_released.TABLES)), ("notebooks/23_speed", 2)],
)
def test_every_table_sorts_by_every_heading(
    site: Path, reader: Reader, page: str, count: int
) -> None:
    reader.open(site / f"{page}.html", draw=False)
    reader.page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    tables = reader.page.query_selector_all("table.book-sortable")
    assert len(tables) == count
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
                begins = [re.match(r"[+−]?\d[\d,]*(\.\d+)?", cell) for cell in known]
                numbers = [float(n[0].replace(",", "").replace("−", "-")) for n in begins if n]
                assert numbers == sorted(numbers, reverse=said == "descending")
        assert sorted(reader.page.evaluate(COLUMN, [table, heads[0]])) == before


def shown(reader: Reader) -> list[str]:
    """Return the methods whose rows are to be seen, in their order."""
    found: list[str] = reader.page.evaluate(SHOWN)
    return [name.removeprefix("method-") for name in found]


def pressed(reader: Reader) -> list[str]:
    buttons = reader.page.query_selector_all(".book-needs button[aria-pressed=true]")
    return [button.get_attribute("id").removeprefix("need-") for button in buttons]


@functools.cache
def rows_of(kind: str) -> list[methods.Row]:
    return book_methods.KINDS[kind][1]()


def having(*needs: str) -> set[str]:
    """Return the methods that have all of this, or of which it is no question."""
    kinds = [need for need in needs if need in book_methods.KINDS] or [*book_methods.KINDS]
    asked = [methods.NEEDS[need] for need in needs if need in methods.NEEDS]
    return {
        row.name
        for kind in kinds
        for row in rows_of(kind)
        if all(kind not in need.holds or need.holds[kind](row.cells) for need in asked)
    }


@pytest.mark.parametrize("window", WINDOWS)
def test_rows_stay_that_have_what_is_pressed(
    site: Path, readers: dict[str, Reader], window: str
) -> None:
    """By keys, by touch, and again from the address."""
    reader, path = readers[window], site / "book" / "choose.html"
    reader.open(path)
    every, done = shown(reader), []
    assert set(every) == having()
    said = reader.page.query_selector(".book-needs [role=status]")
    for need in ("encoders", "images", "relative", "folds"):
        button = reader.page.query_selector(f"#need-{need}")
        if window == "phone":
            assert button.bounding_box()["height"] >= 44
            button.tap()
        else:
            button.focus()
            button.press("Enter" if need == "images" else "Space")
        done.append(need)
        assert set(pressed(reader)) == set(done)
        assert set(shown(reader)) == having(*done)
        assert said.text_content() == f"{len(having(*done))} of 14 position encodings"
        assert reader.page.evaluate("location.hash") == f"#need={','.join(done)}"
    marks = reader.page.query_selector_all("[data-measure=images].book-mark")
    orders = [float(m.get_attribute("data-order")) for m in marks if m.is_visible()]
    assert len(orders) == len(having(*done))
    assert orders == sorted(orders)
    row = reader.page.query_selector("#method-cayley")
    row.query_selector("summary").click()
    assert "What did not work" in row.inner_text()

    reader.page.query_selector("#need-text").click()  # which lets go of images
    assert pressed(reader) == ["encoders", "text", "relative", "folds"]
    assert shown(reader) == []
    assert said.text_content() == "No method has all of these properties."
    for need in pressed(reader):
        reader.page.query_selector(f"#need-{need}").click()
    assert shown(reader) == every

    reader.open(path, "#need=attentions,state,lookup")
    assert set(shown(reader)) == having("attentions", "state", "lookup") == {"relu", "elu"}
    reader.page.evaluate("location.hash = '#method-softmax'")  # of one that is away
    reader.page.wait_for_function("document.querySelector('#method-softmax').open")
    assert shown(reader) == every
    assert not reader.faults()


def test_every_answer_shows_its_methods(site: Path, reader: Reader) -> None:
    path = site / "book" / "choose.html"
    reader.open(path)
    links = reader.page.query_selector_all("a.book-shows")
    targets = [link.get_attribute("href") for link in links]
    assert len(targets) >= 10
    for target in targets:
        reader.page.query_selector(f'a[href="{target}"]').click()
        needs = target.partition("=")[2].split(",")
        reader.page.wait_for_function("() => document.activeElement.matches('.book-map')")
        assert set(pressed(reader)) == set(needs)
        assert set(shown(reader)) == having(*needs) != set()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("window", WINDOWS)
def test_a_map_with_an_open_row_shuts_nobody_out(
    site: Path, readers: dict[str, Reader], window: str, theme: str
) -> None:
    reader = readers[window]
    reader.open(site / "book" / "choose.html", "#need=images,state")
    reader.dress(theme)
    for name in ("axial", "favor"):
        reader.page.query_selector(f"#method-{name} > summary").click()
    assert reader.faults() + reader.barriers() == []


def test_without_a_script_the_map_stands_and_opens(site: Path, plain: Any) -> None:
    plain.goto((site / "book" / "choose.html").as_uri())
    rows = plain.query_selector_all(".book-method")
    assert len(rows) == len(having())
    assert all(row.is_visible() for row in rows)
    assert not plain.query_selector("#need-text").is_visible()
    assert not plain.query_selector("a.book-shows").is_visible()
    row = plain.query_selector("#method-gla")
    row.query_selector("summary").click()
    assert row.query_selector("dl").is_visible()
