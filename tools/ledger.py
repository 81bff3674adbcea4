"""Check that every labelled equation is implemented and proved, and make the page that says where.

    python tools/ledger.py --check   # fail on an orphan
    python tools/ledger.py           # print the list as well, in Markdown

An equation has one id everywhere, ``eq-something``:

* its label, in a chapter or a page: ``$$ ... $$ (eq-something)``, or a ``{math}`` directive
  with ``:label: eq-something``;
* the docstring of what implements it in ``stringlib``, ``lab`` or ``book/figures``:
  ``:eq:`eq-something```;
* its proof: ``@pytest.mark.proves("eq-something")`` on a test, or ``holds("eq-something")`` on a
  property of ``stringlib.testing``, which is one in float64, or a
  comment in a notebook cell that contains an ``assert``, which says of which kind the proof is:
  ``# proves by algebra: eq-something``, ``# proves by algebra at a fixed size: ...`` (the symbols
  have any value, but their number is fixed, for example two tokens), ``# proves for small sizes:
  ...`` (every case up to a size, by a computer) or ``# proves in float64: ...``.

A proof by algebra brings a wrong variant that fails, ``proves("eq-something", left, right,
wrong=...)`` of ``lab.symbolic``: running the cell sees that it does fail.

An id that lacks one of the three is an orphan, and an error that names the id and the place. So is
a summary whose last column begins with another kind of proof than the strongest of its cells. While
the book is built, the list stands in for ``{ledger}`` on its page: how many formulas have which
kind of proof, then each formula with what the summary of its chapter says of it, and behind it,
folded, its code and its proofs.
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

from myst_parser.config.main import MdParserConfig
from myst_parser.mdit_to_docutils.base import DocutilsRenderer
from myst_parser.parsers.directives import parse_directive_text
from myst_parser.parsers.mdit import create_md_parser
from sphinx.application import Sphinx
from sphinx.directives.patches import MathDirective
from sphinx.util import logging
from sphinx_external_toc.parsing import parse_toc_yaml

from lab.console import allow_every_letter

ROOT = Path(__file__).resolve().parents[1]
PAGE = "book/equations"
READINGS = "book/formulas.json"
PLACE = "```{ledger}\n```\n"

ID = re.compile(r"eq-[a-z0-9]+(?:-[a-z0-9]+)*")
ROLE = re.compile(r":eq:`(?:[^`<]*<)?([^`<>]+)>?`")
# the kinds of proof, the strongest first
KINDS = ("by algebra", "by algebra at a fixed size", "for small sizes", "in float64")
PROVES = re.compile(rf"^\s*#\s*proves ({'|'.join(KINDS)}):(.*)$", re.MULTILINE)
ALGEBRA = re.compile(r"\bsp\.|\bsympy\b|lab\.symbolic|\b(?:vanishes|proves)\(")
MARKDOWN = create_md_parser(
    MdParserConfig(enable_extensions={"amsmath", "colon_fence", "dollarmath"}), DocutilsRenderer
)
# A formula of the page: open what is read, folded what is looked up.
ENTRY = """<div class="book-formula" id="{label}">

{name}

```{{math}}
{tex}
```

<details><summary>Code and checks<span class="visually-hidden"> of {label}</span></summary>

In the code: {code}. Proof {kind}{how}:

{proofs}

</details></div>
"""
# text in these is shown as it stands; in other directives it is parsed
VERBATIM = ("code", "code-block", "code-cell", "literalinclude", "raw", "eval-rst", "mermaid")
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
Names = tuple[str, ...]
SUMMARY = re.compile(r"^\| equation \|.*\n\|[-|]+\n((?:\|.*\n?)+)", re.MULTILINE)
NOT_RUN = {"nbval-skip", "skip-execution", "raises-exception"}

logger = logging.getLogger(__name__)


@dataclass
class Equation:
    """One labelled equation: its TeX, where it stands, and what refers to it."""

    label: str
    tex: str
    page: str
    place: str
    name: str = ""  # what the summary of its chapter says of it, Markdown
    how: str = ""  # and of its proof
    implemented: list[str] = field(default_factory=list)
    proved: list[str] = field(default_factory=list)  # Markdown
    kinds: set[str] = field(default_factory=set)
    reading: dict[str, Any] = field(default_factory=dict)  # of its LaTeX, by tools/formulas.py

    @property
    def kind(self) -> str:
        """The strongest kind of its proofs."""
        return min(self.kinds, key=KINDS.index, default=KINDS[-1])


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
    for token in MARKDOWN.parse(text):
        directive = re.match(r"\s*\{([\w:-]+)\}", token.info)
        if token.type == "math_block_label":
            yield token.info, textwrap.dedent(token.content).strip()
        elif directive and directive[1] == "math":
            math = parse_directive_text(MathDirective, "", token.content)
            if "label" in math.options:
                yield math.options["label"], "\n".join(math.body).strip()
        elif directive and directive[1] not in VERBATIM:
            yield from labelled(token.content)


def named(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield what the summary table of a chapter says of an id: in a few words, and of its proof."""
    for table in SUMMARY.finditer(text):
        says = table[0].startswith("| equation | says |")
        for row in table[1].splitlines():
            first, second, *_, how = row.strip()[1:-1].split("|")
            words = second if says else re.sub(r"\{eq\}`[^`]*`", "", first)
            for label in re.findall(r"\{eq\}`([^`]*)`", first):
                yield label, words.strip(), how.strip()


def pages(root: Path) -> list[Path]:
    """Return the chapters and pages that may label equations, in the order of ``_toc.yml``."""
    order = {name: place for place, name in enumerate(parse_toc_yaml(root / "_toc.yml"))}
    found = [*(root / "book").rglob("*.md"), *(root / "notebooks").glob("*.ipynb")]
    return sorted(found, key=lambda p: (order.get(document(root, p), len(order)), p))


def document(root: Path, path: Path) -> str:
    """Return the name of a page as the book's links take it."""
    return str(path.relative_to(root).with_suffix(""))


def cells(root: Path, path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every cell of a notebook, or a whole page as one, with its place."""
    text, name = path.read_text(encoding="utf8"), str(path.relative_to(root))
    if path.suffix == ".md":
        yield name, {"cell_type": "markdown", "source": text}
        return
    for index, cell in enumerate(json.loads(text)["cells"]):
        yield f"{name}, cell {index}", {**cell, "source": "".join(cell["source"])}


def read_labels(root: Path, ledger: Ledger) -> None:
    """Find every labelled equation of the book."""
    for path in pages(root):
        page = document(root, path)
        for place, cell in cells(root, path):
            if cell["cell_type"] != "markdown":
                continue
            title = re.search(r"^# (.+)$", cell["source"], re.MULTILINE)
            if title:
                ledger.titles.setdefault(page, title[1].strip())
            for label, tex in labelled(cell["source"]):
                if not ID.fullmatch(label):
                    ledger.errors.append(f"{place}: label {label!r}: an id is like eq-rope-angle")
                elif label in ledger.equations:
                    first = ledger.equations[label].place
                    ledger.errors.append(f"{place}: {label} is labelled before, in {first}")
                else:
                    ledger.equations[label] = Equation(label, tex, page, place)
            for label, words, how in named(cell["source"]):
                equation = ledger.equations.get(label)
                if equation and equation.page == page:
                    equation.name, equation.how = words, how


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
    """Find every ``:eq:`` role in the docstrings of package, laboratory and figures."""
    folders = ("stringlib", "lab", "book")
    for path in sorted(p for folder in folders for p in (root / folder).rglob("*.py")):
        relative = path.relative_to(root).with_suffix("")
        module = ".".join(p for p in relative.parts if p != "__init__")
        tree = ast.parse(path.read_text(encoding="utf8"))
        for names, node in [((), tree), *definitions(tree)]:
            name = ".".join((module, *names))
            place = f"{path.relative_to(root)}, docstring of {name}"
            for label in dict.fromkeys(ROLE.findall(ast.get_docstring(node) or "")):
                equation = ledger.known(label, place, "the docstring")
                if equation:
                    equation.implemented.append(name)


# --- what proves them ---


def marks(nodes: Iterable[ast.AST]) -> Iterator[ast.Call]:
    """Yield the calls of ``pytest.mark.proves``, or of a contract, below some nodes."""
    for node in nodes:
        for call in ast.walk(node):
            if (
                isinstance(call, ast.Call)
                and isinstance(call.func, ast.Attribute)
                and (
                    (call.func.attr == "proves" and ast.unparse(call.func.value).endswith("mark"))
                    or (call.func.attr == "holds" and call.args)
                )
            ):
                yield call


def read_tests(root: Path, ledger: Ledger) -> None:
    """Find every ``@pytest.mark.proves(...)`` on the tests, their classes and modules.

    And every property of a contract, ``@ENCODER.holds(...)``, which the tests run.
    """
    contract = root / "stringlib" / "testing"
    for path in sorted([*(root / "tests").rglob("*.py"), *contract.glob("*.py")]):
        file = str(path.relative_to(root))
        tree = ast.parse(path.read_text(encoding="utf8"))
        on_definitions = set()
        for names, node in definitions(tree):
            place = "::".join((file, *names))
            for call in marks(node.decorator_list):
                on_definitions.add(call)
                if path.parent != contract and not re.match("test|Test", node.name):
                    ledger.errors.append(f"{place}: marked as a proof but never run as a test")
                what = "property" if path.parent == contract else "test"
                line = f"the {what} “{in_words(node.name)}” in `{file}`"
                _proof(call, place, line, ledger)
        for call in marks([tree]):
            if call not in on_definitions:
                _proof(call, file, f"the tests in `{file}`", ledger)


def in_words(name: str) -> str:
    """Return the name of a test, which is a sentence, as one."""
    return re.sub(r"^[Tt]est_?", "", name).replace("_", " ")


def _proof(call: ast.Call, place: str, line: str, ledger: Ledger) -> None:
    """Note a test under each equation that its mark names."""
    labels = [a.value for a in call.args if isinstance(a, ast.Constant)]
    if not labels or len(labels) != len(call.args) or call.keywords:
        ledger.errors.append(f"{place}: proves(...) takes the ids as plain strings")
    for label in labels:
        note(ledger.known(str(label), place, "the proof"), line, "in float64")


def note(equation: Equation | None, line: str, kind: str) -> None:
    """Note a proof under its equation, once."""
    if equation:
        equation.kinds.add(kind)
        if line not in equation.proved:
            equation.proved.append(line)


def read_cells(root: Path, ledger: Ledger) -> None:
    """Find every comment that names a proof in the code cells of the chapters."""
    for path in pages(root):
        for place, cell in cells(root, path):
            if cell["cell_type"] != "code":
                continue
            comments = PROVES.findall(cell["source"])
            if re.search(r"^\s*#\s*proves\b", PROVES.sub("", cell["source"]), re.MULTILINE):
                kinds = " or ".join(f"'# proves {kind}: eq-...'" for kind in KINDS)
                ledger.errors.append(f"{place}: write {kinds}")
            if not comments:
                continue
            code = parsed(cell["source"])
            if not any(isinstance(n, ast.Assert) or is_proof(n) for n in ast.walk(code)):
                ledger.errors.append(f"{place}: claims a proof but has no assert")
            skipped = NOT_RUN & set(cell["metadata"].get("tags", []))
            if skipped:
                ledger.errors.append(f"{place}: claims a proof but is tagged {min(skipped)}")
            claims = [
                (kind, label)
                for kind, labels in comments
                for label in re.split(r"[,\s]+", labels.strip())
            ]
            by_algebra = [label for kind, label in claims if kind.startswith(KINDS[0])]
            if by_algebra and not ALGEBRA.search(cell["source"]):
                ledger.errors.append(f"{place}: claims algebra but has no symbols")
            _mutants(code, place, by_algebra, ledger)
            for kind, label in claims:
                line = f"{kind}, a cell of {{doc}}`/{document(root, path)}`"
                note(ledger.known(label, place, "the proof"), line, kind)


def is_proof(node: ast.AST) -> bool:
    """Tell whether a node is a call of ``proves`` of ``lab.symbolic``."""
    return isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "proves"


def _mutants(code: ast.Module, place: str, claimed: Sequence[str], ledger: Ledger) -> None:
    """Note the proofs by algebra of a cell that bring no wrong variant."""
    calls = [node for node in ast.walk(code) if isinstance(node, ast.Call) and is_proof(node)]
    proved = set()
    for call in calls:
        first = call.args[0] if call.args else None
        label = str(first.value) if isinstance(first, ast.Constant) else ""
        wrong = [k.value for k in call.keywords if k.arg == "wrong"]
        if label not in claimed:
            ledger.errors.append(f"{place}: proves({label!r}, ...) is not named by the comment")
        elif not wrong:
            ledger.errors.append(f"{place}: the proof of {label} has no wrong variant")
        elif ast.dump(wrong[0]) == ast.dump(call.args[-1]):
            ledger.errors.append(f"{place}: the wrong variant of {label} is the right side")
        elif _meaning(call.args[1], code) == _meaning(call.args[-1], code):
            ledger.errors.append(f"{place}: both sides of {label} are the same expression")
        proved.add(label)
    for label in claimed:
        if label not in proved:
            ledger.errors.append(f"{place}: no proves(...) is of {label}")


def _meaning(node: ast.expr, code: ast.Module) -> str:
    """Return an expression as text; a name that the cell assigns once stands for its value."""
    if isinstance(node, ast.Name):
        values = [
            n.value
            for n in ast.walk(code)
            if isinstance(n, ast.Assign) and any(ast.dump(t) == _stored(node) for t in n.targets)
        ]
        if len(values) == 1:
            return _meaning(values[0], code)
    return ast.dump(node)


def _stored(node: ast.Name) -> str:
    return ast.dump(ast.Name(node.id, ast.Store()))


def parsed(source: str) -> ast.Module:
    """Return the code of a cell, its magic lines apart; nothing if it is no Python."""
    code = re.sub(r"^[ \t]*[%!].*$", "", source, flags=re.MULTILINE)
    try:
        return ast.parse(code)
    except SyntaxError:
        return ast.Module(body=[], type_ignores=[])


# --- the page ---


def read(root: Path) -> Ledger:
    """Read the whole project and find its orphans."""
    ledger = Ledger()
    read_labels(root, ledger)
    read_docstrings(root, ledger)
    read_tests(root, ledger)
    read_cells(root, ledger)
    readings = root / READINGS
    if readings.exists():
        for label, reading in json.loads(readings.read_text(encoding="utf8")).items():
            equation = ledger.known(label, READINGS, "the record")
            if equation:
                equation.reading = reading
    for equation in ledger.equations.values():
        if not equation.implemented:
            ledger.errors.append(f"{equation.place}: {equation.label} is in no docstring")
        if not equation.proved:
            ledger.errors.append(f"{equation.place}: {equation.label} is proved nowhere")
        kind = equation.kind.split(maxsplit=1)[1]
        stronger = kind == "algebra" and equation.how.startswith("algebra at a fixed size")
        if equation.how and (stronger or not equation.how.startswith(kind)):
            said = f"the summary proves {equation.label} by {equation.how!r}"
            ledger.errors.append(f"{equation.page}: {said}, its cells and tests {equation.kind}")
    return ledger


def render(ledger: Ledger) -> str:
    """Return the list, in Markdown."""
    by_page: dict[str, list[Equation]] = defaultdict(list)
    for equation in ledger.equations.values():
        by_page[equation.page].append(equation)
    blocks = [f"{counts(ledger)}\n"] if by_page else ["No equation is labelled yet.\n"]
    for page, equations in by_page.items():
        blocks.append(f"## {ledger.titles.get(page, page)}\n")
        blocks += [ENTRY.format(**entry(equation)) for equation in equations]
    return "\n".join(blocks)


def counts(ledger: Ledger) -> str:
    """Return how many equations have which kind of proof, in words."""
    of_kind = [sum(e.kind == kind for e in ledger.equations.values()) for kind in KINDS]
    shares = (f"{count} {kind}" for count, kind in zip(of_kind, KINDS, strict=True) if count)
    proved = f"{len(ledger.equations)} formulas, proved: {', '.join(shares)}."
    readings = [e.reading for e in ledger.equations.values() if "bound" in e.reading]
    if not readings:
        return proved
    whole = sum("lock" not in reading for reading in readings)
    tried = sum(reading["mutants"] for reading in readings)
    noticed = tried - sum(len(reading["missed"]) for reading in readings)
    return (
        f"{proved} For {whole} of them, the displayed LaTeX is computed with the values of the "
        f"proof, and for {len(readings) - whole} more, a part of it is. Of {tried:,} changes of a "
        "single sign, number, exponent, function or index in these formulas, the checks detect "
        f"{noticed:,}."
    )


def reading_in_words(reading: dict[str, Any]) -> str:
    """Return how the displayed LaTeX of a formula is compared with its proofs."""
    if "bound" not in reading:
        return "the displayed formula is not computed, but a test detects every change of it"
    part = "the displayed formula is"
    if len(reading["bound"]) < reading["statements"]:
        count = len(reading["bound"])
        part = f"{count} of the {reading['statements']} displayed statements"
        part += " is" if count == 1 else " are"
    what = "what it displays" if reading["proof"] == "display" else "a step to what it displays"
    noticed = reading["mutants"] - len(reading["missed"])
    changes = f"; {noticed} of {reading['mutants']} changes are detected" if noticed else ""
    return f"{part} computed with the values of a proof, which proves {what}{changes}"


def entry(equation: Equation) -> dict[str, str]:
    """Return what stands in the list for one equation, in Markdown."""
    kind = equation.kind.split(maxsplit=1)[1]
    lines = list(equation.proved)
    if equation.reading:
        lines.append(reading_in_words(equation.reading))
    code = (
        # the API pages leave out what is private
        f"`{name}`" if re.search(r"\._(?!_)", name) else f"{{py:obj}}`~{name}`"
        for name in equation.implemented
    )
    return {
        "label": equation.label,
        "name": f"{{eq}}`{equation.label}` {equation.name}".rstrip(),
        "tex": equation.tex,
        "code": ", ".join(code),
        "kind": equation.kind,
        "how": f" ({how})" if (how := equation.how.removeprefix(kind).lstrip(",; ")) else "",
        "proofs": "\n".join(f"- {line}" for line in lines),
    }


def fill_in(app: Sphinx, page: str, source: list[str]) -> None:
    """Write the list in its place while the book is built."""
    if PLACE in source[0]:
        ledger = read(Path(app.srcdir))
        for error in ledger.errors:
            logger.warning(error)
        source[0] = source[0].replace(PLACE, render(ledger))


def setup(app: Sphinx) -> dict[str, Any]:
    """Make the page in every build: whatever it lists may have changed."""
    app.connect("source-read", fill_in)
    app.connect("env-get-outdated", lambda _app, env, *_: [PAGE] if PAGE in env.found_docs else [])
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}


def main(argv: Sequence[str] | None = None) -> int:
    """Name every orphan, or print the list."""
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="print no list")
    parser.add_argument("--root", type=Path, default=ROOT, help="the project's folder")
    args = parser.parse_args(argv)
    ledger = read(args.root)
    for error in ledger.errors:
        print(f"error: {error}", file=sys.stderr)
    if ledger.errors:
        return 1
    print(counts(ledger) if args.check else render(ledger))
    return 0


if __name__ == "__main__":
    allow_every_letter()
    sys.exit(main())
