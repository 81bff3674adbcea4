"""``{exercise-list}`` stands for all exercises, by chapter: the list is made in the build."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from tools.ledger import cells, document, pages

EXERCISE = re.compile(r"^`{3,}\{exercise(?:-start)?\} (.+)\n:label: (\S+)$", re.MULTILINE)
PLACE = "```{exercise-list}\n```\n"


def markdown(root: Path) -> Iterator[tuple[str, str]]:
    """Yield page and text of every Markdown cell of the chapters, in the book's order."""
    for path in pages(root):
        if path.suffix == ".ipynb":
            for _, cell in cells(root, path):
                if cell["cell_type"] == "markdown":
                    yield document(root, path), cell["source"]


def exercise_list(root: Path) -> str:
    """Return the exercises in Markdown."""
    titles: dict[str, str] = {}
    lines: dict[str, list[str]] = {}
    for page, text in markdown(root):
        title = re.search(r"^# (.+)$", text, re.MULTILINE)
        if title:
            titles.setdefault(page, title[1].strip())
        for exercise in EXERCISE.finditer(text):
            lines.setdefault(page, []).append(f"- {{ref}}`{exercise[2]}`: {exercise[1]}")
    count = sum(map(len, lines.values()))
    blocks = [f"{count} exercises in {len(lines)} chapters.\n"]
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
