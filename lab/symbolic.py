"""Sympy matrices for the derivations: exact where the rest of the package is numerical."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import sympy as sp

Side: TypeAlias = Any
"""One side of an equation: an expression, a matrix, or an expression of matrix symbols."""


def rotation(angle: sp.Expr) -> sp.Matrix:
    """Return the 2 x 2 matrix that turns the plane by ``angle``, anticlockwise."""
    return sp.Matrix([[sp.cos(angle), -sp.sin(angle)], [sp.sin(angle), sp.cos(angle)]])


def circulant(column: Sequence[sp.Expr]) -> sp.Matrix:
    """Return the circulant matrix with the given first COLUMN: entry (i, j) is c[(i - j) mod d]."""
    size = len(column)
    return sp.Matrix(size, size, lambda i, j: column[(i - j) % size])


def fourier_vector(size: int, index: int) -> sp.Matrix:
    r"""Return the column with entries :math:`e^{2\pi\mathrm{i}\,jn/d}`, n from 0, unnormalised."""
    return sp.Matrix([sp.exp(2 * sp.pi * sp.I * index * n / size) for n in range(size)])


def cancelled(product: sp.MatrixExpr, *orthogonal: sp.MatrixSymbol) -> sp.MatrixExpr:
    r"""Return a product of matrix symbols with :math:`P^\top P` and :math:`PP^\top` left out.

    It holds at every size.

    Args:
        product: Made of ``sp.MatrixSymbol``.
        *orthogonal: The symbols P that stand for orthogonal matrices.
    """
    known = sp.And(*map(sp.Q.orthogonal, orthogonal))
    before, product = None, product.doit()
    while product != before:  # what stood around one pair may be the next
        before, product = product, sp.refine(product, known).doit()
    return product


def vanishes(expression: sp.Expr | sp.Matrix) -> bool:
    """Tell whether an expression, or every entry of a matrix, simplifies to 0.

    An expression that sympy cannot simplify counts as not vanishing.
    """
    entries = expression if isinstance(expression, sp.MatrixBase) else [expression]
    return all(_is_zero(sp.sympify(entry)) for entry in entries)


def proves(
    label: str,
    left: Side,
    right: Side,
    *,
    wrong: Side,
    where: Mapping[str, Any] | None = None,
) -> None:
    """Check that two sides are equal, that a mistake would show, and that the formula says so.

    The two sides are those of a labelled formula, or of a step of its proof. A check that passes
    for all sides proves nothing, so each proof has a wrong variant, which must differ.

    Args:
        label: Label of the formula, ``"eq-something"``.
        left: One side, made of definitions, code or other formulas.
        right: The other side. It must be computed in another way than ``left``.
        wrong: The right side with one mistake: a sign, a factor or an index changed.
        where: The values of the names in the displayed formula, from the objects of the cell, see
            :mod:`lab.formulas`. The formula is read from the chapter and computed with these
            values. Default: None, the displayed formula is not read.

    Raises:
        AssertionError: If the sides differ, if the wrong variant does not, or if the displayed
            formula is false for the values.
        ValueError: If the two sides are one matrix, which proves nothing.
    """
    if left is right and isinstance(left, sp.MatrixBase):
        raise ValueError(f"{label}: left and right must be computed in two ways, got one matrix")
    if not _equal(left, right):
        raise AssertionError(f"{label}: the two sides differ: {left} and {right}")
    if not _differ(left, wrong) and _equal(left, wrong):
        raise AssertionError(f"{label}: the wrong variant passes too: {wrong}")
    if where is not None:
        from lab.formulas import bind  # needs numpy and scipy, which the page does not load

        bind(label, where)


def _equal(left: Side, right: Side) -> bool:
    entries = [isinstance(side, sp.MatrixBase) for side in (left, right)]  # also MatrixExpr
    if not all(entries) and any(isinstance(side, sp.MatrixExpr) for side in (left, right)):
        return bool(left == right)  # symbols for whole matrices: see cancelled
    if entries[0] and left.shape != getattr(right, "shape", None):
        return False
    return bool(left == right) or vanishes(left - right)


def _differ(left: Side, wrong: Side) -> bool:
    """Tell whether the sides differ at one point: seen sooner than that nothing simplifies."""
    if isinstance(left, sp.MatrixExpr) or isinstance(wrong, sp.MatrixExpr):
        return False
    if isinstance(left, sp.MatrixBase) and left.shape != getattr(wrong, "shape", None):
        return True
    gap = sp.Matrix([left - wrong])
    symbols = sorted((s for s in gap.free_symbols if isinstance(s, sp.Symbol)), key=str)
    point = {s: k + 2 if s.is_integer else sp.Rational(k + 1, k + 3) for k, s in enumerate(symbols)}
    sizes = (abs(entry.evalf(subs=point)) for entry in gap)
    return any(size.is_comparable and size > 1e-6 for size in sizes)


def _is_zero(entry: sp.Expr) -> bool:
    # expanding merges products of roots of unity; cosines and sines need simplify
    if sp.expand(entry) == 0:
        return True
    return sp.simplify(sp.expand(entry.rewrite(sp.cos))) == 0
