r"""The cosine weight of cosFormer: a product of features, by the addition theorem."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from stringlib.attention.weights import Factors, PositionWeight, copies
from stringlib.precision import at_least_float32, widest
from stringlib.spec import Count0, Floats, Positive, checked


class CosineWeight(PositionWeight):
    r"""Weight :math:`\cos(\pi(i-j)/2M)`, or :math:`(1+\cos(\pi(i-j)/2M))/2` if ``positive``.

    Equations :eq:`eq-cosine-weight` and :eq:`eq-cosine-positive`. Since
    :math:`\cos(a-b) = \cos a\cos b + \sin a\sin b`, :eq:`eq-ptolemy`, attention with this weight
    is attention without one on 2m features, :eq:`eq-cosine-features`, or on 3m. The cosine is
    negative beyond M, so longer sequences are refused: a denominator could vanish. The positive
    form falls from 1 over 1/2 at M to 0 at 2M, takes any length, and has the period 4M: a token
    4M away counts in full again.

    Causal attention needs no symmetry, and has weights that prefer the nearest tokens more:
    :class:`~stringlib.attention.ramp.RampWeight` on as many features,
    :class:`~stringlib.attention.ramp.FallingWeight` on more.

    Args:
        horizon: M, in tokens.
        positive: Whether the weight is never negative.

    Source:
        Qin et al. 2022, section 3.
    """

    @checked
    def __init__(self, horizon: Positive, positive: bool = False) -> None:
        super().__init__()
        self.horizon, self.positive = horizon, positive

    @checked
    def matrix(self, num_queries: Count0, num_keys: Count0) -> Tensor:
        """Return the weights of all pairs: float64, ``(num_queries, num_keys)``.

        Raises:
            ValueError: If a distance exceeds the horizon and the weight may be negative.
        """
        self._require_reach(max(num_queries, num_keys))
        queries, keys = (self._angles(0, n) for n in (num_queries, num_keys))
        cosine = torch.cos(queries[:, None] - keys)
        return (1 + cosine) / 2 if self.positive else cosine

    def extra_repr(self) -> str:
        """Describe the arguments in ``repr``."""
        return f"{self.horizon}, positive={self.positive}"

    @checked
    def features(self, phi: Floats[Tensor, "... n m"], start: Count0 = 0) -> Tensor:
        """Multiply features by what makes their products carry the weight.

        Equation :eq:`eq-cosine-features`. With a partner 0 for each feature it is a rotation,
        :eq:`eq-cosine-rotation`.

        Args:
            phi: ``(..., heads, seq, m)``.
            start: Position of the first token.

        Returns:
            ``(..., heads, seq, 2m)``, or 3m for the positive weight; at least float32.
        """
        phi = phi.to(at_least_float32(phi.dtype))
        return copies(phi, self._table(start, phi.shape[-2], phi.device))

    def factors(self, phi_q: Tensor, phi_k: Tensor, start: int = 0) -> Factors:
        """Return 2m features, or 3m; see ``PositionWeight.factors``.

        Raises:
            ValueError: If the sequence, with the tokens before it, is too long for the horizon.
        """
        queries, keys = phi_q.shape[-2], phi_k.shape[-2]
        longest = max(queries, keys)
        self._require_reach(start + longest)
        table = self._table(start, longest, phi_q.device)
        return Factors(copies(phi_q, table[:queries]), copies(phi_k, table[:keys]))

    def _table(self, start: int, count: int, device: torch.device) -> Tensor:
        """Return what each copy of a token's features is multiplied by, ``(count, copies)``."""
        angles = self._angles(start, count, device)
        table = [torch.cos(angles), torch.sin(angles)]
        if self.positive:
            table = [math.sqrt(0.5) * t for t in (torch.ones_like(angles), *table)]
        return torch.stack(table, -1)

    def _angles(self, start: int, count: int, device: torch.device | None = None) -> Tensor:
        """Return πi/2M for the positions from ``start`` on, in float64: they may be large."""
        positions = torch.arange(start, start + count, dtype=widest(device), device=device)
        return positions * (math.pi / 2 / self.horizon)

    def _require_reach(self, length: int) -> None:
        if not self.positive and length - 1 > self.horizon:
            raise ValueError(
                f"horizon must be at least {length - 1} for {length} tokens, got {self.horizon}: "
                "farther apart the cosine is negative; positive=True takes any length"
            )
