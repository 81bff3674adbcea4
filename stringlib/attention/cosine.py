r"""The cosine weight of cosFormer, and its features by the addition theorem of the cosine."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from stringlib.attention.weights import Factors, PositionWeight, copies
from stringlib.documents import require_reach, token_positions
from stringlib.precision import at_least_float32
from stringlib.spec import Count0, Floats, Positive, checked

NEGATIVE = (
    "At distances just above the horizon the cosine is negative. Pass a larger horizon, or "
    "positive=True, which accepts any number of tokens."
)
"""The end of the error for a distance greater than the horizon, with the reason and the remedy."""


class CosineWeight(PositionWeight):
    r"""Cosine weight :math:`\cos(\pi(i-j)/2M)` of query i and key j, with the horizon M.

    This is :eq:`eq-cosine-weight`. If ``positive``, the weight is
    :math:`(1+\cos(\pi(i-j)/2M))/2`, :eq:`eq-cosine-positive`. Because
    :math:`\cos(a-b) = \cos a\cos b + \sin a\sin b`, :eq:`eq-ptolemy`, linear attention with this
    weight on m features equals linear attention without a weight on 2m features,
    :eq:`eq-cosine-features`, or on 3m features if ``positive``.

    The plain cosine is negative at distances between M and 3M, so that a denominator could be 0.
    Sequences with distances greater than M therefore raise an error. The positive form is 1 at
    distance 0, 1/2 at distance M and 0 at distance 2M, and accepts sequences of any length. The
    period of the positive form is 4M, so a token at distance 4M has the weight 1 again.

    The plain and the positive form are symmetric in i and j. Causal attention does not need this
    symmetry. For causal attention, :class:`~stringlib.attention.ramp.RampWeight` gives the nearest
    tokens a larger share than the cosine weight with the same number of features.
    :class:`~stringlib.attention.ramp.FallingWeight` gives the nearest tokens a still larger share
    with more features.

    Args:
        horizon: The distance M in tokens. The plain cosine accepts at most M + 1 tokens.
        positive: If True, the weight is the positive form, which is never negative. Default: False,
            the plain cosine.

    Source:
        Qin et al. 2022, section 3.
    """

    @checked
    def __init__(self, horizon: Positive, positive: bool = False) -> None:
        super().__init__()
        self.horizon, self.positive = horizon, positive

    @checked
    def matrix(self, num_queries: Count0, num_keys: Count0) -> Tensor:
        """Return the weights of all pairs of positions, float64, ``(num_queries, num_keys)``.

        Raises:
            ValueError: If a distance exceeds the horizon and ``positive`` is False.
        """
        if not self.positive:
            require_reach(self.horizon, 0, max(num_queries, num_keys), NEGATIVE)
        offsets = token_positions(0, num_queries)[:, None] - token_positions(0, num_keys)
        cosine = torch.cos(offsets * (math.pi / 2 / self.horizon))
        return (1 + cosine) / 2 if self.positive else cosine

    def extra_repr(self) -> str:
        """Return the arguments that ``repr`` shows."""
        return f"{self.horizon}, positive={self.positive}"

    @checked
    def features(self, phi: Floats[Tensor, "... n m"], start: Count0 = 0) -> Tensor:
        r"""Return features whose inner products contain the weight, :eq:`eq-cosine-features`.

        For the plain cosine, the result consists of one copy of the features times the cosine of
        the token's angle and one copy times the sine of this angle. If each feature is paired with
        a channel that is 0, this is a rotation of each pair, :eq:`eq-cosine-rotation`. If
        ``positive``, there is also a copy without the angle, and all copies are multiplied by
        :math:`\sqrt{1/2}`.

        Args:
            phi: Features, ``(..., heads, seq, m)``.
            start: Position of the first token. Default: 0.

        Returns:
            Features, ``(..., heads, seq, 2m)``, or ``(..., heads, seq, 3m)`` if ``positive``. They
            are float64 if ``phi`` is float64, and otherwise float32.
        """
        phi = phi.to(at_least_float32(phi.dtype))
        return copies(phi, self._table(start, phi.shape[-2], phi.device))

    def factors(self, phi_q: Tensor, phi_k: Tensor, start: int | Tensor = 0) -> Factors:
        """Return the weighted similarity as a product of features, 2 or 3 copies of those given.

        The arguments are those of ``PositionWeight.factors``.

        Raises:
            ValueError: If ``positive`` is False and the sequence, together with the ``start``
                earlier tokens, has more than M + 1 tokens.
        """
        queries, keys = phi_q.shape[-2], phi_k.shape[-2]
        count = max(queries, keys)
        if not self.positive:
            require_reach(self.horizon, start, count, NEGATIVE)
        table = self._table(start, count, phi_q.device)
        return Factors(copies(phi_q, table[..., :queries, :]), copies(phi_k, table[..., :keys, :]))

    def _table(self, start: int | Tensor, count: int, device: torch.device) -> Tensor:
        """Return the factors of the copies of each token's features, ``(..., count, copies)``."""
        # in float64, because positions may be large, and then float32 angles would be inaccurate
        angles = token_positions(start, count, device) * (math.pi / 2 / self.horizon)
        table = [torch.cos(angles), torch.sin(angles)]
        if self.positive:
            table = [math.sqrt(0.5) * t for t in (torch.ones_like(angles), *table)]
        return torch.stack(table, -1)
