"""List every labelled equation with what derives, implements and proves it.

    python tools/ledger.py           # write book/equations.md
    python tools/ledger.py --check   # change nothing; fail if the page is not current

An equation has one id everywhere, ``eq-something``:

* its label, in a chapter or a page: ``$$ ... $$ (eq-something)``, or a ``{math}`` directive
  with ``:label: eq-something``;
* the docstring of what implements it in ``stringlib`` or in ``book/figures``:
  ``:eq:`eq-something```;
* its proof: ``@pytest.mark.proves("eq-something")`` on a test, or the comment
  ``# proves: eq-something`` in a notebook cell that contains an ``assert``.

An id that lacks one of the three is an orphan, and an error that names the id and the place.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
PAGE = Path("book/equations.md")

ID = re.compile(r"eq-[a-z0-9]+(?:-[a-z0-9]+)*")
# every display is matched, so that the end of one is never taken for the start of the next
DOLLARS = re.compile(
    r"\$\$((?:(?!\$\$).)+)\$\$(?:[ \t]*\(([^()\s]+)\)[ \t]*$)?", re.DOTALL | re.MULTILINE
)
FENCE = re.compile(r"[ >]*(?P<mark>`{3,}|:{3,}|~{3,})(?P<info>\s*(?:\{(?P<name>[\w:-]+)\})?[^`]*)$")
ROLE = re.compile(r":eq:`(?:[^`<]*<)?([^`<>]+)>?`")
COMMENT = re.compile(r"^\s*#\s*proves:(.*)$", re.MULTILINE)
# fenced text in these is shown as it stands; in other directives it is parsed
VERBATIM = ("code", "code-block", "code-cell", "literalinclude", "raw", "eval-rst", "mermaid")
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
Names = tuple[str, ...]
NOT_RUN = {"nbval-skip", "skip-execution", "raises-exception"}


@dataclass
class Equation:
    """One labelled equation: its TeX, where it stands, and what refers to it."""

    label: str
    tex: str
    page: str
    place: str
    implemented: list[tuple[str, str]] = field(default_factory=list)  # (object, module)
    proved: list[str] = field(default_factory=list)  # Markdown


@dataclass
class Ledger:
    """All equations in the book's order, and every error found on the way."""

    equations: dict[str, Equation] = field(default_factory=dict)
    titles: dict[str, str] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def known(self, label: str, place: str, what: str) -> Equation | None:
        """Return the equation of an id, or note that a docstring or a proof has lost it."""
        if not ID.fullmatch(label):
            self.errors.append(f"{place}: {what} names {label!r}: an id is like eq-rope-angle")
        elif label not in self.equations:
            self.errors.append(f"{place}: {what} names {label}, which no equation is labelled")
        return self.equations.get(label)


# --- where equations are labelled ---


def labelled(text: str) -> Iterator[tuple[str, str]]:
    """Yield the id and the TeX of every labelled equation of a Markdown text, in order."""
    prose: list[str] = []
    opened: list[str] = []  # directives whose body is read as prose
    lines = iter(text.splitlines())
    for line in lines:
        fence = FENCE.match(line)
        if not fence:
            prose.append(re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "", line))  # less inline code
            continue
        mark, name = fence["mark"], fence["name"]
        if opened and not fence["info"].strip() and mark == opened[-1]:
            opened.pop()
        elif name == "math":
            yield from _dollars(prose)
            prose.clear()
            yield from _directive(list(_until(lines, mark)))
        elif name and name not in VERBATIM:
            opened.append(mark)
        else:
            list(_until(lines, mark))  # code, shown as it stands
    yield from _dollars(prose)


def _dollars(prose: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the label and the TeX of every ``$$ ... $$ (label)``."""
    for match in DOLLARS.finditer("\n".join(prose)):
        if match[2]:
            yield match[2], textwrap.dedent(match[1]).strip()


def _until(lines: Iterator[str], mark: str) -> Iterator[str]:
    """Yield lines up to the fence that closes ``mark``."""
    for line in lines:
        bare = line.strip(" >")
        if bare.startswith(mark) and not bare.strip(mark[0]):
            return
        yield line


def _directive(body: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the label and the TeX of the body of a ``{math}`` directive."""
    options = [line for line in body if re.match(r"\s*:\w+:", line)]
    tex = textwrap.dedent("\n".join(line for line in body if line not in options)).strip()
    for option in options:
        label = re.match(r"\s*:label:\s*(\S+)", option)
        if label:
            yield label[1], tex


def pages(root: Path) -> list[Path]:
    """Return the chapters and pages that may label equations, in the order of ``_toc.yml``."""
    found = sorted([*(root / "book").rglob("*.md"), *(root / "notebooks").glob("*.ipynb")])
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf8"))
    order = [toc["root"], *_files(toc)]
    names = {p: str(p.relative_to(root).with_suffix("")) for p in found if p != root / PAGE}
    last = len(order)
    return sorted(
        names, key=lambda p: (order.index(names[p]) if names[p] in order else last, names[p])
    )


def _files(toc: Any) -> Iterator[str]:
    """Yield every ``file:`` of a table of contents, in order."""
    if isinstance(toc, dict):
        if "file" in toc:
            yield re.sub(r"\.(md|ipynb)$", "", toc["file"])
        for value in toc.values():
            yield from _files(value)
    elif isinstance(toc, list):
        for item in toc:
            yield from _files(item)


def markdown(path: Path, root: Path) -> Iterator[tuple[str, str]]:
    """Yield every Markdown text of a page or notebook with its place."""
    text, name = path.read_text(encoding="utf8"), str(path.relative_to(root))
    if path.suffix == ".md":
        yield name, text
        return
    for index, cell in enumerate(json.loads(text)["cells"]):
        if cell["cell_type"] == "markdown":
            yield f"{name}, cell {index}", "".join(cell["source"])


def read_labels(root: Path, ledger: Ledger) -> None:
    """Find every labelled equation of the book."""
    for path in pages(root):
        page = str(path.relative_to(root).with_suffix(""))
        for place, text in markdown(path, root):
            title = re.search(r"^# (.+)$", text, re.MULTILINE)
            if title:
                ledger.titles.setdefault(page, title[1].strip())
            for label, tex in labelled(text):
                if not ID.fullmatch(label):
                    ledger.errors.append(f"{place}: label {label!r}: an id is like eq-rope-angle")
                elif label in ledger.equations:
                    first = ledger.equations[label].place
                    ledger.errors.append(f"{place}: {label} is labelled before, in {first}")
                else:
                    ledger.equations[label] = Equation(label, tex, page, place)


# --- what implements them ---


def definitions(tree: ast.AST, path: tuple[str, ...] = ()) -> Iterator[tuple[Names, Definition]]:
    """Yield every class and function below a node, with the names that lead to it."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, Definition):
            yield (*path, child.name), child
            yield from definitions(child, (*path, child.name))
        else:
            yield from definitions(child, path)


def read_docstrings(root: Path, ledger: Ledger) -> None:
    """Find every ``:eq:`` role in the docstrings of the package and of the chapters' figures."""
    for path in sorted([*(root / "stringlib").rglob("*.py"), *(root / "book").rglob("*.py")]):
        relative = path.relative_to(root).with_suffix("")
        module = ".".join(p for p in relative.parts if p != "__init__")
        tree = ast.parse(path.read_text(encoding="utf8"))
        for names, node in [((), tree), *definitions(tree)]:
            name = ".".join((module, *names))
            place = f"{path.relative_to(root)}, docstring of {name}"
            for label in dict.fromkeys(ROLE.findall(ast.get_docstring(node) or "")):
                equation = ledger.known(label, place, "the docstring")
                if equation:
                    equation.implemented.append((name, module))


# --- what proves them ---


def marks(nodes: Iterable[ast.AST]) -> Iterator[ast.Call]:
    """Yield the calls of ``pytest.mark.proves`` below some nodes."""
    for node in nodes:
        for call in ast.walk(node):
            if (
                isinstance(call, ast.Call)
                and isinstance(call.func, ast.Attribute)
                and call.func.attr == "proves"
                and ast.unparse(call.func.value).endswith("mark")
            ):
                yield call


def read_tests(root: Path, ledger: Ledger) -> None:
    """Find every ``@pytest.mark.proves(...)`` on the tests, their classes and modules."""
    for path in sorted((root / "tests").rglob("*.py")):
        file = str(path.relative_to(root))
        tree = ast.parse(path.read_text(encoding="utf8"))
        on_definitions = set()
        for names, node in definitions(tree):
            place = "::".join((file, *names))
            for call in marks(node.decorator_list):
                on_definitions.add(call)
                if not re.match("test|Test", node.name):
                    ledger.errors.append(f"{place}: marked as a proof but never run as a test")
                _proof(call, place, ledger)
        for call in marks([tree]):
            if call not in on_definitions:
                _proof(call, file, ledger)


def _proof(call: ast.Call, place: str, ledger: Ledger) -> None:
    """Note a test under each equation that its mark names."""
    labels = [a.value for a in call.args if isinstance(a, ast.Constant)]
    if not labels or len(labels) != len(call.args) or call.keywords:
        ledger.errors.append(f"{place}: proves(...) takes the ids as plain strings")
    for label in labels:
        equation = ledger.known(str(label), place, "the proof")
        if equation and f"`{place}`" not in equation.proved:
            equation.proved.append(f"`{place}`")


def read_cells(root: Path, ledger: Ledger) -> None:
    """Find every ``# proves:`` comment in the code cells of the chapters."""
    for path in pages(root):
        if path.suffix != ".ipynb":
            continue
        page = str(path.relative_to(root).with_suffix(""))
        for index, cell in enumerate(json.loads(path.read_text(encoding="utf8"))["cells"]):
            source = "".join(cell["source"])
            comments = COMMENT.findall(source) if cell["cell_type"] == "code" else []
            if not comments:
                continue
            place = f"{path.relative_to(root)}, cell {index}"
            if not has_assert(source):
                ledger.errors.append(f"{place}: claims a proof but has no assert")
            skipped = NOT_RUN & set(cell["metadata"].get("tags", []))
            if skipped:
                ledger.errors.append(f"{place}: claims a proof but is tagged {min(skipped)}")
            for label in re.split(r"[,\s]+", " ".join(comments).strip()):
                equation = ledger.known(label, place, "the proof")
                line = f"a cell of {{doc}}`/{page}`"
                if equation and line not in equation.proved:
                    equation.proved.append(line)


def has_assert(source: str) -> bool:
    """Tell whether a cell, its magic lines apart, contains an ``assert`` statement."""
    code = re.sub(r"^[ \t]*[%!].*$", "", source, flags=re.MULTILINE)
    try:
        return any(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(code)))
    except SyntaxError:
        return False


# --- the page ---


def read(root: Path) -> Ledger:
    """Read the whole project and find its orphans."""
    ledger = Ledger()
    read_labels(root, ledger)
    read_docstrings(root, ledger)
    read_tests(root, ledger)
    read_cells(root, ledger)
    for equation in ledger.equations.values():
        if not equation.implemented:
            ledger.errors.append(f"{equation.place}: {equation.label} is in no docstring")
        if not equation.proved:
            ledger.errors.append(f"{equation.place}: {equation.label} is proved nowhere")
    return ledger


def documented_modules(root: Path) -> set[str]:
    """Return the modules whose members the API pages describe, and so can be linked to."""
    found = set()
    for path in (root / "book").rglob("*.md"):
        found |= set(re.findall(r"automodule:: ([\w.]+)", path.read_text(encoding="utf8")))
    return found


HEAD = """\
# Equation ledger

<!-- Written by tools/ledger.py; edit the chapters, the docstrings and the tests instead. -->

Every labelled equation of the book, in the book's order: where it is derived, which code
implements it, and which test or notebook cell proves it. The tests fail when any of the three
is missing.
"""


def render(root: Path, ledger: Ledger) -> str:
    """Return the text of the page."""
    linkable = documented_modules(root)
    by_page: dict[str, list[Equation]] = defaultdict(list)
    for equation in ledger.equations.values():
        by_page[equation.page].append(equation)
    blocks = [HEAD]
    if not by_page:
        blocks.append("No equation is labelled yet.\n")
    for page, equations in by_page.items():
        blocks.append(f"## {ledger.titles.get(page, page)}\n")
        for equation in equations:
            code = ", ".join(
                f"{{py:obj}}`{name}`"
                if module in linkable and not re.search(r"\._(?!_)", name)
                else f"`{name}`"
                for name, module in equation.implemented
            )
            blocks.append(
                f"### `{equation.label}`\n\n```{{math}}\n{equation.tex}\n```\n\n"
                f"- Derived: {{eq}}`{equation.label}` in {{doc}}`/{page}`\n"
                f"- Implemented: {code}\n"
                f"- Proved: {', '.join(equation.proved)}\n"
            )
    return "\n".join(blocks)


def main(argv: Sequence[str] | None = None) -> int:
    """Write or check the page."""
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing, fail if not current")
    parser.add_argument("--root", type=Path, default=ROOT, help="the project's folder")
    args = parser.parse_args(argv)
    ledger = read(args.root)
    for error in ledger.errors:
        print(f"error: {error}", file=sys.stderr)
    if ledger.errors:
        return 1
    page, text = args.root / PAGE, render(args.root, ledger)
    current = page.exists() and page.read_text(encoding="utf8") == text
    if args.check and not current:
        print(f"error: {PAGE} is not current: python tools/ledger.py", file=sys.stderr)
        return 1
    if not current:
        page.write_text(text, encoding="utf8")
    print(f"{len(ledger.equations)} equations, each with its code and its proof")
    return 0


if __name__ == "__main__":
    sys.exit(main())
