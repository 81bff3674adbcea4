"""The paper of new results, as it is printed from the built book."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tools import report


def test_the_paper_has_what_a_journal_asks_for(browser: Any, site: Path, tmp_path: Path) -> None:
    paper = report.paper(site)
    article = paper.select("article.bd-article")[0]
    (abstract,) = article.select(".report-abstract")
    assert 120 <= len(abstract.text.split()) <= 180
    figures = article.find_all("figure")
    titles = [figure.find_all_previous("h2")[0].text[0] for figure in figures]
    assert titles == [*"123456"]
    assert all(figure.img["alt"] and figure.figcaption.text.strip() for figure in figures)
    links = {a["href"]: a.text for a in article.select("a.external") if not a.find_parent("ul")}
    listed = {a["href"] for a in article.select(".report-references a")}
    assert {url for url, text in links.items() if re.search(r"\d{4}", text)} <= listed
    (tmp_path / "_static").symlink_to(site / "_static")
    whole = tmp_path / "book" / "whole.html"
    whole.parent.mkdir()
    whole.write_text(str(paper), encoding="utf8")
    page = browser.new_page()
    page.goto(whole.as_uri())
    shown = "[...document.querySelectorAll('figure img')].every(i => i.naturalWidth)"
    assert page.evaluate(shown)
    page.emulate_media(media="print")
    wide = "[...document.querySelectorAll('math')].filter(m => m.scrollWidth > m.clientWidth + 1)"
    assert page.evaluate(f"{wide}.length") == 0
    assert len(re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4"))) <= 12
    page.close()
