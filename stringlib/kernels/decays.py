r"""The decays between the tokens of one chunk, and the scores of queries and keys with decays.

Let :math:`a_t \le 0` be the logarithm of the decay of token t. The decay from key j to query i is
:math:`e^{a_{j+1} + \dots + a_i}`. The exponent is always computed as a sum of logarithms and never
as a difference of two cumulative sums, so that nothing overflows.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad


def decayed_scores(q: Tensor, k: Tensor, log_decay: Tensor) -> Tensor:
    r"""Return the products of all queries and keys times the decay between them, ``(..., n, n)``.

    The entry of query i and key j ≤ i is
    :math:`\sum_f q_{if} k_{jf} e^{a_{j+1,f} + \dots + a_{if}}` with a sum over the features f. For
    a later key j > i the entry is 0.

    Args:
        q: Queries, ``(..., n, m)``.
        k: Keys, ``(..., n, m)``.
        log_decay: Logarithms a of the decays, ``(..., n, 1)`` or ``(..., n, m)``.
    """
    if log_decay.shape[-1] == 1:
        # tril first: an entry for a later key may be infinite, and times 0 it would be NaN
        return (q @ k.mT).tril() * decay_matrix(log_decay.squeeze(-1))
    size = int(q.shape[-2])  # torch.jit.trace has tensors as sizes
    missing = (1 << (size - 1).bit_length()) - size  # halving needs a power of 2
    q, k, log_decay = (pad(x, (0, 0, 0, missing)) for x in (q, k, log_decay))
    return scores_by_halves(q, k, log_decay)[..., :size, :size]


def scores_by_halves(q: Tensor, k: Tensor, log_decay: Tensor) -> Tensor:
    """Return the products of queries and keys times one decay per token and feature.

    This is :func:`decayed_scores` with as many decays per token as features,
    :eq:`eq-decay-halves`. The number of tokens must be a power of 2. The entries of later keys are
    0.

    For a key in the first half of the tokens and a query in the second half, the decay is the
    product of the decay up to the boundary and the decay from the boundary on. So the scores of
    these keys and queries are a product of two matrices. The scores within each half are computed
    recursively.
    """
    size = q.shape[-2]
    if size == 1:
        return (q * k).sum(-1, keepdim=True)
    q, k, log_decay = (x.unflatten(-2, (2, size // 2)) for x in (q, k, log_decay))
    halves = scores_by_halves(q, k, log_decay)
    first, second = log_decay.unbind(-3)
    to_boundary = k[..., 0, :, :] * sum_of_later(first).exp()
    from_boundary = q[..., 1, :, :] * second.cumsum(-2).exp()
    across = from_boundary @ to_boundary.mT
    upper = torch.cat([halves[..., 0, :, :], torch.zeros_like(across)], -1)
    return torch.cat([upper, torch.cat([across, halves[..., 1, :, :]], -1)], -2)


def sum_of_later(log_decay: Tensor) -> Tensor:
    """Return for each token the sum of the log decays of all later tokens, ``(..., n, f)``.

    For the last token the sum is 0.
    """
    return pad(log_decay, (0, 0, -1, 1)).flip(-2).cumsum(-2).flip(-2)


def decay_matrix(log_decay: Tensor) -> Tensor:
    r"""Return the decay from each key j to each query i, as a lower triangular matrix.

    Entry (i, j) is :math:`e^{a_{j+1} + \dots + a_i}` for j ≤ i, and 0 for j > i.

    Args:
        log_decay: Logarithms a of the decays, ``(..., n)``.

    Returns:
        The matrix, ``(..., n, n)``.
    """
    return log_decay_matrix(log_decay).exp_()


def log_decay_matrix(log_decay: Tensor) -> Tensor:
    """Return the logarithms of the entries of :func:`decay_matrix`, which are −∞ for j > i."""
    n = log_decay.shape[-1]
    # Column j is summed from j + 1 on. A difference of two sums from the start would lose digits
    # after a strong decay, and would be NaN after -inf.
    sums = log_decay.unsqueeze(-1).expand(*log_decay.shape, n).tril(-1).cumsum(-2)
    later = torch.ones(n, n, dtype=torch.bool, device=sums.device).triu(1)
    return sums.masked_fill_(later, -torch.inf)
