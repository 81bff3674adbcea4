"""What a reader chooses by: the tables of all methods, the list of chapters, numbers in the text.

    ```{methods} encoders
    ```

stands for the table of ``book.methods.encoders()``, one row for every registered name;

    ```{chapters} Part I: Rotations
    01_why_positions: Attention sees a set.
    ```

for the chapters of that part of ``_toc.yml``, each with its number, its title and the sentence
that is given here. ``{{ bits["ELU, GLA"] }}`` in a page is a number that ``book.recorded`` reads
from a record. ``book-tables.js`` makes the tables sortable; without it they stand in the order of
the registries.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx_external_toc.parsing import parse_toc_yaml

from book import facts, methods

FOLDER = "notebooks/"
PLAIN = re.compile(r"[+−]?[\d,.]+(\s±\s[\d.]+)?|–|no state|grows, .*")
HEADS = {
    "relative": "relative",
    "axes": "axes",
    "learned": "learns",
    "folds": "folds",
    "training": "training, × RoPE",
    "inference": "inference, × RoPE",
    "text": "text, bits a byte",
    "needles": "needles",
    "images": "images",
    "volumes": "volumes",
    "kind": "kind",
    "causal": "causal",
    "kept": "keeps, numbers",
    "rope": "exact RoPE",
    "from": "faster from, tokens",
    "share": "time, %",
    "recall": "recall",
}
"""Column → heading; the page explains it."""
TABLES: dict[str, tuple[str, Callable[[], list[methods.Row]]]] = {
    "encoders": ("Ways to tell positions", methods.encoders),
    "attentions": ("Attentions", methods.attentions),
}
"""Name → caption and rows."""


def parts(root: Path) -> dict[str, list[str]]:
    """Return caption → documents, of the parts of the book whose chapters are numbered."""
    tree = parse_toc_yaml(root / "_toc.yml").root.subtrees
    return {part.caption: [str(item) for item in part.items] for part in tree if part.numbered}


def numbers(root: Path) -> dict[str, int]:
    """Return the number of each chapter: they are counted on from part to part."""
    documents = [document for part in parts(root).values() for document in part]
    return {document: number for number, document in enumerate(documents, 1)}


def table(caption: str, rows: list[methods.Row], chapters: dict[str, int]) -> str:
    """Return rows as a table, in Markdown.

    Raises:
        ValueError: If a chapter is not in the table of contents.
    """
    heads = ["name", *(HEADS[key] for key in rows[0].cells), "ch."]
    lines = [f"````{{list-table}} {caption}", ":header-rows: 1", ":stub-columns: 1"]
    lines += [":class: book-sortable", ""]
    lines += _line(heads)
    for row in rows:
        document = FOLDER + row.chapter
        if document not in chapters:
            raise ValueError(f"chapter of {row.name} must be in _toc.yml, got {document}")
        role = "func" if row.code.rpartition(".")[2].islower() else "class"
        name = f"{{py:{role}}}`{row.name} <{row.code}>`" if row.code else row.name
        lines += _line([name, *row.cells.values(), f"{{doc}}`{chapters[document]} </{document}>`"])
    return "\n".join([*lines, "````"])


def align(node: nodes.Node) -> None:
    """Mark the cells of columns that hold nothing but plain numbers, to be set flush right."""
    rows = [list(row.findall(nodes.entry)) for row in node.findall(nodes.row)]
    for head, *cells in zip(*rows, strict=True):
        if all(PLAIN.fullmatch(cell.astext()) for cell in cells):
            for cell in (head, *cells):
                cell["classes"].append("book-number")


def _line(cells: list[str]) -> list[str]:
    return [("* - " if not i else "  - ") + cell for i, cell in enumerate(cells)]


class Methods(SphinxDirective):
    """Show the table of all encoders, or of all attentions."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Make the table anew in every build: a registry or a record may have changed."""
        self.env.note_reread()
        if self.arguments[0] not in TABLES:
            raise self.error(f"methods must be {' or '.join(TABLES)}, got {self.arguments[0]}")
        caption, rows = TABLES[self.arguments[0]]
        text = table(caption, rows(), numbers(Path(self.env.srcdir)))
        found: list[nodes.Node] = self.parse_text_to_nodes(text)
        for node in found:
            align(node)
        return found


class Chapters(SphinxDirective):
    """List the chapters of a part, each with its sentence."""

    required_arguments = 1
    final_argument_whitespace = True
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return the list, which starts with the number of the part's first chapter."""
        root = Path(self.env.srcdir)
        self.env.note_dependency(str(root / "_toc.yml"))
        try:
            text = listed(self.arguments[0], list(self.content), root)
        except ValueError as error:
            raise self.error(str(error)) from error
        found: list[nodes.Node] = self.parse_text_to_nodes(text)
        return found


def listed(part: str, lines: list[str], root: Path) -> str:
    """Return the chapters of a part as a list in Markdown.

    Args:
        part: Its caption in ``_toc.yml``.
        lines: ``notebook: sentence``; what is indented goes on with the line before it.
        root: Where ``_toc.yml`` is.

    Raises:
        ValueError: If there is no such part, or the lines are not of its chapters.
    """
    known = parts(root)
    if part not in known:
        raise ValueError(f"chapters must name a part, {', '.join(known)}, got {part}")
    told: dict[str, str] = {}
    for line in filter(str.strip, lines):
        if line[0] == " " and told:
            told[[*told][-1]] += " " + line.strip()
        else:
            name, _, sentence = line.partition(":")
            told[FOLDER + name] = sentence.strip()
    if told.keys() != set(known[part]) or not all(told.values()):
        wanted, got = (", ".join(names) for names in (known[part], told))
        raise ValueError(f"chapters of {part} must have a sentence each: {wanted}; got {got}")
    count = numbers(root)
    return "\n".join(f"{count[name]}. {{doc}}`/{name}`\\\n   {told[name]}" for name in known[part])


def substitute(app: Sphinx, config: Any) -> None:
    """Give the pages the numbers of the records."""
    config.myst_substitutions = {**(config.myst_substitutions or {}), **facts.facts()}


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directives, the numbers and the script."""
    app.add_directive("methods", Methods)
    app.add_directive("chapters", Chapters)
    app.connect("config-inited", substitute)
    app.add_js_file("book-tables.js", loading_method="defer")
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
