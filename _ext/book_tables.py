"""Tables of numbers as the book's own tables: each with a number and its caption.

A notebook shows ``lab.explore.Table`` as HTML with the caption inside, for any editor. Here
the caption leaves the HTML, so that the book can count it: "Table 7.2".
"""

from __future__ import annotations

import html
import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

CAPTION = re.compile(r"<caption>(.*?)</caption>", re.DOTALL)


class NumberedTable(nodes.General, nodes.Element):
    """A table of numbers under its caption."""


def visit_table(self: Any, node: NumberedTable) -> None:
    """Open the table."""
    self.body.append(self.starttag(node, "figure", "", CLASS="book-table") + "<figcaption>\n")


def depart_table(self: Any, node: NumberedTable) -> None:
    """Close the table."""
    self.body.append("</figure>\n")


class CountTables(SphinxTransform):
    """Take the captions of a chapter's tables out of their HTML."""

    default_priority = 210  # before Sphinx counts figures and tables

    def apply(self, **kwargs: Any) -> None:
        """Count the tables of one page."""
        tables = [n for n in self.document.findall(nodes.raw) if "book-numbers" in n.astext()[:60]]
        for number, raw in enumerate(tables, 1):
            found = CAPTION.search(raw.astext())
            if found is None:
                continue
            table = NumberedTable(ids=[f"table-{number}"])
            link = f'<a class="headerlink" href="#table-{number}" title="Link to this table">#</a>'
            text = nodes.Text(html.unescape(found[1]))
            table += nodes.caption("", "", text, nodes.raw("", link, format="html"))
            table += nodes.raw("", "</figcaption>", format="html")
            table += nodes.raw("", CAPTION.sub("", raw.astext()), format="html")
            raw.replace_self(table)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the transform, and the kind of node that is counted with tables."""
    app.add_enumerable_node(NumberedTable, "table", html=(visit_table, depart_table))
    app.add_transform(CountTables)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
