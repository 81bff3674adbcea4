"""What attention costs, for one head: multiplications, numbers moved and kept, and least times."""

from __future__ import annotations

import math
from collections.abc import Mapping

from stringlib.spec import checked


def pair_products(n: int, m: int, width: int) -> int:
    r"""Return :math:`n^2(m + w)`: all pairs compared, and summed; :eq:`eq-linear-cost`.

    Args:
        n: Tokens.
        m: Numbers that a query and a key are compared by: features, or channels of softmax.
        width: Numbers that are summed, w: channels of a value, and 1 for the denominator.
    """
    return n * n * (m + width)


def linear_products(n: int, m: int, width: int) -> int:
    """Return :math:`2nmw`: keys into a state, queries out of it; :eq:`eq-linear-cost`."""
    return 2 * n * m * width


@checked
def chunk_products(n: int, m: int, width: int, chunk: int) -> int:
    r"""Return :math:`nc(m + w) + (2n - c)mw`, the causal sum in chunks; :eq:`eq-linear-cost`.

    Args:
        n: Tokens, a multiple of ``chunk``.
        m: Features.
        width: Numbers that are summed.
        chunk: Tokens of a chunk, c: 1 for the recurrence, n for the matrix form.

    Raises:
        ValueError: If ``chunk`` does not divide n.
    """
    if n % chunk:
        raise ValueError(f"chunk must divide n = {n}, got {chunk}")
    # the first chunk has no state to read
    return n * chunk * (m + width) + (2 * n - chunk) * m * width


def moved_numbers(n: int, d: int, d_v: int) -> int:
    r"""Return :math:`2n(d + d_v)`: what attention reads and writes at least, :eq:`eq-moved`.

    Queries, keys and values once, and the result once; nothing in between leaves the processor.

    Args:
        n: Tokens.
        d: Channels of a query and a key.
        d_v: Channels of a value.
    """
    return 2 * n * (d + d_v)


def least_seconds(work: Mapping[str, float], rates: Mapping[str, float]) -> float:
    """Return the time below which no machine with these rates can come, :eq:`eq-roofline`.

    Args:
        work: How much of each kind is to be done, for instance
            ``{"multiplications": 1e9, "bytes": 4e6}``.
        rates: How much of each kind the machine does in a second.

    Raises:
        ValueError: If there is a kind of work without a rate.

    Source:
        Williams et al. 2009.
    """
    missing = sorted(set(work) - set(rates))
    if missing:
        raise ValueError(f"rates must contain a rate for each kind of work, got none for {missing}")
    return max((work[kind] / rates[kind] for kind in work), default=0.0)


def amdahl(share: float, factor: float = math.inf) -> float:
    """Return how many times as fast the whole becomes when a part of it does, :eq:`eq-amdahl`.

    Args:
        share: Part of the whole's time that is made faster, from 0 to 1.
        factor: How many times as fast that part becomes; infinite: it takes no time any more.

    Raises:
        ValueError: If share is not in [0, 1], or factor is not positive.

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
    """Return :math:`n(d + d_v)`: the keys and values of all tokens so far, :eq:`eq-kept`."""
    return n * (d + d_v)


def state_numbers(m: int, d_v: int) -> int:
    """Return :math:`m(d_v + 1)`: the state of linear attention, at any length, :eq:`eq-kept`."""
    return m * (d_v + 1)
