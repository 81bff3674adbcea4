r"""Position weights: how much the pair of query i and key j counts, whatever it says.

Kernelised attention is :math:`\sum_j w(i,j)\,\phi(q_i)^\top\phi(k_j)\,v_j`, divided by the same sum
without :math:`v_j`. A weight knows its dense matrix, and the cheapest way to that sum.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor


class PositionWeight(ABC):
    """What every weight gives: its dense matrix, and the weighted sums over the keys."""

    @abstractmethod
    def matrix(self, num_queries: int, num_keys: int) -> Tensor:
        """Return the weights w(i, j), ``(..., heads, num_queries, num_keys)``; no causal mask."""

    @abstractmethod
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
        r"""Return :math:`\sum_j w(i,j)\,\phi(q_i)^\top\phi(k_j)\,u_j`, and the state behind the last.

        Args:
            phi_q: Features of the queries, ``(..., heads, n, m)``.
            phi_k: Features of the keys, ``(..., heads, keys, m)``.
            u: What is summed, ``(..., heads, keys, d_u)``.
            causal: Whether query i sees the keys 0 … i only.
            mode: How to compute it; None picks the fastest.
            state: What earlier tokens left, if there were any.
            start: How many tokens came before.

        Returns:
            The sums ``(..., heads, n, d_u)``, and the state if the weight has one.
        """


def masked_product(
    phi_q: Tensor, phi_k: Tensor, u: Tensor, weights: Tensor | None, causal: bool
) -> Tensor:
    """Return the sums by their n × n matrix: the plain form that all others must equal."""
    scores = phi_q @ phi_k.mT
    if weights is not None:
        scores = scores * weights.to(scores)
    if causal:
        scores = scores.tril()
    return scores @ u
