"""The proofs and exercises of a chapter that run in the reader's browser, with sympy alone.

A cell whose first line begins with "# proves by algebra" is a proof. One whose first line begins
with "# Exercise:" is where the reader of an exercise begins: it ends in a call of its check. A
browser has sympy, but neither PyTorch nor the book's other packages. So of each proof those
statements are kept that need nothing else, with the statements of earlier cells that they need. An
exercise runs whole or not at all. What a statement needs is read from the names in it.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["MODULES", "Exercise", "Proof", "exercises_of", "proofs_of"]

MODULES = ("sympy", "mpmath", "lab.symbolic")
"""Modules that the browser has, beside those of Python itself."""

FIRST_LINE = "# proves by algebra"
EXERCISE = "# Exercise: "
SCOPES = (
    ast.FunctionDef,
    ast.Lambda,
    ast.ClassDef,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
)
ADDING = ("append", "extend", "add", "update", "insert")


@dataclass(frozen=True)
class Proof:
    """One proof, as the browser runs it.

    Attributes:
        cell: Id of the cell.
        number: Number of the cell among those of its chapter that prove by algebra, from 0.
        before: Source of the statements of earlier cells that it needs.
        source: Source of the cell, without what needs another package.
        calls: Number of calls of ``proves`` in the source.
        left_out: Number of checks of the cell that are not in the source.
        mistakes: The source with the claim of one call of ``proves`` replaced by its wrong variant:
            one text for each call.
    """

    cell: str
    number: int
    before: str
    source: str
    calls: int
    left_out: int
    mistakes: tuple[str, ...]


@dataclass(frozen=True)
class Exercise:
    """The beginning of one exercise, as the browser runs it.

    Attributes:
        cell: Id of the cell.
        number: Number of the cell among the exercises of its chapter, from 0.
        before: Source of the statements of earlier cells that it needs, such as the check, and of
            all imports of the chapter that the browser has.
        source: Source of the cell.
    """

    cell: str
    number: int
    before: str
    source: str


@dataclass(frozen=True)
class _Statement:
    """A statement of a cell, with the lines above it that belong to it.

    ``needs`` are the indices of earlier statements, or None if it needs what a browser lacks.
    """

    cell: str
    source: str
    needs: tuple[int, ...] | None
    node: ast.stmt


def proofs_of(notebook: Mapping[str, Any]) -> list[Proof]:
    """Return the proofs of a notebook that run in a browser, in its order.

    Args:
        notebook: The notebook as in its file, or as nbformat reads it.

    Returns:
        One proof for each cell of which at least one call of ``proves`` runs.
    """
    statements = _statements(notebook)
    proofs = []
    for number, cell in enumerate(_cells(notebook, FIRST_LINE)):
        own = [(n, s) for n, s in enumerate(statements) if s.cell == cell["id"]]
        kept = _used([(n, s) for n, s in own if s.needs is not None])
        source = "\n".join(s.source for _, s in kept).strip("\n")
        calls = sum(_proves(s.node) for _, s in kept)
        if not calls:
            continue
        checks = sum(_checks(s.node) for _, s in own) - sum(_checks(s.node) for _, s in kept)
        proofs.append(
            Proof(
                cell["id"],
                number,
                _before(statements, [n for n, _ in kept], cell["id"]),
                source,
                calls,
                checks,
                tuple(_mistakes(source)),
            )
        )
    return proofs


def exercises_of(notebook: Mapping[str, Any]) -> list[Exercise]:
    """Return the exercises of a notebook that run in a browser, in its order.

    Args:
        notebook: The notebook as in its file, or as nbformat reads it.
    """
    statements = _statements(notebook)
    exercises = []
    for number, cell in enumerate(_cells(notebook, EXERCISE)):
        own = [n for n, s in enumerate(statements) if s.cell == cell["id"]]
        if any(statements[n].needs is None for n in own):
            continue
        imports = [n for n in range(own[0]) if _imports(statements[n])]  # for the reader's answer
        before = _before(statements, [*imports, *own], cell["id"])
        exercises.append(Exercise(cell["id"], number, before, _text(cell)))
    return exercises


def _imports(statement: _Statement) -> bool:
    """Return whether a statement imports what a browser has."""
    is_import = isinstance(statement.node, (ast.Import, ast.ImportFrom))
    return is_import and statement.needs is not None


def _cells(notebook: Mapping[str, Any], first_line: str) -> list[Mapping[str, Any]]:
    """Return the code cells that begin with a text."""
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return [cell for cell in cells if _text(cell).startswith(first_line)]


def _before(statements: list[_Statement], own: list[int], cell: str) -> str:
    """Return the source of all statements of other cells that some statements need."""
    wanted: set[int] = set()
    todo = [*own]
    while todo:
        todo += set(statements[n := todo.pop()].needs or ()) - wanted
        wanted.add(n)
    return "\n".join(statements[n].source for n in sorted(wanted) if statements[n].cell != cell)


def _used(kept: list[tuple[int, _Statement]]) -> list[tuple[int, _Statement]]:
    """Leave out assignments whose names nothing reads: those for the displayed formula."""
    while unread := [
        pair
        for pair in kept
        if isinstance(pair[1].node, (ast.Assign, ast.AugAssign))
        and not any(pair[0] in (other.needs or ()) for _, other in kept)
    ]:
        kept = [pair for pair in kept if pair not in unread]
    return kept


def _text(cell: Mapping[str, Any]) -> str:
    source = cell["source"]
    return source if isinstance(source, str) else "".join(source)


def _statements(notebook: Mapping[str, Any]) -> list[_Statement]:
    """Return all statements of the code cells, each with what it needs."""
    parts = [
        (cell["id"], node, text)
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
        for node, text in _parts(_text(cell))
    ]
    bound = [_binds(node) | _changed(node) for _, node, _ in parts]
    needs: list[set[int] | None] = []
    for n, (_, node, _) in enumerate(parts):
        found: set[int] | None = set()
        for name in _reads(node) - set(dir(builtins)):
            at = next((k for k in range(n - 1, -1, -1) if name in bound[k]), None)
            if at is None and isinstance(node, ast.FunctionDef):  # bound before it is called
                at = next((k for k in range(n, len(parts)) if name in bound[k]), None)
            if at is None and name not in bound[n]:
                found = None
                break
            if at is not None and found is not None:
                found.add(at)
        needs.append(found if _portable(node) else None)
    while lacking := [
        n for n, own in enumerate(needs) if own and any(needs[k] is None for k in own)
    ]:
        for n in lacking:
            needs[n] = None
    return [
        _Statement(cell, text, None if own is None else tuple(sorted(own)), node)
        for (cell, node, text), own in zip(parts, needs, strict=True)
    ]


def _parts(code: str) -> Iterator[tuple[ast.stmt, str]]:
    """Yield the statements of a cell, each with its source and the comments above it."""
    lines, above = code.split("\n"), 0
    for node in ast.parse(code).body:
        source = _without_where("\n".join(lines[above : node.end_lineno]))
        above = node.end_lineno or 0
        yield from _each_import(ast.parse(source).body[0], source)


def _each_import(node: ast.stmt, source: str) -> Iterator[tuple[ast.stmt, str]]:
    """Yield a statement, or an import of several names as imports of one name each."""
    if not isinstance(node, (ast.Import, ast.ImportFrom)) or len(node.names) == 1:
        yield node, source
        return
    for name in node.names:
        one: ast.stmt = ast.Import([name])
        if isinstance(node, ast.ImportFrom):
            one = ast.ImportFrom(node.module, [name], node.level)
        yield one, ast.unparse(one)


def _portable(node: ast.stmt) -> bool:
    """Return whether a browser has all modules that a statement imports."""
    modules = []
    for inner in ast.walk(node):
        if isinstance(inner, ast.Import):
            modules += [name.name for name in inner.names]
        elif isinstance(inner, ast.ImportFrom):
            modules += [
                f"{inner.module}.{name.name}" if inner.module == "lab" else str(inner.module)
                for name in inner.names
            ]
    has = (*MODULES, *sys.stdlib_module_names)
    return all(any(m == h or m.startswith(f"{h}.") for h in has) for m in modules)


def _names(node: ast.AST, inner: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yield the names that a node reads, apart from those that its own functions bind."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in inner:
        yield node.id
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        yield from {node.target.id} - inner  # n += 1 reads n
    if isinstance(node, SCOPES):
        arguments = {a.arg for a in ast.walk(node) if isinstance(a, ast.arg)}
        inner |= arguments | _stored(node)
    for child in ast.iter_child_nodes(node):
        yield from _names(child, inner)


def _reads(node: ast.stmt) -> set[str]:
    """Return the names of outside that a statement reads, in the order in which it runs."""
    if not isinstance(node, (ast.For, ast.If, ast.While, ast.With)):
        return set(_names(node))
    bound: set[str] = set()
    found: set[str] = set()
    blocks = (*node.body, *getattr(node, "orelse", ()))
    for part in ast.iter_child_nodes(node):
        if part not in blocks:
            found |= set(_names(part)) - bound
            bound |= _stored(part)
    for inner in blocks:
        found |= _reads(inner) - bound
        bound |= _binds(inner)
    return found


def _stored(node: ast.AST) -> set[str]:
    """Return the names that a node gives a value, apart from those inside of its functions."""
    names, todo = set(), [node]
    while todo:
        inner = todo.pop()
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            names.add(inner.id)
        if isinstance(inner, (ast.FunctionDef, ast.ClassDef)) and inner is not node:
            names.add(inner.name)
        if inner is node or not isinstance(inner, SCOPES):
            todo += ast.iter_child_nodes(inner)
    return names


def _binds(node: ast.stmt) -> set[str]:
    """Return the names that a statement gives a value."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return {node.name}
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return {(name.asname or name.name).split(".")[0] for name in node.names}
    return _stored(node)


def _changed(node: ast.stmt) -> set[str]:
    """Return the names of lists, sets and so on to which a statement adds or sets entries."""
    parts = [
        inner.value
        for inner in ast.walk(node)
        if (isinstance(inner, ast.Subscript) and isinstance(inner.ctx, ast.Store))
        or (isinstance(inner, ast.Attribute) and inner.attr in ADDING)
    ]
    return {part.id for part in parts if isinstance(part, ast.Name)}


def _called(node: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls of ``proves`` in a statement."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call):
            name = getattr(inner.func, "id", getattr(inner.func, "attr", ""))
            if name == "proves":
                yield inner


def _proves(node: ast.stmt) -> int:
    return sum(1 for _ in _called(node))


def _checks(node: ast.stmt) -> int:
    return _proves(node) + sum(isinstance(n, ast.Assert) for n in ast.walk(node))


def _cut(source: str, pieces: list[tuple[int, int, str]]) -> str:
    """Return a text in which some pieces, from byte to byte, are replaced."""
    code = source.encode()
    for begin, end, new in sorted(pieces, reverse=True):
        code = code[:begin] + new.encode() + code[end:]
    return code.decode()


def _span(source: str, node: Any) -> tuple[int, int]:
    """Return where a node begins and ends in a text, in bytes."""
    starts = [0]
    for line in source.split("\n"):
        starts.append(starts[-1] + len(line.encode()) + 1)
    return (
        starts[node.lineno - 1] + node.col_offset,
        starts[node.end_lineno - 1] + node.end_col_offset,
    )


def _without_where(source: str) -> str:
    """Return a statement without the argument ``where`` of ``proves``.

    It is for the comparison with the displayed formula, which needs NumPy and SciPy.
    """
    pieces = []
    for call in _called(ast.parse(source)):
        values = [*call.args, *(k.value for k in call.keywords)]
        for keyword in call.keywords:
            if keyword.arg == "where":
                begin, end = _span(source, keyword)
                before = max(
                    (_span(source, v)[1] for v in values if _span(source, v)[1] < begin), default=0
                )
                pieces.append((before, end, ""))
    return _cut(source, pieces) if pieces else source


def _mistakes(source: str) -> Iterator[str]:
    """Yield a proof with the right side and the wrong variant of one call exchanged, for each."""
    for call in _called(ast.parse(source)):
        wrong = [k.value for k in call.keywords if k.arg == "wrong"]
        if len(call.args) != 3 or not wrong:
            continue
        spans = [_span(source, node) for node in (call.args[2], wrong[0])]
        texts = [source.encode()[begin:end].decode() for begin, end in spans]
        yield _cut(source, [(*spans[0], texts[1]), (*spans[1], texts[0])])
