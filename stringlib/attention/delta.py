r"""The delta rule: a running state in which a new value replaces the old value of the same key.

A plain sum of outer products would add the new value to the old one. The delta rule is
:math:`S_t = e^{a_t} (I - \beta_t k_t k_t^\top) S_{t-1} + \beta_t k_t v_t^\top`. Without a decay
(:math:`a_t = 0`), the update is one gradient step of size :math:`\beta_t` on
:math:`\tfrac12\|S^\top k_t - v_t\|^2`. If the key has norm 1 and :math:`\beta_t = 1`, then
:math:`S_t^\top k_t = v_t` for any previous state. Kimi Delta Attention (KDA) is the delta rule with
one decay for each feature.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from stringlib.attention.decay import with_features
from stringlib.attention.states import LinearState
from stringlib.attention.weights import PositionWeight, WeightedSums
from stringlib.documents import Documents
from stringlib.inputs import any_eager, common_shape
from stringlib.kernels.delta import delta_sums
from stringlib.kernels.features import unit
from stringlib.kernels.recurrence import Mode
from stringlib.precision import at_least_float32, without_autocast
from stringlib.spec import Floats, LogDecays, NotNegative, checked


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
    r"""Return the outputs :math:`S_t^\top q_t` of the delta rule with state S, and the last state.

    The state after token t is
    :math:`S_t = e^{a_t} (I - \beta_t k_t k_t^\top) S_{t-1} + \beta_t k_t v_t^\top`,
    :eq:`eq-delta-rule`. The old state decays before the error for the new key is computed,
    :eq:`eq-delta-gated`. With one decay per feature, :math:`a_t` is a vector and the state is
    :math:`(I - \beta_t k_t k_t^\top)\,\mathrm{diag}(e^{a_t})\,S_{t-1} + \beta_t k_t v_t^\top`,
    :eq:`eq-kda`. After the step, the state maps the key to a combination of the old and
    the new value, :eq:`eq-delta-overwrite`.

    The function does not normalise the keys. If :math:`0 \le \beta_t \|k_t\|^2 \le 2`, no step
    increases the norm of the old state, :eq:`eq-delta-norm`. Inputs in half precision are
    converted to float32. The returned state is float64 if ``v`` is float64, and otherwise float32.

    Args:
        q: Queries, ``(..., heads, n, d)``.
        k: Keys, ``(..., heads, n, d)``, usually of norm 1.
        v: Values, ``(..., heads, n, d_v)``.
        beta: Rates :math:`\beta_t`, ``(..., heads, n)``. For a key of norm 1, 0 leaves the decayed
            state unchanged, 1 replaces the old value of the key by the new one, and 2 reverses the
            sign of the old value and adds twice the new value. On the CPU a rate outside 0 to 2
            raises an error. On other devices the rates are not checked.
        log_decay: The logarithms :math:`a_t \le 0`, of shape ``(heads,)`` for a constant decay,
            ``(..., heads, n)`` or ``(..., heads, n, 1)`` for one decay per token, or
            ``(..., heads, n, d)`` for one decay per token and feature; −∞ sets the old state, or
            the row of a feature in it, to 0. On the CPU a value greater than 0 raises an error. On
            other devices the values are not checked. Default: None, no decay, so that only the
            overwritten values are forgotten.
        mode: ``"recurrent"`` computes token by token; ``"chunk"`` computes chunk by chunk;
            ``"parallel"`` treats all tokens as one chunk and so forms an n × n matrix. Default:
            None, which chooses the mode that is usually fastest.
        state: The state S before the first token, ``(..., heads, d, d_v)``. Default: zero.

    Returns:
        The outputs, ``(..., heads, n, d_v)``, in the dtype of ``v``, and the last state,
        ``(..., heads, d, d_v)``.

    Source:
        Schlag et al. 2021 for the rule, Yang et al. 2024 for the algorithm with chunks, Yang et al.
        2025 for the decay per token, and Kimi Team 2025 for the decay per token and feature.

    Example:
        >>> key, values = torch.tensor([[[1.0, 0.0], [1.0, 0.0]]]), torch.tensor([[[3.0], [5.0]]])
        >>> delta_rule(key, key, values, torch.ones(1, 2))[0].flatten()  # 5 replaces 3
        tensor([3., 5.])
    """
    batch_shape, n = common_shape(*(x.shape[:-2] for x in (q, k, v))), v.shape[-2]
    _require_rates(beta)
    if log_decay is None:
        log_decay = torch.zeros_like(beta)[..., None]
    else:
        if log_decay.ndim == len(batch_shape) + 1:  # (..., heads, n): one per token
            log_decay = log_decay[..., None]
        log_decay = with_features(log_decay, batch_shape, n, k.shape[-1])
    exact = at_least_float32(v.dtype)
    if state is not None:
        state = state.to(exact).expand(*batch_shape, *state.shape[-2:])
    with without_autocast(v):  # long products lose too many digits in half precision
        tokens = (x.to(exact) for x in (q, k, v, beta[..., None], log_decay))
        q, k, u, rate, a = (x.expand(*batch_shape, *x.shape[-2:]) for x in tokens)
        out, state = delta_sums(q, k, u, rate, a, mode, state)
    return out.to(v.dtype), state


class ReplacingWeight(PositionWeight):
    """Base class of weights with the delta rule, which replaces the old value of a key.

    The effect of a key on a query depends on the keys between the two. So a query and a key have no
    position weight, and there is no matrix of weights and no sum of weights by which the output
    could be divided.
    """

    causal_only = True
    has_state = True
    normalized = False
    rotatable = False

    def matrix(self, num_queries: int, num_keys: int) -> Tensor:
        """Raise ``ValueError``, because a weight depends on the keys between query and key."""
        raise ValueError(
            f"{type(self).__name__}.matrix() is undefined. Under the delta rule the weight of a "
            "query and a key depends on the keys between the two. Call delta_rule() for the "
            "outputs."
        )


class DeltaWeight(ReplacingWeight):
    r"""The delta rule for linear attention, in place of a weighted sum, :eq:`eq-delta-gated`.

    The features of each query and key are divided by their norm. For keys of norm 1 and
    :math:`0 \le \beta_t \le 2`, no step increases the norm of the old state, see
    :func:`delta_rule`.

    Args:
        beta: Rates :math:`\beta_t` from 0 to 2, ``(..., heads, seq)``.
        log_decay: The logarithms :math:`a_t \le 0`, ``(heads,)`` or ``(..., heads, seq)``.
            Default: None, no decay, so that only the overwritten values are forgotten.
        eps: Number added to the squared norm by which the features are divided, as released layers
            do it. Default: 0.

    Raises:
        ValueError: If, on the CPU, a rate is less than 0 or greater than 2, or a logarithm is
            greater than 0. On other devices the values are not checked.

    Source:
        Yang et al. 2024 for the rule with chunks; Yang et al. 2025 for the decay.
    """

    beta: Tensor
    log_decay: Tensor | None

    @checked
    def __init__(
        self,
        beta: Floats[Tensor, "... heads n"],
        log_decay: LogDecays[Tensor, "...any"] | None = None,
        *,
        eps: NotNegative = 0.0,
    ) -> None:
        _require_rates(beta)
        super().__init__()
        self.eps = eps
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
        documents: Documents | None = None,
    ) -> WeightedSums:
        """Return the outputs of the delta rule for queries and keys given as features.

        The arguments are those of ``PositionWeight.sums``. The scales of the keys have no effect,
        because the features of each key are divided by their norm.
        """
        self._require_direction(causal)
        q, k = (unit(x, self.eps) for x in (phi_q, phi_k))
        before = None if state is None else state.sums
        log_decay = self.log_decay
        if documents is not None:
            if log_decay is None:
                log_decay = torch.zeros_like(self.beta)
            elif log_decay.ndim == 1:
                log_decay = log_decay[:, None]
            starts = documents.starts.unsqueeze(-2)
            if log_decay.ndim > self.beta.ndim:  # one decay per feature
                starts = starts[..., None]
            log_decay = torch.where(starts, -math.inf, log_decay)
        out, after = delta_rule(q, k, u, self.beta, log_decay, mode=mode, state=before)
        length = u.shape[-2] + (0 if state is None else state.length)
        scale = None if key_scale is None else after.new_zeros(after.shape[:-2])
        return WeightedSums(out, None, LinearState(after, scale, length))


class KDAWeight(DeltaWeight):
    r"""The delta rule with one decay per token and feature (Kimi Delta Attention), :eq:`eq-kda`.

    A feature with a decay near 1 keeps its share of the state for long, and a feature with a small
    decay forgets fast. The features of each query and key are divided by their norm, as in
    :class:`DeltaWeight`.

    Args:
        beta: Rates :math:`\beta_t` from 0 to 2, ``(..., heads, seq)``.
        log_decay: The logarithms :math:`a_t \le 0`, ``(..., heads, seq, m)`` for m features.
        eps: Number added to the squared norm by which the features are divided. Default: 0.

    Raises:
        ValueError: If, on the CPU, a rate is less than 0 or greater than 2, or a logarithm is
            greater than 0. On other devices the values are not checked.

    Source:
        Kimi Team 2025.
    """

    log_decay: Tensor

    @checked
    def __init__(
        self,
        beta: Floats[Tensor, "... heads n"],
        log_decay: LogDecays[Tensor, "... heads n m"],
        *,
        eps: NotNegative = 0.0,
    ) -> None:
        super().__init__(beta, log_decay, eps=eps)


def _require_rates(beta: Tensor) -> None:
    """Raise ``ValueError`` if a rate on the CPU is less than 0 or greater than 2."""
    if any_eager(beta, lambda x: (x.amin() < 0) | (x.amax() > 2)):
        raise ValueError(
            f"beta must be from 0 to 2, got values from {beta.min().item():g} to "
            f"{beta.max().item():g}. At 0 the new value is ignored; at 2 the old value changes its "
            "sign. For example, 2 * x.sigmoid() is in this range for every x."
        )
