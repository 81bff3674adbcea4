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
        r"""Return :math:`\sum_j w(i,j)\,\phi(q_i)^\top\phi(k_j)\,u_j` and the state.

        Args:
            phi_q: Features of the queries, ``(..., heads, n, m)``.
            phi_k: Features of the keys, ``(..., heads, keys, m)``.
            u: What is summed, ``(..., heads, keys, d_u)``.
            causal: Whether query i sees the keys 0 … i only.
            mode: How to compute it; None picks the fastest.
            state: What earlier tokens left, if there were any.
            start: How many tokens came before.

        Returns:
            The sums ``(..., heads, n, d_u)``, and the state after the last token if there is one.
        """

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
        r"""Return the causal sums with :math:`w(i,j)\,e^{a_{j+1} + \dots + a_i}` for the weight.

        This is what :mod:`stringlib.attention.scale` needs. Unless a weight knows better, the
        decay goes into its matrix.

        Args:
            phi_q: As for :meth:`sums`, and so are the others.
            phi_k: Features of the keys.
            u: What is summed.
            log_decay: The further decay :math:`a \le 0` of each token, ``(..., n)``.
            mode: None or ``"parallel"``.
            state: None.
            start: How many tokens came before.

        Returns:
            As :meth:`sums`.

        Raises:
            ValueError: If the mode or the state needs what the weight has not.
        """
        if mode not in (None, "parallel") or state is not None:
            raise ValueError(
                f"mode must be None or 'parallel', and state None, for {type(self).__name__} with "
                f"a causal key_scale, got {mode!r}{'' if state is None else ' and a state'}"
            )
        total = log_decay.cumsum(-1)
        decay = (total[..., :, None] - total[..., None, :]).clamp(max=0).exp()
        weights = decay * self.matrix(u.shape[-2], u.shape[-2]).to(decay)
        return masked_product(phi_q, phi_k, u, weights, True), None


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
