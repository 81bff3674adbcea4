"""The modules of the package, described where a page names them by a pattern.

    ```{modules} stringlib/attention/*.py
    ```

stands for a heading and an ``automodule`` for each file that matches, so that a new module has its
page from the start. The package's own text comes first, without a heading. What an annotation says
of an argument stands behind its type: ``q: Tensor['... heads n d']``.
"""

from __future__ import annotations

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.pycode.parser import VariableCommentPicker
from sphinx.util import logging

PLACE = re.compile(r"^```\{modules\} (\S+)\n```$", re.MULTILINE)
ANNOTATED = re.compile(r"[~\w.]*\bAnnotated\[([~\w.]+), ('[^']*')\]")
# tables of classes and long texts: their names say enough
WITHOUT_VALUES = {"registry", "projections", "listops", "images"}

logger = logging.getLogger(__name__)


def described(root: Path, path: Path) -> str:
    """Return the Markdown that describes one module."""
    *package, file = path.relative_to(root).with_suffix("").parts
    if file == "__init__":
        name, head, options = ".".join(package), "", ["no-members"]
    else:
        name = ".".join((*package, file))
        head, options = f"## `{name}`\n\n", ["members", "show-inheritance"]
        if file in WITHOUT_VALUES:
            options.append("no-value")
    lines = "".join(f"   :{option}:\n" for option in options)
    return f"{head}```{{eval-rst}}\n.. automodule:: {name}\n{lines}```\n"


def modules(app: Sphinx, pattern: str) -> list[Path]:
    """Return the files that a pattern matches, the package's own text first."""
    found = sorted(Path(app.srcdir).glob(pattern))
    return [path for path in found if path.name != "__main__.py"]


def fill_in(app: Sphinx, page: str, source: list[str]) -> None:
    """Write the modules in their places while the book is built."""

    def listed(place: re.Match[str]) -> str:
        paths = modules(app, place[1])
        if not paths:
            logger.warning("no module is %s", place[1], location=page)
        app.env.modules_of_pages[page, place[1]] = paths
        return "\n".join(described(Path(app.srcdir), path) for path in paths)

    source[0] = PLACE.sub(listed, source[0])


def outdated(app: Sphinx, env: Any, *_: set[str]) -> list[str]:
    """Return the pages that lack a new module or have one that is gone."""
    env.modules_of_pages = before = getattr(env, "modules_of_pages", {})
    stale = {page for (page, pattern), paths in before.items() if modules(app, pattern) != paths}
    return sorted(stale & env.found_docs)


def merge(app: Sphinx, env: Any, pages: set[str], other: Any) -> None:
    """Take over what another process has read."""
    env.modules_of_pages |= other.modules_of_pages


def complete(app: Sphinx, thing: Any, bound: bool) -> None:
    """Give the module of ``thing`` the classes that it imports under ``TYPE_CHECKING``.

    Without them, Sphinx could not read the annotations that name these classes.
    """
    module = inspect.getmodule(inspect.unwrap(thing))
    if module is None or not module.__name__.startswith("stringlib"):
        return
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for line in node.body:
                for name in line.names if isinstance(line, ast.ImportFrom) else []:
                    found = getattr(import_module(str(line.module)), name.name)
                    vars(module).setdefault(name.name, found)


def shorten(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, signature: str | None, returns: str
) -> tuple[str, str] | None:
    """Return a signature whose annotations read as shapes and ranges."""
    return (ANNOTATED.sub(r"\1[\2]", signature), returns) if signature else None


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the hooks."""
    # overloads are for type checkers; the function itself says the shapes
    VariableCommentPicker.add_overload_entry = lambda self, function: None
    app.connect("env-get-outdated", outdated)
    app.connect("source-read", fill_in)
    app.connect("env-merge-info", merge)
    app.connect("autodoc-before-process-signature", complete)
    app.connect("autodoc-process-signature", shorten)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
