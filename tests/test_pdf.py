"""The book as one PDF: which pages in which order, and where their links lead."""

from __future__ import annotations

import re
import struct
import zlib
from pathlib import Path

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
    bodies = {number: b"<</Number %d>>" % number for number in range(1, 2500)}
    bodies[2] = b"<</Length 13>> stream\nq\nendobj\n 1 0 Q\nendstream"
    made, places = b"%PDF-1.4\n", []
    for number, body in bodies.items():
        places.append(len(made))
        made += b"%d 0 obj\n%b\nendobj\n" % (number, body)
    rows = b"".join(b"%010d 00000 n \n" % place for place in places)
    table = b"xref\n0 2500\n0000000000 65535 f \n%b" % rows
    end = b"trailer\n<</Size 2500\n/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % len(made)
    small = packed(made + table + end)
    assert len(small) < len(made) / 2

    def at(place: int) -> tuple[bytes, bytes]:
        about, data = small[place:].split(b"stream\n", 1)
        length = int(re.findall(rb"/Length (\d+)", about)[0])
        return about, data[:length]

    about, data = at(int(small.split()[-2]))
    assert b"/Root 1 0 R" in about
    rows = zlib.decompress(data)
    found = [struct.unpack(">BIH", rows[row : row + 7]) for row in range(0, len(rows), 7)]
    assert found[0][0] == 0
    for number, body in bodies.items():
        kind, place, index = found[number]
        if kind == 1:
            assert small[place:].startswith(b"%d 0 obj\n%b\nendobj" % (number, body))
            continue
        about, data = at(found[place][1])
        first = int(re.findall(rb"/First (\d+)", about)[0])
        text = zlib.decompress(data)
        numbers = [int(one) for one in text[:first].split()]
        assert numbers[2 * index] == number
        assert text[first + numbers[2 * index + 1] :].startswith(body)
    assert [kind for kind, *_ in found[1:4]] == [2, 1, 2]
