"""How much of n stored pairs comes back out of attention: errors, and what bounds them."""

from __future__ import annotations

from torch import Tensor


def recall_error(weights: Tensor) -> Tensor:
    r"""Return :math:`\|A - I\|_F^2/n`, :eq:`eq-linear-recall`.

    This is the mean square error of a retrieved value, in units of the mean square of a value,
    when query t asks for pair t and the values are independent with mean 0.

    Args:
        weights: What each query takes of each value, ``(..., n, n)``.

    Returns:
        ``(...)``.
    """
    n = weights.shape[-1]
    right = weights.diagonal(dim1=-2, dim2=-1)
    # ‖A − I‖² = ‖A‖² − 2 tr A + n, without a second matrix
    return weights.square().sum((-2, -1)) / n - 2 * right.mean(-1) + 1


def least_error(n: int, m: int) -> float:
    """Return 1 − m/n, or 0 if m ≥ n: no m features do better, :eq:`eq-linear-capacity`."""
    return max(0.0, 1 - m / n)


def crosstalk_error(n: int, overlap: float, spread: float) -> float:
    r"""Return the error of normalised attention among n random keys, :eq:`eq-linear-crosstalk`.

    Args:
        n: Pairs in the state.
        overlap: Mean comparison of a query with a wrong key, that with the right one being 1.
        spread: Mean square of the same.
    """
    wrong = (n - 1) * overlap
    return (wrong**2 + (n - 1) * spread) / (1 + wrong) ** 2
