"""The form in which a chapter is read: content first, its code one line away.

The source of every code cell folds into one line that says what the cell shows, and how many of
its checks passed. That line is the comment with which the cell begins; where it says what the cell
proves, the line names the equations by their numbers. The tag ``show-code`` leaves a cell open:
code that is meant to be read. The code of a figure stands behind the figure. ``book-form.js`` has
the switch that opens all of a page; folds need no script.
"""

from __future__ import annotations

import ast
import html
from collections import defaultdict
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

from tools.ledger import PROVES, is_proof

SCRIPTLESS = (
    "Without JavaScript, the figures appear here as pictures of one state, with a description."
)
# what a cell gives an equation, by the kind that its comment names
GIVES = {
    "by algebra": "Proof of",
    "by algebra at a fixed size": "Proof at a fixed size of",
    "for small sizes": "All small cases of",
    "in float64": "Check of",
}


class CodeFold(nodes.Element):
    """A cell's source under the line that says what it shows."""


def visit_fold(self: Any, node: CodeFold) -> None:
    """Open the fold."""
    self.body.append(
        '<details class="book-code"><summary>'
        f'<span class="book-what">{html.escape(node["title"])}</span> '
        f'<span class="book-note">{html.escape(node["note"])}</span></summary>\n'
    )


def depart_fold(self: Any, node: CodeFold) -> None:
    """Close the fold."""
    self.body.append("</details>\n")


class FoldCode(SphinxPostTransform):
    """Fold the source of every code cell, and put that of a figure behind the figure."""

    default_priority = 198  # after MyST-NB has picked an output's form
    formats = ("html",)

    def run(self, **kwargs: Any) -> None:
        """Fold the cells of one page."""
        for cell in list(self.document.findall(nodes.container)):
            parts = {c.get("nb_element"): c for c in cell.children if isinstance(c, nodes.Element)}
            source, output = parts.get("cell_code_source"), parts.get("cell_code_output")
            if cell.get("nb_element") != "cell_code" or source is None:
                continue
            if "show-code" in cell["cell_metadata"].get("tags", []):
                continue
            figure = output is not None and shows_figure(output)
            fold = CodeFold("", source.deepcopy())
            fold["title"], fold["note"] = self.describe(source.astext())
            cell["classes"].append("cell-silent" if output is None else "cell-shows")
            cell.remove(source)
            cell.insert(len(cell) if figure else 0, fold)

    def describe(self, source: str) -> tuple[str, str]:
        """Return what a cell shows, and how long it is and what it checks."""
        lines = source.strip().splitlines()
        code = "\n".join("pass" if line.lstrip()[:1] in ("%", "!") else line for line in lines)
        tree = ast.parse(code)
        note = f"{len(lines)} line{'s' * (len(lines) > 1)}"
        checks = sum(isinstance(node, ast.Assert) or is_proof(node) for node in ast.walk(tree))
        if checks:
            note += f", {checks} check{'s' * (checks > 1)} passed"
        proves = defaultdict(list)
        for kind, labels in PROVES.findall(source):
            proves[GIVES[kind]] += [self.number(label.strip()) for label in labels.split(",")]
        if proves and PROVES.match(lines[0]):
            return ". ".join(f"{gives} {ranges(of)}" for gives, of in proves.items()), note
        # a cell without a title is refused by the tests of the pages
        return lines[0][2:] if lines[0].startswith("# ") else "Code", note

    def number(self, label: str) -> tuple[int, ...]:
        """Return an equation's number as the page shows it, by its parts."""
        page, count = self.env.get_domain("math").equations[label]  # type: ignore[attr-defined]
        numbers = self.env.toc_fignumbers.get(page, {}).get("displaymath", {})
        return tuple(numbers.get(nodes.make_id(f"equation-{label}"), (count,)))


def ranges(numbers: list[tuple[int, ...]]) -> str:
    """Return numbers of equations in their order, three or more in a row by the ends alone."""
    rows: list[list[tuple[int, ...]]] = []
    for number in sorted({*numbers}):
        before = rows[-1][-1] if rows else ()
        if before[:-1] == number[:-1] and before and before[-1] + 1 == number[-1]:
            rows[-1].append(number)
        else:
            rows.append([number])
    texts = [[f"({'.'.join(map(str, number))})" for number in row] for row in rows]
    return ", ".join(f"{row[0]} to {row[-1]}" if len(row) > 2 else ", ".join(row) for row in texts)


def shows_figure(output: nodes.Element) -> bool:
    """Return whether an output shows a picture, a figure or a table."""
    raw = any("book-" in node.astext()[:60] for node in output.findall(nodes.raw))
    return raw or next(output.findall(nodes.image), None) is not None


def say_what_needs_scripts(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    """Say on a page with figures why a reader without scripts cannot move them."""
    body = context.get("body") or ""
    if 'class="book-figure' in body:
        context["body"] = f'<noscript><p class="book-noscript">{SCRIPTLESS}</p></noscript>{body}'


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the transform and the switch."""
    app.connect("html-page-context", say_what_needs_scripts)
    app.add_node(CodeFold, html=(visit_fold, depart_fold))
    app.add_post_transform(FoldCode)
    app.add_js_file("book-form.js", loading_method="defer")
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
