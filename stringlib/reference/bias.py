"""Relative biases as they are printed: one query, one key, one formula at a time."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor


def _fill(
    heads: int, num_queries: int, num_keys: int, offset: int, bias: Callable[[int, int], float]
) -> Tensor:
    """Return bias(head, t - s) for the queries t = offset, … and the keys s = 0, …: float64."""
    out = torch.zeros(heads, num_queries, num_keys, dtype=torch.float64)
    for head in range(heads):
        for i in range(num_queries):
            for j in range(num_keys):
                out[head, i, j] = bias(head, offset + i - j)
    return out


def alibi_slopes(heads: int) -> list[float]:
    r"""Return ALiBi's slopes by the recursion of the paper's code, equation :eq:`eq-bias-alibi`.

    Source:
        Press et al. 2022, section 3.
    """
    if math.log2(heads).is_integer():
        start = 2 ** (-8 / heads)
        return [start * start**i for i in range(heads)]
    closest = 2 ** math.floor(math.log2(heads))
    return alibi_slopes(closest) + alibi_slopes(2 * closest)[0::2][: heads - closest]


def alibi_bias(heads: int, num_queries: int, num_keys: int, offset: int = 0) -> Tensor:
    r"""Return :math:`-m_h |t - s|`, equation :eq:`eq-bias-alibi`: ``(heads, queries, keys)``."""
    slopes = alibi_slopes(heads)
    return _fill(heads, num_queries, num_keys, offset, lambda h, delta: -slopes[h] * abs(delta))


def t5_bucket(
    relative_position: int,
    num_buckets: int = 32,
    max_distance: int = 128,
    bidirectional: bool = True,
) -> int:
    r"""Return T5's bucket of a relative position, equation :eq:`eq-bias-t5`.

    Args:
        relative_position: The key's position less the query's, as T5 counts.
        num_buckets: Number of buckets.
        max_distance: From here on all distances share a bucket.
        bidirectional: Whether keys after the query have buckets of their own.

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
    r"""Return the table's number for each pair, equation :eq:`eq-bias-t5`.

    Args:
        table: ``(num_buckets, heads)``.
        num_queries: Number of queries.
        num_keys: Number of keys.
        offset: Position of the first query.
        max_distance: As in :func:`t5_bucket`.
        bidirectional: As in :func:`t5_bucket`.

    Returns:
        float64, ``(heads, num_queries, num_keys)``.
    """
    buckets, heads = table.shape

    def number(head: int, delta: int) -> float:
        return table[t5_bucket(-delta, buckets, max_distance, bidirectional), head].item()

    return _fill(heads, num_queries, num_keys, offset, number)


def kerple_log_bias(
    r1: Tensor, r2: Tensor, num_queries: int, num_keys: int, offset: int = 0
) -> Tensor:
    r"""Return :math:`-r_1 \log(1 + r_2 |t - s|)`, equation :eq:`eq-bias-kerple`.

    Args:
        r1: ``(heads,)``.
        r2: ``(heads,)``.
        num_queries: Number of queries.
        num_keys: Number of keys.
        offset: Position of the first query.

    Returns:
        float64, ``(heads, num_queries, num_keys)``.

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
    r"""Return :math:`-r_1 |t - s|^{r_2}`, equation :eq:`eq-bias-kerple`.

    Arguments and result are those of :func:`kerple_log_bias`.

    Source:
        Chi et al. 2022, the power variant.
    """
    a, b = r1.tolist(), r2.tolist()
    return _fill(len(a), num_queries, num_keys, offset, lambda h, x: -a[h] * abs(x) ** b[h])
