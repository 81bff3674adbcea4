"""How much of n stored pairs comes back out of attention: errors, and what bounds them."""

from __future__ import annotations

import math
from fractions import Fraction

from torch import Tensor

from stringlib.spec import Floats, checked


@checked
def recall_error(weights: Floats[Tensor, "... n n"]) -> Tensor:
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

    A mean-field approximation: sums over the wrong keys are put at their means.

    Args:
        n: Pairs in the state.
        overlap: Mean comparison of a query with a wrong key, that with the right one being 1.
        spread: Mean square of the same.
    """
    wrong = (n - 1) * overlap
    return (wrong**2 + (n - 1) * spread) / (1 + wrong) ** 2


@checked
def delta_recall_error(n: int, m: int) -> list[float]:
    r"""Return how far off a delta state is for each of n random keys: :eq:`eq-delta-recall`.

    Keys are uniform on the unit sphere, values independent with mean 0, the rate is 1. The error is
    the mean square, in units of a value's; a state that only adds has (n − 1)/m for every key.

    Args:
        n: Pairs, each written once.
        m: Features of a key.

    Returns:
        One error for each key, the first written first.
    """
    q, p = 1 - 1 / m, 1 - 2 * (m + 1) / (m * (m + 2))
    later = [n - t for t in range(1, n + 1)]
    return [2 * (1 - q**c) - q ** (n - c) * (q**c - p**c) for c in later]


@checked
def guess_accuracy(pairs: int, values: int) -> Fraction:
    r"""Return :math:`\mathbb E[\max_v c_v] / P`, the exact score of naming the commonest value.

    The values of the pairs are independent and uniform, :math:`c_v` of them are v, and one pair is
    asked. Nothing that knows the counts alone does better: :eq:`eq-recall-guess`.

    Args:
        pairs: Pairs P in a sequence.
        values: Values to choose from.
    """
    # E[max] = sum over t of P(max > t)
    above = [1 - _share_at_most(t, pairs, values) for t in range(pairs)]
    return sum(above, Fraction(0)) / pairs


@checked
def guess_loss(pairs: int, values: int) -> float:
    """Return the mean cross-entropy, in nats, of answering with the shares of the values.

    Nothing that knows the counts alone does better: :eq:`eq-recall-guess-loss`. Arguments are those
    of :func:`guess_accuracy`.
    """
    loss = 0.0
    for count in range(1, pairs + 1):
        chance = math.comb(pairs, count) * (values - 1) ** (pairs - count) / values**pairs
        share = count / pairs
        loss -= values * chance * share * math.log(share)
    return loss


@checked
def swap_bound(values: int) -> Fraction:
    """Return 1 − (1 − 1/values)/4: what sums over places cannot beat, :eq:`eq-recall-swap`.

    Args:
        values: Values to choose from.
    """
    return 1 - (1 - Fraction(1, values)) / 4


def _share_at_most(most: int, pairs: int, values: int) -> Fraction:
    """Return the chance that no value comes more than ``most`` times among the pairs."""
    # ways[n]: sequences of n pairs that use the values looked at so far, none too often
    ways = [1] + [0] * pairs
    for _ in range(values):
        ways = [
            sum(math.comb(n, c) * ways[n - c] for c in range(min(most, n) + 1))
            for n in range(pairs + 1)
        ]
    return Fraction(ways[pairs], values**pairs)
