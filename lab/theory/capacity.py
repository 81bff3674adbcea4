"""Retrieval of n stored pairs by attention: errors, and bounds on these errors."""

from __future__ import annotations

import math
from fractions import Fraction

from torch import Tensor

from stringlib.spec import Floats, Positive, checked


@checked
def recall_error(weights: Floats[Tensor, "... n n"]) -> Tensor:
    r"""Return :math:`\|A - I\|_F^2/n`, :eq:`eq-linear-recall`.

    This is the mean square error of a retrieved value, divided by the mean square of a value, if
    query t retrieves pair t and the values are independent with mean 0.

    Args:
        weights: Weight of each value (column) for each query (row), ``(..., n, n)``.

    Returns:
        The errors, ``(...)``.
    """
    n = weights.shape[-1]
    right = weights.diagonal(dim1=-2, dim2=-1)
    # ‖A − I‖² = ‖A‖² − 2 tr A + n, without a second matrix
    return weights.square().sum((-2, -1)) / n - 2 * right.mean(-1) + 1


def least_error(n: int, m: int) -> float:
    """Return 1 − m/n, or 0 if m ≥ n: the least error with m features, :eq:`eq-linear-capacity`."""
    return max(0.0, 1 - m / n)


def crosstalk_error(n: int, overlap: float, spread: float) -> float:
    """Return the error of normalised attention among n random keys, :eq:`eq-linear-crosstalk`.

    This is a mean-field approximation, which replaces sums over the wrong keys by their means.

    Args:
        n: Number of pairs in the state.
        overlap: Mean similarity of a query with a wrong key, divided by its similarity with the
            right key.
        spread: Mean square of the same quotient.
    """
    wrong = (n - 1) * overlap
    return (wrong**2 + (n - 1) * spread) / (1 + wrong) ** 2


@checked
def delta_recall_moments(n: int, m: int, rate: Positive = 1.0) -> tuple[list[float], list[float]]:
    r"""Return moments of the values that a delta state retrieves for n random keys.

    The keys are independent and uniform on the unit sphere, and the values do not depend on them,
    :eq:`eq-delta-recall`. At small rates the ratio of noise to signal is below that of a plain sum,
    :eq:`eq-delta-small-rate`.

    Args:
        n: Number of pairs, each of which is written once.
        m: Number of features of a key.
        rate: The rate :math:`\beta`, above 0 and below 2.

    Returns:
        Two lists with one number per key, in the order of writing. The first list has the
        coefficient of the value of this key in the retrieved vector. The second list has the mean
        square of this vector, divided by that of a value.

    Raises:
        ValueError: If the rate is not between 0 and 2.
    """
    if not 0 < rate < 2:
        raise ValueError(f"rate must be above 0 and below 2, got {rate}")
    q, u = 1 - rate / m, 1 - rate * (2 - rate) / m
    p = 1 - 2 * rate / m + 2 * rate**2 / (m * (m + 2))
    later = [n - t for t in range(1, n + 1)]
    kept = [rate * q**c for c in later]
    any_key = rate / (2 - rate) * (1 - u**n)
    own = [rate**2 * (1 - 1 / m) * u ** (n - c - 1) * p**c for c in later]
    return kept, [any_key + x for x in own]


@checked
def delta_recall_error(n: int, m: int, rate: Positive = 1.0) -> list[float]:
    """Return the mean square errors of the values of :func:`delta_recall_moments`.

    Arguments and raised errors are those of this function. For a plain sum the error is (n − 1)/m
    for every key.
    """
    return [r - 2 * c + 1 for c, r in zip(*delta_recall_moments(n, m, rate), strict=True)]


@checked
def delta_noise(load: Positive, rate: Positive) -> float:
    r"""Return the mean ratio of noise to signal of a delta state with many channels.

    The ratio is given by :eq:`eq-delta-noise`. For a plain sum it is the load, and so is the limit
    for small rates.

    Args:
        load: The load x, the number of pairs per channel, above 0.
        rate: The rate :math:`\beta`, above 0 and below 2.
    """
    a = rate * (2 - rate)
    return -math.expm1(-a * load) / (a * load) * (1 + math.expm1(2 * rate * load) / (2 * rate)) - 1


@checked
def delta_noise_correction(load: Positive, rate: Positive) -> float:
    r"""Return the correction C of :func:`delta_noise` for a finite number of channels.

    With d channels, the mean ratio of noise to signal is about ``delta_noise`` + C/d,
    :eq:`eq-delta-noise-rate`. For small rates C tends to −1, because for a plain sum the ratio is
    the load minus 1/d.

    Args:
        load: The load x, the number of pairs per channel, above 0.
        rate: The rate :math:`\beta`, above 0 and below 2.
    """
    a, signal = rate * (2 - rate), math.exp(2 * rate * load)
    f, g = -math.expm1(-a * load) / (a * load), math.expm1(2 * rate * load) / (2 * rate)
    noise = a * (1 + g) * math.exp(-a * load) + rate * f * (load * signal - 3 * g)
    return noise / 2 + (rate - 2 * f) / (2 - rate)


@checked
def best_delta_rate(load: Positive) -> float:
    """Return the rate from 0 to 1 for which :func:`delta_noise` is least at a given load.

    The noise falls up to one rate and then rises. The function finds this rate by ternary search.
    """
    low, high = 0.0, 1.0
    for _ in range(80):
        one, other = low + (high - low) / 3, high - (high - low) / 3
        if delta_noise(load, one) < delta_noise(load, other):
            high = other
        else:
            low = one
    return (low + high) / 2


@checked
def guess_accuracy(pairs: int, values: int) -> Fraction:
    r"""Return :math:`\mathbb E[\max_v c_v] / P`, the expected accuracy of the most frequent value.

    The values of the P pairs are independent and uniform, and one pair is queried. :math:`c_v` is
    the number of pairs with the value v. No prediction from these numbers alone has a higher
    expected accuracy, :eq:`eq-recall-guess`.

    Args:
        pairs: Number P of pairs in a sequence.
        values: Number of different values.
    """
    # E[max] = sum over t of P(max > t)
    above = [1 - _share_at_most(t, pairs, values) for t in range(pairs)]
    return sum(above, Fraction(0)) / pairs


@checked
def guess_loss(pairs: int, values: int) -> float:
    """Return the mean cross-entropy, in nats, of predicting each value with its share of the pairs.

    No prediction from the numbers of the values alone has a lower mean, :eq:`eq-recall-guess-loss`.
    The arguments are those of :func:`guess_accuracy`.
    """
    loss = 0.0
    for count in range(1, pairs + 1):
        chance = math.comb(pairs, count) * (values - 1) ** (pairs - count) / values**pairs
        share = count / pairs
        loss -= values * chance * share * math.log(share)
    return loss


@checked
def swap_bound(values: int) -> Fraction:
    """Return 1 − (1 − 1/values)/4, an upper bound for sums over positions, :eq:`eq-recall-swap`.

    Args:
        values: Number of different values.
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
