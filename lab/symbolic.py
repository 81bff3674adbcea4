"""Sympy matrices, with which the book's derivations are checked exactly, not numerically."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import sympy as sp

Side: TypeAlias = Any
"""One side of an equation, which is an expression, a matrix, or an expression of matrix symbols."""


def rotation(angle: sp.Expr) -> sp.Matrix:
    """Return the 2 × 2 matrix that rotates the plane anticlockwise by ``angle``, in radians."""
    return sp.Matrix([[sp.cos(angle), -sp.sin(angle)], [sp.sin(angle), sp.cos(angle)]])


def circulant(column: Sequence[sp.Expr]) -> sp.Matrix:
    """Return the circulant matrix with the given first column.

    Entry (i, j) is ``column[(i - j) % len(column)]``.
    """
    size = len(column)
    return sp.Matrix(size, size, lambda i, j: column[(i - j) % size])


def fourier_vector(size: int, index: int) -> sp.Matrix:
    r"""Return an eigenvector of all circulant matrices of one size, without normalisation.

    Entry n of the column is :math:`e^{2\pi\mathrm{i}\,jn/d}`, where d is ``size`` and j is
    ``index``.
    """
    return sp.Matrix([sp.exp(2 * sp.pi * sp.I * index * n / size) for n in range(size)])


def cancelled(product: sp.MatrixExpr, *orthogonal: sp.MatrixSymbol) -> sp.MatrixExpr:
    r"""Return a product of matrix symbols, without the factors of orthogonal matrices that cancel.

    For an orthogonal P these are the factors :math:`P^\top P` and :math:`PP^\top`. The result is
    right for every size of the matrices.

    Args:
        product: Product of ``sp.MatrixSymbol``.
        *orthogonal: The symbols P that stand for orthogonal matrices.
    """
    known = sp.And(*map(sp.Q.orthogonal, orthogonal))
    before, product = None, product.doit()
    while product != before:  # what stood around one pair may be the next
        before, product = product, sp.refine(product, known).doit()
    return product


def vanishes(expression: sp.Expr | sp.Matrix) -> bool:
    """Return whether an expression, or every entry of a matrix, simplifies to 0.

    If sympy cannot simplify an expression to 0, the result is False.
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
    """Check that the two sides of a labelled equation are equal, and that a mistake would be found.

    A check that accepts every input proves nothing. So each proof has a wrong variant: the right
    side with a sign, a factor or an index changed. The wrong variant must differ from the left
    side.

    Args:
        label: Label of the equation, such as ``"eq-relative"``.
        left: Left side, computed from definitions, code or other equations.
        right: Right side, computed in another way than ``left``.
        wrong: Right side with one mistake.
        where: The values of the names in the displayed formula, from the objects of the cell, see
            :mod:`lab.formulas`. The formula is read from the chapter and computed with these
            values. Default: None, the displayed formula is not read.

    Raises:
        AssertionError: If the two sides differ, if the wrong variant equals the left side, or if
            the displayed formula is false for the values.
        ValueError: If the two sides are one matrix, which proves nothing.
    """
    if left is right and isinstance(left, sp.MatrixBase):
        raise ValueError(f"{label}: left and right must be two matrices, got the same object twice")
    if not _equal(left, right):
        raise AssertionError(f"right must equal left in {label}, got {right} and {left}")
    if not _differ(left, wrong) and _equal(left, wrong):
        raise AssertionError(f"wrong must differ from left in {label}, got {wrong}, which is equal")
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
    """Return whether the two sides differ at one point, which is faster than simplifying them."""
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
