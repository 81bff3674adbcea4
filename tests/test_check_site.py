"""What tools/check_site.py finds: each kind of fault planted in a small good site."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools.check_site import Site, main

WORDS = "<p>More than forty characters of text, so that the page is not empty.</p>"
EXPLORER = {"name": "clocks", "parameters": [{"name": "base", "texts": ["10", "100"]}]}
FIGURE = json.dumps(
    {"see": "https://example.org/x", "tex": "$x$", "layout": {"meta": {"explorer": EXPLORER}}}
)
GOOD = f"""<!doctype html><html><head>
<link rel="stylesheet" href="style.css"><link rel="canonical" href="https://example.org/">
<script>const port = 80; // no address here</script></head>
<body><article id="top">{WORDS}
<a href="other.html#there">x</a> <a href="#top">y</a> <a href="https://example.org/">z</a>
<a href="#fig=clocks&amp;base=10">state</a> <a href="#need=a">choice</a> <b id="need-a"></b>
<img src="a.png" alt="A falling curve">
<math><mi>x</mi><annotation>\\frac{{x}}{{2}}</annotation></math> <code>$PATH and $HOME</code>
<figure id="fig-clocks"><div class="book-plot" aria-label="Eight dials"></div>
<script type="application/json">{FIGURE}</script></figure>
</article></body></html>"""

FAULTS = {
    "an external script": ('<script src="//cdn.example.org/a.js"></script>', "loads //cdn"),
    "an external stylesheet": ('<link rel="stylesheet" href="https://a.example/b.css">', "loads"),
    "an external srcset": ('<img alt="A" srcset="a.png 1x, https://a.example/b 2x">', "loads"),
    "an external frame": ('<iframe src="https://a.example/"></iframe>', "loads"),
    "an external poster": ('<video poster="http://a.example/p.png"></video>', "loads"),
    "an inline style": ('<div style="background: url(https://a.example/b.png)"></div>', "loads"),
    "a style element": ("<style>@import 'https://a.example/b.css';</style>", "loads"),
    "an inline script": ("<script>fetch('https://a.example/data.json')</script>", "loads"),
    "a module": ("<script type='module'>import 'https://a.example/m.js'</script>", "loads"),
    "an image without text": ('<img src="a.png" alt=" ">', "no alternative text"),
    "Sphinx's text": ('<img src="a.png" alt="../_images/ab12.png">', "no alternative text"),
    "a figure without text": ('<div class="book-plot" aria-label=""></div>', "no alternative text"),
    "dollars": ("<p>so $x^2$ is</p>", "TeX"),
    "a command": ("<p>so \\frac{1}{2} is</p>", "TeX"),
    "a formula that is not set": ('<span class="math">\\(x\\)</span>', "TeX"),
    "a link to no page": ('<a href="gone.html">x</a>', "gone.html leads nowhere: no such file"),
    "a link out of the site": ('<a href="../secret.html">x</a>', "no such file"),
    "a link to no anchor": ('<a href="other.html#gone">x</a>', "no anchor 'gone'"),
    "a state of no figure": ('<a href="#fig=gone&amp;a=1">x</a>', "no anchor 'fig-gone'"),
    "a state of none": ('<a href="#fig=clocks&amp;base=11">x</a>', "clocks has no base=11"),
    "a choice that no button is": ('<a href="#need=a,gone">x</a>', "no button gone"),
    "a missing script": ('<script src="gone.js"></script>', "gone.js leads nowhere"),
}


@pytest.fixture
def good(tmp_path: Path) -> Path:
    (tmp_path / "secret.html").touch()  # beside the site
    tmp_path /= "site"
    tmp_path.mkdir()
    (tmp_path / "index.html").write_text(GOOD, encoding="utf8")
    other = f'<html><body><article id="there">{WORDS}</article></body></html>'
    (tmp_path / "other.html").write_text(other, encoding="utf8")
    (tmp_path / "a.png").write_bytes(b"")
    (tmp_path / "style.css").write_text("body { background: url(a.png) }", encoding="utf8")
    (tmp_path / "_static").mkdir()
    known = 'window.bookPassages = {"pages":[["index","A"],["other","B"]],"passages":[]};'
    (tmp_path / "_static" / "book-passages.js").write_text(known)
    return tmp_path


def test_a_good_site_has_no_problem(good: Path) -> None:
    assert Site(good).problems() == []
    assert main(good) == 0


@pytest.mark.parametrize("what", FAULTS)
def test_a_planted_fault_is_found(
    what: str, good: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    html, message = FAULTS[what]
    (good / "index.html").write_text(
        GOOD.replace("</article>", f"{html}</article>"), encoding="utf8"
    )
    problems = Site(good).problems()
    assert problems
    assert all(line.startswith("index.html: ") and message in line for line in problems)
    assert main(good) == 1
    assert message in capsys.readouterr().out


def test_a_missing_page_is_found(good: Path) -> None:
    index = good / "_static" / "book-passages.js"
    index.write_text(index.read_text().replace("other", "notebooks/02"))
    assert Site(good).problems() == ["notebooks/02.html: missing"]


def test_a_redirect_is_followed(good: Path) -> None:
    page = good / "start.html"
    page.write_text('<meta http-equiv="refresh" content="0; url=other.html" />')
    assert Site(good).problems() == []
    page.write_text('<meta http-equiv="refresh" content="0; url=gone.html" />')
    assert Site(good).problems() == ["start.html: redirects to gone.html: no such file"]
