"""The paper of new results: each with the theorems and proofs that its page links to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import pdf, report

PAGE = """<head><title>new</title></head><nav>around</nav><article class="bd-article"><section>
<h1>What is new</h1><p>We prove</p><p>We searched</p><p>How to cite</p>
<section><h2>First</h2><p>It is in <a href="../notebooks/a.html#figure-one">Figure 1.1</a>.</p>
<p><strong>Proof.</strong>
<a href="../notebooks/a.html#thm-one">Theorem 1.1</a>,
<a href="../notebooks/a.html#thm-two">Theorem 1.2</a>, in
<a href="../notebooks/a.html#part">1</a>.</p>
<p><strong>Evidence.</strong> <button class="book-verdict">better</button></p>
<p><strong>Known.</strong> [<a href="https://example.org/known">2024</a>]</p>
<p><strong>New:</strong> all</p></section>
<section><h2>Second</h2><p><strong>Proof.</strong>
<a href="../notebooks/a.html#thm-three">1.3</a>,
{second}</p></section><section><h2>To cite</h2><p>so</p></section></section></article>"""
ADVANCED = '<a href="../notebooks/a.html#advanced-why">why</a>'
CHAPTER = """<article><section id="part"><h2>Part</h2>
<div class="proof theorem admonition" id="thm-one">
<p class="admonition-title">Theorem 1.1</p>one</div>
<div class="proof theorem admonition" id="thm-two">
<p class="admonition-title">Theorem 1.2</p>two</div>
<div class="cell">a cell<figure id="figure-one"><div class="book-figure">
<img class="book-poster" src="../_static/one.svg"><div class="book-plot" aria-label="a line"></div>
<script>{}</script></div><figcaption>Figure 1.1 A line</figcaption></figure></div>
<div class="note dropdown admonition">
<p class="admonition-title">Proof of both</p><p>by <a href="#thm-one">1.1</a></p></div></section>
<section><h2>Next</h2>
<div class="proof theorem admonition" id="thm-three">
<p class="admonition-title">Theorem 1.3</p>three</div>
<section id="advanced-why"><details><summary><h3>Advanced: why</h3></summary><p>because</p>
<div class="cell">another cell</div></details></section>
<h2>Last</h2><div class="proof admonition">of something else</div></section></article>"""
LIST = """<dl class="book-references"><dt>A</dt><dd><p>Known, 2024.
<a class="external" href="https://example.org/known">there</a></p><p>Cited in</p></dd>
<dt>B</dt><dd><p>Unknown. <a class="external" href="https://example.org/unknown">there</a></p></dd></dl>"""


def built(folder: Path, second: str = ADVANCED) -> Path:
    pages = {"book/new": PAGE.format(second=second), "notebooks/a": CHAPTER}
    for name, text in (pages | {"book/bibliography": LIST}).items():
        path = folder / f"{name}.html"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf8")
    return folder


def test_theorems_and_proofs_stand_below_the_links_to_them(tmp_path: Path) -> None:
    page = report.paper(built(tmp_path))
    article = page.article
    assert [h.text for h in article.find_all("h2")] == [
        "1  First",
        "2  Second",
        "3  Related work: what was known, and what is new",
        "References",
    ]
    words = " ".join(article.get_text(" ").split())
    order = ("The stringlib authors", "We prove", "A line", "Theorem 1.1 one", "Theorem 1.2 two")
    order += ("by 1.1", "better", "three", "because", "We searched", "Result 1.", "New: all")
    places = [words.index(said) for said in order]
    assert places == sorted(places)
    assert words.count("by 1.1") == 1  # one proof of both, below the second
    cells = ("a cell", "another cell", "Advanced")
    for left_out in (*cells, "something else", "Unknown", "Cited in", "To cite", "How to"):
        assert left_out not in words
    assert "Known, 2024." in words
    links = {link.get("href") for link in article.find_all("a")}
    assert links == {None, "https://example.org/known"}
    (figure,) = article.find_all("figure")
    assert [tag.name for tag in figure.find_all(True)] == ["img", "figcaption"]
    assert figure.img.attrs == {"src": "../_static/one.svg", "alt": "a line"}
    assert article.select(".report-abstract")[0].text == "We prove"


@pytest.mark.parametrize(("second", "said"), [("", "each result"), ("thm-four", "does not have")])
def test_a_result_without_its_proof_is_refused(tmp_path: Path, second: str, said: str) -> None:
    root = built(tmp_path, f'<a href="../notebooks/a.html#{second}">4</a>')
    page = root / "book/new.html"
    if not second:
        text = page.read_text(encoding="utf8")
        page.write_text(text.replace("Proof.", "Claim."), encoding="utf8")
    with pytest.raises(ValueError, match=said):
        report.paper(root)


@pytest.mark.parametrize(("path", "said"), [("", "no browser"), ("/bin/false", "does not start")])
def test_without_a_chromium_one_line_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, said: str
) -> None:
    monkeypatch.setenv("CHROMIUM", path)
    monkeypatch.setattr("tools.browser.NAMES", ())
    root = built(tmp_path)
    with pytest.raises(SystemExit, match=f"error: .*{said}.*CHROMIUM") as stopped:
        pdf.write(report.paper(root), root / "book", tmp_path / "paper.pdf")
    assert "\n" not in str(stopped.value)
    assert not [*root.rglob("whole.html")]
