"""What can be said of the built pages without a browser."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

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


def test_every_client_function_exists(site: Path, pages: list[Path]) -> None:
    code = (site / "_static" / "book-clients.js").read_text(encoding="utf8")
    exported = re.findall(r"(\w+): \w+", re.search(r"return \{ ([^}]*) \};\n\}\)\(\);", code)[1])
    used = {
        figure["layout"]["meta"]["explorer"].get("client")
        for page in pages
        for figure in figures(page).values()
    }
    assert used - {None} <= set(exported)
