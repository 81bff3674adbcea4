"""The picture of which part of the package stands on which, drawn from its imports.

    ```{layout}
    ```

A part is a folder of ``stringlib``; of the files beside the folders, those that a folder imports
are its ground, the others carry it into other models. A part stands one storey above the highest
that it imports, and a line leads to each that it does not already reach through another.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parents[1] / "stringlib"
GROUND, OTHERS = "common files", "for other models"
WIDTH, BOX, STOREY = 360, 40, 62

Imports = Mapping[str, set[str]]
"""Part → the parts that it imports."""


def imported(path: Path) -> set[str]:
    """Return the folders and files below the package that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
        if isinstance(node, ast.ImportFrom):
            below = [f"{node.module}.{name.name}" for name in node.names]
        elif isinstance(node, ast.Import):
            below = [name.name for name in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in below if name.startswith("stringlib.")}
    return found


def parts(root: Path = ROOT) -> dict[str, list[str]]:
    """Return each part with its modules: folders, ground and what is for other models."""
    folders = {path.parent.name for path in root.glob("*/__init__.py")}
    files = {path.stem: imported(path) for path in root.glob("*.py") if path.stem != "__init__"}
    below = set[str]().union(*(imported(p) for f in folders for p in (root / f).glob("*.py")))
    while more := set[str]().union(*(files[f] for f in below & set(files))) - below:
        below |= more
    named = {folder: [folder] for folder in sorted(folders)}
    return named | {GROUND: sorted(below & set(files)), OTHERS: sorted(set(files) - below)}


def imports(root: Path = ROOT) -> Imports:
    """Return what each part imports of the others."""
    named = parts(root)
    owner = {module: part for part, modules in named.items() for module in modules}
    found: dict[str, set[str]] = {}
    for part, modules in named.items():
        one = [root / f"{m}.py" for m in modules]
        paths = one if one[0].is_file() else (root / part).glob("*.py")
        found[part] = {owner[m] for p in paths for m in imported(p) if m in owner} - {part}
    return found


def reach(part: str, found: Imports) -> set[str]:
    """Return all that a part stands on, directly or not."""
    return found[part].union(*(reach(below, found) for below in found[part]))


def storeys(found: Imports) -> list[list[str]]:
    """Return the parts of each storey, from the ground up."""

    def height(part: str) -> int:
        return 1 + max(map(height, found[part]), default=-1)

    heights = {part: height(part) for part in found}
    return [[p for p in sorted(found) if heights[p] == h] for h in range(max(heights.values()) + 1)]


def lines(found: Imports) -> dict[str, list[str]]:
    """Return for each part those that it imports and does not reach through another."""
    return {
        part: sorted(below - set[str]().union(*(reach(other, found) for other in below)))
        for part, below in found.items()
    }


def picture(root: Path = ROOT) -> str:
    """Return the picture as SVG, with what it says in words."""
    found = imports(root)
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
        title = part if part in (GROUND, OTHERS) else f"stringlib.{part}"
        drawn.append(f'<text x="{x:g}" y="{y + 25:g}">{title}</text>')
    said = [f"{part} on {' and '.join(below)}" for part, below in joined.items() if below]
    alone = [
        part for part in found if not found[part] and not any(part in b for b in found.values())
    ]
    alt = f"Storeys of boxes: {'; '.join(said)}." + "".join(f" {p} stands alone." for p in alone)
    height = STOREY * (len(floors) - 1) + BOX + 4
    return (
        f'<div class="book-picture book-layout" style="--width: 26rem"><svg role="img" '
        f'aria-label="{escape(alt)}" viewBox="0 0 {WIDTH} {height}">{"".join(drawn)}</svg></div>'
    )


class Layout(SphinxDirective):
    """Show the picture."""

    def run(self) -> list[nodes.Node]:
        """Draw it anew whenever a file of the package has changed."""
        for path in ROOT.rglob("*.py"):
            self.env.note_dependency(str(path))
        return [nodes.raw(text=picture(), format="html")]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("layout", Layout)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
