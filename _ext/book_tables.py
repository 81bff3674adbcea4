"""Tables of numbers as the book's own: with a number, a caption, and intervals that are drawn.

A notebook shows ``lab.explore.Table`` as HTML with the caption inside, for any editor. Here
the caption leaves the HTML, so that the book can count it: "Table 7.2"; and each interval gets a
bar on the axis that stands below the heading of its column.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Mapping
from typing import Any

from bs4 import BeautifulSoup, Tag
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

CAPTION = re.compile(r"<caption>(.*?)</caption>", re.DOTALL)


Span = tuple[float, float]


def drawn(table: str) -> str:
    """Return the HTML of a table with its intervals drawn.

    Columns whose numbers overlap share an axis, for they measure the same.
    """
    soup = BeautifulSoup(table, "html.parser")
    heads = soup.select("thead th")[1:]
    columns = zip(*(row.select("td") for row in soup.select("tbody tr")), strict=True)
    told = {
        place: [(cell, numbers(cell)) for cell in cells if cell.small]
        for place, cells in enumerate(columns)
    }
    ends = {place: [x for _, row in cells for x in row] for place, cells in told.items() if cells}
    spans = axes({place: (min(found), max(found)) for place, found in ends.items()})
    for place, (low, high) in spans.items():
        zero = f"--zero:{100 * low / (low - high):.1f}%" if low < 0 < high else ""
        axis = soup.new_tag(
            "span", attrs={"class": "book-axis", "style": zero, "aria-hidden": "true"}
        )
        for end in (low, high):
            label = soup.new_tag("span")
            label.string = f"{end:g}".replace("-", "−")
            axis.append(label)
        heads[place].append(axis)
        for cell, row in told[place]:
            at = (f"{100 * (x - low) / (high - low):.1f}%" for x in row)
            names = zip(("--mean", "--low", "--high"), at, strict=True)
            style = ";".join([*(f"{name}:{value}" for name, value in names), *filter(None, [zero])])
            cell.append(soup.new_tag("span", attrs={"class": "book-bar", "style": style}))
    return str(soup)


def numbers(cell: Tag) -> tuple[float, ...]:
    """Return mean and ends of an interval: ``0.9 <small>[0.8, 1.0]</small>``."""
    return tuple(float(text.strip("[],")) for text in cell.get_text(" ").split())


def axes(spans: Mapping[int, Span]) -> dict[int, Span]:
    """Return column → where its axis begins and ends, at round numbers."""
    groups: list[tuple[Span, list[int]]] = []
    for place, span in sorted(spans.items(), key=lambda item: item[1]):
        if groups and span[0] <= groups[-1][0][1]:
            (low, high), places = groups.pop()
            groups.append(((low, max(high, span[1])), [*places, place]))
        else:
            groups.append((span, [place]))
    return {place: rounded(*span) for span, places in groups for place in places}


def rounded(low: float, high: float) -> Span:
    """Return the next round numbers around a span."""
    length = (high - low) or abs(high) or 1
    step = 10.0 ** math.floor(math.log10(length))
    step *= next(x for x in (0.2, 0.5, 1, 2) if length <= 5 * x * step)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return first * step, max(last, first + 1) * step


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
            if found is None:  # folded: it has its intervals, and no number
                raw.replace_self(nodes.raw("", drawn(raw.astext()), format="html"))
                continue
            table = NumberedTable(ids=[f"table-{number}"])
            link = f'<a class="headerlink" href="#table-{number}" title="Link to this table">#</a>'
            text = nodes.Text(html.unescape(found[1]))
            table += nodes.caption("", "", text, nodes.raw("", link, format="html"))
            table += nodes.raw("", "</figcaption>", format="html")
            table += nodes.raw("", drawn(CAPTION.sub("", raw.astext())), format="html")
            raw.replace_self(table)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the transform, and the kind of node that is counted with tables."""
    app.add_enumerable_node(NumberedTable, "table", html=(visit_table, depart_table))
    app.add_transform(CountTables)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
