"""How much of n stored pairs comes back out of attention: errors, and what bounds them."""

from __future__ import annotations

import math
from fractions import Fraction

from torch import Tensor

from stringlib.spec import Floats, Positive, checked


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
def delta_recall_moments(n: int, m: int, rate: Positive = 1.0) -> tuple[list[float], list[float]]:
    r"""Return what a delta state answers to each of n random keys: :eq:`eq-delta-recall`.

    Keys are independent and uniform on the unit sphere; values do not depend on them. At small
    rates the noise over signal is below that of a sum: :eq:`eq-delta-small-rate`.

    Args:
        n: Pairs, each written once.
        m: Features of a key.
        rate: :math:`\beta`, above 0 and below 2.

    Returns:
        How much of the value is in the answer, and the mean square of the answer, both in units of
        a value: a number for each key, the first written first.

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
    """Return how far off the answers of :func:`delta_recall_moments` are, in mean square.

    Arguments and errors are those of that function. A state that only adds has (n − 1)/m for every
    key.
    """
    return [r - 2 * c + 1 for c, r in zip(*delta_recall_moments(n, m, rate), strict=True)]


@checked
def delta_noise(load: Positive, rate: Positive) -> float:
    r"""Return the mean noise over signal of a delta state with many channels: :eq:`eq-delta-noise`.

    That of a state that only adds is the load, and so is the limit for small rates.

    Args:
        load: x, pairs for each channel, above 0.
        rate: :math:`\beta`, above 0 and below 2.
    """
    a = rate * (2 - rate)
    return -math.expm1(-a * load) / (a * load) * (1 + math.expm1(2 * rate * load) / (2 * rate)) - 1


@checked
def delta_noise_correction(load: Positive, rate: Positive) -> float:
    r"""Return C: with d channels, the mean noise over signal is about ``delta_noise`` + C/d.

    For small rates C tends to −1, since that of a state that only adds is the load minus 1/d.
    Equation :eq:`eq-delta-noise-rate`.

    Args:
        load: x, pairs for each channel, above 0.
        rate: :math:`\beta`, above 0 and below 2.
    """
    a, signal = rate * (2 - rate), math.exp(2 * rate * load)
    f, g = -math.expm1(-a * load) / (a * load), math.expm1(2 * rate * load) / (2 * rate)
    noise = a * (1 + g) * math.exp(-a * load) + rate * f * (load * signal - 3 * g)
    return noise / 2 + (rate - 2 * f) / (2 - rate)


@checked
def best_delta_rate(load: Positive) -> float:
    """Return the rate, from 0 to 1, for which :func:`delta_noise` is least at a load.

    By a search that thirds the interval; the noise falls up to one rate and rises from it on.
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
