"""The list of formulas: whole for this project, and every planted orphan is named."""

from __future__ import annotations

import ast
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tools import ledger

ROOT = Path(__file__).resolve().parents[1]


NEW = "notebooks/03.ipynb"


def notebook(*cells: tuple[str, str], tags: tuple[str, ...] = ()) -> str:
    made = [{"cell_type": k, "source": s, "metadata": {"tags": list(tags)}} for k, s in cells]
    return json.dumps({"cells": made})


CHAPTER = notebook(
    ("markdown", "# Rotations\n\nText, and $$ x = y $$ without a label."),
    ("markdown", "```{prf:theorem} A law\n$$\nR(a)R(b) = R(a + b)\n$$ (eq-law)\n```\n\nMore."),
    (
        "code",
        "%matplotlib inline\n# proves by algebra: eq-law\n"
        "# proves in float64: eq-angle\nproves('eq-law', a, b, wrong=-b)\nassert vanishes(1)",
    ),
    ("markdown", "```{math}\n:label: eq-angle\n\n\\theta_i = 1\n```"),
    (
        "markdown",
        "| equation | says | in the code | proved by |\n|---|---|---|---|\n"
        "| {eq}`eq-law` | angles add | {py:func}`rope` | algebra, $d = 2$ |\n"
        "| {eq}`eq-angle` | an angle | {py:func}`rope` | float64 |\n",
    ),
)
TREE = {
    "_toc.yml": "format: jb-book\nroot: book/intro\nparts:\n- chapters:\n  - file: notebooks/02_b\n"
    "  - file: notebooks/01_a\n",
    "book/intro.md": "# Intro\n\nWrite `$$ x $$ (eq-inline)`:\n\n```\n$$ x $$ (eq-block)\n```\n",
    "notebooks/01_a.ipynb": notebook(
        ("markdown", "# A\n\n> $$a = b$$ (eq-a)"),
        (
            "markdown",
            "| equation | in the code | proved by |\n|---|---|---|\n"
            "| {eq}`eq-a` two letters | `stringlib` | float64, a loop |\n"
            "| {eq}`eq-law` elsewhere | | |\n",
        ),
    ),
    "notebooks/02_b.ipynb": CHAPTER,
    "stringlib/__init__.py": '"""Top, :eq:`eq-a`."""\n',
    "stringlib/rope.py": 'class Rope:\n    """It is :eq:`eq-law`."""\n'
    '    def angle(self):\n        """See :eq:`the angle <eq-angle>`."""\n'
    'def _hidden():\n    """:eq:`eq-law`"""\n',
    "tests/test_rope.py": "import pytest\n"
    'class TestRope:\n    @pytest.mark.proves("eq-a", "eq-law")\n    def test_it(self): ...\n',
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Write a small project without a fault and return its folder."""
    for name, text in TREE.items():
        put(tmp_path, name, text)
    return tmp_path


def put(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf8")


def add(root: Path, name: str, text: str) -> None:
    put(root, name, (root / name).read_text(encoding="utf8") + text)


def test_the_project_has_no_orphan(capsys: pytest.CaptureFixture[str]) -> None:
    assert ledger.main(["--check"]) == 0, capsys.readouterr().err


def test_the_page_lists_everything_in_the_order_of_the_book(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ledger.main(["--root", str(tree)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("3 formulas, proved: 1 by algebra, 2 in float64.")
    assert re.findall(r'^## .*|(?<= id=")[\w-]+', text, re.MULTILINE) == [
        "## Rotations",
        "eq-law",
        "eq-angle",
        "## A",
        "eq-a",
    ]
    law, angle, a = text.split('<div class="book-formula"')[1:]
    assert "{eq}`eq-law` angles add\n" in law
    assert "```{math}\nR(a)R(b) = R(a + b)\n```" in law
    assert "In the code: {py:obj}`~stringlib.rope.Rope`, `stringlib.rope._hidden`." in law
    assert (
        "Proof by algebra ($d = 2$):\n\n"
        "- the test “it” in `tests/test_rope.py`\n"
        "- by algebra, a cell of {doc}`/notebooks/02_b`\n" in law
    )
    assert "{eq}`eq-angle` an angle\n" in angle
    assert "```{math}\n\\theta_i = 1\n```" in angle
    assert "{py:obj}`~stringlib.rope.Rope.angle`" in angle
    assert "\n\n- in float64, a cell of {doc}`/notebooks/02_b`\n" in angle
    assert "{eq}`eq-a` two letters\n" in a
    assert "In the code: {py:obj}`~stringlib`. Proof in float64 (a loop):" in a


def test_nearly_every_formula_has_its_name_from_the_summary_of_its_chapter() -> None:
    """A table of another form would leave them out without a word."""
    equations = ledger.read(ROOT).equations.values()
    bare = [e.label for e in equations if not e.name or not e.how]
    assert len(bare) <= len(equations) // 50, bare


def test_the_book_is_built_with_the_list_and_warns_of_an_orphan(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(ledger.logger, "warning", said.append)
    add(tree, "book/intro.md", "\n$$ x $$ (eq-new)\n")
    source = [(ROOT / f"{ledger.PAGE}.md").read_text(encoding="utf8")]
    ledger.fill_in(SimpleNamespace(srcdir=tree), ledger.PAGE, source)
    assert source[0].endswith(ledger.render(ledger.read(tree)))
    assert "eq-new is in no docstring" in "".join(said)


def proof(call: str, labels: str = "eq-law") -> tuple[str, str]:
    return NEW, notebook(("code", f"# proves by algebra: {labels}\n{call}"))


def claim(code: str, label: str = "law", tags: tuple[str, ...] = ()) -> tuple[str, str]:
    return NEW, notebook(("code", f"# proves in float64: eq-{label}\n{code}"), tags=tags)


LABEL = ("book/intro.md", "\n$$ x $$ (eq-new)\n")
DOCSTRING = ("stringlib/new.py", '""":eq:`eq-new`"""\n')
PROOF = 'import pytest\n@pytest.mark.proves("eq-{}")\ndef test_x(): ...\n'
TEST = ("tests/test_new.py", PROOF.format("new"))
ORPHANS = {
    "label without docstring": (LABEL, TEST, "book/intro.md: eq-new is in no docstring"),
    "label without proof": (LABEL, DOCSTRING, "book/intro.md: eq-new is proved nowhere"),
    "docstring without label": (
        ("stringlib/new.py", 'def f():\n    """By :eq:`eq-new`."""\n'),
        "stringlib/new.py, docstring of stringlib.new.f: the docstring names eq-new",
    ),
    "test without label": (TEST, "tests/test_new.py::test_x: the proof names eq-new"),
    "cell without label": (
        claim("assert True", "new"),
        "notebooks/03.ipynb, cell 0: the proof names eq-new",
    ),
    "duplicate label": (
        ("book/intro.md", "\n$$ x $$ (eq-law)\n"),
        "notebooks/02_b.ipynb, cell 1: eq-law is labelled before, in book/intro.md",
    ),
    "cell without assert": (
        claim("print('assert')"),
        "notebooks/03.ipynb, cell 0: claims a proof but has no assert",
    ),
    "summary of another kind": (
        (
            "book/intro.md",
            "\n$$ x $$ (eq-new)\n\n| equation | in the code | proved by |\n|---|---|---|\n"
            "| {eq}`eq-new` | `f` | algebra, all sizes |\n",
        ),
        DOCSTRING,
        TEST,
        "book/intro: the summary proves eq-new by 'algebra, all sizes', "
        "its cells and tests in float64",
    ),
    "proof without its mutant": (
        proof("proves('eq-law', a, b)"),
        "notebooks/03.ipynb, cell 0: the proof of eq-law has no wrong variant",
    ),
    "mutant that is the right side": (
        proof("proves('eq-law', a, b + 1, wrong=b+1)"),
        "notebooks/03.ipynb, cell 0: the wrong variant of eq-law is the right side",
    ),
    "one expression for both sides": (
        proof("a = x + y\nb = x + y\nproves('eq-law', a, b, wrong=x - y)"),
        "notebooks/03.ipynb, cell 0: both sides of eq-law are the same expression",
    ),
    "reading of no equation": (
        ("book/formulas.json", '{"eq-new": {}}'),
        "book/formulas.json: the record names eq-new, which no equation is labelled",
    ),
    "summary of more than its proof": (
        (
            "book/intro.md",
            "\n$$ x $$ (eq-new)\n\n| equation | in the code | proved by |\n|---|---|---|\n"
            "| {eq}`eq-new` | `f` | algebra, all sizes |\n",
        ),
        DOCSTRING,
        (
            NEW,
            notebook(
                (
                    "code",
                    "# proves by algebra at a fixed size: eq-new\nproves('eq-new', a, b, wrong=-b)",
                )
            ),
        ),
        "book/intro: the summary proves eq-new by 'algebra, all sizes', "
        "its cells and tests by algebra at a fixed size",
    ),
    "name without a proof": (
        proof("proves('eq-law', a, b, wrong=-b)", "eq-law, eq-a"),
        "notebooks/03.ipynb, cell 0: no proves(...) is of eq-a",
    ),
    **{
        f"cell tagged {tag}": (
            claim("assert True", tags=(tag,)),
            f"notebooks/03.ipynb, cell 0: claims a proof but is tagged {tag}",
        )
        for tag in ("nbval-skip", "skip-execution", "raises-exception")
    },
    "mark on a helper": (
        ("tests/test_new.py", PROOF.format("law").replace("test_x", "helper")),
        "tests/test_new.py::helper: marked as a proof but never run",
    ),
}


@pytest.mark.parametrize("name", ORPHANS)
def test_a_planted_orphan_is_named_with_its_place(
    name: str, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    *files, message = ORPHANS[name]
    for path, text in files:
        put(tree, path, "") if not (tree / path).exists() else None
        add(tree, path, text)
    assert ledger.main(["--check", "--root", str(tree)]) == 1
    assert f"error: {message}" in capsys.readouterr().err


LABELS = {
    "$$ x $$ (eq-x)": ["x"],
    "$$\nx\n$$ (eq-x)": ["x"],
    "```{math}\n:label: eq-x\nx\n```": ["x"],
    "````{prf:proof}\n```{note}\ntext\n```\n$$x$$ (eq-x)\n````": ["x"],
    ":::{admonition} A title\n:class: tip\n```python\ny = 1\n```\n$$x$$ (eq-x)\n:::": ["x"],
    # shown code labels nothing
    "Write `$$ x $$ (eq-x)` so.": [],
    "```\n$$ x $$ (eq-x)\n```": [],
    "```{code-block} md\n$$ x $$ (eq-x)\n```": [],
    "~~~\n```{math}\n:label: eq-x\n```\n~~~": [],
    "$$ x $$ and then (eq-x)": [],
}


@pytest.mark.parametrize("text", LABELS)
def test_every_way_to_label_is_read_and_no_other(text: str) -> None:
    found = ledger.labelled(f"Before $$y$$.\n\n{text}\n\nAfter `z`.")
    assert list(found) == [("eq-x", formula) for formula in LABELS[text]]


def described(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the constants and functions of a module that return or are something.

    Each comes with the first line of what is said of the constant, or under "Returns" or "Yields".
    """
    tree = ast.parse(path.read_text(encoding="utf8"))
    for before, after in itertools.pairwise(tree.body):
        words = getattr(after.value, "value", None) if isinstance(after, ast.Expr) else None
        if isinstance(before, ast.Assign | ast.AnnAssign) and isinstance(words, str):
            yield ast.unparse(before).split(" =")[0], words.splitlines()[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            for line in RESULT.findall(ast.get_docstring(node) or ""):
                yield node.name, line


RESULT = re.compile(r"^(?:Returns|Yields):\n +(.+)$", re.MULTILINE)


def test_the_words_about_a_constant_or_a_result_begin_without_a_colon() -> None:
    """Sphinx takes what is before a colon for the type of either, and does not find it."""
    folders = (ROOT / "stringlib", ROOT / "lab", ROOT / "book" / "figures")
    for path in (path for folder in folders for path in sorted(folder.rglob("*.py"))):
        for name, line in described(path):
            plain = re.sub(r":[\w:]+:`[^`]*`|``[^`]*``", "", line)
            assert not re.search(r":(\s|$)", plain), f"{path.relative_to(ROOT)}: {name}: {line}"
