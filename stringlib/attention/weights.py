r"""Position weights: how much the pair of query i and key j counts, whatever it says.

Kernelised attention is :math:`\sum_j w(i,j)\,\phi(q_i)^\top\phi(k_j)\,v_j`, divided by the same sum
without :math:`v_j`. A weight knows its dense matrix, and the cheapest way to that sum.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

from torch import Tensor, nn

from stringlib.attention.scale import LEAST, running_maximum
from stringlib.inputs import require_count


class ScaledSums(NamedTuple):
    """Weighted sums, each query's less a factor that cancels where sums are divided by each other.

    Attributes:
        sums: ``(..., heads, n, d_u)``.
        log_scale: Logarithm of the factor, ``(..., heads, n)`` or 1 for all n; None for a factor 1.
        state: After the last token, if there is one.
        largest: ``log_scale`` of that state, ``(..., heads)``, or None.
    """

    sums: Tensor
    log_scale: Tensor | None
    state: Tensor | None
    largest: Tensor | None


class PositionWeight(nn.Module, ABC):
    """What every weight gives: its dense matrix, and the weighted sums over the keys.

    A module, so that a layer has what its weight learns among its parameters.

    Attributes:
        causal_only: Whether it weighs earlier keys only.
    """

    causal_only = False

    def _hold(self, name: str, x: Tensor) -> None:
        """Keep a tensor as a parameter if it is one, and otherwise so that it moves along."""
        if isinstance(x, nn.Parameter):
            self.register_parameter(name, x)
        else:
            self.register_buffer(name, x, persistent=False)

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

    def scaled_sums(
        self,
        phi_q: Tensor,
        phi_k: Tensor,
        u: Tensor,
        key_scale: Tensor | None,
        *,
        causal: bool,
        mode: str | None,
        state: Tensor | None = None,
        start: int = 0,
        largest: Tensor | None = None,
    ) -> ScaledSums:
        r"""Return the sums with a factor :math:`e^{s_j}` for each key, less one for each query.

        Args:
            phi_q: As for :meth:`sums`, and so are the others.
            phi_k: Features of the keys.
            u: What is summed.
            key_scale: The logarithms :math:`s_j`, ``(..., heads, keys)``; None for factors 1.
            causal: Whether query i sees the keys 0 … i only.
            mode: How to compute it.
            state: What earlier tokens left.
            start: How many tokens came before.
            largest: The ``log_scale`` of ``state``.
        """
        if key_scale is None or not key_scale.shape[-1]:
            sums, after = self.sums(
                phi_q, phi_k, u, causal=causal, mode=mode, state=state, start=start
            )
            return ScaledSums(sums, None, after, largest)
        # a common factor cancels whatever it is, so it needs no gradient
        if causal:
            common, log_decay = running_maximum(key_scale.detach(), largest)
            phi_k = phi_k * (key_scale - common).exp()[..., None]
            sums, after = self.rescaled_sums(
                phi_q, phi_k, u, log_decay, mode=mode, state=state, start=start
            )
            return ScaledSums(sums, common, after, common[..., -1])
        common = key_scale.detach().amax(-1, keepdim=True).clamp(min=LEAST)
        phi_k = phi_k * (key_scale - common).exp()[..., None]
        sums, after = self.sums(phi_q, phi_k, u, causal=False, mode=mode)
        return ScaledSums(sums, common, after, None)

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
        from stringlib.attention.decay import decay_mask  # which builds on this module

        self._require_plain(mode, state)
        decay = decay_mask(log_decay)
        weights = decay * self.matrix(u.shape[-2], u.shape[-2]).to(decay)
        return masked_product(phi_q, phi_k, u, weights, True), None

    def _require_plain(self, mode: str | None, state: Tensor | None) -> None:
        """Raise unless a causal key scale is to go into the matrix."""
        if mode not in (None, "parallel") or state is not None:
            raise ValueError(
                f"mode must be None or 'parallel', and state None, for {type(self).__name__} with "
                f"a causal key_scale, got {mode!r}{'' if state is None else ' and a state'}"
            )


def require_pairs(num_queries: int, num_keys: int) -> None:
    """Raise unless both are numbers of tokens."""
    require_count("num_queries", num_queries, least=0)
    require_count("num_keys", num_keys, least=0)


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
