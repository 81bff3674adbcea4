"""Citations that a plain notebook can show: author and year, with a link to the paper.

A chapter writes ``Su et al. [[2024](https://arxiv.org/abs/2104.09864)]``, or ``[[Su et al.,
2024](https://...)]`` with further papers behind a semicolon, and any editor shows just that. Where
the address is that of an entry of ``book/references.bib``, the book cites the entry instead, so
that its page of references knows who cites what. ``tools/notebooks.py --check`` refuses a link
whose words are not those of its entry.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from pybtex.database import Entry, parse_file
from sphinx.application import Sphinx

REFERENCES = Path(__file__).resolve().parents[1] / "book" / "references.bib"
ARXIV = re.compile(r"arXiv:(\d{4}\.\d{4,5})")


def address(entry: Entry) -> str:
    """Return where an entry's paper can be read."""
    fields = entry.fields
    if "url" in fields:
        return str(fields["url"])
    if "doi" in fields:
        return f"https://doi.org/{fields['doi']}"
    found = ARXIV.search(fields.get("note", ""))
    return f"https://arxiv.org/abs/{found[1]}" if found else ""


def authors(entry: Entry) -> str:
    """Return the authors as a sentence names them: one, two, or the first of several."""
    people = entry.persons["author"]
    names = [" ".join(map(str, p.rich_prelast_names + p.rich_last_names)) for p in people]
    if len(names) == 2 and names[1] != "others":
        return " and ".join(names)
    return names[0] if len(names) == 1 else f"{names[0]} et al."


@cache
def entries() -> dict[str, tuple[str, str, str]]:
    """Return authors, year and address of every entry, by its key."""
    found = parse_file(str(REFERENCES)).entries
    return {key: (authors(e), e.fields["year"], address(e)) for key, e in found.items()}


def spaced(text: str) -> str:
    """Return a pattern of a text that may be broken between its words."""
    return r"\s+".join(map(re.escape, text.split()))


@cache
def patterns() -> tuple[list[tuple[re.Pattern[str], str]], re.Pattern[str], dict[str, str]]:
    """Return what is sought: authors with the year linked, brackets of links, and their keys."""
    textual, links, keys = [], [], {}
    for key, (names, year, url) in entries().items():
        if url:
            link = rf"\[{year}\]\({re.escape(url)}\)"
            textual.append((re.compile(rf"{spaced(names)}\s+\[{link}\]"), f"{{cite:t}}`{key}`"))
            links.append(rf"\[{spaced(f'{names}, {year}')}\]\({re.escape(url)}\)")
            keys[url] = key
    one = "|".join(links)
    return textual, re.compile(rf"\[((?:{one})(?:;\s+(?:{one}))*)\]"), keys


def cited(text: str) -> str:
    """Return Markdown with its links to papers as citations."""
    textual, bracket, keys = patterns()

    def several(match: re.Match[str]) -> str:
        return "{cite:p}`" + ",".join(keys[u] for u in re.findall(r"\]\(([^)]+)\)", match[1])) + "`"

    for pattern, role in textual:
        text = pattern.sub(role, text)
    return bracket.sub(several, text)


def faults(text: str) -> Iterator[str]:
    """Yield what a chapter cites otherwise than by the words of its entry."""
    if "{cite" in text:
        yield "a role {cite}: an editor shows it as it stands, write author, year and link"
    _, _, keys = patterns()
    for url in re.findall(r"\]\((https?://[^)\s]+)\)", cited(text)):
        if url in keys:
            names, year, _ = entries()[keys[url]]
            forms = f"{names} [[{year}](...)] nor [[{names}, {year}](...)]"
            yield f"a link to {keys[url]} that reads neither {forms}"


def read(app: Sphinx, page: str, source: list[str]) -> None:
    """Turn the links of a notebook into citations before it is parsed."""
    if str(app.env.doc2path(page)).endswith(".ipynb"):
        notebook = json.loads(source[0])
        for cell in notebook["cells"]:
            if cell["cell_type"] == "markdown":
                cell["source"] = cited("".join(cell["source"]))
        source[0] = json.dumps(notebook)


def setup(app: Sphinx) -> dict[str, Any]:
    """Read notebooks so."""
    app.connect("source-read", read)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
