"""The displayed formulas are read and computed, and a change of one of them is noticed."""

from __future__ import annotations

import json
import math
import random
import re
from typing import Any

import numpy as np
import pytest
import sympy as sp

from lab import formulas
from lab.latex import UnreadError, parse
from lab.symbolic import proves, rotation
from tools import formulas as tool
from tools import ledger

RECORD = json.loads(tool.RECORD.read_text(encoding="utf8"))

a, b = np.array([[2.0], [3.0]]), np.array([[5.0], [-1.0]])
M = np.array([[1.0, 2.0], [3.0, 5.0]])
VALUES: dict[str, Any] = {
    "x": 0.7,
    "y": 1.9,
    "n": 3,
    "t": 4,
    "a": a,
    "b": b,
    "M": M,
    "z": 3 + 4j,
    "u": [1.0, 10.0, 100.0, 1000.0],
    "W_q": 7.0,
    "b'": 11.0,
    "hat k": 13.0,
    "y^h": [17, 19],
    "f": lambda x: x + 1,
    "phi": lambda i: 2 * i,
    "bf 1": np.ones((2, 1)),
    "dL/dr": 23.0,
    "E": [(0.25, {"X": 2.0}), (0.75, {"X": 6.0})],
    "all k": range(4),
    "all h": range(2),
    "h": 1,
}
READ = {
    r"x - y + 2\,x": 0.7 - 1.9 + 1.4,
    r"-x^2": -0.49,
    r"x^{-1}": 1 / 0.7,
    r"\frac{x}{y - x}": 0.7 / 1.2,
    r"\tfrac12 x": 0.35,
    r"x / 2 y": 0.7 / 3.8,
    r"2 \cos x \sin y": 2 * math.cos(0.7) * math.sin(1.9),
    r"\cos^2 x": math.cos(0.7) ** 2,
    r"\cos x\, y": math.cos(0.7) * 1.9,
    r"\log_2 t": 2.0,
    r"e^{\mathrm{i} x}": complex(math.cos(0.7), math.sin(0.7)),
    r"\operatorname{Re} \overline{z} \mathrm{i}": 4.0,
    r"\operatorname{Im} z\, \mathrm{i}": 4j,
    r"|z|": 5.0,
    r"|x| |y|": 1.33,
    r"\|a\|^2": 13.0,
    r"a^\top b": 7.0,
    r"\langle a, M b \rangle": float((a.T @ M @ b)[0, 0]),
    r"\det M": -1.0,
    r"\sum_{k=1}^{n} u_k": 1110.0,
    r"\sum_{0 \le k < n} u_k": 111.0,
    r"\sum_{k<n} u_k / u_0": 111.0,
    r"\sum_k u_k - u_0": 1110.0,
    r"\prod_{k=0}^{2} u_k": 1000.0,
    r"\max_k u_k": 1000.0,
    r"\max(x, y)": 1.9,
    r"u_0 + \dots + u_n": 1111.0,
    r"u_{n-1}": 100.0,
    r"M_{0, 1} + M_{1, 0}": 5.0,
    r"W_q\, b'\, \hat k": 1001.0,
    r"y^h": 19,
    r"f(x)": 1.7,
    r"x (y + 1)": 0.7 * 2.9,
    r"x (y + 1)^2": 0.7 * 2.9**2,
    r"\phi_t": 8,
    r"(a \odot b)^\top \mathbf 1": 7.0,
    r"\int_0^x 2 u\,du": 0.49,
    r"\mathbb E\, X^2": 28.0,
    r"\binom{5}{2} + n!": 16,
    r"7 \bmod 4": 3,
    r"\lfloor 2 y \rfloor": 3,
    r"\sqrt{x}": math.sqrt(0.7),
    r"\frac{\partial\mathcal L}{\partial r}": 23.0,
    r"\operatorname{tril}(M)": np.tril(M),
    r"M^{-1}": np.linalg.inv(M),
    r"\operatorname{softmax}([x, -x])": np.array([[1], [math.exp(-1.4)]]) / (1 + math.exp(-1.4)),
    r"\begin{pmatrix} x & 0 \\ y & 1 \end{pmatrix}": np.array([[0.7, 0], [1.9, 1]]),
}


@pytest.mark.parametrize("tex", READ)
def test_the_value_of_latex(tex: str) -> None:
    (statement,) = parse(tex)
    assert len(statement) == 1
    np.testing.assert_allclose(formulas.evaluate(statement[0], VALUES), READ[tex], rtol=1e-9)


@pytest.fixture(scope="module")
def book() -> ledger.Ledger:
    """All equations of the book."""
    return ledger.read(ledger.ROOT)


def test_the_book_writes_latex_that_is_read(book: ledger.Ledger) -> None:
    for label, equation in book.equations.items():
        assert formulas.displayed(label) == equation.tex
        assert parse(equation.tex), label


def test_a_label_that_no_chapter_has() -> None:
    with pytest.raises(KeyError, match="no chapter displays a formula with the label eq-nothing"):
        formulas.displayed("eq-nothing")


@pytest.mark.parametrize("tex", [r"\unknown x", r"\frac{x", r"\hat{x + y}", "x +"])
def test_latex_that_is_not_understood(tex: str) -> None:
    with pytest.raises(UnreadError):
        formulas.check("eq-x", f"{tex} = 1", {"x": 1.0, "y": 2.0})


def test_statements_and_conditions() -> None:
    tex = r"\begin{aligned} x &= y, \\ |k - j| &\ge 1 \quad \text{for } j < k . \end{aligned}"
    values = {"x": 2.0, "y": 2.0, "k": range(5, 7), "j": range(3)}
    assert formulas.check("eq-x", tex, values).statements == 2
    with pytest.raises(AssertionError, match=r"statement 2 .* is false for \{'j': 2, 'k': 2\}"):
        formulas.check("eq-x", tex, {**values, "k": range(2, 4)})


def test_a_side_an_arrow_and_a_limit() -> None:
    formulas.check("eq-x", r"\frac{x}{2} .", {"x": 6.0, "side 0": 3.0})
    with pytest.raises(AssertionError):
        formulas.check("eq-x", r"\frac{x}{3} .", {"x": 6.0, "side 0": 3.0})
    with pytest.raises(UnreadError, match="Add 'side 0' with its value"):
        formulas.check("eq-x", r"\frac{x}{2} .", {"x": 6.0})
    moved = {"x": [1.0, 2.0], "new x": [3.0, 6.0], "i": range(2)}
    formulas.check("eq-x", r"x_i \mapsto 3 x_i", moved)
    with pytest.raises(AssertionError):
        formulas.check("eq-x", r"x_i \mapsto 2 x_i", moved)
    formulas.check("eq-x", r"x \to 3", {"x": 3.01})
    with pytest.raises(AssertionError):
        formulas.check("eq-x", r"x \to 3", {"x": 3.3})
    bounds = {"x": range(1, 5), "side 1": lambda x: 2 * x}
    formulas.check("eq-x", r"x \le 2 x", bounds)
    with pytest.raises(AssertionError):
        formulas.check("eq-x", r"x \le 3 x", bounds)


def test_a_name_without_a_value() -> None:
    with pytest.raises(UnreadError, match=re.escape("theta has no value. Add it to where.")):
        formulas.check("eq-x", r"x = \theta_i", {"x": 1.0, "i": range(2)})


def test_symbols_have_one_number_in_all_values() -> None:
    x, n = sp.Symbol("x"), sp.Symbol("n", integer=True)
    points = list(formulas.at_points("eq-x", {"x": x, "y": [x**2, n], "f": lambda z: z * x}))
    assert points[0] != points[1]
    for values in points:
        assert values["y"][0] == pytest.approx(values["x"] ** 2)
        assert values["f"](2.0) == pytest.approx(2 * values["x"])
        assert isinstance(values["y"][1], int)
    assert points[0]["x"] == next(iter(formulas.at_points("eq-x", {"x": x})))["x"]


def householder(angle: Any) -> sp.Matrix:
    v = sp.Matrix([sp.cos(angle), sp.sin(angle)])
    return sp.eye(2) - 2 * v * v.T


def test_a_proof_reads_its_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    alpha, F = sp.Symbol("alpha", real=True), sp.diag(-1, 1)
    left, right = householder(alpha), rotation(2 * alpha) * F
    names = {"H": householder, "alpha": alpha, "Rot": rotation, "F": F}
    label = "eq-reflection-householder"
    proves(label, left, right, wrong=-right, where=names)
    without = {name: value for name, value in names.items() if name != "F"}
    with pytest.raises(UnreadError, match="F has no value"):
        proves(label, left, right, wrong=-right, where=without)
    tex = formulas.displayed(label)
    for changed in tool.mutants(tex):
        monkeypatch.setattr(formulas, "displayed", lambda _label, tex=changed: tex)
        with pytest.raises((AssertionError, UnreadError)):
            proves(label, left, right, wrong=-right, where=names)


def test_one_matrix_as_both_sides_is_refused() -> None:
    matrix = rotation(sp.Symbol("t"))
    with pytest.raises(ValueError, match="left and right must be two matrices"):
        proves("eq-x", matrix, matrix, wrong=-matrix)


def test_mutants_have_one_change_each() -> None:
    assert tool.mutants(r"a_i = \frac12 b^2 + \cos x_{t-1}") == [
        r"a_i = \frac12 b^2 - \cos x_{t-1}",
        r"a_i = \frac12 b^2 + \cos x_{t+1}",
        r"a_i = \frac32 b^2 + \cos x_{t-1}",
        r"a_i = 2\,\frac12 b^2 + \cos x_{t-1}",
        r"a_i = \frac12 b^3 + \cos x_{t-1}",
        r"a_i = \frac12 b^2 + \sin x_{t-1}",
        r"a_i = \frac12 b^2 + \cos x_{t}",
    ]


def test_what_is_not_bound_is_locked(book: ledger.Ledger) -> None:
    """A formula that no proof reads, or the cell that proves it, was changed: read both again."""
    for label, equation in book.equations.items():
        if label not in RECORD:  # proved by tests alone
            assert all("test" in line or "property" in line for line in equation.proved), label
        elif "lock" in RECORD[label]:
            chapter = ledger.ROOT / f"{equation.page}.ipynb"
            assert RECORD[label]["lock"] == tool.lock(label, tool.code_cells(chapter)), (
                f"{label} or its proof has changed. Read both, then run tools/formulas.py {chapter}"
            )


def test_typography_changes_nothing() -> None:
    """The same formula with other spaces, fractions and brackets has the same value."""
    drawn = random.Random(3)
    tex = r"x = \frac{y + 2}{3}\, z^\top z"
    z = np.array([[drawn.random()], [drawn.random()]])
    values = {"y": 0.4, "z": z, "x": 0.8 * float((z.T @ z)[0, 0])}
    for new in (
        tex,
        r"x = \tfrac{y + 2}{3} z^\top z .",
        r"\begin{aligned} x &= \frac{y + 2}{3} \\ &\quad \cdot z^{\top} z, \end{aligned}",
        r"x \;=\; \Big(\frac{y+2}{3}\Big)\,z^\top z",
    ):
        formulas.check("eq-x", new, values)


@pytest.mark.parametrize("chapter", sorted({e["chapter"] for e in RECORD.values()}))
def test_the_record_is_what_the_proofs_show(chapter: str) -> None:
    (path,) = (ledger.ROOT / "notebooks").glob(f"{chapter}_*.ipynb")
    assert tool.record(path) == {k: e for k, e in RECORD.items() if e["chapter"] == chapter}
