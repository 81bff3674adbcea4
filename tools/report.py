"""Print what is new here as a paper of two columns: statements, figures, proofs, related work.

    python tools/report.py _build/html _build/report.pdf

The page ``book/new`` is its text, and its first paragraph the abstract. Where a paragraph links to
a theorem, the theorem follows, and the proof below it in its chapter; where it links to a section
for specialists, the text of the section; where it links to a figure, the figure as it begins. What
the page says below each result of earlier work is one section here, before the references. Numbers
of theorems, equations and figures are those of the book. What a chapter computes stays there: the
paper is for who will not open the book, and says where it is.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from copy import copy
from functools import cache, partial
from pathlib import Path
from urllib.parse import urlsplit

import yaml
from bs4 import BeautifulSoup, Tag

from lab.console import allow_every_letter
from tools.pdf import adapt, read, write

NAME = "book/new"
REFERENCES = "book/bibliography"
CITATION = Path(__file__).resolve().parents[1] / "CITATION.cff"
TITLE = "New results on position encodings and linear attention"
BY = (
    "{authors}\nVersion {version}, {date}. Chapters, with all code and data: “{title}”. "
    "Theorems, equations and figures have the numbers of the book."
)
STYLE = """
@page { margin: 15mm 14mm 16mm; }
@media print {
  html { font-size: 9pt; }
  .bd-main .bd-content .bd-article {
    columns: 2; column-gap: 7mm; padding: 0; line-height: 1.3; hyphens: auto;
    font-family: "Latin Modern Roman", "Times New Roman", "Liberation Serif", serif;
  }
  .bd-main .bd-content :is(h1, h2) { border: 0; font-family: inherit; font-weight: 600; }
  .bd-main .bd-content h1 { font-size: 1.7rem; text-align: center; }
  .bd-main .bd-content h2 { margin: 1rem 0 .4rem; font-size: 1.15rem; }
  .bd-article p { margin-bottom: .5rem; }
  .bd-article :is(h1, .report-by, .report-abstract) { column-span: all; }
  .bd-article .report-by { text-align: center; white-space: pre-line; }
  .bd-article .report-abstract { margin: 0 12mm 1.2rem; }
  .bd-article .report-abstract::before { content: "Abstract. "; font-weight: 600; }
  .bd-article p code.literal { padding: 0; border: 0; background: none; color: inherit; }
  .bd-article div.proof.admonition, .bd-article div.proof > .admonition-title {
    margin: 0; border: 0; padding: 0; background: none; box-shadow: none !important;
  }
  .bd-article div.proof.admonition { margin-top: .4rem; }
  .bd-article div.proof > .admonition-title::after { display: none; }
  .bd-article .report-proof { margin: .4rem 0 .8rem; padding-left: .6rem; }
  .report-proof { border-left: 1px solid #999; }
  .report-proof > p:first-child::before, .report-proof:has(> ol:first-child)::before {
    content: "Proof. "; font-style: italic;
  }
  .bd-article div.math { margin-block: .2rem; flex-direction: row; }
  .bd-article figure { margin: .6rem 0; break-inside: avoid; }
  .bd-article figure img { display: block; max-width: 100%; max-height: 7cm; margin: 0 auto; }
  .bd-article figure > figcaption { padding: 0; color: inherit; font: inherit; font-size: .92em; }
  .bd-article .report-references { padding-left: 1rem; font-size: .92em; }
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
    for said in box.find_all(string=re.compile(r"^Proof\. ")):
        said.replace_with(str(said).removeprefix("Proof. "))  # the style says it of every one
    return box


def still(figure: Tag) -> Tag:
    """Return a figure's poster with the words of its first state, and its caption."""
    kept = copy(figure)
    (poster,), (plot,) = kept.select(".book-poster"), kept.select(".book-plot")
    poster.attrs = {"src": poster["src"], "alt": plot["aria-label"]}
    for useless in kept.select(".headerlink"):
        useless.decompose()
    kept.select(".book-figure")[0].replace_with(poster)
    return kept


def linked(paragraph: Tag, chapter: Callable[[str], BeautifulSoup]) -> list[Tag]:
    """Return theorems, proofs and figures to which a paragraph links, in its order, each once."""
    found: dict[str, Tag] = {}
    names: dict[str, str] = {}
    for link in paragraph.find_all("a", href=True):
        url = urlsplit(str(link["href"]))
        name = f"notebooks/{Path(url.path).stem}"
        kind = url.fragment.split("-")[0]
        if url.scheme or kind not in ("thm", "advanced", "figure"):
            continue
        page = chapter(name)
        place = page.find(id=url.fragment)
        if place is None:
            raise ValueError(f"{NAME} links to {url.fragment}, which {name} does not have")
        if kind == "thm":
            found[url.fragment] = copy(place)
            proof = proof_of(place)
            if proof is not None:
                said = proof.get_text()
                found.pop(said, None)  # of several theorems: below the last
                found[said] = stripped(proof, page)
        elif kind == "figure":
            found[url.fragment] = still(place)
        else:
            section = copy(place)
            for theorem in section.find_all(id=[*found]):  # which stand above already
                proof = proof_of(theorem)
                if proof is not None:
                    proof.decompose()
                theorem.decompose()
            found[url.fragment] = stripped(section, page)
        names |= dict.fromkeys(found.keys() - names.keys(), name)
    for key, tag in found.items():
        adapt(tag, names[key], [NAME])
    return [*found.values()]


def related(article: Tag) -> list[Tag]:
    """Take what a page says of earlier work, and of what is new, out of its sections."""
    taken = []
    for known in [p for p in article.find_all("p") if p.strong and p.strong.text == "Known."]:
        new = known.find_all_next("p")[0]
        known.select("strong")[0].string = f"Result {known.find_all_previous('h2')[0].text[0]}."
        new.select("strong")[0].name = "em"
        known.extend([" ", *new.extract().contents])
        taken.append(known.extract())
    return taken


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


def heading(text: str, page: BeautifulSoup) -> Tag:
    """Return a heading."""
    tag = page.new_tag("h2")
    tag.string = text
    return tag


def paper(root: Path) -> BeautifulSoup:
    """Return the page to print."""
    page = read(root, NAME)
    article = page.select_one("article.bd-article")
    assert article is not None
    title = article.find_all("h1")[0]
    abstract, searched, how = title.find_next_siblings("p")
    for verdict in article.select(".book-verdict"):
        verdict.unwrap()  # a button does not break with its line
    how.decompose()
    sections = article.find_all("h2")
    sections.pop().find_all_previous("section")[0].decompose()  # how to cite
    for number, section in enumerate(sections, 1):
        section.insert(0, f"{number}  ")
    chapter = cache(partial(read, root))
    below = [(paragraph, linked(paragraph, chapter)) for paragraph in article.find_all("p")]
    proofs = [tags for p, tags in below if p.strong and p.strong.text == "Proof."]
    if len(proofs) != len(sections) or not all(proofs):
        raise ValueError(f"{NAME}: each result must have a paragraph that links to its proof")
    adapt(article, NAME, [NAME])
    for paragraph, tags in below:
        paragraph.insert_after(*tags)
    earlier = heading(f"{len(sections) + 1}  Related work: what was known, and what is new", page)
    article.extend([earlier, searched.extract(), *related(article)])
    article.extend([heading("References", page), cited(article, root, page)])
    about = yaml.safe_load(CITATION.read_text(encoding="utf8"))
    about |= {"authors": about["authors"][0]["name"], "date": about["date-released"]}
    by = page.new_tag("p", attrs={"class": "report-by"})
    by.string = BY.format_map(about)
    abstract["class"] = "report-abstract"
    title.string = TITLE
    page.select("title")[0].string = TITLE
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
