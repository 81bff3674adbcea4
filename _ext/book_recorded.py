"""A quiet line below the command of a recorded study whose code is not today's.

Pages name the command that made what they show, ``python results/NAME.py``. Below the first
place of each on a page the built page says if its record was made by other code than that of now,
or does not tell: see :func:`lab.train.code.code_of`. Where ``tools/first_steps.py`` has compared
both codes, it says how far apart they were.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.nodes import make_refnode

from lab.records import read_record
from lab.train.code import code_of, digest

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"
COMMAND = re.compile(r"python results/(\w+)\.py")
EXPLAINED = "book/running", "repeat-a-recorded-study"
OTHER = "recorded with another version of the code"
UNKNOWN = "recorded with an unknown version of the code"


@cache
def code(name: str) -> str:
    """Return the digest of a study's code as it is now."""
    return digest(code_of(RESULTS / f"{name}.py"))


@cache
def mark(name: str) -> tuple[str, str] | None:
    """Return what is said of a study's record, and its commit; None if it is of the code of now."""
    record = read_record(RESULTS / f"{name}.json")
    told = record.get("code")
    if told == code(name):
        return None
    commits = ", ".join(commit[:7] for commit in record["commit"].split("; "))
    return (UNKNOWN if told is None else OTHER) + compared(name), commits


def compared(name: str) -> str:
    """Return what is known of the first steps of both codes; nothing if they were not compared."""
    path = RESULTS / "first_steps.json"
    found = json.loads(path.read_text(encoding="utf8")) if path.exists() else {}
    told = found.get(name)
    if told is None or told["code"] != code(name):
        return ""
    largest = told["largest"]
    how = f"numbers that differ by at most {largest:g}" if largest else "the same numbers"
    return f"; after {told['steps']} steps both versions report {how}"


def commands(document: nodes.Element) -> Iterator[tuple[nodes.Element, list[str]]]:
    """Yield what shows commands that were not shown before, and the studies that they make."""
    seen: set[str] = set()
    for node in document.findall(lambda n: isinstance(n, nodes.paragraph | nodes.literal_block)):
        if node.parent.get("nb_element") == "cell_code_source":
            continue
        found = dict.fromkeys(n for n in COMMAND.findall(node.astext()) if n not in seen)
        seen |= found.keys()
        if found:
            yield node, [*found]


class MarkRecords(SphinxPostTransform):
    """Say below its command that a record is not known to be of the code of now."""

    default_priority = 197  # MyST-NB has picked an output's form, and no source is folded yet
    formats = ("html",)

    def run(self, **kwargs: Any) -> None:
        """Mark the records of one page."""
        if self.env.docname == EXPLAINED[0]:
            return
        for node, names in list(commands(self.document)):
            for name in reversed(names):
                if said := mark(name):
                    node.parent.insert(node.parent.index(node) + 1, self.line(name, *said))

    def line(self, name: str, says: str, commit: str) -> nodes.paragraph:
        """Return the line about one record."""
        link = make_refnode(self.app.builder, self.env.docname, *EXPLAINED, nodes.Text(says))
        before, after = nodes.Text(f"{name}.json: "), nodes.Text(f" (commit {commit})")
        return nodes.paragraph("", "", before, link, after, classes=["book-recorded"])


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the transform."""
    app.add_post_transform(MarkRecords)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
