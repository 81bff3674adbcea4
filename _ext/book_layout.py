"""A diagram of the parts of the package and their sizes, drawn from the imports and the files.

    ```{layout}
    ```

A part is a folder of ``stringlib``, or all files beside the folders that some folder imports. A
part is drawn one row above the highest part that it imports. A line leads to each part that it
imports and does not already reach through another.

Each box shows the number of lines of the part, and the number of those that contain code and not
only documentation. The sentences below the diagram add them up, and count the lines that are
imported with the attention layer.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Mapping
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parents[1] / "stringlib"
GROUND = "common files"
CORE = ("algebra", "attention", "encoders", "kernels", "models", GROUND)
"""The parts that the book teaches. The others test it, restate it or carry it elsewhere."""

LAYER = "attention/multihead.py"
"""The file with the attention layer, whose imports the page counts."""

WIDTH, BOX, STOREY = 360, 46, 68

Imports = Mapping[str, set[str]]
"""Part → the parts that it imports."""


def imported(path: Path) -> set[str]:
    """Return the folders and files below the package that a file imports."""
    return _imported(path.read_text(encoding="utf8"))


@cache
def _imported(text: str) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            below = [f"{node.module}.{name.name}" for name in node.names]
        elif isinstance(node, ast.Import):
            below = [name.name for name in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in below if name.startswith("stringlib.")}
    return found


def parts(root: Path = ROOT) -> dict[str, list[str]]:
    """Return each part with its modules: the folders, and the files that a folder imports."""
    folders = {path.parent.name for path in root.glob("*/__init__.py")}
    files = {path.stem: imported(path) for path in root.glob("*.py") if path.stem != "__init__"}
    below = set[str]().union(*(imported(p) for f in folders for p in (root / f).glob("*.py")))
    while more := set[str]().union(*(files[f] for f in below & set(files))) - below:
        below |= more
    named = {folder: [folder] for folder in sorted(folders)}
    return named | {GROUND: sorted(below & set(files))}


def paths(part: str, root: Path = ROOT) -> list[Path]:
    """Return the files of a part."""
    if part != GROUND:
        return sorted((root / part).glob("*.py"))
    return [root / f"{module}.py" for module in parts(root)[GROUND]]


@cache
def size(text: str) -> tuple[int, int]:
    """Return the number of lines of a file, and of those that contain code."""
    documented: set[int] = set()
    for node in ast.walk(ast.parse(text)):  # a string that is a statement is documentation
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            documented.update(range(node.lineno, (node.end_lineno or 0) + 1))
    blank = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    code = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in (*blank, tokenize.ENDMARKER)
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(text.splitlines()), len(code - documented)


def sizes(root: Path = ROOT) -> dict[str, tuple[int, int]]:
    """Return part → number of lines, and of lines of code."""
    found = {}
    for part in parts(root):
        each = [size(path.read_text(encoding="utf8")) for path in paths(part, root)]
        found[part] = (sum(a for a, _ in each), sum(b for _, b in each))
    return found


def closure(file: str, root: Path = ROOT) -> set[Path]:
    """Return a file and all files that are imported with it, directly or not.

    Imports inside functions and under ``TYPE_CHECKING`` do not count.
    """
    found: set[Path] = set()
    todo = [root / file]
    while todo:
        path = todo.pop()
        if path in found or not path.is_file():
            continue
        found.add(path)
        for node in ast.parse(path.read_text(encoding="utf8")).body:
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("stringlib."):
                folder = root.joinpath(*str(node.module).split(".")[1:])
                todo += [folder.with_suffix(".py"), *(folder / f"{n.name}.py" for n in node.names)]
    return found


def total(root: Path = ROOT) -> str:
    """Return the sentences that add up the sizes."""
    found = sizes(root)
    core, code = (sum(found[part][i] for part in CORE) for i in (0, 1))
    read = closure(LAYER, root)
    largest = max((p for part in CORE for p in paths(part, root)), key=_length)
    return (
        f"The core of the package, which this book teaches, has {core:,} lines, of which {code:,} "
        f"contain code: {', '.join(CORE[:-1])} and the {GROUND}. Its longest file is "
        f"{largest.relative_to(root).as_posix()} with {_length(largest)} lines. {LAYER} imports "
        f"{len(read) - 1} other files. Together with them it has {sum(map(_length, read)):,} lines."
    )


def _length(path: Path) -> int:
    return len(path.read_text(encoding="utf8").splitlines())


def imports(root: Path = ROOT) -> Imports:
    """Return what each part imports of the others."""
    named = parts(root)
    owner = {module: part for part, modules in named.items() for module in modules}
    found: dict[str, set[str]] = {}
    for part in named:
        below = {owner[m] for p in paths(part, root) for m in imported(p) if m in owner}
        found[part] = below - {part}
    return found


def reach(part: str, found: Imports) -> set[str]:
    """Return all parts that a part imports, directly or not."""
    return found[part].union(*(reach(below, found) for below in found[part]))


def storeys(found: Imports) -> list[list[str]]:
    """Return the parts of each row, from the lowest up."""

    def height(part: str) -> int:
        return 1 + max(map(height, found[part]), default=-1)

    heights = {part: height(part) for part in found}
    return [[p for p in sorted(found) if heights[p] == h] for h in range(max(heights.values()) + 1)]


def lines(found: Imports) -> dict[str, list[str]]:
    """Return for each part those that it imports and does not already reach through another."""
    return {
        part: sorted(below - set[str]().union(*(reach(other, found) for other in below)))
        for part, below in found.items()
    }


def picture(root: Path = ROOT) -> str:
    """Return the diagram as SVG, with a description in words."""
    found, counted = imports(root), sizes(root)
    floors, joined = storeys(found), lines(found)
    places = {
        part: (WIDTH * (2 * i + 1) / (2 * len(floor)), STOREY * (len(floors) - 1 - h) + 2)
        for h, floor in enumerate(floors)
        for i, part in enumerate(floor)
    }
    drawn = []
    for part, below in joined.items():
        x, y = places[part]
        drawn += [
            f'<line x1="{x:g}" y1="{y + BOX:g}" x2="{places[b][0]:g}" y2="{places[b][1]:g}"/>'
            for b in below
        ]
    for part, (x, y) in places.items():
        drawn.append(f'<rect x="{x - 84:g}" y="{y:g}" width="168" height="{BOX}" rx="5"/>')
        title = part if part == GROUND else f"stringlib.{part}"
        drawn.append(f'<text x="{x:g}" y="{y + 20:g}">{title}</text>')
        words = "{:,} lines, {:,} of code".format(*counted[part])
        drawn.append(f'<text class="book-layout-size" x="{x:g}" y="{y + 37:g}">{words}</text>')
    said = [f"{part} imports {' and '.join(below)}" for part, below in joined.items() if below]
    alone = [
        part for part in found if not found[part] and not any(part in b for b in found.values())
    ]
    alt = f"Boxes in rows, joined by lines. {'; '.join(said)}."
    alt += "".join(f" {part} imports no other part." for part in alone)
    height = STOREY * (len(floors) - 1) + BOX + 4
    return (
        f'<div class="book-picture book-layout" style="--width: 26rem"><svg role="img" '
        f'aria-label="{escape(alt)}" viewBox="0 0 {WIDTH} {height}">{"".join(drawn)}</svg></div>'
    )


class Layout(SphinxDirective):
    """Show the diagram and the sum of the sizes."""

    def run(self) -> list[nodes.Node]:
        """Draw it again whenever a file of the package has changed."""
        for path in ROOT.rglob("*.py"):
            self.env.note_dependency(str(path))
        return [nodes.raw(text=picture(), format="html"), nodes.paragraph(text=total())]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("layout", Layout)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
