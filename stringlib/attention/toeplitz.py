r"""A learned bias for every distance: the Toeplitz weight."""

from __future__ import annotations

import torch
from torch import Tensor

from stringlib.attention.weights import PositionWeight, masked_product


class ToeplitzWeight(PositionWeight):
    """Weight exp(b), b a bias for each offset j − i: ``(heads, 2n − 1)``, or a grid's."""

    def __init__(self, bias: Tensor) -> None:
        self.bias = bias

    def matrix(self, num_queries: int, num_keys: int) -> Tensor:
        """Return the weights."""
        if self.bias.ndim == 3:
            h, w = (self.bias.shape[1] + 1) // 2, (self.bias.shape[2] + 1) // 2
            row, col = torch.arange(h * w) // w, torch.arange(h * w) % w
            dr, dc = row - row[:, None] + h - 1, col - col[:, None] + w - 1
            return self.bias[:, dr, dc].exp()
        n = (self.bias.shape[-1] + 1) // 2
        index = torch.arange(num_keys) - torch.arange(num_queries)[:, None]
        return self.bias[..., n - 1 + index].exp()

    def sums(self, phi_q, phi_k, u, *, causal, mode, state=None, start=0):  # type: ignore
        """Return the weighted sums."""
        weights = self.matrix(phi_q.shape[-2], phi_k.shape[-2])
        return masked_product(phi_q, phi_k, u, weights, causal), None
