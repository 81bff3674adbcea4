r"""Causal sums with a running state :math:`S_t = e^{a_t} S_{t-1} + k_t u_t^\top`, chunk by chunk.

Token t has the key :math:`k_t`, the vector :math:`u_t` to be summed, and the decay
:math:`e^{a_t}`. Within a chunk, the contributions of all pairs of tokens are computed with a small
matrix. Earlier chunks contribute through the state. With one chunk of all n tokens, the computation
uses an n × n matrix. With chunks of one token, the computation is the recurrence.

No positive number is exponentiated, so that no decay overflows. For this purpose the logarithm of
the decay between two tokens is always computed as a sum of non-positive logarithms, and never as a
difference of two cumulative sums.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from stringlib.inputs import common_shape
from stringlib.kernels.chunks import Plain, chunk_size, chunks_by_hand, in_chunks
from stringlib.kernels.decays import decay_matrix, decayed_scores, sum_of_later

Mode = Literal["parallel", "recurrent", "chunk"]
MODES: tuple[Mode, ...] = get_args(Mode)

# Size of the chunks without a decay. Chunks of 64 are a little faster than chunks of 32. Median
# times in milliseconds with gradients, on two CPU cores, m = d = 64, float32, for chunks of
# 32 : 64. n = 1024, 16 heads: 1 thread 38 : 37, 2 threads 34 : 31. n = 4096, 4 heads: 1 thread
# 46 : 44, 2 threads 55 : 37.
PLAIN_CHUNK = 64

# Up to FEW_HEADS heads (times batch) and from more than FEW_CHUNKS chunks on, all chunks are
# computed at once if there are several threads. The reason is that the products of one chunk of few
# heads are too small to be shared by threads. CPU time in milliseconds of the first of two threads,
# with gradients, chunk by chunk : all at once. n = 1024: 2 heads 5.5 : 3.4, 4 heads 8.0 : 6.1,
# 6 heads 10.6 : 9.1, 8 heads 11.8 : 10.7, 16 heads 21 : 23. n = 256: 2 heads 1.7 : 1.6. n = 16384:
# 2 heads 85 : 51. On one thread, computing all at once is not faster with gradients, and an eighth
# slower without.
FEW_HEADS, FEW_CHUNKS = 7, 4

# Size of the chunks with a decay; chunks of 32 and 64 take similar times. Median times in
# milliseconds with gradients, on one CPU thread, 8 heads, m = d = 64, float32, for chunks of
# 32 : 64. One decay per token: n = 1024 29 : 34, n = 4096 118 : 104. One decay per feature:
# n = 1024 87 : 82.
DECAY_CHUNK = 32

TOGETHER = 64
"""Largest number of chunks for which a compiled graph computes all states in one product.

The product uses the matrix of decays between any two chunks. With more chunks than ``TOGETHER``,
the graph contains a loop over chunks.
"""


def causal_sums(
    q: Tensor,
    k: Tensor,
    u: Tensor,
    log_decay: Tensor | None = None,
    mode: str | None = None,
    state: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Return the product of each query and the running state, and the last state.

    The product is :math:`S_t^\top q_t` for the query of token t. The state after token t is
    :math:`S_t = e^{a_t} S_{t-1} + k_t u_t^\top`, :eq:`eq-decay-state`. All tensors have the same
    dtype, float32 or float64.

    Args:
        q: Queries, ``(..., n, m)``.
        k: Keys, ``(..., n, m)``.
        u: Vectors to be summed, ``(..., n, d_u)``.
        log_decay: Logarithms a of the decays, ``(..., n, 1)`` or ``(..., n, m)``. Default: None,
            which means no decay.
        mode: ``"parallel"`` treats all tokens as one chunk. ``"recurrent"`` computes token by
            token. ``"chunk"`` or None (default) computes chunk by chunk.
        state: The state S before the first token, ``(..., m, d_u)``. Default: None, which means
            zero.

    Returns:
        The sums, ``(..., n, d_u)``, and the state after the last token, ``(..., m, d_u)``.
    """
    n = u.shape[-2]
    if n == 1 and mode is None and state is not None:
        return step(q, k, u, log_decay, state)
    if log_decay is None:
        return _plain_sums(q, k, u, mode, state)
    given = [q, k, u, log_decay] if state is None else [q, k, u, log_decay, state]
    batch_shape = common_shape(*(x.shape[:-2] for x in given))
    if state is None:
        state = q.new_zeros(*batch_shape, k.shape[-1], u.shape[-1])
    state = state.expand(*batch_shape, *state.shape[-2:])
    if n == 0:
        return q @ state, state
    if mode == "recurrent":
        return _token_by_token(q, k, u, log_decay, state)
    size = chunk_size(u, DECAY_CHUNK, mode)
    # a compiler fuses this form, and a trace with a gradient written by hand cannot be saved
    recorded = torch.compiler.is_compiling() or torch._C._is_tracing()
    if log_decay.shape[-1] > 1 or recorded:
        return decayed_chunks(q, k, u, log_decay, state, size)
    # one decay per token; the state already has the common leading dimensions
    q, k, u, log_decay = (x.expand(*batch_shape, *x.shape[-2:]) for x in (q, k, u, log_decay))
    return _by_hand(decayed_chunks, q, k, u, log_decay, state, size)


def _plain_sums(
    q: Tensor, k: Tensor, u: Tensor, mode: str | None, state: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the causal sums and the last state without a decay, :eq:`eq-linear-chunk`.

    The arguments are those of :func:`causal_sums`.
    """
    length = {"parallel": max(u.shape[-2], 1), "recurrent": 1}.get(mode or "chunk", PLAIN_CHUNK)
    given = [q, k, u] if state is None else [q, k, u, state]
    batch_shape = common_shape(*(x.shape[:-2] for x in given))
    n = u.shape[-2]
    q, k, u = (x.expand(*batch_shape, *x.shape[-2:]) for x in (q, k, u))
    if torch.compiler.is_compiling() and mode in (None, "chunk") and n:
        return _plain_together(q, k, u, state)
    q, k, u = (x.flatten(0, -3) for x in (q, k, u))
    if state is not None:
        state = state.expand(*batch_shape, *state.shape[-2:]).flatten(0, -3)
    few = n > FEW_CHUNKS * length and len(u) <= FEW_HEADS and torch.get_num_threads() > 1
    by_hand = (few or u.device.type != "cpu") and not torch._C._is_tracing()
    if mode != "recurrent" and n > length and by_hand:
        size = -(-n // -(-n // length))  # chunks of equal size with the least padding
        sums, state = _by_hand(_plain_chunks, q, k, u, None, state, size)
    else:
        sums, state = _plain_chunks(q, k, u, state, length)
    return sums.unflatten(0, batch_shape), state.unflatten(0, batch_shape)


def _plain_chunks(
    q: Tensor, k: Tensor, u: Tensor, state: Tensor | None, size: int
) -> tuple[Tensor, Tensor]:
    """Return the causal sums and the last state without a decay, in a loop over chunks.

    Args:
        q: Queries, ``(batch, n, m)``.
        k: Keys, ``(batch, n, m)``.
        u: Vectors to be summed, ``(batch, n, d_u)``.
        state: The state before the first token, ``(batch, m, d_u)``, or None for zero.
        size: Number of tokens per chunk.
    """
    sums = []
    # split instead of slices, because the gradient of each slice is a tensor of full length
    for one_q, one_k, one_u in zip(*(x.split(size, -2) for x in (q, k, u)), strict=True):
        found, state = _chunk(one_q, one_k, one_u, state)
        sums.append(found)
    assert state is not None  # split returns at least one chunk
    return torch.cat(sums, -2), state


def _plain_together(q: Tensor, k: Tensor, u: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the causal sums and the last state without a decay, for all chunks at once.

    A compiled graph of this function works for any number of chunks. The arguments are those of
    :func:`causal_sums`, and the queries, keys and vectors have the same leading dimensions.
    """
    n = u.shape[-2]
    q, k, u = in_chunks(PLAIN_CHUNK, q, k, u)
    after = (k.mT @ u).cumsum(-3)
    if state is None:
        state = torch.zeros_like(after[..., 0, :, :])
    else:
        after = after + state.unsqueeze(-3)
    before, state = _shifted(after, state)
    sums = (q @ k.mT).tril() @ u + q @ before
    return sums.flatten(-3, -2)[..., :n, :], state


def _shifted(after: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Return the state before each chunk, and the state after the last chunk.

    Args:
        after: The state after each chunk, ``(..., chunks, m, d_u)``.
        state: The state before the first chunk, ``(..., m, d_u)``.
    """
    first = state.unsqueeze(-3).expand_as(after[..., :1, :, :])
    return torch.cat([first, after[..., :-1, :, :]], -3), after[..., -1, :, :]


def _chunk(q: Tensor, k: Tensor, u: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the causal sums of one chunk without a decay, and the state after the chunk.

    Tokens have the shape ``(batch, tokens, channels)``. ``state`` is the state before the chunk.
    None means zero.
    """
    own = torch.bmm(q, k.mT).tril_()
    if state is None:
        return torch.bmm(own, u), torch.bmm(k.mT, u)
    return torch.baddbmm(torch.bmm(q, state), own, u), torch.baddbmm(state, k.mT, u)


def step(
    q: Tensor, k: Tensor, u: Tensor, log_decay: Tensor | None, state: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the sum and the state after one token, equation :eq:`eq-decay-state`.

    Args:
        q: The query, ``(..., 1, m)``.
        k: The key, ``(..., 1, m)``.
        u: The vector to be added, ``(..., 1, d_u)``.
        log_decay: The logarithm of the decay, ``(..., 1, 1)`` or ``(..., 1, m)``; None for no
            decay.
        state: The state before the token, ``(..., m, d_u)``.
    """
    if log_decay is not None:
        state = log_decay.exp().mT * state
    state = torch.addcmul(state, k.mT, u)
    return q @ state, state


def _token_by_token(
    q: Tensor, k: Tensor, u: Tensor, log_decay: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the causal sums and the last state with a decay, in a loop over tokens."""
    sums = []
    tokens = zip(*(x.split(1, -2) for x in (q, k, u, log_decay)), strict=True)
    for one_q, one_k, one_u, one_decay in tokens:
        found, state = step(one_q, one_k, one_u, one_decay, state)
        sums.append(found)
    return torch.cat(sums, -2), state


def decayed_chunks(
    q: Tensor, k: Tensor, u: Tensor, log_decay: Tensor, state: Tensor, size: int
) -> tuple[Tensor, Tensor]:
    """Return the causal sums and the last state with a decay, :eq:`eq-decay-chunk`.

    Autograd computes the gradients. For gradients by hand, see ``_by_hand``.

    Args:
        q: Queries, ``(..., n, m)``.
        k: Keys, ``(..., n, m)``.
        u: Vectors to be summed, ``(..., n, d_u)``.
        log_decay: The logarithms of the decays, ``(..., n, 1)`` or ``(..., n, m)``.
        state: The state before the first token, ``(..., m, d_u)``.
        size: Number of tokens per chunk.
    """
    n = u.shape[-2]
    q, k, u, log_decay = in_chunks(size, q, k, u, log_decay)
    since_start = log_decay.cumsum(-2).exp()
    added = (k * sum_of_later(log_decay).exp()).mT @ u
    before, state = _states_before(added, log_decay.sum(-2), state)
    sums = decayed_scores(q, k, log_decay) @ u + (q * since_start) @ before
    return sums.flatten(-3, -2)[..., :n, :], state


def _states_before(added: Tensor, log_kept: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Return the state before each chunk, and the state after the last chunk.

    Args:
        added: Matrix that each chunk adds to the state, ``(..., chunks, m, d_u)``.
        log_kept: Logarithm of the total decay of each chunk, ``(..., chunks, 1 or m)``.
        state: The state before the first chunk, ``(..., m, d_u)``.
    """
    if _is_one_graph(added.shape[-3]):
        by_feature = log_kept.mT
        own = decay_matrix(by_feature) @ added.transpose(-3, -2)
        since_start = by_feature.cumsum(-1).exp().unsqueeze(-1)
        return _shifted((own + since_start * state.unsqueeze(-2)).transpose(-3, -2), state)
    before = []
    for add, keep in zip(added.unbind(-3), log_kept.exp().unsqueeze(-1).unbind(-3), strict=True):
        before.append(state)
        state = torch.addcmul(add, keep, state)
    return torch.stack(before, -3), state


def _is_one_graph(chunks: int) -> bool:
    """Return whether the states of ``chunks`` chunks are computed in one product, not in a loop.

    An exported program must work for any number of chunks, so it cannot contain a loop over chunks.
    A compiled graph uses the product for up to ``TOGETHER`` chunks. For more chunks a loop is
    faster, although each number of chunks then needs its own graph.
    """
    if torch.compiler.is_exporting():
        return True
    return torch.compiler.is_compiling() and chunks <= TOGETHER


def _by_hand(
    plain: Plain,
    q: Tensor,
    k: Tensor,
    u: Tensor,
    log_decay: Tensor | None,
    state: Tensor | None,
    size: int,
) -> tuple[Tensor, Tensor]:
    """Return the causal sums and the last state for all chunks at once, with gradients by hand.

    Args:
        plain: :func:`_plain_chunks` or :func:`decayed_chunks`, which computes the same result
            without gradients by hand.
        q: Queries, ``(..., n, m)``.
        k: Keys, ``(..., n, m)``.
        u: Vectors to be summed, ``(..., n, d_u)``.
        log_decay: Logarithm of the decay of each token, ``(..., n, 1)``, or None for no decay.
        state: The state before the first token, or None for zero.
        size: Number of tokens per chunk.
    """
    n, mask = u.shape[-2], None
    if state is None:
        state = q.new_zeros(*q.shape[:-2], k.shape[-1], u.shape[-1])
    # without contiguous() the heads, which are interleaved in memory, are copied in each product
    q, k, u = (x.contiguous() for x in in_chunks(size, q, k, u))
    if log_decay is not None:
        (log_decay,) = in_chunks(size, log_decay)
        with torch.no_grad():
            mask = decay_matrix(log_decay.squeeze(-1))
    sums, state = chunks_by_hand(plain, mask, q, k, u, log_decay, state)
    sums = sums.flatten(-3, -2)
    # no slice if nothing is cut off, because the gradient of any slice is a copy
    return sums[..., :n, :] if n % size else sums, state
