"""Draw the poster of every figure of the built book: its first state, for who has no JavaScript.

    python tools/posters.py _build/html     # writes book/_assets/posters/NAME.svg, live-NAME.png

A poster stands in the page until its figure is drawn. It has the light colours, is as wide as the
text on paper, and says in a comment of which figure it is, so that a test finds those out of date.
An instrument's is a photograph: of the front page, of the page where others stand, and of the walk.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from PIL import Image

from lab.console import allow_every_letter
from tools.browser import needed

POSTERS = Path(__file__).resolve().parents[1] / "book" / "_assets" / "posters"
INSTRUMENTS = (
    ("intro", "", 2400),
    ("try", "", 2400),
    ("walk", "#live=walk&stop=rope", 760),
)
"""Pages with instruments, the state in which they begin, and a window higher than any of them."""
DRAW = """async () => {
  window.dispatchEvent(new Event("beforeprint"));
  const found = [];
  for (const box of document.querySelectorAll(".book-figure")) {
    const plot = box.querySelector(".book-plot"), size = {width: 640, height: plot.clientHeight};
    const url = await Plotly.toImage(plot, Object.assign({format: "svg"}, size));
    found.push([box.querySelector("script").textContent, url]);
  }
  return found;
}"""


def digest(figure: dict[str, Any]) -> str:
    """Return what tells whether a poster is of this figure as it stands."""
    first = {part: figure[part] for part in ("data", "layout")}
    return hashlib.sha256(json.dumps(first, sort_keys=True).encode()).hexdigest()[:16]


def tidy(svg: str) -> str:
    """Round coordinates, and number the names that plotly draws by lot."""
    # coordinates alone: the numbers that a figure writes stay
    svg = re.sub(
        r'(\s(?:d|transform|points|x|y|width|height)=")([^"]*)',
        lambda match: match[1] + re.sub(r"(\d+\.\d\d)\d+", r"\1", match[2]),
        svg,
    )
    svg = re.sub(r"(?<=cb)[0-9a-f]{6}| trace[0-9a-f]{6}(?=[ \"])", "", svg)
    svg = svg.replace(' style=""', "")  # which is there now and then
    names = [*dict.fromkeys(re.findall(r'id="([^"]+)"', svg))]
    for number, name in sorted(enumerate(names), key=lambda item: -len(item[1])):
        svg = re.sub(rf"(?<=[\"#]){re.escape(name)}(?=[\"')&])", f"i{number}", svg)
    return svg


def photograph(page: Any, height: int) -> int:
    """Write the posters of a page's instruments, each once it has come to rest."""
    page.set_viewport_size({"width": 1280, "height": height})
    page.add_style_tag(content=":is(.bd-header-article, .skip-link) { display: none !important; }")
    boxes = page.locator(".book-live")
    for box in boxes.all():
        box.scroll_into_view_if_needed()
        name = box.get_attribute("id")
        page.locator(f"#{name}[data-ready]").wait_for()
        seen, before = box.screenshot(), b""
        while seen != before:
            page.wait_for_timeout(2000)
            seen, before = box.screenshot(), seen
        image = Image.open(io.BytesIO(seen)).quantize()
        image.save(POSTERS / f"{name}.png", optimize=True)
    return int(boxes.count())


def write(root: Path) -> int:
    """Write the posters of every page below ``root``, and return how many."""
    from playwright.sync_api import sync_playwright

    POSTERS.mkdir(exist_ok=True)
    drawn = set()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=needed(), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
        for path in sorted(root.rglob("*.html")):
            if 'class="book-figure"' not in path.read_text(encoding="utf8"):
                continue
            page.goto(path.resolve().as_uri())
            for text, url in page.evaluate(DRAW):
                figure = json.loads(text)
                name = figure["layout"]["meta"]["explorer"]["name"]
                svg = tidy(unquote(url.partition(",")[2]))
                mark = f"<!-- {digest(figure)} -->"
                (POSTERS / f"{name}.svg").write_text(f"{svg}{mark}\n", encoding="utf8")
                drawn.add(name)
        page.emulate_media(reduced_motion="reduce")
        live = 0
        for name, state, height in INSTRUMENTS:
            page.goto((root / "book" / f"{name}.html").resolve().as_uri() + state)
            live += photograph(page, height)
        browser.close()
    for path in POSTERS.glob("*.svg"):
        if path.stem not in drawn:
            path.unlink()
    return len(drawn) + live


def main(argv: Sequence[str] | None = None) -> int:
    """Draw them."""
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", type=Path, help="folder of the built pages")
    print(f"{write(parser.parse_args(argv).root)} posters in {POSTERS.name}")
    return 0


if __name__ == "__main__":
    allow_every_letter()
    sys.exit(main())
