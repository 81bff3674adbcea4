"""Digests of the code of a run: one digest for each module that the run computes with."""

from __future__ import annotations

import ast
import hashlib
import linecache
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from sysconfig import get_path
from types import FunctionType
from typing import Any

from torch import nn

ROOT = Path(__file__).resolve().parents[2]
CHANGES_NOTHING = ("console", "explore", "files", "records", "train")
"""Parts of ``lab`` that have no effect on results, because they only save, show and report.

The modules of ``lab.train`` in ``COMPUTES`` are exceptions.
"""
COMPUTES = ("loop", "fitting", "learn", "evaluate", "optimizer", "settings")
LEFT_OUT = ("annotation", "returns", "type_comment", "kind", "ctx")
"""Fields of a syntax tree that have no effect on results."""


def code_of(*things: Any) -> dict[str, str]:
    """Return the digests of the modules that define the given things, and of what these import.

    Comments, docstrings, annotations, blank lines and the version of Python have no effect on a
    digest. Imports inside functions are followed, but imports of installed packages are not. In a
    notebook, the cell that defines a class or function takes the place of its module. Imports in
    this cell, and functions in other cells that it calls, are not included.

    Args:
        *things: Files, functions, and objects such as models and tasks.
    """
    found: dict[str, str] = {}
    todo: list[Path] = []
    _find.cache_clear()  # files may have been added or removed since the last call
    for part in {part for thing in things for part in _parts(thing)}:
        if isinstance(part, Path):
            todo.append(part.resolve())
        elif file := getattr(sys.modules.get(part.__module__), "__file__", None):
            todo.append(Path(file).resolve())
        elif part.__module__ == "__main__":
            found[part.__qualname__], _ = _read(_cell(part))
    while todo:
        path = todo.pop()
        root = next(folder for folder in path.parents if not (folder / "__init__.py").exists())
        name = ".".join(path.relative_to(root).with_suffix("").parts)
        if name not in found and _counts(path, name.split(".")):
            found[name], imports = _read(path.read_text(encoding="utf8"))
            todo += [file for one in imports for file in _imported(path, root, *one)]
    return dict(sorted(found.items()))


def digest(code: Mapping[str, str]) -> str:
    """Return a single digest of the result of :func:`code_of`."""
    return _short(f"{sorted(code.items())}")


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _parts(thing: Any) -> Iterator[Any]:
    """Yield a file or function itself; of an object the classes of its parts, and their bases."""
    if isinstance(thing, Path | FunctionType):
        yield thing
        return
    for one in thing.modules() if isinstance(thing, nn.Module) else [thing]:
        for value in (one, *vars(one).values()):
            yield from [value] if isinstance(value, FunctionType) else type(value).__mro__


def _cell(part: Any) -> str:
    """Return the text of the notebook's cells in which a function or a class's methods are."""
    inside = vars(part).values() if isinstance(part, type) else [part]
    files = {x.__code__.co_filename for x in inside if isinstance(x, FunctionType)}
    return "".join(line for file in sorted(files) for line in linecache.getlines(file))


def _counts(path: Path, name: list[str]) -> bool:
    """Return whether a module is of this package, or of somebody who uses it."""
    if name[0] == "lab":
        return name[1] not in CHANGES_NOTHING or name[-1] in COMPUTES
    library = path.is_relative_to(Path(get_path("stdlib")).resolve())
    installed = library or not {"site-packages", "dist-packages"}.isdisjoint(path.parts)
    return path.suffix == ".py" and (name[0] == "stringlib" or not installed)


def _imported(path: Path, root: Path, level: int, module: str, name: str) -> Iterator[Path]:
    """Yield the file of an import; a name that a package only passes on is in another file."""
    folders = (path.parents[level - 1],) if level else (root, ROOT)
    file, package = _find(folders, f"{module}.{name}"), _find(folders, module)
    if file is None and package is not None and package.stem == "__init__":
        known = _read(package.read_text(encoding="utf8"))[1]
        passed_on = [x for x in known if x[-1] == name and x[:-1] != (level, module)]
        for one in passed_on:
            yield from _imported(package, root, *one)
        package = None if passed_on else package
    if found := file or package:
        yield found


@cache
def _find(folders: tuple[Path, ...], module: str) -> Path | None:
    """Return the file of a module, from the first folder that has one."""
    stem = module.strip(".").replace(".", "/")
    files = (x for f in folders for x in (f / f"{stem}.py", f / stem / "__init__.py"))
    return next((file for file in files if file.is_file()), None)


@cache
def _read(source: str) -> tuple[str, list[tuple[int, str, str]]]:
    """Return the digest of a source and its imports, each as level, module and name."""
    tree = ast.parse(source)
    imports = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports += [(0, alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imports += [(node.level, node.module or "", alias.name) for alias in node.names]
    return _short(_plain(tree)), imports


def _plain(node: Any) -> str:
    """Return a syntax tree as text, the same with every version of Python."""
    if isinstance(node, list):
        return f"[{', '.join(_plain(x) for x in node if not _is_docstring(x))}]"
    if not isinstance(node, ast.AST):
        return ascii(node)
    if isinstance(node, ast.JoinedStr):  # Python 3.12 may end a format with an empty string
        node.values = [x for x in node.values if getattr(x, "value", None) != ""]
    fields = ((name, x) for name, x in ast.iter_fields(node) if name not in LEFT_OUT)
    told = [f"{name}={_plain(x)}" for name, x in fields if x not in (None, [])]
    return f"{type(node).__name__}({', '.join(told)})"


def _is_docstring(node: Any) -> bool:
    """Return whether a statement is a constant alone, which does nothing."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
