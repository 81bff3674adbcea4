"""``{exercise-list}`` stands for all exercises, by chapter: the list is made in the build.

An exercise is marked if it runs in the page, see ``book/proofs.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from book.proofs import EXERCISE as START
from tools.ledger import cells, document, pages

EXERCISE = re.compile(r"^`{3,}\{exercise(?:-start)?\} (.+)\n:label: (\S+)$", re.MULTILINE)
MARK = " ▶"
PLACE = "```{exercise-list}\n```\n"


def markdown(root: Path) -> Iterator[tuple[str, str, bool]]:
    """Yield page and text of every Markdown cell of the chapters, in the book's order.

    And whether an exercise at its end has a start, which is the cell below.
    """
    for path in pages(root):
        if path.suffix == ".ipynb":
            found = [cell for _, cell in cells(root, path)]
            for cell, below in zip(found, [*found[1:], {"source": ""}], strict=True):
                if cell["cell_type"] == "markdown":
                    started = below["source"].startswith(START)
                    yield document(root, path), cell["source"], started


def exercise_list(root: Path) -> str:
    """Return the exercises in Markdown."""
    titles: dict[str, str] = {}
    lines: dict[str, list[str]] = {}
    for page, text, started in markdown(root):
        title = re.search(r"^# (.+)$", text, re.MULTILINE)
        if title:
            titles.setdefault(page, title[1].strip())
        for exercise in EXERCISE.finditer(text):
            lines.setdefault(page, []).append(f"- {{ref}}`{exercise[2]}`: {exercise[1]}")
        if started:
            lines[page][-1] += MARK
    every = [line for page in lines.values() for line in page]
    marked = sum(line.endswith(MARK) for line in every)
    blocks = [
        f"{len(every)} exercises in {len(lines)} chapters, and {marked} of them are marked ▶.\n"
    ]
    # chapters are listed in the order of the table of contents, which numbers them
    for number, page in enumerate(titles, 1):
        if page in lines:
            blocks += [f"## {number}. {titles[page]}\n", *lines[page], ""]
    return "\n".join(blocks)


def fill_in(app: Sphinx, page: str, source: list[str]) -> None:
    """Write the list in its place while the book is built."""
    if PLACE in source[0]:
        source[0] = source[0].replace(PLACE, exercise_list(Path(app.srcdir)))


def setup(app: Sphinx) -> dict[str, Any]:
    """Make the page in every build: whatever it lists may have changed."""
    app.connect("source-read", fill_in)
    app.connect("env-get-outdated", lambda *_: ["book/exercises"])
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
