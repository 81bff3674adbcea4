"""The tables of the page of released models, from their record.

    ```{released} table
    ```

stands for the families with an encoder of ours in them, ``others`` for those without, and why;
``known`` for the models whose encoder has a line of its own; ``norms`` for what norms on queries
and keys let through. ``book-tables.js`` makes them sortable.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from book import exchanged

TABLES = {
    "table": ("Families in which the outputs agree", exchanged.HEADS, exchanged.table),
    "known": ("Rotations of released models", (*exchanged.ROTATIONS, "remark"), exchanged.known),
    "norms": ("Can a basis be merged?", ("can be merged", "families", "names"), exchanged.norms),
    "others": ("Families without a replacement", ("family", "reason"), exchanged.others),
}
"""Name → caption, headings and rows."""
PLAIN = re.compile(r"[\d,.]+|–")


def align(node: nodes.Node) -> None:
    """Mark the cells of columns that hold nothing but plain numbers, to be set flush right."""
    rows = [list(row.findall(nodes.entry)) for row in node.findall(nodes.row)]
    for head, *cells in zip(*rows, strict=True):
        if all(PLAIN.fullmatch(cell.astext()) for cell in cells):
            for cell in (head, *cells):
                cell["classes"].append("book-amount")


class Released(SphinxDirective):
    """Show one of the tables."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Make the table anew whenever the record has changed."""
        self.env.note_dependency(str(exchanged.RECORD))
        if self.arguments[0] not in TABLES:
            raise self.error(f"released must be {' or '.join(TABLES)}, got {self.arguments[0]}")
        caption, heads, rows = TABLES[self.arguments[0]]
        lines = [f"````{{list-table}} {caption}", ":header-rows: 1", ":stub-columns: 1"]
        lines += [":class: book-sortable", ""]
        for cells in (heads, *rows()):
            lines += [("* - " if not i else "  - ") + cell for i, cell in enumerate(cells)]
        found: list[nodes.Node] = self.parse_text_to_nodes("\n".join([*lines, "````"]))
        for node in found:
            align(node)
        return found


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive and the script."""
    app.add_directive("released", Released)
    app.add_js_file("book-tables.js", loading_method="defer")
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
