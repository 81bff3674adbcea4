"""Tables of numbers, with a drawing of their intervals."""

from __future__ import annotations

import html
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

__all__ = ["Noted", "Table"]

Interval = tuple[float, float, float]


class Noted(NamedTuple):
    """A cell of a table whose words open a note on the page.

    Attributes:
        words: Text of the cell.
        note: Text of the note.
    """

    words: str
    note: str


Cell = str | int | float | Interval | Noted

LONG = 20
"""Number of rows from which on the headings of a table on the page sort it."""


class Table:
    """A table whose first column contains the names of the rows.

    A notebook stores the table as aligned text, for readers of the file, and as HTML for the page.
    The page draws each interval on an axis, and sorts a long table by the column whose heading is
    pressed.

    Args:
        columns: Heading → cells, one for each row: a text, a number, ``(mean, low, high)``, or a
            text with a note, :class:`Noted`.
        caption: What the table shows, with the unit.
        digits: Number of decimal places.
        marked: Names of the rows to be highlighted.
        folded: Whether the page shows only the caption until it is pressed, for the data of an
            image.

    Raises:
        ValueError: If there is no column, if columns have different lengths, or if a marked row
            does not exist.

    Example:
        >>> Table({"encoder": ["none", "RoPE"], "accuracy": [(0.12, 0.1, 0.14), (0.9, 0.85, 0.95)]},
        ...       caption="Recall", digits=2, marked=["RoPE"])
        Recall
        encoder  accuracy
        none     0.12 [0.10, 0.14]
        RoPE     0.90 [0.85, 0.95]  <
    """

    def __init__(
        self,
        columns: Mapping[str, Sequence[Cell]],
        *,
        caption: str,
        digits: int = 3,
        marked: Collection[str] = (),
        folded: bool = False,
    ) -> None:
        if len({len(cells) for cells in columns.values()}) != 1:
            raise ValueError(
                "columns must contain at least one column, and all must have the same length, got "
                f"{ {head: len(cells) for head, cells in columns.items()} }"
            )
        self.columns = {head: list(cells) for head, cells in columns.items()}
        self.caption, self.digits, self.marked, self.folded = caption, digits, marked, folded
        self.names = [self._text(cell)[0] for cell in next(iter(self.columns.values()))]
        for name in marked:
            if name not in self.names:
                raise ValueError(
                    f"marked must contain names of rows, {', '.join(self.names)}, got {name!r}"
                )

    def __repr__(self) -> str:
        texts = [[head, *map(self._line, cells)] for head, cells in self.columns.items()]
        widths = [max(map(len, column)) for column in texts]
        ends = ["", *("  <" if name in self.marked else "" for name in self.names)]
        rows = zip(*texts, strict=True)
        lines = [
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
            + end
            for row, end in zip(rows, ends, strict=True)
        ]
        return "\n".join([self.caption, *lines])

    def _repr_html_(self) -> str:
        heads = "".join(f'<th scope="col">{html.escape(head)}</th>' for head in self.columns)
        rows = []
        for number, name in enumerate(self.names):
            cells = [f'<th scope="row">{html.escape(name)}</th>']
            for column in [*self.columns.values()][1:]:
                cells.append(f"<td>{self._html(column[number])}</td>")
            mark = ' class="book-marked"' if name in self.marked else ""
            rows.append(f"<tr{mark}>{''.join(cells)}</tr>")
        body = "\n".join(rows)
        numbers = f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{body}\n</tbody></table>"
        told = html.escape(self.caption)
        table = '<table class="book-sortable">' if len(self.names) >= LONG else "<table>"
        if self.folded:
            if len(self.names) >= LONG:  # a box of its own, to scroll in
                table, numbers = f"<div>{table}", f"{numbers}</div>"
            fold = f'<details class="book-numbers"><summary>{told}</summary>'
            return f"{fold}\n{table}{numbers}</details>"
        return f'<div class="book-numbers">{table}<caption>{told}</caption>\n{numbers}</div>'

    def _html(self, cell: Cell) -> str:
        """Return what a cell has on the page."""
        if isinstance(cell, Noted):
            words, note = map(html.escape, cell)
            return f'<details class="book-noted"><summary>{words}</summary>{note}</details>'
        value, between = self._text(cell)
        return html.escape(value) + (f" <small>{between}</small>" if between else "")

    def _line(self, cell: Cell) -> str:
        value, between = self._text(cell)
        return f"{value} {between}".rstrip()

    def _text(self, cell: Cell) -> tuple[str, str]:
        """Return a cell's value, and its interval if it has one."""
        if isinstance(cell, Noted):
            return cell.words, ""
        if isinstance(cell, tuple):
            mean, low, high = (f"{number:.{self.digits}f}" for number in cell)
            return mean, f"[{low}, {high}]"
        return (f"{cell:.{self.digits}f}" if isinstance(cell, float) else str(cell)), ""
