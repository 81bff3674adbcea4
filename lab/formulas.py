r"""Check a displayed formula: compute both sides of it from what a cell gives its names.

The formula is read from the Markdown of its chapter, so that a sign that is changed there is
noticed. ``proves`` of :mod:`lab.symbolic` calls :func:`bind` with the objects of its cell::

    names = {"R": rotation, "q": q, "k": k, "t": t, "s": s}
    proves("eq-relative", left, right, wrong=mistake, where=names)

``where`` maps a name of the formula to its value: a number, a matrix, a sympy expression, a list
for a name with an index, or a function. Vectors are columns. Symbols of sympy get random values.
Names are written as in LaTeX without the backslash: ``"theta"``, ``"W_q"``, ``"b'"``,
``"tilde phi"``, ``"bf 1"``, ``"dL/dr"``. Some entries have a meaning of their own:

* A ``range`` says which values an index has. A sum over this index runs through all of them. If
  the index is not bound by a sum, the formula is checked for each of them.
* ``"y^h"`` holds the values for an index that is written above, here h.
* ``"new x"`` is the value of x after an arrow, as in ``x \mapsto Rx``, or that of the word x before
  a colon. An arrow without it is a limit, which is compared as :math:`\approx` is.
* ``"side 2"`` is the value that a side must have, counted from 0 through the whole formula. It is
  needed where no other side says so: a formula without ``=``, or one with an inequality. It may be
  a function of the indices, by their names.
* ``"E"`` is a distribution for an expectation: pairs of a probability and a dictionary of values.

* ``"pm"`` is the sign that :math:`\pm` stands for, ``"dots"`` the value of dots that stand for
  further terms, and with ``"commutator": True`` a bracket with two matrices is their commutator.

Three entries are options: ``"skip"``, the numbers of the statements that are not checked (from 0),
``"tol"``, the relative error that is allowed for an equality (default 1e-8), and ``"about"``, the
one for :math:`\approx` (default 0.05).
"""

from __future__ import annotations

import inspect
import itertools
import json
import math
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import sympy as sp
from scipy import integrate, linalg
from sympy.core.function import AppliedUndef
from sympy.core.operations import AssocOp
from sympy.matrices.expressions.matexpr import MatrixElement

from lab.latex import Node, Statement, UnreadError, parse

CHAPTERS = Path(__file__).resolve().parents[1] / "notebooks"
OPTIONS = ("skip", "tol", "about")
UNKNOWN = (sp.Subs, sp.Derivative, AppliedUndef, MatrixElement, sp.Symbol)
"""What gets a random number in the values of a proof."""
PLAIN = (sp.Basic.doit, sp.Atom.doit, AssocOp.doit)
"""The ``doit`` of expressions that have no sum, integral or derivative to carry out."""
Value: TypeAlias = Any
Values: TypeAlias = Mapping[str, Any]


class Bound(NamedTuple):
    """What :func:`bind` has checked.

    Attributes:
        checked: The numbers of the statements that were checked.
        statements: How many statements the formula has.
        sides: The values of all sides that were computed.
    """

    checked: set[int]
    statements: int
    sides: list[Any]


def displayed(label: str) -> str:
    """Return the LaTeX of a labelled formula, as it stands in the Markdown of its chapter.

    Raises:
        KeyError: If no chapter has the label.
    """
    dollars = re.compile(r"\$\$((?:(?!\$\$).)*)\$\$\s*\(" + label + r"\)", re.DOTALL)
    directive = re.compile(r"```\{math\}\s*:label:\s*" + label + r"\s*\n(.*?)```", re.DOTALL)
    for path in sorted(CHAPTERS.glob("*.ipynb")):
        for text in _markdown(path, path.stat().st_mtime_ns):
            found = label in text and (dollars.search(text) or directive.search(text))
            if found:
                return found[1].strip()
    raise KeyError(f"no chapter displays a formula with the label {label}")


@lru_cache(maxsize=64)
def _markdown(path: Path, changed: int) -> list[str]:
    """Return the Markdown cells of a chapter, which is read again when it has changed."""
    cells = json.loads(path.read_text(encoding="utf8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]


def bind(label: str, where: Values) -> Bound:
    """Check that the displayed formula holds for the values of its names, at two random points.

    Args:
        label: Label of the formula, ``"eq-something"``.
        where: The values of the names in the formula; see the head of this module.

    Returns:
        Which statements were checked, and the values of their sides.

    Raises:
        AssertionError: If a statement is false.
        UnreadError: If the LaTeX is not understood, or if a name has no value.
    """
    tex = displayed(label)
    for values in at_points(label, where):
        bound = check(label, tex, values)
    return bound


def at_points(label: str, where: Values) -> Iterator[dict[str, Value]]:
    """Yield the values at two random points, with the same number for a symbol in all values."""
    drawn = random.Random(label)
    for _ in range(2):
        point: dict[Any, Any] = {}
        options = {key: where[key] for key in OPTIONS if key in where}
        yield {key: _number(value, point, drawn) for key, value in where.items()} | options


def _number(value: Value, point: dict[Any, Any], drawn: random.Random) -> Value:
    """Return a value without symbols; ``point`` has the numbers of the symbols so far."""
    if isinstance(value, (range, str, complex, bool)) or value is None:
        return value
    if isinstance(value, (list, tuple)):
        return type(value)(_number(entry, point, drawn) for entry in value)
    if isinstance(value, dict):
        return {key: _number(entry, point, drawn) for key, entry in value.items()}
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        return value
    if callable(value) and not isinstance(value, sp.Basic):
        return _of_numbers(value, point, drawn)
    value = sp.sympify(value)
    if isinstance(value, sp.MatrixExpr) and not isinstance(value, sp.MatrixBase):
        value = value.doit().as_explicit()
    if any(type(part).doit not in PLAIN for part in _parts(value)):
        value = value.doit()
    for kind in UNKNOWN:  # a derivative before the symbols inside it
        value = _replaced(value, point)
        unknown = {part for part in _parts(value) if isinstance(part, kind)} - set(point)
        for symbol in sorted(unknown, key=str):
            drawn_number = drawn.randint(2, 6) if symbol.is_integer else drawn.uniform(0.2, 0.9)
            point[symbol] = sp.sympify(drawn_number)
    value = _replaced(value, point)
    if isinstance(value, sp.MatrixBase):
        return np.array(value.evalf().tolist(), dtype=complex).reshape(value.shape)
    if value.is_Integer:
        return int(value)
    number = complex(value.evalf())
    return number.real if abs(number.imag) < 1e-15 * max(1, abs(number)) else number


def _parts(value: sp.Basic | sp.MatrixBase) -> set[sp.Basic]:
    """Return all parts of an expression, each once."""
    waiting = list(value) if isinstance(value, sp.MatrixBase) else [value]
    parts: set[sp.Basic] = set()
    while waiting:
        part = waiting.pop()
        if part not in parts:
            parts.add(part)
            waiting += part.args
    return parts


def _replaced(value: sp.Basic | sp.MatrixBase, point: Mapping[Any, Any]) -> Any:
    """Return ``value.xreplace(point)``, but visit a part that occurs many times only once."""
    known = dict(point)

    def replaced(part: sp.Basic) -> sp.Basic:
        if part not in known:
            args = [replaced(arg) for arg in part.args]
            same = all(new is old for new, old in zip(args, part.args, strict=True))
            known[part] = part if same else part.func(*args)
        return known[part]

    return value.applyfunc(replaced) if isinstance(value, sp.MatrixBase) else replaced(value)


def _of_numbers(
    function: Callable[..., Value], point: dict[Any, Any], drawn: random.Random
) -> Callable[..., Value]:
    """Return a function of numbers and arrays that calls one of sympy's numbers and matrices."""

    def called(*arguments: Value, **named: Value) -> Value:
        return _number(function(*map(_symbolic, arguments), **named), point, drawn)

    called.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return called


def _symbolic(value: Value) -> Value:
    return sp.Matrix(value) if isinstance(value, np.ndarray) else sp.sympify(value)


# --- statements ---


def check(label: str, tex: str, values: Values) -> Bound:
    """Check the statements of a formula for given numbers; the arguments are those of bind."""
    statements = parse(tex)
    ranges = {name: value for name, value in values.items() if isinstance(value, range)}
    values = {name: value for name, value in values.items() if name not in ranges}
    values |= {f"all {name}": indices for name, indices in ranges.items()}
    skipped = set(values.get("skip", ()))
    sides: list[Value] = []
    first = 0  # the number of the first side of a statement
    for number, statement in enumerate(statements):
        if number not in skipped:
            for point in _points(statement, values):
                held = _sides(statement, first, {**values, **point})
                for left, relation, right in held:
                    sides += [left, right]
                    if not _holds(left, relation, right, values):
                        at = f" for {point}" if point else ""
                        raise AssertionError(
                            f"{label}: statement {number + 1} of the displayed formula is false"
                            f"{at}: {left} {relation} {right}"
                        )
        first += (len(statement) + 1) // 2
    return Bound(set(range(len(statements))) - skipped, len(statements), sides)


def _points(statement: Statement, values: Values) -> Iterator[dict[str, int]]:
    """Yield the values of the indices that no sum of the statement binds."""
    free = sorted(name for name in _free(tuple(statement)) if f"all {name}" in values)
    for point in itertools.product(*(values[f"all {name}"] for name in free)):
        yield dict(zip(free, point, strict=True))


def _sides(
    statement: Statement, first: int, values: dict[str, Value]
) -> Iterator[tuple[Value, str, Value]]:
    """Yield the pairs that have to be compared, with their relations."""
    computed: list[Value] = []
    relations = statement[1::2]
    for k, node in enumerate(statement[::2]):
        relation = relations[k] if k < len(relations) else None
        value = _new(node, values) if relation in ("->", ":") else None
        if value is not None or relation == ":":
            relations[k] = "="
        if value is None:
            value = evaluate(node, values)
        computed.append(value)
        pinned = values.get(f"side {first + k}")
        if pinned is not None:
            if callable(pinned):
                wanted = inspect.signature(pinned).parameters
                pinned = pinned(**{name: values[name] for name in wanted})
            yield value, "=", pinned
        elif len(statement) == 1:
            raise UnreadError(
                f"the formula has no relation. Add 'side {first}' with its value to where."
            )
    if "iff" in relations:
        middle = relations.index("iff")
        truths = []
        for start, end in ((0, middle), (middle + 1, len(relations))):
            pairs = [(computed[k], relations[k], computed[k + 1]) for k in range(start, end)]
            yield from (pair for pair in pairs if pair[1] == "=")
            truths.append(all(_holds(*pair, values) for pair in pairs if pair[1] != "="))
        yield float(truths[0]), "=", float(truths[1])
        return
    for left, relation, right in zip(computed[:-1], relations, computed[1:], strict=True):
        if relation not in ("<<", ">>"):
            yield left, relation, right


def _new(node: Node, values: dict[str, Value]) -> Value | None:
    """Return the new value of a name before an arrow or a colon, or None if it has none."""
    whole = f"new {spelled(node)}"
    if whole in values:
        return values[whole]
    if node[0] == "index" and f"new {spelled(node[1])}" in values:
        return _picked(values[f"new {spelled(node[1])}"], node[2], values)
    return None


def _holds(left: Value, relation: str, right: Value, values: Values) -> bool:
    """Tell whether a relation holds up to rounding."""
    a, b = np.asarray(left, complex), np.asarray(right, complex)
    if a.shape != b.shape and a.size != 1 and b.size != 1:
        return False
    tol, scale = values.get("tol", 1e-8), max(1e-12, np.abs(a).max(), np.abs(b).max())
    if relation == "=":
        return bool(np.abs(a - b).max() <= tol * max(scale, 1e-3))
    if relation in ("~", "->"):
        return bool(np.abs(a - b).max() <= values.get("about", 0.05) * scale)
    a, b = a.real, b.real
    found = {
        "<": a < b,
        "<=": a <= b + tol * scale,
        ">": a > b,
        ">=": a >= b - tol * scale,
        "!=": np.abs(a - b) > tol,
    }
    if relation not in found:
        raise UnreadError(f"the relation {relation} cannot be computed")
    return bool(found[relation].all())


def _names(node: Node) -> set[str]:
    """Return all names in an expression."""
    if isinstance(node, (tuple, list)):
        if len(node) == 2 and node[0] == "name":
            return {node[1]}
        return set().union(*map(_names, node))
    return set()


def _free(node: Node) -> set[str]:
    """Return the names in an expression that no sum, product, maximum or integral binds."""
    if not isinstance(node, (tuple, list)):
        return set()
    if node and node[0] in ("sum", "prod", "max", "min", "max of", "min of") and len(node) > 2:
        low, *rest = node[1:]
        indices = set(_indices(low)) if low is not None else set()
        return (set().union(*map(_free, rest)) | _free(low)) - indices
    if node and node[0] == "function" and node[1] == "softmax":
        return _free(node[4])  # for each entry of the softmax
    if len(node) == 2 and node[0] == "name":
        return {node[1]}
    return set().union(*map(_free, node))


def _indices(low: Node) -> list[str]:
    r"""Return the names that the range of a sum binds: j in ``0 \le j < n``, a and c in ``ac``."""
    match low:
        case ("name", name):
            return [name]
        case ("list", nodes):
            return [name for node in nodes for name in _indices(node)]
        case ("times", left, right):
            return _indices(left) + _indices(right)
        case ("power", ("name", name), _):
            return [name]
        case ("relation", [_, _, ("name", name), _, _]):
            return [name]
        case ("relation", [left, *_]):
            return sorted(_names(left))
    return []


# --- expressions ---

CONSTANTS = {"pi": math.pi, "e": math.e}
KNOWN: dict[str, Callable[[Any], Any]] = {
    **{name: getattr(np, name) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "arctan")},
    "cot": lambda x: 1 / np.tan(x),
    "Re": np.real,
    "Im": np.imag,
    "det": np.linalg.det,
    "rank": np.linalg.matrix_rank,
    "diag": lambda v: np.diag(np.ravel(v)),
    "tril": np.tril,
    "circ": lambda c: linalg.circulant(np.ravel(c)),
    "FFT": lambda v: np.fft.fft(np.ravel(v)).reshape(-1, 1),
    "Rot": lambda a: np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]]),
}


def spelled(node: Node) -> str:
    """Return an expression as a name, such as ``W_q`` or ``t^*``; empty if it is none."""
    match node:
        case ("name", name):
            return str(name)
        case ("num", number):
            return str(number)
        case ("neg", inner):
            return f"-{spelled(inner)}"
        case ("index", base, index):
            return f"{spelled(base)}_{spelled(index)}"
        case ("power", base, power):
            return f"{spelled(base)}^{spelled(power)}"
        case ("over", left, right):
            return f"{spelled(left)}/{spelled(right)}"
        case ("par", inner):
            return f"({spelled(inner)})"
        case ("call", function, ("list", arguments)):
            return f"{spelled(function)}({','.join(map(spelled, arguments))})"
        case ("call", function, argument):
            return f"{spelled(function)}({spelled(argument)})"
        case ("list", nodes):
            return ",".join(map(spelled, nodes))
        case ("times", left, right):
            return f"{spelled(left)},{spelled(right)}"
    return ""


def evaluate(node: Node, values: dict[str, Value]) -> Value:
    """Return the value of an expression: a number or a matrix.

    Raises:
        UnreadError: If a name has no value, or if the expression has none.
    """
    of = lambda inner: evaluate(inner, values)  # noqa: E731
    match node:
        case ("num", number):
            return number
        case ("name", name):
            return _named(name, values)
        case ("par" | "bracket", inner) if inner[0] != "list":
            return of(inner)
        case ("bracket", ("list", [a, b])) if "commutator" in values:
            return of(a) @ of(b) - of(b) @ of(a)
        case ("bracket" | "par", ("list", nodes)) | ("list", nodes):
            return np.vstack([np.atleast_2d(of(inner)) for inner in nodes])
        case ("neg", inner):
            return -of(inner)
        case ("pm", inner):
            return values["pm"] * of(inner)
        case ("add", ("add", start, ("dots",)), end):
            return _sum_with_dots(start, end, values)
        case ("add", left, right):
            return of(left) + of(right)
        case ("minus", left, right):
            return of(left) - of(right)
        case ("times", left, right):
            a = of(left)
            return a(of(right)) if callable(a) else _product(a, of(right))
        case ("hadamard", left, right):
            return of(left) * of(right)
        case ("over", left, right):
            return of(left) / of(right)
        case ("mod", left, right):
            return of(left) % of(right)
        case ("sqrt", inner):
            return np.emath.sqrt(of(inner))
        case ("binom", n, k):
            return math.comb(int(of(n)), int(of(k)))
        case ("factorial", n):
            return math.factorial(int(of(n)))
        case ("conj", inner):
            return np.conj(of(inner))
        case ("floor", inner):
            return math.floor(np.real(of(inner)))
        case ("abs", inner):
            return np.abs(of(inner))
        case ("norm", inner):
            return np.linalg.norm(np.asarray(of(inner)))
        case ("index", ("norm", inner), kind) if spelled(kind) in ("F", "2"):
            return np.linalg.norm(of(inner), "fro" if spelled(kind) == "F" else 2)
        case ("inner", ("list", [left, right])):
            return _product(np.transpose(of(left)), of(right))
        case ("matrix", rows):
            return _matrix(rows, values)
        case ("index", base, index):
            whole = spelled(node)
            return values[whole] if whole in values else _picked(of(base), index, values)
        case ("power", base, power):
            return _power(base, power, values)
        case ("call", function, argument):
            return _called(function, argument, values)
        case ("function", *parts):
            return _function(parts, values)
        case ("max of" | "min of" as kind, low, inner):
            nodes = inner[1] if inner[0] == "list" else [inner]
            points = [{}] if low is None else _range(low, None, values)
            found = [evaluate(n, {**values, **point}) for point in points for n in nodes]
            return (max if kind == "max of" else min)(map(np.real, found))
        case ("sum" | "prod" | "max" | "min" as kind, low, high, body):
            found = [evaluate(body, {**values, **p}) for p in _range(low, high, values)]
            return _folded(kind, found)
        case ("int", low, high, variable, body):
            start = 0.0 if low is None else of(low)
            return _integral(lambda x: evaluate(body, {**values, variable: x}), start, of(high))
        case ("expect", inner):
            return sum(p * evaluate(inner, {**values, **case}) for p, case in _named("E", values))
        case ("lim", _, _, body):
            return of(body)
        case ("dots",) if "dots" in values:
            return values["dots"]
    raise UnreadError(f"an expression of the kind {node[0]!r} cannot be computed")


def _named(name: str, values: dict[str, Value]) -> Value:
    if name in values:
        return values[name]
    if name in CONSTANTS:
        return CONSTANTS[name]
    raise UnreadError(f"{name} has no value. Add it to where.")


def _product(a: Value, b: Value) -> Value:
    """Return a product of numbers or matrices; a 1 × 1 matrix counts as a number."""
    if np.ndim(a) == np.ndim(b) == 2:
        if a.shape[1] != b.shape[0]:
            raise UnreadError(f"matrices of shapes {a.shape} and {b.shape} have no product")
        product = a @ b
        return product[0, 0] if product.shape == (1, 1) else product
    return a * b


def _folded(kind: str, found: list[Value]) -> Value:
    if kind == "sum":
        return sum(found)
    if kind == "prod":
        product: Value = 1
        for factor in found:
            product = _product(product, factor)
        return product
    return (max if kind == "max" else min)(map(np.real, found))


def _whole(value: Value) -> int:
    number = complex(value)
    if abs(number - round(number.real)) > 1e-6:
        raise UnreadError(f"an index must be an integer, got {value}")
    return round(number.real)


def _factors(node: Node) -> list[Node]:
    """Return the indices that are written side by side, as in ``A_{ij}``."""
    if node[0] == "list":
        return list(node[1])
    return _factors(node[1]) + _factors(node[2]) if node[0] == "times" else [node]


def _picked(value: Value, index: Node, values: dict[str, Value]) -> Value:
    """Return an entry of a list, a vector or a matrix, or the value of a function of the index."""
    if callable(value):
        count = len(inspect.signature(value).parameters)
        nodes = _factors(index) if count > 1 else [index]
        return value(*(evaluate(node, values) for node in nodes))
    if isinstance(value, np.ndarray) and value.ndim == 2 and 1 not in value.shape:
        indices = [evaluate(node, values) for node in _factors(index)]
        if len(indices) == 1:
            if isinstance(indices[0], np.ndarray):  # rows in another order
                return value[indices[0].ravel()]
            return value[_whole(indices[0])].reshape(-1, 1)
        return value[tuple(map(_whole, indices))]
    if isinstance(value, np.ndarray):
        value = value.ravel()
    at = evaluate(index, values)
    if isinstance(value, (list, tuple, np.ndarray)):
        at = _whole(at)
        if at < 0:
            raise UnreadError(f"an index of a list must not be negative, got {at}")
    elif isinstance(value, dict):
        at = _whole(at)
    else:
        raise UnreadError(f"a single value has the index {spelled(index)}")
    try:
        return value[at]
    except (IndexError, KeyError) as missing:
        raise UnreadError(f"no value at the index {at}") from missing


def _power(base: Node, power: Node, values: dict[str, Value]) -> Value:
    """Return a power, a transpose, a matrix exponential or a value with an index above."""
    if base[0] == "call" and spelled(base) not in values:
        value = evaluate(base[1], values)
        if not callable(value):  # a product with a bracket, which alone has the exponent
            return _product(value, _power(("par", base[2]), power, values))
    if power in (("name", "top"), ("name", "*")) and f"{spelled(base)}^*" not in values:
        return np.transpose(evaluate(base, values))
    whole = f"{spelled(base)}^{spelled(power)}"
    if whole in values:
        found = values[whole]
        index = power[1] if power[0] == "par" else power
        is_index = index[0] == "name" and index[1] in values
        return _picked(found, index, values) if is_index else found
    if base[0] == "index" and f"{spelled(base[1])}^{spelled(power)}" in values:
        inner = _power(base[1], power, values)  # an index below and one above
        return _picked(inner, base[2], values)
    exponent = evaluate(power, values)
    if base == ("name", "e") and "e" not in values:
        return _exponential(exponent)
    value = evaluate(base, values)
    if np.ndim(value) == 2 and value.shape[0] == value.shape[1] > 1:
        if complex(exponent).imag == 0 and float(np.real(exponent)).is_integer():
            return np.linalg.matrix_power(value, int(np.real(exponent)))
        return linalg.fractional_matrix_power(value, exponent)
    return _raised(value, exponent)


def _raised(value: Value, exponent: Value) -> Value:
    """Return a power of a number, complex where it has to be."""
    return np.emath.power(np.multiply(value, 1.0), exponent)


def _exponential(x: Value) -> Value:
    square = np.ndim(x) == 2 and x.shape[0] == x.shape[1] > 1
    return linalg.expm(x) if square else np.exp(x)


def _called(function: Node, argument: Node, values: dict[str, Value]) -> Value:
    """Return the value of a function, or a product with a bracket."""
    whole = spelled(("call", function, argument))
    if whole in values:
        return values[whole]
    value = evaluate(function, values)
    nodes = argument[1] if argument[0] == "list" else [argument]
    if callable(value):
        if argument[0] == "name" and argument[1].startswith("{"):
            return value(argument[1])
        return value(*(evaluate(node, values) for node in nodes))
    if len(nodes) != 1:
        raise UnreadError(f"{spelled(function)} is not a function")
    return _product(value, evaluate(argument, values))


def _function(parts: Sequence[Any], values: dict[str, Value]) -> Value:
    """Return the value of a known function, or of one in ``values`` with its name."""
    name, index, power, argument = parts
    if name == "softmax" and index is None:  # of the entries of a vector
        shares = np.exp(evaluate(argument, values))
        return shares / shares.sum()
    if name == "softmax":
        of = index[1]
        scores = {j: evaluate(argument, {**values, of: j}) for j in values[f"all {of}"]}
        return np.exp(scores[values[of]]) / sum(map(np.exp, scores.values()))
    if argument[0] == "name" and argument[1].startswith("{"):
        return values[name](argument[1])
    nodes = argument[1] if argument[0] == "list" and name in values else [argument]
    arguments = [evaluate(node, values) for node in nodes]
    x = arguments[0]
    if name in values:
        value = values[name](*arguments)
    elif name == "FFT" and power == ("neg", ("num", 1)):
        return np.fft.ifft(np.ravel(x)).reshape(-1, 1)
    elif name == "exp":
        value = _exponential(x)
    elif name in ("log", "ln"):
        value = np.log(x) / (1 if index is None else np.log(evaluate(index, values)))
    elif name in KNOWN:
        value = KNOWN[name](x)
    else:
        raise UnreadError(f"{name} has no value. Add it to where.")
    return value if power is None else _raised(value, evaluate(power, values))


def _integral(function: Callable[[float], Value], start: Value, end: Value) -> Value:
    low, high = float(np.real(start)), float(np.real(end))
    parts = (lambda x: complex(function(x)).real, lambda x: complex(function(x)).imag)
    exact = {"limit": 400, "epsabs": 1e-12, "epsrel": 1e-12}
    real, imaginary = (integrate.quad(part, low, high, **exact)[0] for part in parts)
    return real + 1j * imaginary if abs(imaginary) > 1e-14 else real


def _sum_with_dots(start: Node, end: Node, values: dict[str, Value]) -> Value:
    r"""Return a sum such as ``a_{j+1} + \dots + a_i``, whose terms differ in one whole number."""
    places = _differences(start, end)
    if len(places) != 1:
        raise UnreadError(
            "the first and the last term of a sum with dots must differ in one number"
        )
    low, high = (_whole(evaluate(_at(node, places[0]), values)) for node in (start, end))
    terms = [_with(start, places[0], ("num", k)) for k in range(low, high + 1)]
    return sum(evaluate(term, values) for term in terms)


def _differences(a: Node, b: Node, place: tuple[int, ...] = ()) -> list[tuple[int, ...]]:
    if a == b:
        return []
    nested = isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b) and a[0] == b[0]
    if nested and a[0] not in ("num", "name", "add", "minus"):
        pairs = enumerate(zip(a, b, strict=True))
        return [p for k, (x, y) in pairs for p in _differences(x, y, (*place, k))]
    return [place]


def _at(node: Node, place: tuple[int, ...]) -> Node:
    return _at(node[place[0]], place[1:]) if place else node


def _with(node: Node, place: tuple[int, ...], new: Node) -> Node:
    if not place:
        return new
    k = place[0]
    return (*node[:k], _with(node[k], place[1:], new), *node[k + 1 :])


def _matrix(rows: tuple[tuple[Node, ...], ...], values: dict[str, Value]) -> Value:
    """Return a matrix of numbers or blocks. A 0 fills its block, and dots are left out."""
    size = len(rows)
    square = all(len(row) == size for row in rows)
    kept = [k for k in range(size) if not (square and rows[k][k] == ("dots",))]
    columns = kept if square else range(len(rows[0]))
    cells = [[evaluate(rows[i][j], values) for j in columns] for i in kept]
    blocks = [cell for row in cells for cell in row if np.ndim(cell) == 2]
    if not blocks:
        return np.array(cells)
    tall, wide = (max(block.shape[axis] for block in blocks) for axis in (0, 1))
    full = [
        [cell if np.ndim(cell) == 2 else np.full((tall, wide), cell) for cell in row]
        for row in cells
    ]
    return np.block(full)


def _range(low: Node, high: Node, values: dict[str, Value]) -> list[dict[str, int]]:
    """Return the values of the indices of a sum."""
    match low:
        case ("relation", [("name", name), "=", start]) if high is not None:
            first, last = (_whole(evaluate(node, values)) for node in (start, high))
            return [{name: k} for k in range(first, last + 1)]
        case ("relation", [start, _, ("name", name), _, end]) if f"all {name}" not in values:
            least, most = (float(np.real(evaluate(node, values))) for node in (start, end))
            ranges = {name: range(math.ceil(least - 1e-9), math.floor(most + 1e-9) + 1)}
        case ("relation", [("name", name), "<" | "<=", end]) if f"all {name}" not in values:
            most = float(np.real(evaluate(end, values)))
            ranges = {name: range(math.floor(most + 1e-9) + 1)}
        case _:
            names = [name for name in _indices(low) if f"all {name}" in values]
            if not names:
                raise UnreadError(
                    f"the sum over {spelled(low)} has no range. Add 'all NAME' to where."
                )
            ranges = {name: values[f"all {name}"] for name in names}
    points = [dict(zip(ranges, p, strict=True)) for p in itertools.product(*ranges.values())]
    conditions = [n for n in (low[1] if low[0] == "list" else [low]) if n[0] == "relation"]
    return [p for p in points if all(_is_met(c[1], {**values, **p}) for c in conditions)]


def _is_met(statement: Statement, values: dict[str, Value]) -> bool:
    """Tell whether the relations of a condition hold."""
    computed = [evaluate(node, values) for node in statement[::2]]
    pairs = zip(computed[:-1], statement[1::2], computed[1:], strict=True)
    return all(_holds(*pair, values) for pair in pairs)
