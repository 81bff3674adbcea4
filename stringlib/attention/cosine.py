r"""The cosine weight: a rank of two, by Ptolemy's identity."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from stringlib.attention.causal import causal_sums
from stringlib.attention.weights import PositionWeight, masked_product


class CosineWeight(PositionWeight):
    r"""Weight :math:`\cos(\pi(i-j)/2M)`, or :math:`(1+\cos(\pi(i-j)/2M))/2` if ``positive``."""

    def __init__(self, horizon: float, positive: bool = False) -> None:
        self.horizon, self.positive = horizon, positive

    def matrix(self, num_queries: int, num_keys: int) -> Tensor:
        """Return the weights."""
        delta = torch.arange(num_queries)[:, None] - torch.arange(num_keys)
        cosine = torch.cos(delta.double() * (math.pi / 2 / self.horizon))
        return (1 + cosine) / 2 if self.positive else cosine

    def features(self, phi: Tensor, start: int = 0) -> Tensor:
        """Multiply features by what makes their products carry the weight: 2m of them, or 3m."""
        angle = (start + torch.arange(phi.shape[-2])).double() * (math.pi / 2 / self.horizon)
        c, s = torch.cos(angle)[:, None].to(phi), torch.sin(angle)[:, None].to(phi)
        if self.positive:
            return torch.cat([phi, phi * c, phi * s], -1) * 0.5**0.5
        return torch.cat([phi * c, phi * s], -1)

    def sums(self, phi_q, phi_k, u, *, causal, mode, state=None, start=0):  # type: ignore
        """Return the weighted sums."""
        if mode == "parallel" and state is None:
            weights = self.matrix(phi_q.shape[-2], phi_k.shape[-2])
            return masked_product(phi_q, phi_k, u, weights, causal), None
        phi_q, phi_k = self.features(phi_q, start), self.features(phi_k, start)
        if causal:
            return causal_sums(phi_q, phi_k, u, mode=mode, state=state)
        return phi_q @ (phi_k.mT @ u), None
