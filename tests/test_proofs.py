"""Proofs and exercises that run in the page: their source, what is found, Python for the page."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from book.proofs import EXERCISE, FIRST_LINE, Proof, exercises_of, proofs_of
from lab import page_proof
from tools import engine
from tools.ledger import is_proof

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
ALONE = """
import importlib.abc, json, sys

class Refused(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "numpy", "scipy", "stringlib", "book"):
            raise ImportError(f"a browser has no {name}")

sys.meta_path.insert(0, Refused())
from lab import page_proof
run = getattr(page_proof, sys.argv[1])
print(json.dumps([json.loads(run(before, source)) for before, source in json.load(sys.stdin)]))
"""


def alone(function: str, rows: list[tuple[str, str]]) -> list[dict[str, Any]]:
    """Run proofs or exercises in a Python without PyTorch, NumPy and SciPy."""
    words = [sys.executable, "-c", ALONE, function]
    given = json.dumps(rows)
    done = subprocess.run(words, input=given, capture_output=True, text=True, cwd=ROOT, check=True)
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def notebook(*sources: str) -> dict[str, Any]:
    """Return a notebook of code cells."""
    return {
        "cells": [
            {"id": f"cell-{n}", "cell_type": "code", "source": source.splitlines(keepends=True)}
            for n, source in enumerate(sources)
        ]
    }


def only(*sources: str) -> Proof:
    """Return the one proof of a notebook."""
    (proof,) = proofs_of(notebook(*sources))
    return proof


SETUP = "import sympy as sp\nimport torch\nfrom lab.symbolic import proves, vanishes"
HEAD = "# proves by algebra: eq-a\n"


def test_what_needs_pytorch_is_left_out_with_all_that_follows_from_it() -> None:
    """A tensor, an assert on it, and a name that only the comparison with the formula reads."""
    proof = only(
        SETUP,
        HEAD + "x = sp.Symbol('x')\n"
        "table = torch.ones(3)\n"
        "names = {'x': table}\n"
        "assert table.sum() == 3\n"
        "proves('eq-a', x + x, 2 * x, wrong=3 * x, where=names)  # twice",
    )
    assert proof.source.splitlines() == [
        "# proves by algebra: eq-a",
        "x = sp.Symbol('x')",
        "proves('eq-a', x + x, 2 * x, wrong=3 * x)  # twice",
    ]
    assert proof.before.splitlines() == [
        "import sympy as sp",
        "from lab.symbolic import proves",
    ]
    assert (proof.calls, proof.left_out) == (1, 1)


def test_a_mistake_exchanges_the_right_side_and_the_wrong_variant() -> None:
    """One text for each call, also with letters of several bytes before it."""
    proof = only(
        SETUP,
        HEAD + "α = sp.Symbol('α')\n"
        "proves('eq-α', α + α, 2 * α, wrong=3 * α)\nproves('eq-b', α, α, wrong=-α)",
    )
    first, second = proof.mistakes
    assert "proves('eq-α', α + α, 3 * α, wrong=2 * α)" in first
    assert "proves('eq-b', α, -α, wrong=α)" in second


def test_names_of_other_cells_come_with_what_they_need() -> None:
    """Of two statements that bind a name, the last one before the proof."""
    proof = only(
        SETUP,
        "x = torch.ones(1)\ny = torch.ones(1)",
        "x = sp.Symbol('x')\ntwice = lambda z: z + z",
        HEAD + "rows = []\nfor y in (x, -x):\n    rows.append(twice(y))\n"
        "proves('eq-a', sum(rows), 0 * x, wrong=x)",
    )
    assert "x = sp.Symbol('x')\ntwice = lambda z: z + z" in proof.before
    assert "torch" not in proof.before
    assert "rows.append(twice(y))" in proof.source  # y is bound by the loop


def test_a_function_may_read_a_name_that_is_bound_after_it() -> None:
    """And its own names are not those of the cells before."""
    proof = only(
        SETUP,
        "total = torch.ones(1)",
        HEAD + "def summed():\n    total = 0\n    total += offset\n    return total\n\n\n"
        "offset = sp.Symbol('c')\nproves('eq-a', summed(), offset, wrong=-offset)",
    )
    assert "torch" not in proof.before
    assert json.loads(page_proof.run(proof.before, proof.source))["holds"]


def test_a_proof_that_needs_pytorch_does_not_run_in_the_page() -> None:
    """No button is better than one that fails."""
    source = HEAD + "x = sp.Rational(torch.ones(1).item())\nproves('eq-a', x, x + 0, wrong=-x)"
    assert proofs_of(notebook(SETUP, source)) == []


def test_nearly_all_proofs_of_the_book_run_in_the_page() -> None:
    """At least 95 of 100 calls of ``proves``, and some of each chapter."""
    calls = total = 0
    for path in NOTEBOOKS:
        read = json.loads(path.read_text(encoding="utf-8"))
        proofs = proofs_of(read)
        assert proofs, path.name
        calls += sum(proof.calls for proof in proofs)
        cells = ["".join(c["source"]) for c in read["cells"] if c["cell_type"] == "code"]
        total += sum(
            is_proof(node)
            for source in cells
            if source.startswith(FIRST_LINE)
            for node in ast.walk(ast.parse(source))
        )
    assert calls >= 0.95 * total, (calls, total)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem[:2])
def test_the_proofs_of_a_chapter_hold_with_sympy_alone(path: Path) -> None:
    """In a Python without PyTorch and NumPy, each by itself."""
    proofs = proofs_of(json.loads(path.read_text(encoding="utf-8")))
    found = alone("run", [(proof.before, proof.source) for proof in proofs])
    assert [proof.cell for proof, one in zip(proofs, found, strict=True) if not one["holds"]] == []


CHECK = "def check_it(f):\n    print('ok' if f(2) == 4 else f'expected 4, got {f(2)}')"
START = "# Exercise: a square\ndef square(x):\n    return 0\n\n\ncheck_it(square)"


def test_an_exercise_comes_with_its_check_and_the_imports_of_the_chapter() -> None:
    """The reader's answer may need an import that neither the start nor the check uses."""
    (exercise,) = exercises_of(notebook(SETUP, "import math\nx = 3", CHECK, START))
    assert exercise.before.splitlines() == [
        "import sympy as sp",
        "from lab.symbolic import proves",
        "from lab.symbolic import vanishes",
        "import math",
        *CHECK.splitlines(),
    ]
    assert exercise.source == START
    assert json.loads(page_proof.judge(exercise.before, START))["words"] == "expected 4, got 0"
    answer = START.replace("return 0", "return math.pow(x, 2)")
    assert json.loads(page_proof.judge(exercise.before, answer))["holds"]


def test_an_exercise_whose_check_needs_pytorch_does_not_run_in_the_page() -> None:
    """The one after it keeps its number."""
    torch_check = CHECK.replace("f(2)", "f(torch.ones(1))").replace("check_it", "check_other")
    other = START.replace("check_it", "check_other")
    (exercise,) = exercises_of(notebook(SETUP, torch_check, CHECK, other, START))
    assert exercise.number == 1


def test_a_function_inside_a_check_is_one_of_its_own_names() -> None:
    """Not one of an earlier cell, and not one that is missing."""
    check = "def check_it(f):\n    def good(x):\n        return f(x) == 4\n\n    print(good(2))"
    (exercise,) = exercises_of(notebook(SETUP, "good = torch.ones(1)", check, START))
    assert "torch" not in exercise.before


def answers(read: dict[str, Any]) -> Iterator[str]:
    """Yield the solution of each exercise that has a start, up to the call of the check."""
    begun = False
    for cell in read["cells"]:
        source = "".join(cell["source"])
        if source.startswith(EXERCISE):
            begun = True
        elif begun and source.startswith("# Solution: "):
            begun = False
            nodes = [node for node in ast.parse(source).body if isinstance(node, ast.Expr)]
            call = next(node for node in nodes if ast.unparse(node).startswith("check_"))
            yield "\n".join(source.splitlines()[: call.end_lineno])


def test_all_exercises_with_a_start_run_in_the_page() -> None:
    """At least 30 over the book; each start ends in a call of its check, as its solution does."""
    count = 0
    for path in NOTEBOOKS:
        read = json.loads(path.read_text(encoding="utf-8"))
        sources = ["".join(cell["source"]) for cell in read["cells"]]
        starts = [source for source in sources if source.startswith(EXERCISE)]
        assert [each.source for each in exercises_of(read)] == starts
        for start, answer in zip(starts, answers(read), strict=True):
            check = start.splitlines()[-1].partition("(")[0]
            assert check.startswith("check_")
            assert answer.splitlines()[-1].startswith(f"{check}(")
        count += len(starts)
    assert count >= 30


@pytest.mark.parametrize(
    "path",
    [path for path in NOTEBOOKS if EXERCISE in path.read_text(encoding="utf-8")],
    ids=lambda path: path.stem[:2],
)
def test_the_start_of_an_exercise_fails_and_its_solution_passes(path: Path) -> None:
    """With sympy alone, without an error; the notebook shows the same words below the start."""
    read = json.loads(path.read_text(encoding="utf-8"))
    exercises = exercises_of(read)
    rows = [(each.before, each.source) for each in exercises]
    rows += [(each.before, answer) for each, answer in zip(exercises, answers(read), strict=True)]
    found = alone("judge", rows)
    assert [one for one in found if "error" in one] == []
    assert [one["holds"] for one in found] == [n >= len(exercises) for n in range(len(found))]
    outputs = {cell["id"]: cell.get("outputs") for cell in read["cells"]}
    for exercise, one in zip(exercises, found, strict=False):
        (output,) = outputs[exercise.cell]
        assert "".join(output["text"]).strip() == one["words"]


BEFORE = "import sympy as sp\nfrom lab.symbolic import proves\nimport lab.symbolic as sym"


def found(source: str) -> dict[str, Any]:
    """Return what a run of a proof finds."""
    result: dict[str, Any] = json.loads(page_proof.run(BEFORE, source))
    return result


def test_a_proof_that_holds_reports_each_equation() -> None:
    """By both names under which a cell may call ``proves``; ``where`` is not read."""
    source = "x = sp.Symbol('x')\nassert x == x\nproves('eq-a', x, x + 0, wrong=-x)\n"
    source += "sym.proves('eq-b', x + x, 2 * x, wrong=x, where={'x': x})"
    assert found(source) == {
        "holds": True,
        "equations": [{"label": "eq-a", "holds": True}, {"label": "eq-b", "holds": True}],
        "checks": 1,
    }


def test_two_sides_that_differ_report_by_what() -> None:
    """The line, and the difference as a formula and as text."""
    result = found("x = sp.Symbol('x')\n\nproves('eq-a', x, 3 * x, wrong=-x)")
    (equation,) = result["equations"]
    assert (result["holds"], result["line"]) == (False, 3)
    assert (equation["differs"], equation["text"], equation["entry"]) == (True, "-2*x", "")
    assert equation["formula"].startswith("<math>")
    assert "<mi>x</mi>" in equation["formula"]


def test_of_two_matrices_the_first_entry_that_differs_is_reported() -> None:
    """With its row and column, counted from 1."""
    source = "x = sp.Symbol('x')\nA = sp.Matrix([[1, x], [x, 1]])\n"
    source += "proves('eq-a', A, sp.eye(2) + 0 * A, wrong=2 * A)"
    (equation,) = found(source)["equations"]
    assert (equation["entry"], equation["text"]) == ("row 1, column 2", "x")


def test_a_long_difference_is_cut() -> None:
    """A formula that no screen holds helps nobody."""
    (equation,) = found("x = sp.symbols('x:90')\nproves('eq-a', sum(x), 0, wrong=1)")["equations"]
    assert "formula" not in equation
    assert equation["text"].endswith(" …")
    assert len(equation["text"]) <= page_proof.MOST + 2


def test_a_variant_that_is_no_mistake_is_reported() -> None:
    """Such a check would accept everything."""
    result = found("x = sp.Symbol('x')\nproves('eq-a', x + x, 2 * x, wrong=x * 2)")
    assert result["equations"] == [{"label": "eq-a", "holds": False, "differs": False}]


@pytest.mark.parametrize(
    ("source", "line", "error"),
    [
        ("x = 1\nassert x == 2", 2, "AssertionError: this check is false"),
        ("x = 1\ny = x +", 2, "SyntaxError: invalid syntax"),
        ("def f():\n    return unknown\n\nf()", 2, "NameError: name 'unknown' is not defined"),
        ("x = 1\nwhile True:\n    raise SystemExit(3)", 3, "SystemExit: 3"),
    ],
)
def test_an_error_is_reported_with_its_line(source: str, line: int, error: str) -> None:
    """The line of the cell in which it was raised, not one of a library."""
    result = found(source)
    assert (result["holds"], result["line"], result["error"]) == (False, line, error)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("print('ok')", {"holds": True, "words": "ok"}),
        ("print(3)\nprint('ok: 0.5')", {"holds": True, "words": "3\nok: 0.5"}),
        ("print('ok')\nprint('wrong')", {"holds": False, "words": "ok\nwrong"}),
        ("print('okay, but no')", {"holds": False, "words": "okay, but no"}),
        ("x = 1", {"holds": False, "words": ""}),
        ("print('ok')\n1 / 0", {"holds": False, "words": "ok", "line": 2,
                               "error": "ZeroDivisionError: division by zero"}),
    ],
)  # fmt: skip
def test_an_exercise_is_judged_by_the_last_line_that_is_printed(
    source: str, found: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """It begins with the word ok; an answer with an error is wrong."""
    judged = json.loads(page_proof.judge("", source))
    del judged["checks"]
    assert judged == found
    assert capsys.readouterr().out == ""


def test_the_checker_is_as_before_after_a_proof() -> None:
    """Also if the proof fails."""
    from lab import symbolic

    plain = symbolic.proves
    found("raise ValueError")
    assert symbolic.proves is plain


def test_without_npm_no_script_is_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And the reason is given."""
    monkeypatch.setattr(engine, "KEPT", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(engine.MissingEngineError, match=r"^npm and Node\.js are not installed$"):
        engine.engine()
    assert list(tmp_path.iterdir()) == []


def test_another_package_of_the_same_name_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Only the file whose digest is written in the source is unpacked."""
    npm = tmp_path / "npm"
    npm.write_text(f'#!/bin/sh\necho other > "$5/pyodide-{engine.PYODIDE}.tgz"\n')
    (tmp_path / "node").write_text("#!/bin/sh\n")
    for file in (npm, tmp_path / "node"):
        file.chmod(0o755)
    monkeypatch.setattr(engine, "KEPT", tmp_path / "kept")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(engine.MissingEngineError, match="is not the file that is expected"):
        engine.engine()


def test_a_failure_of_node_is_a_reason_and_leaves_no_script(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Such as one that is too old: the last line that it prints is the reason."""
    node = tmp_path / "node"
    node.write_text("#!/bin/sh\necho SyntaxError: too old >&2\nexit 1\n")
    node.chmod(0o755)
    monkeypatch.setattr(engine, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(engine, "_pyodide", lambda folder: folder)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(engine.MissingEngineError, match=r"\(SyntaxError: too old\)$"):
        engine.engine()
    assert list((tmp_path / "kept").iterdir()) == []


def test_a_script_that_is_made_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is asked of npm a second time."""
    monkeypatch.setattr(engine, "KEPT", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    made = tmp_path / f"{engine.digest()}.js"
    made.write_text("window.bookEngine = {};\n")
    assert engine.engine() == made
