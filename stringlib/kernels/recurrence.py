r"""Sums over earlier keys with a running state: :math:`S_t = e^{a_t} S_{t-1} + k_t u_t^\top`.

Chunk by chunk: the pairs within a chunk meet in a small matrix, what came before reaches them
through the state. One chunk of all tokens is the n × n matrix, chunks of one token are the
recurrence. No number that is exponentiated is ever positive: where two tokens meet, the logarithms
between them are summed, never subtracted.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import pad

from stringlib.inputs import common_shape
from stringlib.kernels.chunks import Plain, chunks_by_hand

Mode = Literal["parallel", "recurrent", "chunk"]
MODES: tuple[Mode, ...] = get_args(Mode)

# Medians on two CPU cores, 16 heads, n = 1024, m = d = 64, float32, milliseconds with gradients,
# chunks of 32 : 64. 1 thread: 38 : 37; 2 threads: 34 : 31. At n = 4096, 4 heads: 46 : 44, 55 : 37.
PLAIN_CHUNK = 64

# One chunk of few heads is too small a product to be shared by threads. CPU time of the first of
# two threads, with gradients, chunk by chunk : all at once. n = 1024: 2 heads 5.5 : 3.4, 4 heads
# 8.0 : 6.1, 6 heads 10.6 : 9.1, 8 heads 11.8 : 10.7, 16 heads 21 : 23; n = 256, 2 heads 1.7 : 1.6;
# n = 16384, 2 heads 85 : 51. On one thread all at once is no gain, and forward a loss of an eighth.
FEW_HEADS, FEW_CHUNKS = 7, 4

# Medians on one CPU thread, 8 heads, m = d = 64, float32, milliseconds with gradients, chunks of
# 32 : 64. One decay a token: n = 1024 29 : 34, n = 4096 118 : 104; one a feature: n = 1024 87 : 82.
DECAY_CHUNK = 32

# Milliseconds with gradients on an H100, where a call costs more than its work, m = d = 64. Without
# a decay, chunk by chunk : all at once. 16 heads, n = 512: 3.9 : 2.0, n = 2048: 17 : 2.9; 64 heads,
# n = 16384: 88 : 8.9. One decay a token, chunks of 32 : 64 : 128. 64 heads, n = 4096:
# 8.5 : 5.5 : 4.8, n = 16384: 27 : 15 : 16; one a feature: 22 : 17 : 17, 76 : 59 : 61.
GPU_CHUNK = 64

TOGETHER = 64
"""Up to so many chunks a compiled graph has the decays between any two of them."""


def causal_sums(
    q: Tensor,
    k: Tensor,
    u: Tensor,
    log_decay: Tensor | None = None,
    mode: str | None = None,
    state: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Return :math:`q_t^\top S_t` for every token, and the last state: :eq:`eq-decay-state`.

    Args:
        q: Queries, ``(..., n, m)``, in float32 or float64 as all are.
        k: Keys, ``(..., n, m)``.
        u: What is summed, ``(..., n, d_u)``.
        log_decay: The logarithms a, ``(..., n, 1)`` or ``(..., n, m)``; None forgets nothing.
        mode: ``"parallel"``: one chunk; ``"recurrent"``: token by token; ``"chunk"`` or None:
            chunks.
        state: S before the first token, ``(..., m, d_u)``; 0 if None.

    Returns:
        The sums ``(..., n, d_u)``, and the state ``(..., m, d_u)`` after the last token.
    """
    if log_decay is None:
        return _plain_sums(q, k, u, mode, state)
    n = u.shape[-2]
    given = [q, k, u, log_decay] if state is None else [q, k, u, log_decay, state]
    lead = common_shape(*(x.shape[:-2] for x in given))
    if state is None:
        state = q.new_zeros(*lead, k.shape[-1], u.shape[-1])
    state = state.expand(*lead, *state.shape[-2:])
    if n == 0:
        return q @ state, state
    if mode == "recurrent" or (mode is None and n == 1):
        return _token_by_token(q, k, u, log_decay, state)
    size = chunk_size(u, DECAY_CHUNK, mode)
    if log_decay.shape[-1] > 1 or torch.compiler.is_compiling():  # a compiler fuses the plain form
        return decayed_chunks(q, k, u, log_decay, state, size)
    # with one decay a token; the state has the leading dimensions of all
    q, k, u, log_decay = (x.expand(*lead, *x.shape[-2:]) for x in (q, k, u, log_decay))
    return _by_hand(decayed_chunks, q, k, u, log_decay, state, size)


def _plain_sums(
    q: Tensor, k: Tensor, u: Tensor, mode: str | None, state: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Go chunk by chunk where nothing is forgotten, equation :eq:`eq-linear-chunk`."""
    length = {"parallel": max(u.shape[-2], 1), "recurrent": 1}.get(mode or "chunk", PLAIN_CHUNK)
    given = [q, k, u] if state is None else [q, k, u, state]
    lead = common_shape(*(x.shape[:-2] for x in given))
    n = u.shape[-2]
    q, k, u = (x.expand(*lead, *x.shape[-2:]) for x in (q, k, u))
    if torch.compiler.is_compiling() and mode in (None, "chunk") and n:
        return _plain_together(q, k, u, state)
    q, k, u = (x.flatten(0, -3) for x in (q, k, u))
    if state is not None:
        state = state.expand(*lead, *state.shape[-2:]).flatten(0, -3)
    few = n > FEW_CHUNKS * length and len(u) <= FEW_HEADS and torch.get_num_threads() > 1
    if mode != "recurrent" and n > length and (few or u.device.type != "cpu"):
        size = -(-n // -(-n // length))  # chunks of one size, with as little to fill as can be
        sums, state = _by_hand(_plain_chunks, q, k, u, None, state, size)
    else:
        sums, state = _plain_chunks(q, k, u, state, length)
    return sums.unflatten(0, lead), state.unflatten(0, lead)


def _plain_chunks(
    q: Tensor, k: Tensor, u: Tensor, state: Tensor | None, size: int
) -> tuple[Tensor, Tensor]:
    """Go chunk by chunk, for ``(batch, tokens, ...)``."""
    sums = []
    # split, not slices: the gradient of each slice would be a tensor of the full length
    for one_q, one_k, one_u in zip(*(x.split(size, -2) for x in (q, k, u)), strict=True):
        found, state = _chunk(one_q, one_k, one_u, state)
        sums.append(found)
    assert state is not None  # split gives one chunk at least
    return torch.cat(sums, -2), state


def _plain_together(q: Tensor, k: Tensor, u: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
    """Do as :func:`_plain_sums` for all chunks at once: one graph for any number of them."""
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
    """Return the state before each chunk from those behind them, and the last one.

    Args:
        after: ``(..., chunks, m, d_u)``.
        state: Before the first chunk, ``(..., m, d_u)``.
    """
    first = state.unsqueeze(-3).expand_as(after[..., :1, :, :])
    return torch.cat([first, after[..., :-1, :, :]], -3), after[..., -1, :, :]


def _chunk(q: Tensor, k: Tensor, u: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the sums of one chunk and the state behind it, for ``(batch, tokens, ...)``."""
    own = torch.bmm(q, k.mT).tril_()
    if state is None:
        return torch.bmm(own, u), torch.bmm(k.mT, u)
    return torch.baddbmm(torch.bmm(q, state), own, u), torch.baddbmm(state, k.mT, u)


def _token_by_token(
    q: Tensor, k: Tensor, u: Tensor, log_decay: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    keep, sums = log_decay.exp(), []
    for t in range(u.shape[-2]):
        state = keep[..., t, :, None] * state + k[..., t, :, None] * u[..., t, None, :]
        sums.append(q[..., t, None, :] @ state)
    return torch.cat(sums, -2), state


def decayed_chunks(
    q: Tensor, k: Tensor, u: Tensor, log_decay: Tensor, state: Tensor, size: int
) -> tuple[Tensor, Tensor]:
    """Go chunk by chunk under a decay, equation :eq:`eq-decay-chunk`; the plain form."""
    n = u.shape[-2]
    q, k, u, log_decay = in_chunks(size, q, k, u, log_decay)
    since_start = log_decay.cumsum(-2).exp()
    added = (k * sum_of_later(log_decay).exp()).mT @ u
    before, state = _states_before(added, log_decay.sum(-2), state)
    sums = _scores(q, k, log_decay) @ u + (q * since_start) @ before
    return sums.flatten(-3, -2)[..., :n, :], state


def _states_before(added: Tensor, log_kept: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Return the state before each chunk, and the last one.

    Args:
        added: What each chunk adds, ``(..., chunks, m, d_u)``.
        log_kept: The logarithms of what it keeps of the state before, ``(..., chunks, 1 or m)``.
        state: Before the first chunk, ``(..., m, d_u)``.
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
    """Return whether a graph is to serve any number of chunks, for which it may not be a loop.

    A compiler makes a graph for each number where there are many: a loop is then quicker.
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
    """Do as the plain form for all chunks at once, with one decay a token or none."""
    n, mask = u.shape[-2], None
    if state is None:
        state = q.new_zeros(*q.shape[:-2], k.shape[-1], u.shape[-1])
    # heads that stand side by side in memory would be copied for every product
    q, k, u = (x.contiguous() for x in in_chunks(size, q, k, u))
    if log_decay is not None:
        (log_decay,) = in_chunks(size, log_decay)
        with torch.no_grad():
            mask = decay_matrix(log_decay.squeeze(-1))
    sums, state = chunks_by_hand(plain, mask, q, k, u, log_decay, state)
    sums = sums.flatten(-3, -2)
    # the gradient of a slice is a copy, be it of everything
    return sums[..., :n, :] if n % size else sums, state


def chunk_size(u: Tensor, size: int, mode: str | None) -> int:
    """Return how many tokens of ``u``, ``(..., n, d_u)``, a chunk has, on a processor ``size``.

    A graph for any n has chunks of one size.
    """
    n = u.shape[-2]
    if mode == "parallel":
        return n
    size = size if u.device.type == "cpu" else GPU_CHUNK
    return size if torch.compiler.is_compiling() else min(size, n)


def in_chunks(size: int, *tensors: Tensor) -> list[Tensor]:
    """Return tokens as ``(..., chunks, size, channels)``.

    The last chunk is filled with tokens without key and value that forget nothing.
    """
    n = tensors[0].shape[-2]
    chunks = (n + size - 1) // size
    if torch.compiler.is_exporting():
        chunks += 2  # a program with one, or one before the last, would be for no other number
    missing = chunks * size - n
    if torch.compiler.is_compiling() or missing:
        tensors = tuple(pad(x, (0, 0, 0, missing)) for x in tensors)
    return [x.unflatten(-2, (chunks, size)) for x in tensors]


def _scores(q: Tensor, k: Tensor, log_decay: Tensor) -> Tensor:
    r"""Return :math:`\sum_f q_{if} k_{jf} e^{a_{j+1,f} + \dots + a_{if}}` for j ≤ i, else 0."""
    if log_decay.shape[-1] == 1:
        return q @ k.mT * decay_matrix(log_decay.squeeze(-1))
    size = q.shape[-2]
    missing = (1 << (size - 1).bit_length()) - size  # halving needs 2ⁿ
    q, k, log_decay = (pad(x, (0, 0, 0, missing)) for x in (q, k, log_decay))
    return _scores_by_halves(q, k, log_decay)[..., :size, :size]


def _scores_by_halves(q: Tensor, k: Tensor, log_decay: Tensor) -> Tensor:
    """Return the scores where each feature decays at its own rate, equation :eq:`eq-decay-halves`.

    Between the first half of the tokens and the second, the decay of a pair is one up to the
    boundary times one from there: a product of two matrices. The halves are halved in turn.
    """
    size = q.shape[-2]
    if size == 1:
        return (q * k).sum(-1, keepdim=True)
    q, k, log_decay = (x.unflatten(-2, (2, size // 2)) for x in (q, k, log_decay))
    halves = _scores_by_halves(q, k, log_decay)
    first, second = log_decay.unbind(-3)
    to_boundary = k[..., 0, :, :] * sum_of_later(first).exp()
    from_boundary = q[..., 1, :, :] * second.cumsum(-2).exp()
    across = from_boundary @ to_boundary.mT
    upper = torch.cat([halves[..., 0, :, :], torch.zeros_like(across)], -1)
    return torch.cat([upper, torch.cat([across, halves[..., 1, :, :]], -1)], -2)


def sum_of_later(log_decay: Tensor) -> Tensor:
    """Return for each token the sum over those after it, ``(..., n, f)``; the last gets 0."""
    return pad(log_decay, (0, 0, -1, 1)).flip(-2).cumsum(-2).flip(-2)


def decay_matrix(log_decay: Tensor) -> Tensor:
    r"""Return :math:`e^{a_{j+1} + \dots + a_i}` for j ≤ i, else 0, from ``(..., n)``."""
    n = log_decay.shape[-1]
    # column j is summed from j + 1 on: a difference of two sums from the start loses digits
    # after a strong decay, and is no number at all after -inf
    sums = log_decay.unsqueeze(-1).expand(*log_decay.shape, n).tril(-1).cumsum(-2)
    later = torch.ones(n, n, dtype=torch.bool, device=sums.device).triu(1)
    return sums.masked_fill_(later, -torch.inf).exp_()
