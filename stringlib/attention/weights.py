r"""Position weights: how much the pair of query i and key j counts, whatever it says.

Kernelised attention is :math:`\sum_j w(i,j)\,\phi(q_i)^\top\phi(k_j)\,v_j`, divided by the same sum
without :math:`v_j`. A weight is its dense matrix. Where it is also a product of features under a
decay, it says so in :meth:`PositionWeight.factors`, and the sums cost no n × n matrix.

Keys may come with a scale, kept apart as a logarithm: key j stands for :math:`e^{s_j}\phi(k_j)`.
A sum is divided by the largest factor that it sees, which cancels when numerator and denominator
are divided by each other. A causal sum has seen :math:`c_i = \max_{j \le i} s_j`. When c grows,
what the state holds shrinks by :math:`e^{c_{i-1} - c_i} \le 1`: this is one more decay.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from stringlib.derived import Derived
from stringlib.inputs import common_shape, expands
from stringlib.kernels.recurrence import MODES, causal_sums
from stringlib.precision import LEAST
from stringlib.spec import Count0, checked


def described(module: nn.Module) -> str:
    """Return the class of a module and what it says that it is made from."""
    told = module.extra_repr()
    return f"{type(module).__name__}({told})" if told else type(module).__name__


class LinearState(NamedTuple):
    """What the tokens so far leave behind: all that later ones need to know of them.

    Attributes:
        sums: Features times [values, 1], ``(..., heads, m, d_v + 1)``; float32 or float64.
        log_scale: Natural logarithm of the factor left out of ``sums``, ``(..., heads)``, or None.
        length: Number of tokens so far.
        kind: What made it, in words; whatever differs in them refuses it. Empty if nobody said.
    """

    sums: Tensor
    log_scale: Tensor | None
    length: int
    kind: str = ""


class Factors(NamedTuple):
    r"""A weighted product as :math:`q_i^\top \mathrm{diag}(e^{a_{j+1} + \dots + a_i})\,k_j`.

    Attributes:
        q: Features of the queries.
        k: Features of the keys.
        log_decay: The logarithms a, ``(..., n, 1)`` or ``(..., n, m)``; None for no decay.
    """

    q: Tensor
    k: Tensor
    log_decay: Tensor | None = None


class WeightedSums(NamedTuple):
    """Weighted sums, each query's less a factor that cancels where sums are divided by each other.

    Attributes:
        sums: ``(..., heads, n, d_u)``.
        log_scale: Logarithm of the factor, ``(..., heads, n)`` or 1 for all n; None for a factor 1.
        state: After the last token, if there is one.
    """

    sums: Tensor
    log_scale: Tensor | None
    state: LinearState | None


class PositionWeight(Derived, ABC):
    """Base of the weights: a matrix, and factors where it has some.

    A module, so that a layer has what its weight learns among its parameters.

    Attributes:
        causal_only: Whether it weighs earlier keys only.
        rotatable: Whether features may be rotated into each other before they are weighted.
        normalized: Whether sums are divided by the sum of the weights.
    """

    causal_only = False
    rotatable = True
    normalized = True

    @property
    def kind(self) -> str:
        """The class with its words for what it is made from, by which a state knows it."""
        return described(self)

    @property
    def has_state(self) -> bool:
        """Whether it has factors, so that sums go on from a state, token by token."""
        return type(self).factors is not PositionWeight.factors

    def forward(self, x: Tensor, key_mask: Tensor | None = None) -> PositionWeight:
        """Return the weight for a layer's tokens ``x``, ``(..., seq, dim)``: itself.

        A subclass that learns from the tokens how they count makes a weight of them here. What a
        token that the mask calls padding holds is not read.
        """
        return self

    @abstractmethod
    def matrix(self, num_queries: int, num_keys: int) -> Tensor:
        """Return the weights w(i, j), ``(..., heads, num_queries, num_keys)``; no causal mask."""

    def factors(self, phi_q: Tensor, phi_k: Tensor, start: int = 0) -> Factors | None:
        """Return the weighted product of features as :class:`Factors`, or None if it is none.

        Args:
            phi_q: Features of the queries, ``(..., heads, n, m)``.
            phi_k: Features of the keys, ``(..., heads, keys, m)``.
            start: How many tokens came before.
        """
        return None

    def sums(
        self,
        phi_q: Tensor,
        phi_k: Tensor,
        u: Tensor,
        key_scale: Tensor | None = None,
        *,
        causal: bool,
        mode: str | None = None,
        state: LinearState | None = None,
    ) -> WeightedSums:
        r"""Return :math:`\sum_j w(i,j)\,e^{s_j}\phi(q_i)^\top\phi(k_j)\,u_j`, less a factor.

        Args:
            phi_q: Features of the queries, ``(..., heads, n, m)``; float32 or float64, as all.
            phi_k: Features of the keys, ``(..., heads, keys, m)``.
            u: What is summed, ``(..., heads, keys, d_u)``.
            key_scale: The logarithms :math:`s_j`, ``(..., heads, keys)``; None for factors 1.
            causal: Whether query i sees the keys 0 … i only.
            mode: How to compute it; None picks the fastest.
            state: What earlier tokens left, if there were any.
        """
        self._require_direction(causal)
        if key_scale is not None and not key_scale.shape[-1]:
            key_scale = None
        lead = common_shape(phi_q.shape[:-2], phi_k.shape[:-2], u.shape[:-2])
        if causal and phi_k.shape[:-2] != lead:
            phi_k = phi_k.expand(*lead, *phi_k.shape[-2:])
        start = 0 if state is None else state.length
        factors = self.factors(phi_q, phi_k, start)
        if factors is None:
            return self._dense_sums(phi_q, phi_k, u, key_scale, causal, mode, state)
        if mode not in (None, *MODES):
            raise ValueError(f"mode must be None or one of {MODES}, got {mode!r}")
        q, k, log_decay = factors
        largest = None if state is None else state.log_scale
        common = None
        if key_scale is not None:
            common = common_scale(key_scale, causal, largest)
            k = k * (key_scale - common).exp()[..., None]
            if causal:
                further = shrinking(common, largest)[..., None]
                log_decay = further if log_decay is None else log_decay + further
                largest = common[..., -1]
        if not causal:
            return WeightedSums(_sums_over_all(q, k, u, mode), common, None)
        before = None
        if state is not None:
            before = state.sums.to(u.dtype)
            _require_state(before, lead, k.shape[-1], u.shape[-1])
        if log_decay is not None:
            log_decay = log_decay.to(u.dtype)
        found, after = causal_sums(q, k, u, log_decay, mode, before)
        length = start + u.shape[-2]
        return WeightedSums(found, common, LinearState(after, largest, length))

    def _dense_sums(
        self,
        phi_q: Tensor,
        phi_k: Tensor,
        u: Tensor,
        key_scale: Tensor | None,
        causal: bool,
        mode: str | None,
        state: LinearState | None,
    ) -> WeightedSums:
        self._require_plain(mode, state)
        scores = (phi_q @ phi_k.mT) * self.matrix(phi_q.shape[-2], phi_k.shape[-2]).to(phi_q)
        common = None
        if key_scale is not None:
            common = common_scale(key_scale, causal)
            # a later key may be larger, without end, than the largest that a causal query sees
            shares = (key_scale[..., None, :] - common[..., :, None]).clamp(max=0).exp()
            scores = scores * shares
        return WeightedSums((scores.tril() if causal else scores) @ u, common, None)

    def _require_direction(self, causal: bool) -> None:
        """Raise if the weight, which looks back only, is asked to look ahead."""
        if self.causal_only and not causal:
            raise ValueError(
                f"causal must be True with a {type(self).__name__}: it weighs earlier keys only, "
                "got False"
            )

    def _require_plain(self, mode: str | None, state: LinearState | None) -> None:
        """Raise unless the n × n matrix, which knows of no state, can do what is asked."""
        if mode not in (None, "parallel") or state is not None:
            raise ValueError(
                f"mode must be None or 'parallel', and state None, for {type(self).__name__}, "
                f"got {mode!r}{'' if state is None else ' and a state'}"
            )

    def _hold(self, name: str, x: Tensor) -> None:
        """Keep a tensor as a parameter if it is one, and otherwise so that it moves along."""
        if isinstance(x, nn.Parameter):
            self.register_parameter(name, x)
        else:
            self.register_buffer(name, x, persistent=False)


class ConstantWeight(PositionWeight):
    """Weight 1: every pair counts for what its features say, :eq:`eq-linear-associative`."""

    @checked
    def matrix(self, num_queries: Count0, num_keys: Count0) -> Tensor:
        """Return ones, ``(num_queries, num_keys)``."""
        return torch.ones(num_queries, num_keys)

    def factors(self, phi_q: Tensor, phi_k: Tensor, start: int = 0) -> Factors:
        """Return the features as they are."""
        return Factors(phi_q, phi_k)


def copies(phi: Tensor, table: Tensor) -> Tensor:
    """Return the features times each column of a table, one copy beside the other.

    Args:
        phi: ``(..., heads, seq, m)``.
        table: A factor for each token and copy, ``(seq, copies)``; its dtype need not be theirs.

    Returns:
        ``(..., heads, seq, copies * m)``.
    """
    # one product for all copies: (seq, copies, 1) times (..., heads, seq, 1, m)
    return (table.to(phi.dtype).unsqueeze(-1) * phi.unsqueeze(-2)).flatten(-2)


def _sums_over_all(q: Tensor, k: Tensor, u: Tensor, mode: str | None) -> Tensor:
    """Return the sums over all keys, in the cheaper order of the two products."""
    queries, (keys, m), width = q.shape[-2], k.shape[-2:], u.shape[-1]
    few = not torch.compiler.is_exporting()  # a program that compares is for few, or for many
    few = few and queries * keys * (m + width) <= (queries + keys) * m * width
    if mode == "parallel" or few:
        return (q @ k.mT) @ u
    # the ones beside the values are a row here; as one column more they would cost a sixth
    return q @ (u.mT @ k).mT


def common_scale(key_scale: Tensor, causal: bool, before: Tensor | None = None) -> Tensor:
    """Return c: for each query, ``(..., n)``, if causal, and otherwise for all, ``(..., 1)``.

    Args:
        key_scale: s, ``(..., n)`` with n ≥ 1; −∞ for a key that is not there.
        causal: Whether query i sees the keys 0 … i only.
        before: c of the token before the first, ``(...)``; None if there was none.
    """
    key_scale = key_scale.detach()  # a common factor cancels, so it needs no gradient
    if not causal:
        return key_scale.amax(-1, keepdim=True).clamp(min=LEAST)
    common = key_scale.cummax(-1).values.clamp(min=LEAST)
    return common if before is None else torch.maximum(common, before[..., None].to(common.dtype))


def shrinking(common: Tensor, before: Tensor | None = None) -> Tensor:
    """Return the logarithms of the decay that the growth of c means, ``(..., n)``."""
    first = common[..., :1] if before is None else before[..., None].to(common.dtype)
    previous = torch.cat([first.expand_as(common[..., :1]), common[..., :-1]], -1)
    return previous - common


def _require_state(state: Tensor, lead: tuple[int, ...], m: int, width: int) -> None:
    """Raise ``ValueError`` unless ``state`` is ``(*lead, m, width)`` or serves as such."""
    if not expands(state.shape, (*lead, m, width)) or state.shape[-2:] != (m, width):
        raise ValueError(
            f"state must have shape {(*lead, m, width)}, one row for each feature, "
            f"got {tuple(state.shape)}"
        )
