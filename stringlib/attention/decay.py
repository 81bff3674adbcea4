r"""Decay: a weight that a running state can carry."""

from __future__ import annotations

import torch
from torch import Tensor

from stringlib.attention.weights import PositionWeight


def decayed_sums(
    phi_q: Tensor,
    phi_k: Tensor,
    u: Tensor,
    log_decay: Tensor,
    *,
    mode: str | None,
    state: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Return causal sums under S_t = exp(a_t) S_{t−1} + φ_k,t u_tᵀ, and the last state.

    Args:
        phi_q: ``(..., heads, n, m)``.
        phi_k: ``(..., heads, n, m)``.
        u: ``(..., heads, n, d_u)``.
        log_decay: ``(..., heads, n)``, or ``(..., heads, n, m)``: one for each feature.
        mode: "parallel", "recurrent", "chunk" or None.
        state: S before the first token, ``(..., heads, m, d_u)``.
    """
    a = log_decay if log_decay.ndim == phi_k.ndim else log_decay[..., None]
    s = u.new_zeros(*u.shape[:-2], phi_k.shape[-1], u.shape[-1]) if state is None else state
    out = []
    for t in range(u.shape[-2]):
        s = a[..., t, :, None].exp() * s + phi_k[..., t, :, None] * u[..., t, None, :]
        out.append(phi_q[..., t, None, :] @ s)
    return torch.cat(out, -2), s


class DecayWeight(PositionWeight):
    """Weight exp(a_{j+1} + … + a_i) for j ≤ i; a is ``log_decay`` ≤ 0."""

    def __init__(self, log_decay: Tensor) -> None:
        self.log_decay = log_decay

    def matrix(self, num_queries: int, num_keys: int) -> Tensor:
        """Return the weights, for a decay that all features share."""
        if self.log_decay.ndim == 1:
            delta = torch.arange(num_queries)[:, None] - torch.arange(num_keys)
            return (self.log_decay[:, None, None] * delta).exp().tril()
        total = self.log_decay.cumsum(-1)
        return (total[..., :, None] - total[..., None, :]).exp().tril()

    def sums(self, phi_q, phi_k, u, *, causal, mode, state=None, start=0):  # type: ignore
        """Return the weighted sums."""
        if not causal:
            raise ValueError("causal must be True for a DecayWeight: a state forgets the past only")
        a = self.log_decay
        if a.ndim == 1:
            a = a[:, None].expand(-1, u.shape[-2])
        return decayed_sums(phi_q, phi_k, u, a, mode=mode, state=state)
