"""The form in which JupyterLab shows a chapter: numbers and words in the place of the book's roles.

JupyterLab knows neither the numbers of other chapters nor the book's own roles and directives: it
shows their ids. ``show`` writes what a reader of the book sees. ``restore`` takes it back before a
chapter is saved, so that its file stays as it is: every rewriting leaves a link, an option or a
comment by which it is found again.

* ``{eq}``, ``{prf:ref}`` and ``{numref}`` become links that show the number.
* Equations, theorems and exercises carry their number. A figure has its caption in a cell below it,
  which cannot be edited and is not saved.
* ``{verdict}`` and ``{recorded}`` become their words.
* ``{question}`` becomes its text and a fold with the answer, ``{live}`` a box with its words.
* The code of a solution is folded.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import nbformat
from sphinx_external_toc.parsing import parse_toc_yaml

from _ext.book_question import computed, parted, written
from tools.ledger import cells

EQUATION = re.compile(r"\s*\$\$ \((eq-[\w-]+)\)")
THEOREM = re.compile(r"`{3,}\{prf:(?!proof)(\w+)\}[^\n]*\n:label: ([\w-]+)\n")
EXERCISE = re.compile(r"`{3,}\{exercise-start\}[^\n]*\n:label: ([\w-]+)\n")
PROOF = re.compile(r"`{3,}\{prf:proof\}\n")
REFERENCE = re.compile(r"\{(?:eq|prf:ref|numref)\}`([\w-]+)`")
WORDS = re.compile(r"\{(verdict|recorded)\}`([^`<]*) <([^`>]*)>`")
QUESTION = re.compile(r"```\{question\}\n((?::[^\n]*\n)+)\n(.*?)\n```", re.DOTALL)
LIVE = re.compile(r"```\{live\}([^\n]*\n(?::[^\n]*\n)*)(.*?)\n```", re.DOTALL)

# JupyterLab counts every displayed formula, the book only those with a label.
UNCOUNTED = "---\nnumbering:\n  equation: false\n---\n\n"
CAPTION = "caption"  # marks a cell that is not saved

# What takes the rewritings back. The last pattern of a link is for all that the others leave.
LINK = r"\[{}\]\((?:\w+\.ipynb)?#({}[\w-]+)\)"
BACK = [
    (re.compile(rf"\A{UNCOUNTED}"), ""),
    (re.compile(r" \\tag\{\d+\.\d+\}(?=\s*\$\$ \(eq-)"), ""),
    (re.compile(r"^:(?:enumerator: \d+\.\d+|enumerated: false)\n", re.MULTILINE), ""),
    (re.compile(LINK.format(r"\(\d+\.\d+\)", "eq-")), r"{eq}`\1`"),
    (re.compile(LINK.format(r"Figure \d+\.\d+", "")), r"{numref}`\1`"),
    (re.compile(LINK.format(r"[A-Z][a-z]+ \d+\.\d+", "")), r"{prf:ref}`\1`"),
    (re.compile(r'<span data-(verdict|recorded)="([^"]*)">([^<]*)</span>'), r"{\1}`\3 <\2>`"),
    (
        re.compile(
            r"<!-- \{question\}\n(.*?)-->\n\n(.*?)\n\n"
            r"```\{admonition\} Answer\n:class: dropdown\n\n.*?\n\n(.*?)\n```",
            re.DOTALL,
        ),
        r"```{question}\n\1\n\2\n\n---\n\n\3\n```",
    ),
    (
        re.compile(
            r"<!-- \{live\}(.*?)-->\n\n```\{admonition\} On the page of the book\n(.*?)\n```",
            re.DOTALL,
        ),
        r"```{live}\1\2\n```",
    ),
]


class Numbers:
    """The numbers of the book: of chapters by ``_toc.yml``, of the rest by the order in a chapter.

    Attributes:
        names: What a reference says, by its id: ``(2.3)``, ``Theorem 2.4``, ``Figure 4.2``.
        pages: The notebook that it leads to, by its id.
    """

    def __init__(self, root: Path) -> None:
        """Count all chapters."""
        self.names: dict[str, str] = {}
        self.pages: dict[str, str] = {}
        chapters = [name for name in parse_toc_yaml(root / "_toc.yml") if "notebooks/" in name]
        for chapter, name in enumerate(chapters, 1):
            path = root / f"{name}.ipynb"
            counts: Counter[str] = Counter()
            for _, cell in cells(root, path) if path.exists() else ():
                for label, kind, words in counted(cell):
                    counts[kind] += 1
                    self.names[label] = words.format(f"{chapter}.{counts[kind]}")
                    self.pages[label] = path.name

    def bare(self, label: str) -> str:
        """Return a number without its word or its parentheses."""
        return self.names[label].split()[-1].strip("()")


def counted(cell: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield what is numbered in a cell: its id, with what it is counted, and its name."""
    if cell["cell_type"] == "markdown":
        for match in EQUATION.finditer(cell["source"]):
            yield match[1], "equation", "({})"
        for match in THEOREM.finditer(cell["source"]):
            yield match[2], "theorem", f"{match[1].capitalize()} {{}}"
        for match in EXERCISE.finditer(cell["source"]):
            yield match[1], "exercise", "Exercise {}"
    elif figure := figure_of(cell):
        yield figure["name"], "figure", "Figure {}"


def figure_of(cell: dict[str, Any]) -> dict[str, str]:
    """Return the caption and the name of the figure that a cell draws, or nothing."""
    figure: dict[str, str] = cell["metadata"].get("mystnb", {}).get("figure", {})
    return figure


def show(nb: nbformat.NotebookNode, page: str, numbers: Numbers) -> None:
    """Bring a chapter, the notebook ``page``, into this form, in place."""
    shown, solution = [], False
    for cell in nb.cells:
        shown.append(cell)
        if cell.cell_type == "markdown":
            solution = "{solution-start}" in cell.source.rpartition("{solution-end}")[2]
            cell.source = rewritten(cell.source, page, numbers)
        elif solution:
            cell.metadata["jupyter"] = {"source_hidden": True}
        elif figure_of(cell).get("name") in numbers.names:
            shown.append(caption(figure_of(cell), page, numbers))
    if shown[0].cell_type == "markdown":
        shown[0].source = UNCOUNTED + shown[0].source
    nb.cells = shown


def restore(nb: nbformat.NotebookNode) -> None:
    """Take this form back, in place. What is not in it stays as it is."""
    nb.cells = [cell for cell in nb.cells if not cell.metadata.get(CAPTION)]
    for cell in nb.cells:
        if cell.cell_type == "markdown":
            for pattern, source in BACK:
                cell.source = pattern.sub(source, cell.source)


def caption(figure: dict[str, str], page: str, numbers: Numbers) -> nbformat.NotebookNode:
    """Return the cell with a figure's caption, to which a reference leads."""
    label, text = figure["name"], rewritten(figure["caption"], page, numbers)
    return nbformat.v4.new_markdown_cell(
        f"({label})=\n\n**{numbers.names[label]}.** {text}",
        metadata={CAPTION: True, "editable": False},
    )


def rewritten(source: str, page: str, numbers: Numbers) -> str:
    """Return a Markdown text in this form. What has no number yet keeps its role."""

    def tagged(match: re.Match[str]) -> str:
        known = match[1] in numbers.names
        return (rf" \tag{{{numbers.bare(match[1])}}}" if known else "") + match[0]

    def enumerated(match: re.Match[str], label: int) -> str:
        known = match[label] in numbers.names
        return match[0] + (f":enumerator: {numbers.bare(match[label])}\n" if known else "")

    def link(match: re.Match[str]) -> str:
        if match[1] not in numbers.names:
            return match[0]
        file = numbers.pages[match[1]]
        return f"[{numbers.names[match[1]]}]({'' if file == page else file}#{match[1]})"

    source = EQUATION.sub(tagged, source)
    source = THEOREM.sub(partial(enumerated, label=2), source)
    source = EXERCISE.sub(partial(enumerated, label=1), source)
    source = PROOF.sub(r"\g<0>:enumerated: false\n", source)
    source = REFERENCE.sub(link, source)
    source = WORDS.sub(r'<span data-\1="\3">\2</span>', source)
    source = QUESTION.sub(folded, source)
    box = r"<!-- {live}\1-->\n\n```{admonition} On the page of the book\n\2\n```"
    return LIVE.sub(box, source)


def folded(match: re.Match[str]) -> str:
    """Return a question with a fold that has its answer. One that is not complete stays."""
    options = dict(re.findall(r"^:(\w+): (.*)$", match[1], re.MULTILINE))
    try:
        asked, why = parted(match[2].splitlines())
        if "answer" in options:
            answer = f"{written(computed(options['answer']))} {options.get('unit', '')}".strip()
        else:
            answer = re.findall(r"^- (.*)$", asked, re.MULTILINE)[int(options["right"]) - 1]
    except (ValueError, LookupError):
        return match[0]
    return (
        f"<!-- {{question}}\n{match[1]}-->\n\n{asked}\n\n"
        f"```{{admonition}} Answer\n:class: dropdown\n\n**Answer:** {answer}.\n\n{why}\n```"
    )
