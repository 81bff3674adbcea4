r"""A weight that falls to 0 at its horizon: the limit of cosine weights with a phase."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from stringlib.attention.weights import Factors, PositionWeight, copies
from stringlib.precision import widest
from stringlib.spec import Count0, Positive, checked


class RampWeight(PositionWeight):
    r"""Weight :math:`(1 - (i-j)/M)^p` for j ≤ i, equation :eq:`eq-ramp-weight`.

    For causal attention only. By the binomial theorem it is a sum of p + 1 products of what the
    query knows, :math:`1 - i/M`, and what the key knows, :math:`j/M`: attention with it is
    attention without a weight on (p + 1)m features, none of them negative where those of the map
    are not. No weight of one frequency that is never negative and never rises prefers the nearest
    tokens more than p = 2 does, nor a single cosine more than p = 1, :eq:`eq-ramp-best`.

    Args:
        horizon: M, in tokens: the distance where the weight is 0. Longer sequences are refused.
        power: p; 1 is a straight line.

    Source:
        This book; the bounds are proved in its chapter on cosine weights.
    """

    causal_only = True

    @checked
    def __init__(self, horizon: Positive, power: int = 1) -> None:
        super().__init__()
        self.horizon, self.power = horizon, int(power)

    @checked
    def matrix(self, num_queries: Count0, num_keys: Count0) -> Tensor:
        """Return the weights: float64, ``(num_queries, num_keys)``, 0 for later keys.

        Raises:
            ValueError: If a distance exceeds the horizon.
        """
        self._require_reach(max(num_queries, num_keys))
        distance = self._places(0, num_queries)[:, None] - self._places(0, num_keys)
        return ((1 - distance) ** self.power).tril()

    def extra_repr(self) -> str:
        """Describe the arguments in ``repr``."""
        return f"{self.horizon}, power={self.power}"

    def factors(self, phi_q: Tensor, phi_k: Tensor, start: int = 0) -> Factors:
        """Return (p + 1)m features; see ``PositionWeight.factors``.

        Raises:
            ValueError: If the sequence, with the tokens before it, is too long for the horizon.
        """
        self._require_reach(start + max(phi_q.shape[-2], phi_k.shape[-2]))
        i, j = (self._places(start, x.shape[-2], x.device) for x in (phi_q, phi_k))
        terms = [(r, math.comb(self.power, r) ** 0.5) for r in range(self.power + 1)]
        queries = torch.stack([size * (1 - i) ** (self.power - r) for r, size in terms], -1)
        keys = torch.stack([size * j**r for r, size in terms], -1)
        return Factors(copies(phi_q, queries), copies(phi_k, keys))

    def _places(self, start: int, count: int, device: torch.device | None = None) -> Tensor:
        """Return i/M for the positions from ``start`` on."""
        positions = torch.arange(start, start + count, dtype=widest(device), device=device)
        return positions / self.horizon

    def _require_reach(self, length: int) -> None:
        if length - 1 > self.horizon:
            raise ValueError(
                f"horizon must be at least {length - 1} for {length} tokens, got {self.horizon}: "
                "farther apart the weight would be negative, or rise again"
            )
