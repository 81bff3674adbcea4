"""Run a proof or an exercise as a page does, with Python in the browser, and say what was found."""

from __future__ import annotations

import ast
import io
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from typing import Any

import sympy as sp

from lab import symbolic

MOST = 240
"""Characters of an expression that is shown as a formula; a longer one is shown as cut text."""


def run(before: str, source: str) -> str:
    """Run a proof and return what was found, as JSON.

    Args:
        before: Statements of earlier cells that the proof needs.
        source: The proof, as the reader has changed it.

    Returns:
        JSON of an object with these entries.

        - ``holds``: whether no check failed.
        - ``equations``: for each call of :func:`lab.symbolic.proves` its label, whether it holds,
          and if its sides differ the difference.
        - ``checks``: the number of asserts that hold.
        - ``line`` and ``error``: if a check failed, where and with which message.
    """
    equations: list[dict[str, Any]] = []
    with _reporting(equations):
        found = _executed(before, source)
    return json.dumps(found | {"equations": equations})


def judge(before: str, source: str) -> str:
    """Run an exercise and return what its check printed, as JSON.

    A check prints ``ok``, alone or before more words, or what is wrong.

    Args:
        before: Statements of earlier cells that the exercise needs, such as its check.
        source: The reader's answer, which ends in a call of the check.

    Returns:
        JSON of an object with these entries.

        - ``holds``: whether the last line that was printed begins with ``ok``.
        - ``words``: all that was printed.
        - ``line`` and ``error``: if an error was raised, where and with which message.
    """
    with redirect_stdout(io.StringIO()) as printed:
        found = _executed(before, source)
    words = printed.getvalue().strip()
    last = words.rpartition("\n")[2]
    found["holds"] = found["holds"] and re.match(r"ok\b", last) is not None
    return json.dumps(found | {"words": words})


def _executed(before: str, source: str) -> dict[str, Any]:
    """Run statements one after the other, and return where and with which error they end."""
    found: dict[str, Any] = {"holds": True, "checks": 0}
    line = 0
    space: dict[str, Any] = {"__name__": "__main__"}
    try:
        exec(compile(before, "<before>", "exec"), space)
        for node in ast.parse(source, "<proof>").body:
            line = node.lineno
            exec(compile(ast.Module([node], []), "<proof>", "exec"), space)
            found["checks"] += sum(isinstance(n, ast.Assert) for n in ast.walk(node))
    except SyntaxError as error:
        found |= {"holds": False, "line": error.lineno, "error": f"SyntaxError: {error.msg}"}
    except (Exception, SystemExit) as error:
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == "<proof>":
                line = trace.tb_lineno
            trace = trace.tb_next
        message = str(error) or "this check is false"
        found |= {"holds": False, "line": line, "error": f"{type(error).__name__}: {message}"}
    return found


@contextmanager
def _reporting(equations: list[dict[str, Any]]) -> Iterator[None]:
    """Enter each call of ``proves`` into a list."""
    plain = symbolic.proves

    def proves(
        label: str, left: Any, right: Any, *, wrong: Any, where: Mapping[str, Any] | None = None
    ) -> None:
        # where: for the comparison with the displayed formula, which needs NumPy
        try:
            plain(label, left, right, wrong=wrong)
        except AssertionError:
            differs = not symbolic._equal(left, right)
            equations.append({"label": label, "holds": False, "differs": differs})
            if differs:
                equations[-1] |= _difference(left, right)
            raise
        equations.append({"label": label, "holds": True})

    symbolic.proves = proves
    try:
        yield
    finally:
        symbolic.proves = plain


def _difference(left: Any, right: Any) -> dict[str, str]:
    """Return how two sides differ: as MathML, or as text if it is long; of matrices one entry."""
    try:
        gap, entry = left - right, ""
        if isinstance(gap, sp.MatrixBase):
            row, column = next(
                (i, j)
                for i in range(gap.rows)
                for j in range(gap.cols)
                if not symbolic.vanishes(gap[i, j])
            )
            gap, entry = gap[row, column], f"row {row + 1}, column {column + 1}"
        gap = sp.simplify(gap)
        text = sp.sstr(gap)
        if len(text) > MOST:
            return {"entry": entry, "text": f"{text[:MOST]} …"}
        formula = sp.mathml(gap, printer="presentation")
        return {"entry": entry, "text": text, "formula": f"<math>{formula}</math>"}
    except Exception:  # no difference can be taken, such as of symbols for whole matrices
        return {}
