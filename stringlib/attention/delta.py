r"""The delta rule: a running state that replaces what a key held, where a sum would add to it.

:math:`S_t = e^{a_t} (I - \beta_t k_t k_t^\top) S_{t-1} + \beta_t k_t v_t^\top` is one step of size
:math:`\beta_t` down the gradient of :math:`\tfrac12\|S^\top k_t - v_t\|^2`. With a key of norm 1
and :math:`\beta = 1` the state then answers this key with this value, whatever it said before.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from stringlib.attention.decay import with_features
from stringlib.attention.weights import LinearState, PositionWeight, WeightedSums
from stringlib.inputs import common_shape, finds
from stringlib.kernels.delta import delta_sums
from stringlib.kernels.features import unit
from stringlib.kernels.recurrence import Mode
from stringlib.precision import at_least_float32, without_autocast
from stringlib.spec import Floats, LogDecays, checked


@checked
def delta_rule(
    q: Floats[Tensor, "... #heads n d"],
    k: Floats[Tensor, "... #heads n d"],
    v: Floats[Tensor, "... #heads n d_v"],
    beta: Floats[Tensor, "...? heads? n"],
    log_decay: LogDecays[Tensor, "...any"] | None = None,
    *,
    mode: Mode | None = None,
    state: Floats[Tensor, "...? heads? d d_v"] | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Return :math:`S_t^\top q_t` for every token, and the last state: :eq:`eq-delta-rule`.

    :math:`S_t = e^{a_t} (I - \beta_t k_t k_t^\top) S_{t-1} + \beta_t k_t v_t^\top`: the old state
    decays before its error is taken, :eq:`eq-delta-gated`. What it then answers to the key is
    :eq:`eq-delta-overwrite`. Nothing is normalised: no state grows without end if
    :math:`0 \le \beta_t \|k_t\|^2 \le 2`, :eq:`eq-delta-norm`. Half precision is computed in
    float32, and so is its state.

    Args:
        q: Queries, ``(..., heads, n, d)``.
        k: Keys, ``(..., heads, n, d)``, as a rule of norm 1.
        v: Values, ``(..., heads, n, d_v)``.
        beta: Rates :math:`\beta_t`, ``(..., heads, n)``: 0 writes nothing, 1 replaces, 2 reflects.
            Others than from 0 to 2 are an error on the CPU, as is a logarithm above 0; elsewhere
            nothing looks.
        log_decay: The logarithms :math:`a_t \le 0`, ``(heads,)``, ``(..., heads, n)`` or
            ``(..., heads, n, 1)``; −∞ forgets everything. None forgets nothing but what is
            replaced.
        mode: ``"recurrent"`` goes token by token, ``"chunk"`` from chunk to chunk, ``"parallel"``
            makes one chunk, and so an n × n matrix, of all tokens; None picks the fastest.
        state: S before the first token, ``(..., heads, d, d_v)``; zero if omitted.

    Returns:
        Outputs ``(..., heads, n, d_v)`` in the dtype of ``v``, and the last state.

    Source:
        Schlag et al. 2021 for the rule, Yang et al. 2024 for the chunks, Yang et al. 2025 for the
        decay.

    Example:
        >>> key, values = torch.tensor([[[1.0, 0.0], [1.0, 0.0]]]), torch.tensor([[[3.0], [5.0]]])
        >>> delta_rule(key, key, values, torch.ones(1, 2))[0].flatten()  # the second replaces
        tensor([3., 5.])
    """
    lead, n = common_shape(*(x.shape[:-2] for x in (q, k, v))), v.shape[-2]
    _require_rates(beta)
    if log_decay is None:
        log_decay = torch.zeros_like(beta)[..., None]
    else:
        if log_decay.ndim == len(lead) + 1:  # one a token: that is all that it can be
            log_decay = log_decay[..., None]
        log_decay = with_features(log_decay, lead, n, 1)
    exact = at_least_float32(v.dtype)
    if state is not None:
        state = state.to(exact).expand(*lead, *state.shape[-2:])
    with without_autocast(v):  # a product of many factors needs the digits
        tokens = (x.to(exact) for x in (q, k, v, beta[..., None], log_decay))
        q, k, u, rate, a = (x.expand(*lead, *x.shape[-2:]) for x in tokens)
        out, state = delta_sums(q, k, u, rate, a, mode, state)
    return out.to(v.dtype), state


class ReplacingWeight(PositionWeight):
    """Base of the weights under which a key counts for less when a later one is like it.

    So there is no weight of a pair alone, and no sum of weights to divide by.
    """

    causal_only = True
    has_state = True
    normalized = False
    rotatable = False

    def matrix(self, num_queries: int, num_keys: int) -> Tensor:
        """Raise: what a pair counts for depends on the keys between."""
        raise ValueError(
            "weight must be one of pairs to have a matrix: under the delta rule a pair depends on "
            f"the keys between, got a {type(self).__name__}"
        )


class DeltaWeight(ReplacingWeight):
    r"""The delta rule in place of a sum, :eq:`eq-delta-gated`, for attention with features.

    Features are divided by their length, so that :math:`0 \le \beta_t \le 2` keeps the state
    bounded.

    Args:
        beta: Rates :math:`\beta_t`, ``(..., heads, seq)``.
        log_decay: The logarithms :math:`a_t \le 0`, ``(heads,)`` or ``(..., heads, seq)``; None
            forgets nothing but what is replaced.

    Raises:
        ValueError: If, on the CPU, a rate is not from 0 to 2 or a logarithm above 0.

    Source:
        Yang et al. 2024; Yang et al. 2025 with the decay.
    """

    beta: Tensor
    log_decay: Tensor | None

    @checked
    def __init__(
        self,
        beta: Floats[Tensor, "... heads n"],
        log_decay: LogDecays[Tensor, "...any"] | None = None,
    ) -> None:
        _require_rates(beta)
        super().__init__()
        self._hold("beta", beta)
        if log_decay is None:
            self.log_decay = None
        else:
            self._hold("log_decay", log_decay)

    def sums(
        self,
        phi_q: Tensor,
        phi_k: Tensor,
        u: Tensor,
        key_scale: Tensor | None = None,
        *,
        causal: bool,
        mode: Any = None,
        state: LinearState | None = None,
    ) -> WeightedSums:
        """Return what the state answers each query; a scale of keys cancels."""
        self._require_direction(causal)
        q, k = unit(phi_q), unit(phi_k)
        before = None if state is None else state.sums
        out, after = delta_rule(q, k, u, self.beta, self.log_decay, mode=mode, state=before)
        length = u.shape[-2] + (0 if state is None else state.length)
        scale = None if key_scale is None else after.new_zeros(after.shape[:-2])
        return WeightedSums(out, None, LinearState(after, scale, length))


def _require_rates(beta: Tensor) -> None:
    """Raise unless rates are, on the CPU, from 0 to 2."""
    if finds(beta, lambda x: (x.amin() < 0) | (x.amax() > 2)):
        raise ValueError(
            "beta must be from 0, which writes nothing, to 2, which reflects, "
            f"got {beta.min().item():g} to {beta.max().item():g}"
        )
