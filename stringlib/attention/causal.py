r"""Causal sums for weight 1: one loop over chunks, with a running state between them.

A chunk of all tokens is the matrix form, chunks of one token are the recurrence.
"""

from __future__ import annotations

import torch
from torch import Tensor

from stringlib.inputs import require_mode, require_state

# Medians on two CPU cores, 16 heads, n = 1024, m = d = 64, float32, milliseconds with gradients,
# chunks of 32 : 64. 1 thread: 38 : 37; 2 threads: 34 : 31. At n = 4096, 4 heads: 46 : 44, 55 : 37.
# All chunks in one batched product, with a cumulative sum of states: 59 : 45, 51 : 40.
CHUNK = 64

MODES = ("parallel", "recurrent", "chunk")


def causal_sums(
    phi_q: Tensor, phi_k: Tensor, u: Tensor, *, mode: str | None, state: Tensor | None
) -> tuple[Tensor, Tensor]:
    r"""Return :math:`\sum_{j \le i} \phi(q_i)^\top\phi(k_j)\,u_j` and the last state.

    A query meets the keys of earlier chunks through the state
    :math:`S = \sum_j \phi(k_j)\,u_j^\top`, and those of its own chunk one by one:
    equation :eq:`eq-linear-chunk`. No tensor holds a state for every token.

    Args:
        phi_q: Features of the queries, ``(..., heads, n, m)``.
        phi_k: Features of the keys, ``(..., heads, n, m)``.
        u: What is summed, ``(..., heads, n, d_u)``.
        mode: ``"parallel"``: one chunk; ``"recurrent"``: chunks of one token; ``"chunk"`` or
            None: chunks of ``CHUNK`` tokens.
        state: :math:`S` before the first token, ``(..., heads, m, d_u)``; 0 if None.

    Returns:
        The sums ``(..., heads, n, d_u)``, and the state ``(..., heads, m, d_u)`` after the last
        token.

    Raises:
        ValueError: If the mode is unknown or the state does not fit.
    """
    require_mode(mode, MODES)
    length = {"parallel": max(u.shape[-2], 1), "recurrent": 1}.get(mode or "chunk", CHUNK)
    given = [phi_q, phi_k, u]
    lead = torch.broadcast_shapes(*(x.shape[:-2] for x in given))
    if state is not None:
        require_state(state, lead, phi_k.shape[-1], u.shape[-1])
        given.append(state)
    flat = [x.expand(*lead, *x.shape[-2:]).flatten(0, -3) for x in given]
    after = None if state is None else flat[3]
    sums = []
    # split, not slices: the gradient of each slice would be a tensor of the full length
    for q, k, x in zip(*(x.split(length, -2) for x in flat[:3]), strict=True):
        found, after = _chunk(q, k, x, after)
        sums.append(found)
    assert after is not None  # split gives one chunk at least
    return torch.cat(sums, -2).unflatten(0, lead), after.unflatten(0, lead)


def _chunk(q: Tensor, k: Tensor, u: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the sums of one chunk and the state behind it, for ``(batch, tokens, ...)``."""
    own = torch.bmm(q, k.mT).tril_()
    if state is None:
        return torch.bmm(own, u), torch.bmm(k.mT, u)
    return torch.baddbmm(torch.bmm(q, state), own, u), torch.baddbmm(state, k.mT, u)
