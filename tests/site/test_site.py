"""What can be said of the built pages without a browser."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _ext import book_recorded
from tests.site.reader import ROOT
from tools.posters import FIGURE, digest

PLOTLY = "application/vnd.plotly.v1+json"


def chapters() -> Iterator[tuple[Path, list[dict[str, Any]]]]:
    """Yield the file and the cells of every chapter."""
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        yield path, json.loads(path.read_text(encoding="utf8"))["cells"]


def figures(page: Path) -> dict[str, dict]:
    """Return the figures of a page by name."""
    return {
        name: json.loads(blob) for name, blob in FIGURE.findall(page.read_text(encoding="utf8"))
    }


def test_every_figure_of_a_notebook_is_on_its_page(site: Path) -> None:
    missing, seen = [], 0
    for path, cells in chapters():
        shown = figures(site / "notebooks" / f"{path.stem}.html")
        for output in (o for cell in cells for o in cell.get("outputs", [])):
            if PLOTLY in output.get("data", {}):
                figure = output["data"][PLOTLY]
                name = figure["layout"]["meta"]["explorer"]["name"]
                seen += 1
                if shown.get(name) != figure:
                    missing.append(f"{path.name}: {name}")
    assert seen
    assert missing == []


def test_a_page_marks_every_study_that_it_names_unless_it_is_of_this_code(site: Path) -> None:
    named = set()
    for page in (*site.glob("notebooks/*.html"), site / "book" / "training.html"):
        text = html.unescape(re.sub(r"<[^>]*>", "", page.read_text(encoding="utf8")))
        names = set(book_recorded.COMMAND.findall(text))
        named |= names
        for name in names:
            said = book_recorded.mark(name)
            line = f"{name}.json: {said[0]} (commit {said[1]})" if said else f"{name}.json: "
            assert text.count(line) == (said is not None), f"{page.name}: {line}"
    assert named == {path.stem for path in (ROOT / "results").glob("*.py")}


def test_only_pages_with_figures_load_plotly(pages: list[Path]) -> None:
    for page in pages:
        html = page.read_text(encoding="utf8")
        drawn = 'class="book-figure"' in html and 'class="book-front' not in html
        assert ("plotly-cartesian.min.js" in html) == drawn, page.name


def test_every_figure_has_a_poster_of_what_it_shows(site: Path, pages: list[Path]) -> None:
    wrong = []
    for page in pages:
        for name, figure in figures(page).items():
            poster = site / "_static" / "posters" / f"{name}.svg"
            # what a page computes anew may differ in a last digit
            mark = digest(figure) if page.parent.name == "notebooks" else "<svg"
            if not poster.is_file() or mark not in poster.read_text(encoding="utf8"):
                wrong.append(name)
    assert not wrong, f"make posters: {wrong}"


def test_what_a_plain_notebook_shows_is_linked_and_numbered(site: Path) -> None:
    page = (site / "notebooks" / "02_rope.html").read_text(encoding="utf8")
    name = r'href="../book/api/encoders.html#stringlib.encoders.rope.RoPE"[^>]*><code'
    assert re.search(name, page)
    assert re.search(r"Su <em>et al.</em> \[<a[^>]*bibliography.html#", page)
    assert '<figcaption>\n<p><span class="caption-number">Table 2.1' in page
    assert "Figure 2.1" in page
    assert 'class="book-state reference external" href="#fig=phase-clocks&amp;' in page


def test_every_span_for_a_figure_is_a_link(site: Path) -> None:
    pages = [page.read_text(encoding="utf8") for page in site.glob("notebooks/*.html")]
    assert not any("<span data-figure" in page for page in pages)
    assert sum(page.count('class="book-state') for page in pages) > 200


def test_all_pictures_of_a_cell_share_one_caption(site: Path) -> None:
    shared = 0
    for path, cells in chapters():
        own = [cell for cell in cells if "figure" in cell["metadata"].get("mystnb", {})]
        shared += sum(len(cell["outputs"]) > 1 for cell in own)
        html = (site / "notebooks" / f"{path.stem}.html").read_text(encoding="utf8")
        assert html.count('<span class="caption-number">Figure') == len(own), path.name
    assert shared, "no cell shows several pictures"


def test_chapters_are_numbered_as_the_table_of_contents_has_them(pages: list[Path]) -> None:
    titles, told = {}, set()
    for page in pages:
        html = page.read_text(encoding="utf8")
        title = re.search(r'<h1><span class="section-number">(\d+)\. ', html)
        titles[page.name] = title[1] if title else ""
        link = r'href="(?:[^"]*/)?(\d\d_\w+\.html)"><span[^>]*>[Cc]hapter (\d+)</span>'
        told |= {*re.findall(link, html)}
    assert told
    assert all(titles[name] == number for name, number in told)


def test_every_reference_is_cited_and_says_where(site: Path) -> None:
    html = (site / "book" / "bibliography.html").read_text(encoding="utf8")
    entries = html.partition('<dl class="book-references"')[2].partition("</dl>")[0].split("<dt ")
    known = re.findall(r"^@\w+\{", (ROOT / "book/references.bib").read_text(), re.MULTILINE)
    assert len(entries) - 1 == len(known), "an entry that no page cites is left out"
    for entry in entries[1:]:
        assert re.match(r'id="[^"]+">[^<]+, \d{4}[a-h]?</dt>', entry), entry[:80]
        assert 'class="reference external" href="https://' in entry
        assert re.search(r'"book-cited">Cited in <a class="reference internal" href="[^"]+#', entry)
