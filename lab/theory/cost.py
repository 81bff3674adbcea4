"""The cost of attention for one head: multiplications, memory, and lower bounds of the time."""

from __future__ import annotations

import math
from collections.abc import Mapping

from stringlib.spec import checked


def pair_products(n: int, m: int, width: int) -> int:
    """Return :math:`n^2(m + w)`, the multiplications of all pairs of tokens, :eq:`eq-linear-cost`.

    Args:
        n: Number of tokens.
        m: Number of features, or of channels of a query and a key for softmax.
        width: Number w of summed numbers: the channels of a value, and 1 for the denominator.
    """
    return n * n * (m + width)


def linear_products(n: int, m: int, width: int) -> int:
    """Return :math:`2nmw`, the multiplications with a state, :eq:`eq-linear-cost`."""
    return 2 * n * m * width


@checked
def chunk_products(n: int, m: int, width: int, chunk: int) -> int:
    """Return :math:`nc(m + w) + (2n - c)mw`, the multiplications in chunks, :eq:`eq-linear-cost`.

    Args:
        n: Number of tokens, a multiple of ``chunk``.
        m: Number of features.
        width: Number w of summed numbers.
        chunk: Number c of tokens of a chunk: 1 for the recurrence, n for the matrix form.

    Raises:
        ValueError: If ``chunk`` does not divide n.
    """
    if n % chunk:
        raise ValueError(f"chunk must divide n = {n}, got {chunk}")
    # the first chunk has no state to read
    return n * chunk * (m + width) + (2 * n - chunk) * m * width


def moved_numbers(n: int, d: int, d_v: int) -> int:
    """Return :math:`2n(d + d_v)`, the numbers that attention must read and write, :eq:`eq-moved`.

    These are queries, keys, values and outputs, each once. Intermediate results are assumed to stay
    in the processor.

    Args:
        n: Number of tokens.
        d: Number of channels of a query and a key.
        d_v: Number of channels of a value.
    """
    return 2 * n * (d + d_v)


def least_seconds(work: Mapping[str, float], rates: Mapping[str, float]) -> float:
    """Return a lower bound of the time on a machine with given rates, :eq:`eq-roofline`.

    Args:
        work: Amount of each kind of work, for example ``{"multiplications": 1e9, "bytes": 4e6}``.
        rates: Amount of each kind of work that the machine does per second.

    Raises:
        ValueError: If a kind of work has no rate.

    Source:
        Williams et al. 2009.
    """
    missing = sorted(set(work) - set(rates))
    if missing:
        raise ValueError(f"rates must contain a rate for each kind of work, got none for {missing}")
    return max((work[kind] / rates[kind] for kind in work), default=0.0)


def amdahl(share: float, factor: float = math.inf) -> float:
    """Return the speed-up of a whole program if a part of it becomes faster, :eq:`eq-amdahl`.

    Args:
        share: Share of this part in the time of the program, from 0 to 1.
        factor: Speed-up of this part. Default: infinity, so that the part takes no time any more.

    Raises:
        ValueError: If ``share`` is not in [0, 1], or if ``factor`` is not positive.

    Source:
        Amdahl 1967.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share must be between 0 and 1, got {share}")
    if not factor > 0:
        raise ValueError(f"factor must be positive, got {factor}")
    left = 1 - share + share / factor
    return 1 / left if left else math.inf


def cache_numbers(n: int, d: int, d_v: int) -> int:
    """Return :math:`n(d + d_v)`, the size of the cache of n tokens, :eq:`eq-kept`."""
    return n * (d + d_v)


def state_numbers(m: int, d_v: int) -> int:
    """Return :math:`m(d_v + 1)`, the size of the state of linear attention, :eq:`eq-kept`."""
    return m * (d_v + 1)
