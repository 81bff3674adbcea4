"""The book as one PDF: which pages in which order, and where their links lead."""

from __future__ import annotations

import io
from pathlib import Path

import pikepdf
import yaml

from tools.pdf import contents, joined, packed

ROOT = Path(__file__).resolve().parents[1]
TOC = {
    "root": "book/intro",
    "parts": [
        {"caption": "Before", "chapters": [{"file": "book/notation"}]},
        {"caption": "Part I", "chapters": [{"file": "notebooks/b"}, {"file": "notebooks/a"}]},
        {"caption": "Reference", "chapters": [{"file": "book/api/index"}, {"file": "book/end"}]},
    ],
}
ARTICLE = """<head><link rel="stylesheet" href="../_static/a.css?v={version}">{style}
<script src="../_static/book-form.js"></script><script src="../_static/live-x.js?v=1"></script>
</head><nav>around</nav>
<article class="bd-article"><h1 id="top">{name}</h1>{more}</article>"""
MORE = """<a href="#top">here</a> <a href="a.html#top">there</a>
<a href="../book/intro.html">first</a>
<a href="../book/api/index.html#f">left out</a> <a href="https://example.org/a.html">outside</a>
<img src="../_static/p.svg" loading="lazy"> <input id="x"><label for="x">x</label>
<svg><path id="glyph"></path><use href="#glyph"></use></svg>"""


def test_the_pages_stand_in_the_order_of_the_contents() -> None:
    assert [*contents(TOC)] == [
        ("book/intro", ""),
        ("book/notation", "Before"),
        ("notebooks/b", "Part I"),
        ("notebooks/a", ""),
        ("book/end", "Reference"),
    ]
    names = [name for name, _ in contents(yaml.safe_load((ROOT / "_toc.yml").read_text()))]
    assert names[0] == "book/intro"
    chapters = [name for name in names if name.startswith("notebooks/")]
    files = (ROOT / "notebooks").glob("*.ipynb")
    assert chapters == sorted(f"notebooks/{path.stem}" for path in files)


def test_a_link_leads_to_its_place_in_the_whole(tmp_path: Path) -> None:
    for name, _ in contents(TOC):
        path = tmp_path / f"{name}.html"
        path.parent.mkdir(exist_ok=True)
        more = MORE if name == "notebooks/b" else ""
        style = '<link rel="stylesheet" href="b.css">' if more else ""
        version = 1 if name == "book/intro" else 2
        page = ARTICLE.format(name=name, more=more, style=style, version=version)
        path.write_text(page, encoding="utf8")
    whole = joined(tmp_path, [*contents(TOC)])
    titles = [title.text for title in whole.find_all("h1")]
    assert titles == [name for name, _ in contents(TOC)]
    assert [part.text for part in whole.select(".book-part")] == ["Before", "Part I", "Reference"]
    assert len(whole.find_all("nav")) == 1
    assert "book-cover" in whole.article.find_previous_siblings()[0]["class"]
    assert [link["href"] for link in whole.select("link")] == ["../_static/a.css?v=1", "b.css"]
    assert [script["src"] for script in whole.select("script")] == ["../_static/book-form.js"]
    places = {str(tag["id"]) for tag in whole.find_all(id=True)}
    links = {link.text: link.get("href") for link in whole.find_all("a")}
    assert links == {
        "here": "#notebooks/b--top",
        "there": "#notebooks/a--top",
        "first": "#book/intro",
        "left out": None,
        "outside": "https://example.org/a.html",
    }
    assert {str(link)[1:] for link in links.values() if link and link[0] == "#"} <= places
    assert whole.select_one("label")["for"] == whole.select_one("input")["id"]
    picture = whole.select_one("article img")
    assert (picture["src"], "loading" in picture.attrs) == ("../_static/p.svg", False)
    assert whole.select_one("use")["href"] == "#glyph"


def test_a_packed_pdf_has_the_objects_that_chromium_wrote() -> None:
    wide = pikepdf.new()
    wide.add_blank_page()
    wide.Root.Numbers = pikepdf.Array(wide.make_indirect(pikepdf.Array([n])) for n in range(2000))
    made = io.BytesIO()
    wide.save(made)
    small = packed(made.getvalue())
    assert len(small) < len(made.getvalue()) / 2
    with pikepdf.open(io.BytesIO(small)) as read:
        assert [int(one[0]) for one in read.Root.Numbers] == [*range(2000)]
