r"""Position weights of linear attention: the base class, the constant weight, and the state.

The output of query i of linear attention with a position weight w is
:math:`\sum_j w(i,j)\,\phi(q_i)^\top\phi(k_j)\,v_j`, divided by the same sum without :math:`v_j`.
Every weight except the delta rule and decays per feature has a dense n × n matrix. If the weighted
similarity is again a product of features, with or without a decay, :meth:`PositionWeight.factors`
returns these features, and the sums are computed without the matrix.

Keys may have a scale :math:`s_j`, so that the feature of key j is :math:`e^{s_j}\phi(k_j)`. The
logarithm is stored separately, because the exponential may overflow. Each sum is divided by the
largest factor in the sum, which cancels in the quotient of numerator and denominator. In causal
attention this factor is :math:`e^{c_i}` with :math:`c_i = \max(c_{i-1} + a_i, s_i)`, where
:math:`e^{a_i}` is the decay of token i. Without a decay, c is the running maximum of the scales.
The state is multiplied by :math:`e^{c_{i-1} - c_i + a_i} \le 1`, which is computed as a decay.
If there is one decay per feature, there is also one scale c per feature.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from stringlib.attention.scales import common_scale, scaled
from stringlib.attention.states import LinearState
from stringlib.derived import Derived
from stringlib.documents import Documents
from stringlib.inputs import common_shape, expands
from stringlib.kernels.recurrence import MODES, causal_sums
from stringlib.precision import LEAST, largest_exponent
from stringlib.spec import Count0, checked


def described(module: nn.Module) -> str:
    """Return the class name of a module, followed by its ``extra_repr``."""
    told = module.extra_repr()
    return f"{type(module).__name__}({told})" if told else type(module).__name__


class Factors(NamedTuple):
    r"""Weighted similarity as a product of features with a decay between key and query.

    The weighted similarity of query i and key j is
    :math:`q_i^\top \mathrm{diag}(e^{a_{j+1} + \dots + a_i})\,k_j`.

    Attributes:
        q: Features of the queries, ``(..., n, m)``. These features and their number m may differ
            from those of the feature map.
        k: Features of the keys, ``(..., keys, m)``.
        log_decay: The logarithms :math:`a` of the decays: one per token, ``(..., n, 1)``, or one
            per token and feature, ``(..., n, m)``. Default: None, no decay.
    """

    q: Tensor
    k: Tensor
    log_decay: Tensor | None = None


class WeightedSums(NamedTuple):
    """Weighted sums of the queries, each divided by a factor that depends on the query.

    The factor cancels in the quotient of numerator and denominator.

    Attributes:
        sums: ``(..., heads, n, d_u)``.
        log_scale: Logarithm of the factor, ``(..., heads, n)``, or ``(..., heads, 1)`` if all
            queries of a head have the same factor. None for a factor 1.
        state: The state after the last token; None if the weight has no state, or if the sums are
            not causal.
    """

    sums: Tensor
    log_scale: Tensor | None
    state: LinearState | None


class PositionWeight(Derived, ABC):
    """Base class of the position weights of linear attention.

    A subclass implements :meth:`matrix`. If the similarity times the weight is a product of
    features, the subclass also implements :meth:`factors`, which makes linear attention linear in
    the number of tokens. A weight is a module, so that its parameters are among those of the layer.

    Attributes:
        causal_only: True if the weight is defined for causal attention only.
        rotatable: True if features may be rotated or rolled before they are weighted. False for
            example for a weight in which each feature has its own decay.
        normalized: True if the weighted sum may be divided by the sum of the weights. False for the
            delta rule, which has no sum of weights.
    """

    causal_only = False
    rotatable = True
    normalized = True

    @property
    def kind(self) -> str:
        """Description of the weight, by which states of this weight are recognised."""
        return described(self)

    @property
    def has_state(self) -> bool:
        """Whether sums can continue from a state, by default if the class defines ``factors``."""
        return type(self).factors is not PositionWeight.factors

    def forward(self, x: Tensor, key_mask: Tensor | None = None) -> PositionWeight:
        """Return the position weight for the tokens of a layer.

        The base class returns the weight itself. If a weight depends on the tokens, such as a
        data-dependent decay, its class computes the weight for the given tokens here, and returns
        this weight as another :class:`PositionWeight`.

        Args:
            x: Tokens, ``(..., seq, dim)``.
            key_mask: False for padding, whose vectors must have no influence on the weight.
                Default: None, no padding.
        """
        return self

    @abstractmethod
    def matrix(self, num_queries: int, num_keys: int) -> Tensor:
        """Return the weights w(i, j) as a matrix, without a causal mask.

        Args:
            num_queries: Number of queries, at positions 0, 1, 2, …
            num_keys: Number of keys, at positions 0, 1, 2, …

        Returns:
            ``(..., heads, num_queries, num_keys)``.
        """

    def factors(self, phi_q: Tensor, phi_k: Tensor, start: int | Tensor = 0) -> Factors | None:
        """Return the similarity times the weight as a product of features, or None.

        Args:
            phi_q: Features of the queries, ``(..., heads, n, m)``.
            phi_k: Features of the keys, ``(..., heads, keys, m)``.
            start: Number of earlier tokens, which is the position of the first query and key.
                Token t has position ``start + t``. For packed documents, whose positions restart
                at 0, ``start`` is a tensor with one number per token, ``(..., 1, n)``. Default: 0.

        Returns:
            :class:`Factors`, or None if the weight has only a matrix, as in the base class.
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
        documents: Documents | None = None,
    ) -> WeightedSums:
        r"""Return the weighted sums of all queries, each divided by a factor that is returned too.

        The sum of query i is :math:`\sum_j w(i,j)\,e^{s_j}\phi(q_i)^\top\phi(k_j)\,u_j`.

        Args:
            phi_q: Features of the queries, ``(..., heads, n, m)``. All tensors are in float32, or
                all are in float64.
            phi_k: Features of the keys, ``(..., heads, keys, m)``.
            u: Vectors that are summed, ``(..., heads, keys, d_u)``.
            key_scale: The logarithms :math:`s_j`, ``(..., heads, keys)``. Default: None, which
                means that all factors :math:`e^{s_j}` are 1.
            causal: If True, query i attends only to the keys 0 … i.
            mode: How to compute the sums. None (default) chooses the mode that is usually
                fastest.
            state: The state after the earlier tokens; only if causal. Default: None, which means
                no earlier tokens.
            documents: The documents of packed sequences, which do not attend to each other.
                Default: None, one document.

        Returns:
            The sums, the logarithms of the factors, and the state after the last token.
        """
        if self.causal_only:
            self._require_direction(causal)
        if key_scale is not None and not key_scale.shape[-1]:
            key_scale = None
        if causal:
            lead = common_shape(phi_q.shape[:-2], phi_k.shape[:-2], u.shape[:-2])
            if phi_k.shape[:-2] != lead:
                phi_k = phi_k.expand(*lead, *phi_k.shape[-2:])
        earlier = 0 if state is None else state.length
        start = earlier if documents is None else documents.offsets.unsqueeze(-2)
        factors = self.factors(phi_q, phi_k, start)
        if factors is None:
            return self._dense_sums(phi_q, phi_k, u, key_scale, causal, mode, state, documents)
        if mode not in (None, *MODES):
            raise ValueError(
                f"mode must be None or one of {', '.join(MODES)} for {type(self).__name__}, got "
                f"{mode!r}"
            )
        q, k, log_decay = factors
        largest = None if state is None else state.log_scale
        common = None
        if causal and documents is not None:
            # the state is forgotten before the first token of each further document
            kept = u.new_zeros(()) if log_decay is None else log_decay
            log_decay = torch.where(documents.starts[..., None, :, None], -math.inf, kept)
        if key_scale is not None and not causal:
            common = common_scale(key_scale, False, documents=documents)
            k = k * (key_scale - common).exp()[..., None]
        elif key_scale is not None:
            q, k, log_decay, common, largest = scaled(q, k, log_decay, key_scale, largest)
        if not causal:
            if documents is not None:
                scores = (q @ k.mT).masked_fill(documents.apart(), 0)
                return WeightedSums(scores @ u, common, None)
            return WeightedSums(_sums_over_all(q, k, u, mode), common, None)
        before = None
        if state is not None:
            before = state.sums.to(u.dtype)
            _require_state(before, lead, k.shape[-1], u.shape[-1])
        if log_decay is not None:
            log_decay = log_decay.to(u.dtype)
        found, after = causal_sums(q, k, u, log_decay, mode, before)
        length = earlier + u.shape[-2]
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
        documents: Documents | None = None,
    ) -> WeightedSums:
        """Return the weighted sums, computed with the n × n matrix of weights.

        The arguments are those of :meth:`sums`.
        """
        self._require_plain(mode, state)
        matrix = self.matrix(phi_q.shape[-2], phi_k.shape[-2]).to(phi_q)
        if documents is not None:
            matrix = documents.restarted(matrix)
        if causal:
            matrix = matrix.tril()
        common = None
        if key_scale is not None:
            # the largest factor among the keys whose weight is not 0
            logs = key_scale.detach()[..., None, :] + matrix.detach().abs().log()
            common = logs.amax(-1).clamp(min=LEAST)
            # in two factors, because a weight may be so small that one factor would overflow;
            # clamped, because a key with weight 0 may have any factor
            half = (key_scale[..., None, :] - common[..., :, None]) / 2
            half = half.clamp(max=largest_exponent(u.dtype)).exp()
            matrix = matrix * half * half
        scores = (phi_q @ phi_k.mT) * matrix  # infinite products with later keys may give NaN here
        return WeightedSums((scores.tril() if causal else scores) @ u, common, None)

    def _require_direction(self, causal: bool) -> None:
        """Raise ``ValueError`` unless ``causal``, for a weight of causal attention only."""
        if not causal:
            raise ValueError(
                f"causal must be True with a {type(self).__name__}, got False. This weight is "
                "defined for earlier keys only. Pass causal=True, or another weight."
            )

    def _require_plain(self, mode: str | None, state: LinearState | None) -> None:
        """Raise ``ValueError`` if a mode or a state is given that needs a recurrent form."""
        if mode not in (None, "parallel"):
            raise ValueError(
                f"mode must be None or 'parallel' for {type(self).__name__}, got {mode!r}. "
                "This weight has no other algorithm. Leave out mode."
            )
        if state is not None:
            raise ValueError(
                f"state must be None for {type(self).__name__}, got a state of length "
                f"{state.length}. This weight has no recurrent form. Pass all tokens at once."
            )

    def _hold(self, name: str, x: Tensor) -> None:
        """Register an ``nn.Parameter`` as such, and any other tensor as a non-persistent buffer."""
        if isinstance(x, nn.Parameter):
            self.register_parameter(name, x)
        else:
            self.register_buffer(name, x, persistent=False)


class ConstantWeight(PositionWeight):
    """Constant position weight 1 of plain linear attention, :eq:`eq-linear-associative`."""

    @checked
    def matrix(self, num_queries: Count0, num_keys: Count0) -> Tensor:
        """Return a matrix of ones, ``(num_queries, num_keys)``."""
        return torch.ones(num_queries, num_keys)

    def factors(self, phi_q: Tensor, phi_k: Tensor, start: int | Tensor = 0) -> Factors:
        """Return the features of queries and keys unchanged."""
        return Factors(phi_q, phi_k)


def copies(phi: Tensor, table: Tensor) -> Tensor:
    """Return several copies of the features, each multiplied by a column of a table.

    Args:
        phi: Features, ``(..., heads, seq, m)``.
        table: The factor of each token in each copy, in any dtype, ``(..., seq, copies)``. The
            leading dimensions broadcast with those of ``phi``.

    Returns:
        The copies side by side, ``(..., heads, seq, copies * m)``, in the dtype of ``phi``.
    """
    # (seq, copies, 1) times (..., heads, seq, 1, m)
    return (table.to(phi.dtype).unsqueeze(-1) * phi.unsqueeze(-2)).flatten(-2)


def _sums_over_all(q: Tensor, k: Tensor, u: Tensor, mode: str | None) -> Tensor:
    """Return the sums over all keys as (q kᵀ) u or as q (kᵀ u), whichever is cheaper.

    With the mode ``"parallel"`` the sums are always computed as (q kᵀ) u.
    """
    queries, (keys, m), width = q.shape[-2], k.shape[-2:], u.shape[-1]
    # an exported program would fix the outcome of the comparison, so it always takes the second
    few = not torch.compiler.is_exporting()
    few = few and queries * keys * (m + width) <= (queries + keys) * m * width
    if mode == "parallel" or few:
        return (q @ k.mT) @ u
    # u is transposed first, so that its column of ones becomes a row; as a further column it would
    # add a sixth to the time of the product
    return q @ (u.mT @ k).mT


def _require_state(state: Tensor, lead: tuple[int, ...], m: int, width: int) -> None:
    """Raise ``ValueError`` unless the sums of a state expand to the shape (*lead, m, width)."""
    if not expands(state.shape, (*lead, m, width)) or state.shape[-2:] != (m, width):
        raise ValueError(
            f"state must have sums of shape {(*lead, m, width)}, which is (..., heads, features, "
            f"channels + 1), got {tuple(state.shape)}. Pass the state that the same layer returned "
            "for the earlier tokens of the same batch."
        )
