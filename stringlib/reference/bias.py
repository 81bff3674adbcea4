"""Reference implementations of relative position biases, one query and one key at a time."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor


def _fill(
    heads: int, num_queries: int, num_keys: int, offset: int, bias: Callable[[int, int], float]
) -> Tensor:
    """Return the biases of all heads, queries and keys, computed entry by entry.

    The entry of a query at position t and a key at position s is ``bias(head, t - s)``. Queries are
    at the positions ``offset``, ``offset + 1``, … and keys at the positions 0, 1, … The result is
    float64, ``(heads, num_queries, num_keys)``.
    """
    out = torch.zeros(heads, num_queries, num_keys, dtype=torch.float64)
    for head in range(heads):
        for i in range(num_queries):
            for j in range(num_keys):
                out[head, i, j] = bias(head, offset + i - j)
    return out


def alibi_slopes(heads: int) -> list[float]:
    r"""Return the slopes :math:`m_h` of ALiBi, one per head, equation :eq:`eq-bias-alibi`.

    If the number of heads n is a power of 2, head h = 1 … n has the slope :math:`2^{-8h/n}`. For
    any other number of heads, the authors' code takes all slopes of the next smaller power of 2.
    For the remaining heads it takes every second slope of the next larger power of 2, beginning
    with the first.

    Args:
        heads: Number of heads n.

    Returns:
        The slopes, one per head.

    Source:
        Press et al. 2022, section 3.
    """
    if math.log2(heads).is_integer():
        start = 2 ** (-8 / heads)
        return [start * start**i for i in range(heads)]
    closest = 2 ** math.floor(math.log2(heads))
    return alibi_slopes(closest) + alibi_slopes(2 * closest)[0::2][: heads - closest]


def alibi_bias(heads: int, num_queries: int, num_keys: int, offset: int = 0) -> Tensor:
    r"""Return the ALiBi bias of each head, query and key, equation :eq:`eq-bias-alibi`.

    The bias of head h for a query at position t and a key at position s is :math:`-m_h |t - s|`,
    where :math:`m_h` is the slope that :func:`alibi_slopes` returns for this head.

    Args:
        heads: Number of heads.
        num_queries: Number of queries, at the positions t = ``offset``, ``offset + 1``, …
        num_keys: Number of keys, at the positions s = 0, 1, …
        offset: Position of the first query. Default: 0.

    Returns:
        The biases, float64, ``(heads, num_queries, num_keys)``.
    """
    slopes = alibi_slopes(heads)
    return _fill(heads, num_queries, num_keys, offset, lambda h, delta: -slopes[h] * abs(delta))


def t5_bucket(
    relative_position: int,
    num_buckets: int = 32,
    max_distance: int = 128,
    bidirectional: bool = True,
) -> int:
    r"""Return the index of the T5 bucket of a relative position, equation :eq:`eq-bias-t5`.

    Small distances have a bucket each. Larger distances share buckets, whose widths grow
    exponentially.

    Args:
        relative_position: Position of the key minus position of the query.
        num_buckets: Number of buckets. Default: 32.
        max_distance: Upper end of the logarithmic scale. Distances of at least ``max_distance``
            are in the last bucket. Because of rounding down, this bucket also contains some
            smaller distances: with the defaults it begins at 91. Default: 128.
        bidirectional: If True (default), half of the buckets are for keys after the query. If
            False, all keys after the query are in bucket 0, together with the key at the position
            of the query.

    Returns:
        The index of the bucket, from 0 to ``num_buckets - 1``.

    Source:
        Raffel et al. 2020, section 2.1 and their code.
    """
    bucket = 0
    if bidirectional:
        num_buckets //= 2
        if relative_position > 0:
            bucket = num_buckets
        distance = abs(relative_position)
    else:
        distance = -min(relative_position, 0)
    max_exact = num_buckets // 2
    if distance < max_exact:
        return bucket + distance
    ratio = math.log(distance / max_exact) / math.log(max_distance / max_exact)
    return bucket + min(max_exact + int(ratio * (num_buckets - max_exact)), num_buckets - 1)


def t5_bias(
    table: Tensor,
    num_queries: int,
    num_keys: int,
    offset: int = 0,
    max_distance: int = 128,
    bidirectional: bool = True,
) -> Tensor:
    r"""Return the T5 bias of each head, query and key, equation :eq:`eq-bias-t5`.

    Args:
        table: Learned bias of each bucket and head, ``(num_buckets, heads)``.
        num_queries: Number of queries, at the positions ``offset``, ``offset + 1``, …
        num_keys: Number of keys, at the positions 0, 1, …
        offset: Position of the first query. Default: 0.
        max_distance: Upper end of the logarithmic scale of :func:`t5_bucket`. Default: 128.
        bidirectional: If True (default), half of the buckets are for keys after the query. If
            False, all keys after the query are in bucket 0.

    Returns:
        The biases, float64, ``(heads, num_queries, num_keys)``.
    """
    buckets, heads = table.shape

    def number(head: int, delta: int) -> float:
        return table[t5_bucket(-delta, buckets, max_distance, bidirectional), head].item()

    return _fill(heads, num_queries, num_keys, offset, number)


def kerple_log_bias(
    r1: Tensor, r2: Tensor, num_queries: int, num_keys: int, offset: int = 0
) -> Tensor:
    r"""Return the logarithmic KERPLE bias of each head, query and key, :eq:`eq-bias-kerple`.

    The bias of a query at position t and a key at position s is :math:`-r_1 \log(1 + r_2 |t - s|)`.

    Args:
        r1: The parameter :math:`r_1 > 0` of each head, ``(heads,)``.
        r2: The parameter :math:`r_2 > 0` of each head, ``(heads,)``.
        num_queries: Number of queries, at the positions t = ``offset``, ``offset + 1``, …
        num_keys: Number of keys, at the positions s = 0, 1, …
        offset: Position of the first query. Default: 0.

    Returns:
        The biases, float64, ``(heads, num_queries, num_keys)``.

    Source:
        Chi et al. 2022, the logarithmic variant.
    """
    a, b = r1.tolist(), r2.tolist()
    return _fill(
        len(a), num_queries, num_keys, offset, lambda h, x: -a[h] * math.log(1 + b[h] * abs(x))
    )


def kerple_power_bias(
    r1: Tensor, r2: Tensor, num_queries: int, num_keys: int, offset: int = 0
) -> Tensor:
    r"""Return the power-law KERPLE bias of each head, query and key, :eq:`eq-bias-kerple`.

    The bias of a query at position t and a key at position s is :math:`-r_1 |t - s|^{r_2}`.

    Args:
        r1: The parameter :math:`r_1 > 0` of each head, ``(heads,)``.
        r2: The parameter :math:`r_2` of each head, with :math:`0 < r_2 \le 2`, ``(heads,)``.
        num_queries: Number of queries, at the positions t = ``offset``, ``offset + 1``, …
        num_keys: Number of keys, at the positions s = 0, 1, …
        offset: Position of the first query. Default: 0.

    Returns:
        The biases, float64, ``(heads, num_queries, num_keys)``.

    Source:
        Chi et al. 2022, the power variant.
    """
    a, b = r1.tolist(), r2.tolist()
    return _fill(len(a), num_queries, num_keys, offset, lambda h, x: -a[h] * abs(x) ** b[h])
