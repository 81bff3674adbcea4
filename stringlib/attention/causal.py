r"""Causal sums for weight 1: a running state, token by token or chunk by chunk."""

from __future__ import annotations

from torch import Tensor


def causal_sums(
    phi_q: Tensor, phi_k: Tensor, u: Tensor, *, mode: str | None, state: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the causal sums ``(..., n, d_u)`` and the state ``(..., m, d_u)`` after the last token."""
    before = phi_k.new_zeros(()) if state is None else state
    scores = (phi_q @ phi_k.mT).tril()
    return scores @ u + phi_q @ before.expand(*u.shape[:-2], phi_k.shape[-1], u.shape[-1]), (
        before + phi_k.mT @ u
    )
