"""Draw the poster of each changed figure of the built book: its first state, without JavaScript.

    python tools/posters.py _build/html     # writes book/_assets/posters/NAME.svg, live-NAME.png

A poster stands in the page until its figure is drawn. It has the light colours, is as wide as the
text on paper, and says in a comment of which figure it is, so that a test finds those out of date.
An instrument's is a photograph, one for each state in which it begins, on the first page with it.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

from PIL import Image

from lab.console import allow_every_letter
from lab.explore.poster import POSTERS, digest, poster
from tools.browser import needed

SVG = "{http://www.w3.org/2000/svg}"
ElementTree.register_namespace("", SVG.strip("{}"))
ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")
COORDINATES = {"d", "height", "points", "transform", "width", "x", "y"}
DECIMALS = re.compile(r"-?\d+\.\d+")
STILL = "M0,0"  # a path that leads nowhere
RGB = re.compile(r"rgb\((\d+), (\d+), (\d+)\)")
# what holds without saying so, or is said once for the whole picture
DEFAULT = re.compile(
    "(fill-|stroke-)?opacity:1|vector-effect:none|stroke-miterlimit:2|white-space:pre"
    "|font-family:.*"
)
FIGURE = re.compile(
    r'<div class="book-figure" id="fig-([^"]+)"[^>]*>.*?'
    r'<script type="application/json">(.*?)</script>',
    re.DOTALL,
)
LIVE = re.compile(r'class="live-poster"[^>]* src="[^"]*/([^/"]+)\.png"')
WALK, STATE = "walk.html", "#live=walk&stop=rope"
"""The page whose instrument is as high as the window, and the state in which it is photographed."""
DRESS = """:is(.bd-header-article, .skip-link) { display: none !important; }
#live-encoder { width: 60rem; }"""
"""Nothing in front of an instrument; and room for the widest one, also in the text of a chapter."""
REVEAL = """() => document.querySelectorAll(".book-answer[hidden]").forEach(
  (answer) => answer.dispatchEvent(new Event("beforematch")))"""
"""Some instruments stand in the answer to a prediction."""
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


def tidy(svg: str) -> str:
    """Return a poster as plotly wrote it, less all that a browser draws the same without.

    Names that plotly draws by lot are numbered, coordinates are in tenths of a pixel.
    """
    svg = re.sub(r"(?<=cb)[0-9a-f]{6}| trace[0-9a-f]{6}(?=[ \"])", "", svg)
    names = [*dict.fromkeys(re.findall(r'id="([^"]+)"', svg))]
    for number, name in sorted(enumerate(names), key=lambda item: -len(item[1])):
        svg = re.sub(rf"(?<=[\"#]){re.escape(name)}(?=[\"')&])", f"i{number}", svg)
    root = ElementTree.fromstring(svg)
    prune(root)
    used = set(re.findall(r"#(i\d+)", ElementTree.tostring(root, "unicode")))
    for parent in root.iter():
        for child in [c for c in parent if c.tag == f"{SVG}clipPath" and c.get("id") not in used]:
            parent.remove(child)
        if parent.get("id") not in used:
            parent.attrib.pop("id", None)
    prune(root)
    root.set("font-family", "system-ui, sans-serif")
    root.set("stroke-miterlimit", "2")
    return ElementTree.tostring(root, "unicode")


def prune(element: ElementTree.Element, clips: bool = False) -> list[ElementTree.Element]:
    """Shorten an element and all below it, in place, and return what is left of it.

    Args:
        element: The element.
        clips: Whether it lies in a clip path, where what is not painted counts too.
    """
    kind = element.tag.removeprefix(SVG)
    for name, value in [*element.attrib.items()]:
        if name in ("class", "pointer-events") or name.startswith("data-"):
            del element.attrib[name]
        elif name in COORDINATES:
            element.set(
                name, DECIMALS.sub(lambda m: f"{float(m[0]):.1f}".removesuffix(".0"), value)
            )
    style = painted(element.attrib.pop("style", ""))
    if style:
        element.set("style", ";".join(map(":".join, style.items())))
    clips = clips or kind == "clipPath"
    element[:] = [left for child in element for left in prune(child, clips)]
    if kind == "g" and not element.attrib:
        return [*element]
    empty = kind in ("g", "defs") and not len(element)
    unseen = style.get("fill") == "none" and "stroke" not in style and not clips
    still = kind == "path" and element.get("d", STILL) == STILL
    return (
        []
        if still or (empty and "id" not in element.attrib) or (unseen and not len(element))
        else [element]
    )


def painted(style: str) -> dict[str, str]:
    """Return the declarations of a style that change a picture."""
    parts = (part.split(":", 1) for part in style.split(";") if part.strip())
    all_of = {name.strip(): value.strip() for name, value in parts}
    kept = {
        k: RGB.sub(hexadecimal, v) for k, v in all_of.items() if not DEFAULT.fullmatch(f"{k}:{v}")
    }
    for what in ("fill", "stroke"):
        if kept.get(f"{what}-opacity") == "0":
            del kept[f"{what}-opacity"]
            kept[what] = "none"
    if kept.get("stroke-width", "").removesuffix("px") == "0" or kept.get("stroke") == "none":
        kept = {name: value for name, value in kept.items() if not name.startswith("stroke")}
    return kept


def hexadecimal(match: re.Match[str]) -> str:
    """Return a colour in its shortest form."""
    return "#" + "".join(f"{int(part):02x}" for part in match.groups())


def photograph(page: Any, path: Path, drawn: set[str]) -> None:
    """Write the posters of a page's instruments that are not drawn yet, each once it is at rest."""
    walk = path.name == WALK
    page.set_viewport_size({"width": 1280, "height": 760 if walk else 2400})
    page.goto(path.resolve().as_uri() + (STATE if walk else ""))
    page.add_style_tag(content=DRESS)
    page.evaluate(REVEAL)
    for box in page.locator(".book-live").all():
        name = Path(box.locator(".live-poster").get_attribute("src")).stem
        if name in drawn:
            continue
        drawn.add(name)
        box.scroll_into_view_if_needed()
        page.locator(f"#{box.get_attribute('id')}[data-ready]").wait_for()
        seen, before = box.screenshot(), b""
        while seen != before:
            page.wait_for_timeout(2000)
            seen, before = box.screenshot(), seen
        image = Image.open(io.BytesIO(seen)).quantize()
        image.save(POSTERS / f"{name}.png", optimize=True)


def write(root: Path) -> int:
    """Write the posters of every page below ``root`` that are not of its figures as they are now.

    Instruments are always drawn again.

    Returns:
        How many posters there are.
    """
    from playwright.sync_api import sync_playwright

    POSTERS.mkdir(exist_ok=True)
    drawn: set[str] = set()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=needed(), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
        for path in sorted(root.rglob("*.html")):
            found = FIGURE.findall(path.read_text(encoding="utf8"))
            drawn |= {name for name, _ in found}
            if all(poster(json.loads(text), name) for name, text in found):
                continue
            page.goto(path.resolve().as_uri())
            for text, url in page.evaluate(DRAW):
                figure = json.loads(text)
                name = figure["layout"]["meta"]["explorer"]["name"]
                if not poster(figure, name):
                    svg = tidy(unquote(url.partition(",")[2]))
                    mark = f"<!-- {digest(figure)} -->"
                    (POSTERS / f"{name}.svg").write_text(f"{svg}{mark}\n", encoding="utf8")
        page.emulate_media(reduced_motion="reduce")
        for path in sorted(root.rglob("*.html")):
            if not drawn.issuperset(LIVE.findall(path.read_text(encoding="utf8"))):
                photograph(page, path, drawn)
        browser.close()
    for path in POSTERS.iterdir():
        if path.stem not in drawn:
            path.unlink()
    return len(drawn)


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
