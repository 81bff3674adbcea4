"""What can be said of the built pages without a browser."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest
from plotly.offline import get_plotlyjs_version

from tools.posters import digest

ROOT = Path(__file__).resolve().parents[2]
PLOTLY = "application/vnd.plotly.v1+json"
SCRIPT = re.compile(
    r'<div class="book-figure" id="fig-([^"]+)">.*?'
    r'<script type="application/json">(.*?)</script>',
    re.DOTALL,
)


def figures(page: Path) -> dict[str, dict]:
    """Return the figures of a page by name."""
    return {
        name: json.loads(blob) for name, blob in SCRIPT.findall(page.read_text(encoding="utf8"))
    }


def test_every_figure_of_a_notebook_is_on_its_page(site: Path) -> None:
    missing, seen = [], 0
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf8"))["cells"]
        page = site / "notebooks" / f"{path.stem}.html"
        shown = figures(page) if page.is_file() else {}
        for output in (o for cell in cells for o in cell.get("outputs", [])):
            figure = output.get("data", {}).get(PLOTLY)
            if figure:
                seen += 1
                name = figure["layout"]["meta"]["explorer"]["name"]
                if shown.get(name) != figure:
                    missing.append(f"{path.name}: {name}")
    assert not missing
    if not seen:
        pytest.fail("no notebook shows a figure", pytrace=False)


def test_only_pages_with_figures_load_plotly(pages: list[Path]) -> None:
    for page in pages:
        html = page.read_text(encoding="utf8")
        assert ("plotly-cartesian.min.js" in html) == ('class="book-figure"' in html), page.name


def test_the_plotly_of_the_pages_is_that_of_the_package() -> None:
    own = (ROOT / "book" / "_assets" / "plotly-cartesian.min.js").read_text(encoding="utf8")
    version = re.search(r"plotly\.js \(cartesian - minified\) v([\d.]+)", own)
    assert version
    assert version[1] == get_plotlyjs_version()


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


def test_a_page_weighs_little(site: Path, pages: list[Path]) -> None:
    """With its scripts, its styles and the icons, compressed as a server sends them."""
    sizes: dict[Path, int] = {}

    def size(path: Path) -> int:
        if path not in sizes:
            sizes[path] = len(gzip.compress(path.read_bytes(), 6))
        return sizes[path]

    icons = site / "_static" / "vendor" / "fontawesome" / "webfonts" / "fa-solid-900.woff2"
    heavy = {}
    for page in pages:
        html = page.read_text(encoding="utf8")
        names = {*re.findall(r'<(?:script|link)\b[^>]* (?:src|href)="([^"?]+\.(?:js|css))', html)}
        names |= {name.replace("tex-svg", "ui/lazy") for name in names if "tex-svg" in name}
        files = [icons, page, *((page.parent / name).resolve() for name in names)]
        if sum(map(size, files)) > 1.6e6:
            heavy[page.name] = sum(map(size, files))
    assert not heavy


def test_code_is_folded_under_a_line_that_says_what_it_shows(pages: list[Path]) -> None:
    wrong = {}
    for page in pages:
        html = page.read_text(encoding="utf8")
        cells = len(re.findall(r'<div class="cell [^"]*docutils container"', html))
        folds = re.findall(r'<span class="book-what">(.*?)</span>', html)
        if cells != len(folds) or {"", "Code"} & {*folds}:
            wrong[page.stem] = cells, folds
    assert not wrong


def test_every_client_function_exists(site: Path, pages: list[Path]) -> None:
    code = (site / "_static" / "book-clients.js").read_text(encoding="utf8")
    exported = re.findall(r"(\w+): \w+", re.search(r"return \{ ([^}]*) \};\n\}\)\(\);", code)[1])
    used = {
        figure["layout"]["meta"]["explorer"].get("client")
        for page in pages
        for figure in figures(page).values()
    }
    assert used - {None} <= set(exported)
