r"""The delta rule computed chunk by chunk.

Token t with the key k, the value v, the rate β and the decay :math:`e^a` adds
:math:`k_t u_t^\top` to the decayed state :math:`\mathrm{diag}(e^{a_t}) S_{t-1}`. Here a is one
number for all features or one number for each feature. The vector
:math:`u_t = \beta_t (v_t - S_{t-1}^\top \mathrm{diag}(e^{a_t}) k_t)` is the rate times the error of
the decayed state for this key. So the state is a decayed sum of the products :math:`k_t u_t^\top`.
Within a chunk, the vectors u solve a triangular system whose right side is linear in the state
before the chunk. Therefore the state after the chunk is an affine function of the state before the
chunk. The affine functions of all chunks are computed at once, and only their application to the
state is sequential.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any
from warnings import catch_warnings

import torch
from torch import SymInt, Tensor
from torch._higher_order_ops.scan import scan

from stringlib.kernels.chunks import chunk_size, in_chunks
from stringlib.kernels.decays import decayed_scores, sum_of_later

# Chunks of 32 tokens are the fastest. Median times in milliseconds of the delta rule with its
# gradients, on two CPU cores, 8 heads, d = d_v = 64, float32, for chunks of 16 : 32 : 64 : 128:
# n = 1024, 1 thread 70 : 53 : 54 : 78; n = 1024, 2 threads 53 : 33 : 36 : 45; n = 4096, 1 thread
# 313 : 237 : 249 : 333. For comparison, a decayed sum of these three sizes takes 20, 13 and 84.
CHUNK = 32


def delta_sums(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    log_decay: Tensor,
    mode: str | None = None,
    state: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Return the outputs :math:`S_t^\top q_t` of the delta rule, and the last state.

    The state after token t is
    :math:`(I - \beta_t k_t k_t^\top)\,\mathrm{diag}(e^{a_t})\,S_{t-1} + \beta_t k_t v_t^\top`.
    By default the outputs are computed chunk by chunk, :eq:`eq-delta-chunk`, and with one decay per
    feature :eq:`eq-kda-chunk`. All tensors have the same dtype, float32 or float64, and the same
    leading dimensions, of which there must be at least one.

    Args:
        q: Queries, ``(..., n, d)``.
        k: Keys, ``(..., n, d)``.
        v: Values, ``(..., n, d_v)``.
        beta: Rates, ``(..., n, 1)``.
        log_decay: Logarithms a of the decays, ``(..., n, 1)``, or ``(..., n, d)`` for one decay per
            token and feature.
        mode: ``"parallel"`` treats all tokens as one chunk. ``"recurrent"`` computes token by
            token. ``"chunk"`` or None (default) computes chunk by chunk.
        state: The state S before the first token, ``(..., d, d_v)``. Default: None, which means
            zero.

    Returns:
        The outputs, ``(..., n, d_v)``, and the state after the last token, ``(..., d, d_v)``.
    """
    n = v.shape[-2]
    if state is None:
        state = q.new_zeros(*v.shape[:-2], k.shape[-1], v.shape[-1])
    if n == 0:
        return q @ state, state
    if mode == "recurrent" or (mode is None and n == 1):
        return _token_by_token(q, k, v, beta, log_decay, state)
    # an exported program is for chunks of one size, because n may be any number of tokens
    size = chunk_size(v, CHUNK, None if torch.compiler.is_exporting() else mode)
    q, k, v, beta, log_decay = in_chunks(size, q, k, v, beta, log_decay)
    out, state = _chunks(q, k, v, beta, log_decay, state)
    return out.flatten(-3, -2)[..., :n, :], state


def _token_by_token(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_decay: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the outputs and the last state of the delta rule, in a loop over tokens."""
    keep, out = log_decay.exp(), []
    for t in range(v.shape[-2]):
        key, state = k[..., t, None, :], keep[..., t, :, None] * state
        u = beta[..., t, None, :] * (v[..., t, None, :] - key @ state)
        state = state + key.mT * u
        out.append(q[..., t, None, :] @ state)
    return torch.cat(out, -2), state


def _chunks(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_decay: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the outputs and the last state of the delta rule, :eq:`eq-delta-wy`.

    All tensors except ``state`` contain tokens in chunks, ``(..., chunks, size, channels)``.
    """
    since_start = log_decay.cumsum(-2).exp()
    # both products with one computation of the decays between the keys and the later tokens
    overlap, within = decayed_scores(torch.stack([k, q]), k, log_decay)
    # u = own - old S, where S is the state before the chunk
    right = torch.cat([beta * v, beta * since_start * k], -1)
    own, old = _solved(beta * overlap, right).split([v.shape[-1], k.shape[-1]], -1)
    written = (sum_of_later(log_decay).exp() * k).mT
    eye = torch.eye(k.shape[-1], dtype=k.dtype, device=k.device)
    kept = since_start[..., -1:, :] * eye - written @ old
    added = written @ own
    batch_shape = state.shape[:-2]
    before, state = _states(kept.flatten(0, -4), added.flatten(0, -4), state.flatten(0, -3))
    read = before.unflatten(0, batch_shape)
    out = within @ own + (since_start * q - within @ old) @ read
    return out, state.unflatten(0, batch_shape)


def _states(kept: Tensor, added: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Return the state before each chunk, and the state after the last chunk.

    Args:
        kept: Matrix by which each chunk multiplies the state, ``(batch, chunks, d, d)``.
        added: Matrix that each chunk then adds to the state, ``(batch, chunks, d, d_v)``.
        state: The state before the first chunk, ``(batch, d, d_v)``.
    """
    chunks: Any = kept.shape[1]
    strict = torch.compiler.is_dynamo_compiling()
    if torch.compiler.is_exporting() and (strict or isinstance(chunks, SymInt)):
        # a loop of Python would fix the number of chunks of the exported program
        # scan warns that it reads the gradient of a tensor that is not a leaf
        with nullcontext() if strict else catch_warnings(action="ignore"):
            last, before = scan(_step, state, (kept, added), dim=1)
        return before, last
    states = []
    for keep, add in zip(kept.unbind(1), added.unbind(1), strict=True):
        states.append(state)
        state = torch.baddbmm(add, keep, state)
    return torch.stack(states, 1), state


def _step(state: Tensor, chunk: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Return the state after a chunk, and a copy of the state before the chunk.

    Args:
        state: The state before the chunk.
        chunk: The matrix by which the chunk multiplies the state, and the matrix that it adds.
    """
    keep, add = chunk
    return torch.baddbmm(add, keep, state), state.clone()


def _solved(a: Tensor, b: Tensor) -> Tensor:
    """Return the solution x of (I + L)x = b, where L is the part of a below the diagonal."""
    if not torch.compiler.is_exporting():
        return torch.linalg.solve_triangular(a, b, upper=False, unitriangular=True)
    # ONNX has no operator that solves linear equations. The inverses of blocks of 1, 2, 4, … rows
    # on the diagonal are computed in turn. The inverses A⁻¹ and C⁻¹ of its halves give the inverse
    # of a block, whose lower left quarter is −C⁻¹BA⁻¹. The product of I + (−L)^(2^k) would be the
    # inverse too, but loses digits: for 32 equal keys its factors exceed 10⁸ and cancel.
    size = a.shape[-1]
    index = torch.arange(size, device=a.device)
    inverse = torch.eye(size, dtype=a.dtype, device=a.device)
    for level in range((size - 1).bit_length()):
        block = index >> level
        quarter = (block[:, None] % 2 == 1) & (block[:, None] == block + 1)
        inverse = inverse - inverse @ a.masked_fill(~quarter, 0) @ inverse
    return inverse @ b
