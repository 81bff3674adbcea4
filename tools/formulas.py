r"""Bind every displayed formula to its proof, and count which changes of a formula are noticed.

    python tools/formulas.py [CHAPTER ...]   # run the proofs, renew book/formulas.json
    python tools/formulas.py --check         # fail if that record would change
    python tools/formulas.py --mutants eq-…  # print the changes of a formula that nobody notices

A proof binds a formula by ``where`` of ``lab.symbolic.proves`` (or by ``lab.formulas.bind``): the
formula is then read from the Markdown and computed with the objects of the cell. For each formula
the record holds which of its statements are bound, whether a side of the proof is displayed
(``display``) or the proof is of a step (``step``), how many mutants of the LaTeX were tried, and
which passed unnoticed. A mutant has one sign, number, exponent, function or index changed.

What is not bound is locked: the record holds a digest of the formula and of the cells that prove
it, and ``tests/test_formulas.py`` fails if one of them changes. Read both again, then renew the
record.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import contextlib
import hashlib
import io
import json
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from lab import formulas, symbolic
from lab.latex import UnreadError

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "book" / "formulas.json"
SWAPPED = {"sin": "cos", "cos": "sin", "sinh": "cosh", "cosh": "sinh"}
OTHER = {"i": "j", "j": "i", "k": "l", "l": "k", "t": "s", "m": "n", "n": "m"}


@dataclass
class Call:
    """One proof that was run: the sides and the values that it gave the displayed formula."""

    label: str
    sides: tuple[Any, ...]
    where: dict[str, Any] | None


@dataclass
class Formula:
    """What the proofs of one formula have shown."""

    statements: int = 0
    bound: set[int] = field(default_factory=set)
    shown: bool = False  # whether a side of a proof is displayed
    missed: list[str] | None = None  # the mutants that pass every check so far


# --- the cells that prove ---


def code_cells(path: Path) -> list[str]:
    """Return the code cells of a chapter, without magic lines."""
    found = json.loads(path.read_text(encoding="utf8"))["cells"]
    sources = ("".join(cell["source"]) for cell in found if cell["cell_type"] == "code")
    return [re.sub(r"^[ \t]*[%!].*$", "", source, flags=re.MULTILINE) for source in sources]


def needed(cells: Sequence[str]) -> list[int]:
    """Return the cells that prove something, and those that define what they use."""
    stored, loaded = [], []
    for cell in cells:
        nodes = list(ast.walk(ast.parse(cell)))
        names = [n for n in nodes if isinstance(n, ast.Name)]
        definitions = (ast.FunctionDef, ast.ClassDef)
        imports = [a for n in nodes if isinstance(n, (ast.Import, ast.ImportFrom)) for a in n.names]
        own = {n.id for n in names if isinstance(n.ctx, ast.Store)}
        own |= {n.name for n in nodes if isinstance(n, definitions)}
        own |= {(a.asname or a.name).split(".")[0] for a in imports}
        stored.append(own)
        loaded.append({n.id for n in names if isinstance(n.ctx, ast.Load)} - own)
    todo = [k for k, cell in enumerate(cells) if "# proves" in cell]
    found = set(todo)
    while todo:
        k = todo.pop()
        for name in loaded[k] - set(dir(builtins)):
            source = next((j for j in reversed(range(k)) if name in stored[j]), None)
            if source is not None and source not in found:
                found.add(source)
                todo.append(source)
    return sorted(found)


def run(path: Path, seen: Callable[[Call], None]) -> None:
    """Run the proofs of a chapter, and hand over each one before the next line is run."""

    def proves(label: str, *sides: Any, wrong: Any, where: Any = None) -> None:
        seen(Call(label, sides, where))

    def bind(label: str, where: Any) -> None:
        seen(Call(label, (), where))

    kept = symbolic.proves, formulas.bind
    symbolic.proves, formulas.bind = proves, bind  # type: ignore[assignment]
    space: dict[str, Any] = {"__name__": "__main__", "display": lambda *shown: None}
    cells = code_cells(path)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for k in needed(cells):
                exec(compile(cells[k], f"{path.name}, code cell {k}", "exec"), space)
    finally:
        symbolic.proves, formulas.bind = kept


def read(call: Call, formula: Formula) -> None:
    """Check the displayed formula with the values of a proof, and note what that shows."""
    if call.where is None:
        return
    tex = formulas.displayed(call.label)
    sides = {f" side {k}": side for k, side in enumerate(call.sides)}
    try:
        points = list(formulas.at_points(call.label, {**call.where, **sides}))
    except (TypeError, ValueError):  # a side without a value, such as one of any size
        points = list(formulas.at_points(call.label, call.where))
    for values in points:
        proved = [values.pop(name, None) for name in sides]
        bound = formulas.check(call.label, tex, values)
        passed = mutants(tex) if formula.missed is None else formula.missed
        formula.missed = [changed for changed in passed if _passes(call.label, changed, values)]
        shown = [_is_displayed(p, bound.sides) for p in proved]
        formula.shown = formula.shown or (bool(shown) and all(shown))
    formula.statements = bound.statements
    formula.bound |= bound.checked


def _is_displayed(value: Any, sides: Sequence[Any]) -> bool:
    """Tell whether a side of a proof has the value of a displayed side, or consists of such."""
    if value is None:
        return False
    parts = [value] if np.ndim(value) < 2 or 1 not in np.shape(value) else np.ravel(value)
    return any(_same(value, side) for side in sides) or all(
        any(_same(part, side) for side in sides) for part in parts
    )


def _same(a: Any, b: Any) -> bool:
    a, b = np.squeeze(np.asarray(a)), np.squeeze(np.asarray(b))
    return a.shape == b.shape and bool(np.allclose(a, b, rtol=1e-8, atol=1e-12))


# --- mutants ---


def mutants(tex: str) -> list[str]:
    """Return the LaTeX of a formula with one change each."""
    changes: list[tuple[int, int, str]] = []

    def change(pattern: str, new: Any) -> None:
        for found in re.finditer(pattern, tex):
            text = new(found) if callable(new) else new
            if text is not None:
                changes.append((*found.span(1), text))

    change(r"(?<=[^\^_{(\s=])\s*([+-])\s*(?=[^}])", lambda m: "-" if m[1] == "+" else "+")
    change(r"(?<![\^_\d.a-z{])(?<!\^\{)(?<!_\{)([2-9])(?![\d.])", lambda m: str(int(m[1]) + 1))
    change(r"\\t?frac\s*(1)", "3")
    change(r"(?<!_\{[a-z])(?<!_\{[a-z] )=\s*()(?=[^&\s\\]|\\(?!\\|qquad|quad))", r"2\,")
    change(r"\^([23])(?!\d)", lambda m: str(int(m[1]) + 1))
    change(r"(\^\\top)", "")
    change(r"\^\{(-)(?=[^}])", "")
    change(r"\\(sinh|cosh|sin|cos)(?![a-z])", lambda m: SWAPPED[m[1]])
    change(
        r"_\{?([ijkltmn])(?=\b|[}\s,])",
        lambda m: OTHER[m[1]] if re.search(rf"_\{{?{OTHER[m[1]]}\b", tex) else None,
    )
    change(r"_\{[a-z](-1)\}", "")
    change(r"_\{[a-z]\s*=\s*([01])\}", lambda m: str(1 - int(m[1])))
    return [tex[:start] + new + tex[end:] for start, end, new in changes]


def _passes(label: str, tex: str, values: dict[str, Any]) -> bool:
    try:
        formulas.check(label, tex, values)
    except (AssertionError, UnreadError):
        return False
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return False  # the changed formula has no value
    return True


# --- the record ---


def digest(*texts: str) -> str:
    """Return a short digest of texts."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def lock(label: str, cells: Sequence[str]) -> str:
    """Return the digest of a formula and of the cells that say that they prove it."""
    proofs = [cell for cell in cells if re.search(rf"# proves .*\b{label}(?![\w-])", cell)]
    return digest(formulas.displayed(label), *proofs)


def record(path: Path) -> dict[str, dict[str, Any]]:
    """Return what the proofs of a chapter have shown of each formula, by label."""
    found: dict[str, Formula] = {}
    cells = code_cells(path)
    for label in re.findall(r"eq-[a-z0-9-]*[a-z0-9]", "\n".join(_claims(cells))):
        found.setdefault(label, Formula())
    run(path, lambda call: read(call, found.setdefault(call.label, Formula())))
    entries = {}
    for label, formula in found.items():
        entry: dict[str, Any] = {"chapter": path.stem[:2]}
        if formula.bound:
            entry |= {
                "bound": sorted(formula.bound),
                "statements": formula.statements,
                "proof": "display" if formula.shown else "step",
                "mutants": len(mutants(formulas.displayed(label))),
                "missed": formula.missed,
            }
        if len(formula.bound) < max(1, formula.statements):
            entry["lock"] = lock(label, cells)
        entries[label] = entry
    return entries


def _claims(cells: Sequence[str]) -> list[str]:
    return [line for cell in cells for line in cell.splitlines() if line.startswith("# proves")]


def summary(entries: dict[str, dict[str, Any]]) -> str:
    """Return the counts in words."""
    bound = [e for e in entries.values() if "bound" in e]
    whole = sum("lock" not in e for e in bound)
    tried, missed = sum(e["mutants"] for e in bound), sum(len(e["missed"]) for e in bound)
    shown = sum(e["proof"] == "display" for e in bound)
    return (
        f"{len(entries)} formulas: {whole} bound, {len(bound) - whole} bound in part, "
        f"{len(entries) - len(bound)} locked; {shown} proofs of what is displayed; "
        f"{tried - missed} of {tried} mutants noticed"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Renew the record, compare with it, or print the mutants that pass."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("chapters", nargs="*", type=Path, help="default: all")
    parser.add_argument("--check", action="store_true", help="fail if the record would change")
    parser.add_argument("--mutants", metavar="LABEL", help="print the mutants that pass")
    options = parser.parse_args(argv)
    matplotlib.use("agg")
    paths = options.chapters or sorted((ROOT / "notebooks").glob("*.ipynb"))
    before = json.loads(RECORD.read_text(encoding="utf8")) if RECORD.exists() else {}
    entries = {} if not options.chapters else dict(before)
    for path in paths:
        found = record(path)
        entries = {k: e for k, e in entries.items() if e["chapter"] != path.stem[:2]} | found
        print(f"{path.stem}: {summary(found)}", flush=True)
    if options.mutants:
        print("\n".join(entries[options.mutants].get("missed", ["not bound"])))
        return 0
    entries = dict(sorted(entries.items(), key=lambda item: (item[1]["chapter"], item[0])))
    print(summary(entries))
    if options.check:
        changed = sorted(k for k in entries | before if entries.get(k) != before.get(k))
        print(f"changed: {', '.join(changed)}" if changed else "the record is up to date")
        return int(bool(changed))
    RECORD.write_text(json.dumps(entries, indent=1, ensure_ascii=False) + "\n", encoding="utf8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
