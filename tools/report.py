"""Print what is new here as a paper: statements, proofs, evidence, references, how to cite.

    python tools/report.py _build/html _build/report.pdf

The page ``book/new`` is its text. Where a paragraph that begins with "Proof." links to a theorem,
the theorem follows, and the proof below it in its chapter; where it links to a section for
specialists, the text of the section. Numbers of theorems and equations are those of the book. What
a chapter computes stays there: the paper is for who will not open the book, and says where it is.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from copy import copy
from pathlib import Path
from urllib.parse import urlsplit

from bs4 import BeautifulSoup, Tag

from lab.console import allow_every_letter
from stringlib import __version__
from tools.pdf import adapt, read, write

NAME = "book/new"
REFERENCES = "book/bibliography"
TITLE = "New results on position encodings and linear attention"
BY = (
    "The page “What is new here” of “Position Encodings and Linear Attention” (The stringlib "
    "authors, version {}), with its proofs. Theorems and equations have the numbers of the book; "
    "cells and records are those of the chapter named."
)
STYLE = """
@media print {
  html { font-size: 9.5pt; }
  .bd-main .bd-content .bd-article {
    font-family: "Latin Modern Roman", "Times New Roman", "DejaVu Serif", serif;
  }
  .bd-main .bd-content :is(h1, h2) { border: 0; font-family: inherit; font-weight: 600; }
  .bd-main .bd-content h1 { font-size: 1.7rem; text-align: center; }
  .bd-main .bd-content h2 { font-size: 1.25rem; }
  .bd-article p code.literal { padding: 0; border: 0; background: none; color: inherit; }
  .bd-article div.proof.admonition, .bd-article div.proof > .admonition-title {
    margin: 0; border: 0; padding: 0; background: none; box-shadow: none !important;
  }
  .bd-article div.proof > .admonition-title::after { display: none; }
  .bd-article .report-proof { margin: .4rem 0 .8rem; padding-left: .8rem; }
  .report-proof { border-left: 1px solid #999; }
  .bd-article .report-references { padding-left: 1.2rem; font-size: .92em; }
}
"""


def proof_of(theorem: Tag) -> Tag | None:
    """Return the first box with a proof between a theorem and the next heading, if there is one."""
    for tag in theorem.find_all_next(["div", "h2", "h3"]):
        title = tag.select_one(".admonition-title")
        if tag.name != "div":
            return None
        if tag.get("class") == ["proof", "admonition"]:
            return tag
        if title and title.parent is tag and title.text.strip().startswith("Proof"):
            return tag
    return None


def stripped(tag: Tag, page: BeautifulSoup) -> Tag:
    """Return the text of a proof or a section: no heading, no cells, nothing that folds."""
    box = page.new_tag("div", attrs={"class": "report-proof"})
    inner = tag.find("details") or tag
    box.extend(copy(child) for child in inner.contents)
    for useless in box.select(".cell, summary, .admonition-title, .headerlink, details"):
        useless.decompose()
    return box


def proved(paragraph: Tag, root: Path, page: BeautifulSoup) -> list[Tag]:
    """Return theorems and proofs to which a paragraph links, in its order, each once."""
    found: dict[str, Tag] = {}
    names: dict[str, str] = {}
    chapters: dict[str, BeautifulSoup] = {}
    for link in paragraph.find_all("a", href=True):
        url = urlsplit(str(link["href"]))
        name = f"notebooks/{Path(url.path).stem}"
        if url.scheme or not url.fragment.startswith(("thm-", "advanced-")):
            continue
        if name not in chapters:
            chapters[name] = read(root, name)
        place = chapters[name].find(id=url.fragment)
        if place is None:
            raise ValueError(f"{NAME} links to {url.fragment}, which {name} does not have")
        advanced = url.fragment.startswith("advanced-")
        proof = None if advanced else proof_of(place)
        found[url.fragment] = stripped(place, page) if advanced else copy(place)
        if proof is not None:
            said = proof.get_text()
            found.pop(said, None)  # of several theorems: below the last
            found[said] = stripped(proof, page)
        names |= dict.fromkeys(found.keys() - names.keys(), name)
    for key, tag in found.items():
        adapt(tag, names[key], [NAME])
    return [*found.values()]


def cited(article: Tag, root: Path, page: BeautifulSoup) -> Tag:
    """Return the entries of the bibliography to whose papers an article links."""
    addresses = {str(link["href"]) for link in article.find_all("a", href=True)}
    listed = page.new_tag("ul", attrs={"class": "report-references"})
    for entry in read(root, REFERENCES).select(".book-references dd > p:first-child"):
        if any(str(link["href"]) in addresses for link in entry.select("a.external")):
            item = page.new_tag("li")
            item.extend(copy(child) for child in entry.contents)
            listed.append(item)
    return listed


def paper(root: Path) -> BeautifulSoup:
    """Return the page to print."""
    page = read(root, NAME)
    article = page.select_one("article.bd-article")
    assert article is not None
    claims = [p for p in article.find_all("p") if p.strong and p.strong.text == "Proof."]
    for number, claim in enumerate(claims, 1):
        claim.find_all_previous("h2")[0].insert(0, f"{number}  ")
    below = [proved(paragraph, root, page) for paragraph in claims]
    adapt(article, NAME, [NAME])
    for paragraph, proofs in zip(claims, below, strict=True):
        if not proofs:
            raise ValueError(f"no proof is linked from {paragraph.get_text()!r}")
        paragraph.insert_after(*proofs)
    heading = page.new_tag("h2")
    heading.string = "References"
    article.find_all("h2")[-1].insert_before(heading, cited(article, root, page))
    by = page.new_tag("p")
    by.string = BY.format(__version__)
    title = article.find_all("h1")[0]
    title.string = TITLE
    title.insert_after(by)
    style = page.new_tag("style")
    style.string = STYLE
    (page.head or page).append(style)
    return page


def main(argv: Sequence[str] | None = None) -> int:
    """Print it."""
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", type=Path, help="folder of the built pages")
    parser.add_argument("target", type=Path, help="file to write")
    asked = parser.parse_args(argv)
    write(paper(asked.root), (asked.root / NAME).parent, asked.target)
    print(f"The paper is {asked.target}")
    return 0


if __name__ == "__main__":
    allow_every_letter()
    sys.exit(main())
