"""No position weight: plain linear attention."""

from __future__ import annotations

import torch
from torch import Tensor

from stringlib.attention.causal import MODES, causal_sums
from stringlib.attention.decay import decayed_sums
from stringlib.attention.weights import PositionWeight, masked_product, require_pairs
from stringlib.inputs import require_mode


class ConstantWeight(PositionWeight):
    """Weight 1: every pair counts for what its features say, :eq:`eq-linear-associative`."""

    def matrix(self, num_queries: int, num_keys: int) -> Tensor:
        """Return ones, ``(num_queries, num_keys)``."""
        require_pairs(num_queries, num_keys)
        return torch.ones(num_queries, num_keys)

    def sums(
        self,
        phi_q: Tensor,
        phi_k: Tensor,
        u: Tensor,
        *,
        causal: bool,
        mode: str | None,
        state: Tensor | None = None,
        start: int = 0,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the sums and, if causal, the state; see ``PositionWeight.sums``."""
        if causal:
            return causal_sums(phi_q, phi_k, u, mode=mode, state=state)
        require_mode(mode, MODES)
        queries, (keys, m), width = phi_q.shape[-2], phi_k.shape[-2:], u.shape[-1]
        few = queries * keys * (m + width) <= (queries + keys) * m * width
        if mode == "parallel" or few:
            return masked_product(phi_q, phi_k, u, None, False), None
        return phi_q @ (phi_k.mT @ u), None

    def rescaled_sums(
        self,
        phi_q: Tensor,
        phi_k: Tensor,
        u: Tensor,
        log_decay: Tensor,
        *,
        mode: str | None,
        state: Tensor | None = None,
        start: int = 0,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the causal sums under a decay; see ``PositionWeight.rescaled_sums``."""
        return decayed_sums(phi_q, phi_k, u, log_decay[..., None], mode=mode, state=state)
