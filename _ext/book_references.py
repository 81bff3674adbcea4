"""The form of the bibliography: author and year before each entry, links, and who cites it.

The pybtex style ``book`` labels entries as the text cites them, keeps their titles as written, and
links the arXiv number that ``references.bib`` has in a note. Below an entry stand the pages that
cite it, each linked at the first place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from copy import deepcopy
from typing import Any

from docutils import nodes
from pybtex.database import Entry
from pybtex.plugin import register_plugin
from pybtex.style import FormattedEntry
from pybtex.style.formatting.unsrt import Style as UnsortedStyle
from pybtex.style.labels import BaseLabelStyle
from pybtex.style.template import Node, field, sentence
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.nodes import make_refnode

from tools.citations import ARXIV, authors


def author_year(entry: Entry) -> str:
    """Return authors and year as the text cites them."""
    return f"{authors(entry)}, {entry.fields['year']}"


class AuthorYear(BaseLabelStyle):
    """Labels such as ``Su et al., 2024``, with a letter where two would be the same."""

    def format_labels(self, sorted_entries: Iterable[Entry]) -> Iterator[str]:
        """Yield the label of every entry."""
        labels = [author_year(entry) for entry in sorted_entries]
        total, seen = Counter(labels), Counter[str]()
        for label in labels:
            yield label + ("abcdefgh"[seen[label]] if total[label] > 1 else "")
            seen[label] += 1


class BookStyle(UnsortedStyle):
    """Entries by author, then year."""

    default_label_style = AuthorYear
    default_sorting_style = "author_year_title"

    def format_title(self, e: Entry, which_field: str, as_sentence: bool = True) -> Node:
        """Keep a title's capitals: a paper chose them."""
        title = field(which_field)
        return sentence[title] if as_sentence else title

    def format_entry(self, label: str, entry: Entry, bib_data: Any = None) -> FormattedEntry:
        """Make a link of an arXiv number that stands in the note."""
        entry = deepcopy(entry)
        found = ARXIV.search(entry.fields.get("note", ""))
        if found:
            entry.fields["eprint"] = found[1]
            note = ARXIV.sub("", entry.fields.pop("note")).strip("; ")
            if note:
                entry.fields["note"] = note[0].upper() + note[1:]
        return super().format_entry(label, entry, bib_data)


class ListEntries(SphinxPostTransform):
    """Make a list of the entries, and say below each which pages cite it."""

    default_priority = 6  # after the bibliography has become citations
    formats = ("html",)

    def run(self, **kwargs: Any) -> None:
        """Make the list of one page."""
        domain: Any = self.env.get_domain("cite")
        cited: dict[str, dict[str, str]] = {}
        for ref in domain.citation_refs:
            for target in ref.targets:
                cited.setdefault(target.key, {}).setdefault(ref.docname, ref.citation_ref_id)
        for bibliography in domain.bibliographies.values():
            for key, citation in bibliography.citation_nodes.items():
                # None on a page other than that of this bibliography
                if citation.parent is None or citation.document is not self.document:
                    continue
                label, text = citation.children
                entry = nodes.definition("", text)
                if key in cited:
                    entry += self.said(cited[key])
                term = nodes.term("", label.astext(), ids=citation["ids"])
                citation.replace_self(nodes.definition_list_item("", term, entry))
        for box in list(self.document.findall(nodes.container)):
            if box.children and isinstance(box[0], nodes.definition_list_item):
                box.replace_self(
                    nodes.definition_list("", *box.children, classes=["book-references"])
                )

    def said(self, places: dict[str, str]) -> nodes.paragraph:
        """Return the line with the pages, chapters first."""
        line = nodes.paragraph(classes=["book-cited"])
        line += nodes.Text("Cited in ")
        numbers = {page: self.env.toc_secnumbers.get(page, {}).get("", ()) for page in places}
        for count, page in enumerate(sorted(places, key=lambda p: (not numbers[p], numbers[p], p))):
            number = "".join(f"{n}\N{NO-BREAK SPACE}" for n in numbers[page])
            name = nodes.Text(number + self.env.titles[page].astext())
            if count:
                line += nodes.Text("; ")
            line += make_refnode(self.app.builder, self.env.docname, page, places[page], name)
        return line


def outdated(app: Sphinx, env: Any, *_: set[str]) -> list[str]:
    """Write the bibliography in every build: who cites what may have changed."""
    return sorted({key.docname for key in env.get_domain("cite").bibliographies})


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the style and the links."""
    register_plugin("pybtex.style.formatting", "book", BookStyle)
    app.add_post_transform(ListEntries)
    app.connect("env-get-outdated", outdated)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
