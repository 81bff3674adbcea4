"""Print the built book as one PDF, with Chromium.

    python tools/pdf.py _build/html _build/book.pdf

The articles of the pages are joined into one page first, in the order of the table of contents:
so a link from chapter to chapter leads to its place in the PDF, and pages are counted through. A
cover comes first. Figures and instruments are their posters: no script of theirs runs. The
reference of the package stays out; a link to it becomes plain text.
"""

from __future__ import annotations

import argparse
import io
import posixpath
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import matplotlib
import pikepdf
import yaml
from bs4 import BeautifulSoup, Tag

from lab.console import allow_every_letter
from tools.browser import needed

LEFT_OUT = "book/api/"
CITATION = Path(__file__).resolve().parents[1] / "CITATION.cff"
REFERRING = ("for", "aria-labelledby", "aria-describedby")
LIVE = re.compile(r"/(?:book-)?live[-.]")
FACES = {
    "STIXGeneral": "",
    "STIXGeneralItalic": "font-style: italic",
    "STIXGeneralBol": "font-weight: bold",
    "STIXGeneralBolIta": "font-weight: bold; font-style: italic",
}
"""The letters of the text: files of matplotlib, so that a book is the same on every machine."""
STYLE = """
@media print {
  @page :first { @bottom-center { content: none; } }
  .book-cover { height: 250mm; padding-top: 45mm; text-align: center; break-after: page; }
  .book-cover > p:first-child { font-size: 2.4rem; font-weight: 600; line-height: 1.2; }
  .book-cover > img { display: block; width: 130mm; margin: 20mm auto; }
  .book-page + .book-page { break-before: page; }
  .book-part { color: var(--pst-color-text-muted); font-size: 1.1rem; }
  .bd-article { font: 10pt/1.25 "Book Text", serif; }
  .bd-article :is(caption, figcaption, table) { font: 9pt/1.25 "Book Text", serif; }
  math { font-size: 1.05em; }   /* as high as the letters around it */
}
"""
COVER = """<div class="book-cover"><p>{title}</p><p>{subtitle}</p>
<img src="../_static/posters/shifted-scores.svg" alt="Attention scores of 24 queries and 24 keys.">
<p>{authors}</p><p>Version {version}, {date}</p></div>"""


def contents(toc: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each page of a table of contents, and the caption of the part that it begins."""
    yield toc["root"], ""
    for part in toc["parts"]:
        caption = part["caption"]
        for chapter in part["chapters"]:
            if not chapter["file"].startswith(LEFT_OUT):
                yield chapter["file"], caption
                caption = ""


def joined(root: Path, pages: Sequence[tuple[str, str]]) -> BeautifulSoup:
    """Return the first page, its article followed by those of all others.

    An id gets the name of its page in front, since two pages may have the same.
    """
    names = [name for name, _ in pages]
    whole = read(root, names[0])
    articles = []
    for name, caption in pages:
        page = whole if name == names[0] else read(root, name)
        article = page.select_one("article.bd-article")
        if article is None:
            raise ValueError(f"{name}.html must have an article")
        adapt(article, name, names)
        article["id"] = anchor(name)
        article["class"] = "bd-article book-page"
        if caption:
            part = whole.new_tag("p", attrs={"class": "book-part"})
            part.string = caption
            article.insert(0, part)
        articles.append(article)
        add_styles(whole, page)
    articles[0].insert_after(*articles[1:])
    articles[0].insert_before(cover())
    for script in whole.find_all("script"):  # figures and instruments are their posters
        if script.get("type") == "application/json" or LIVE.search(str(script.get("src"))):
            script.decompose()
    style = whole.new_tag("style")
    style.string = faces() + STYLE
    (whole.head or whole).append(style)
    return whole


def faces() -> str:
    """Return the rules that load the letters of the text."""
    folder = (Path(matplotlib.get_data_path()) / "fonts" / "ttf").as_uri()
    family = 'font-family: "Book Text"'
    return "".join(
        f"@font-face {{ {family}; src: url({folder}/{name}.ttf); {kind} }}"
        for name, kind in FACES.items()
    )


def add_styles(whole: BeautifulSoup, page: BeautifulSoup) -> None:
    """Link the style sheets of a page that the whole does not have yet."""
    has = {urlsplit(str(link["href"])).path for link in whole.select("link[rel=stylesheet]")}
    for link in page.select("link[rel=stylesheet]"):
        if urlsplit(str(link["href"])).path not in has:
            (whole.head or whole).append(link)


def cover() -> BeautifulSoup:
    """Return the first printed page: the title, its figure, the authors and the version."""
    about = yaml.safe_load(CITATION.read_text(encoding="utf8"))
    title, subtitle = about["title"].split(": ")
    made = {"authors": about["authors"][0]["name"], "date": about["date-released"]}
    return BeautifulSoup(
        COVER.format_map(about | made | {"title": title, "subtitle": subtitle}), "html.parser"
    )


def read(root: Path, name: str) -> BeautifulSoup:
    """Return a built page."""
    return BeautifulSoup((root / f"{name}.html").read_text(encoding="utf8"), "html.parser")


def anchor(name: str, place: str = "") -> str:
    """Return the id that a place of a page has in the whole."""
    return f"{name}--{place}" if place else name


def adapt(article: Tag, name: str, names: Sequence[str]) -> None:
    """Make ids, links and files of an article right for the whole, beside the first page."""
    drawn = {id(tag) for picture in article.find_all("svg") for tag in picture.find_all(True)}
    for tag in article.find_all(True):
        if id(tag) in drawn:
            continue  # a picture refers to itself alone
        tag.attrs.pop("loading", None)  # paper has all pictures
        if "id" in tag.attrs:
            tag["id"] = anchor(name, str(tag["id"]))
        for key in REFERRING:
            if key in tag.attrs:
                tag[key] = " ".join(anchor(name, one) for one in str(tag[key]).split())
        for key in {"href", "src"} & tag.attrs.keys():
            url = urlsplit(urljoin(f"{name}.html", str(tag[key])))
            target = url.path.removesuffix(".html")
            if url.scheme:
                continue
            if key == "src":
                tag[key] = posixpath.relpath(url.path, posixpath.dirname(names[0]))
            elif target in names:
                tag[key] = f"#{anchor(target, url.fragment)}"
            else:
                del tag[key]


def write(page_of: BeautifulSoup, folder: Path, target: Path) -> None:
    """Print a page whose links to styles are those of a folder's pages.

    Raises:
        SystemExit: If there is no Chromium, or it does not start.
    """
    from playwright.sync_api import Error, sync_playwright

    path = needed()
    whole = folder / "whole.html"
    whole.write_text(str(page_of), encoding="utf8")
    try:
        with sync_playwright() as playwright:
            try:
                browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
            except Error as error:
                raise SystemExit(
                    f"error: {path} does not start ({error.message.splitlines()[0]}): "
                    "set CHROMIUM to a browser that does"
                ) from error
            page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
            page.set_default_timeout(600_000)
            page.goto(whole.resolve().as_uri())
            page.evaluate("document.fonts.ready.then(() => null)")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(packed(page.pdf(format="A4", tagged=True, outline=True)))
            browser.close()
    finally:
        whole.unlink()


def packed(made: bytes) -> bytes:
    """Return a PDF of Chromium with its objects in compressed streams, at half of the size.

    Chromium compresses text and pictures only. But most objects of a book are its structure for
    screen readers, one for each word in colour and each letter of a formula.
    """
    out = io.BytesIO()
    with pikepdf.open(io.BytesIO(made)) as pdf:
        pdf.save(out, object_stream_mode=pikepdf.ObjectStreamMode.generate, recompress_flate=True)
    return out.getvalue()


def main(argv: Sequence[str] | None = None) -> int:
    """Print it."""
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", type=Path, help="folder of the built pages")
    parser.add_argument("target", type=Path, help="file to write")
    parser.add_argument("--toc", type=Path, default=Path("_toc.yml"), help="table of contents")
    asked = parser.parse_args(argv)
    pages = [*contents(yaml.safe_load(asked.toc.read_text(encoding="utf8")))]
    write(joined(asked.root, pages), (asked.root / pages[0][0]).parent, asked.target)
    print(f"The book as one PDF is {asked.target}")
    return 0


if __name__ == "__main__":
    allow_every_letter()
    sys.exit(main())
