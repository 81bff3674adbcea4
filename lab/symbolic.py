"""Sympy matrices for the derivations: exact where the rest of the package is numerical."""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp


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


def _is_zero(entry: sp.Expr) -> bool:
    # expanding merges products of roots of unity; cosines and sines need simplify
    if sp.expand(entry) == 0:
        return True
    return sp.simplify(sp.expand(entry.rewrite(sp.cos))) == 0
