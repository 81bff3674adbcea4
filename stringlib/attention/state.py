r"""The recurrences of RetNet, GLA, RWKV-6 and Mamba-2 for given decays.

The state of the four recurrences is :math:`S_t = e^{a_t} S_{t-1} + k_t v_t^\top`, with different
decays :math:`e^{a_t}`. No output is divided by a sum of weights. For the normalised form, pass a
:class:`~stringlib.attention.decay.DecayWeight` to
:func:`~stringlib.attention.linear.linear_attention`. Each of the four functions returns the outputs
and the last state. To continue the sequence, pass this state as ``state`` with the next tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from stringlib.attention.decay import decayed_sums
from stringlib.kernels.recurrence import Mode
from stringlib.precision import widest
from stringlib.spec import Floats, checked


@checked
def retnet_log_decay(heads: int, dtype: torch.dtype = torch.float32) -> Tensor:
    r"""Return the logarithms of RetNet's decays :math:`\gamma_h = 1 - 2^{-5-h}`, ``(heads,)``.

    The heads h are numbered from 0, :eq:`eq-retnet-decay`.

    Args:
        heads: Number of heads.
        dtype: Dtype of the result. Default: float32.

    Source:
        Sun et al. 2023.
    """
    return torch.log1p(-torch.exp2(-5.0 - torch.arange(heads, dtype=widest()))).to(dtype)


@checked
def retention(
    q: Floats[Tensor, "... #heads n d"],
    k: Floats[Tensor, "... #heads n d"],
    v: Floats[Tensor, "... #heads n d_v"],
    log_decay: Floats[Tensor, "...any"],
    *,
    mode: Mode | None = None,
    state: Floats[Tensor, "...? heads? d d_v"] | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Return RetNet's outputs :math:`S_t^\top q_t` and the last state, equation :eq:`eq-retnet`.

    The state :math:`S_t = \gamma S_{t-1} + k_t v_t^\top` has one constant decay γ per head.

    Args:
        q: Queries, ``(..., heads, n, d)``.
        k: Keys, ``(..., heads, n, d)``.
        v: Values, ``(..., heads, n, d_v)``.
        log_decay: The logarithms :math:`\log \gamma`, ``(heads,)``, for example from
            :func:`retnet_log_decay`.
        mode: ``"recurrent"`` computes token by token, ``"chunk"`` chunk by chunk, and
            ``"parallel"`` all tokens with an n × n matrix. Default: None, which chooses the mode
            that is usually fastest.
        state: The state S before the first token, ``(..., heads, d, d_v)``. Default: zero.

    Returns:
        The outputs, ``(..., heads, n, d_v)``, not normalised, and the last state.

    Source:
        Sun et al. 2023.
    """
    return decayed_sums(q, k, v, log_decay, mode=mode, state=state)


@checked
def gated_linear_attention(
    q: Floats[Tensor, "... #heads n d"],
    k: Floats[Tensor, "... #heads n d"],
    v: Floats[Tensor, "... #heads n d_v"],
    log_decay: Floats[Tensor, "...? heads? n d"],
    *,
    mode: Mode | None = None,
    state: Floats[Tensor, "...? heads? d d_v"] | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Return the outputs :math:`S_t^\top q_t` of gated linear attention, and the last state.

    The state is :math:`S_t = \mathrm{diag}(\alpha_t) S_{t-1} + k_t v_t^\top`, :eq:`eq-gla`. The
    vector :math:`\alpha_t` contains one decay for each channel of the key.

    Args:
        q: Queries, ``(..., heads, n, d)``.
        k: Keys, ``(..., heads, n, d)``.
        v: Values, ``(..., heads, n, d_v)``.
        log_decay: The logarithms :math:`\log \alpha_t \le 0`, ``(..., heads, n, d)``.
        mode: ``"recurrent"`` computes token by token, ``"chunk"`` chunk by chunk, and
            ``"parallel"`` all tokens with an n × n matrix. Default: None, which chooses the mode
            that is usually fastest.
        state: The state S before the first token, ``(..., heads, d, d_v)``. Default: zero.

    Returns:
        The outputs, ``(..., heads, n, d_v)``, not normalised, and the last state.

    Source:
        Yang et al. 2024.
    """
    log_decay = _with_all_dimensions(log_decay, q, k, v)
    return decayed_sums(q, k, v, log_decay, mode=mode, state=state)


@checked
def rwkv6(
    r: Floats[Tensor, "... #heads n d"],
    k: Floats[Tensor, "... #heads n d"],
    v: Floats[Tensor, "... #heads n d_v"],
    log_decay: Floats[Tensor, "...? heads? n d"],
    bonus: Floats[Tensor, "heads? d"],
    *,
    mode: Mode | None = None,
    state: Floats[Tensor, "...? heads? d d_v"] | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Return RWKV-6's outputs and the last state, equation :eq:`eq-rwkv6`.

    The state is :math:`S_t = \mathrm{diag}(w_t) S_{t-1} + k_t v_t^\top` with one decay per token
    and channel, and the output is :math:`(S_{t-1} + \mathrm{diag}(u)\,k_t v_t^\top)^\top r_t`. So a
    token reads the state before the state decays and before the token's own key and value are
    added. The bonus u weighs the token's own key and value in the output.

    Args:
        r: Receptances, which have the role of queries, ``(..., heads, n, d)``.
        k: Keys, ``(..., heads, n, d)``.
        v: Values, ``(..., heads, n, d_v)``.
        log_decay: The logarithms :math:`\log w_t \le 0`, ``(..., heads, n, d)``.
        bonus: The bonus u, ``(heads, d)``.
        mode: ``"recurrent"`` computes token by token, ``"chunk"`` chunk by chunk, and
            ``"parallel"`` all tokens with an n × n matrix. Default: None, which chooses the mode
            that is usually fastest.
        state: The state S before the first token, ``(..., heads, d, d_v)``. Default: zero.

    Returns:
        The outputs, ``(..., heads, n, d_v)``, not normalised, and the last state.

    Source:
        Peng et al. 2024.
    """
    log_decay = _with_all_dimensions(log_decay, r, k, v)
    # Keys, values and decays are delayed by one token, so that token t reads the state S_{t-1}.
    # An additional query at the end, whose output is dropped, makes the last state complete.
    late_k, late_v, late_decay = (pad(x, (0, 0, 1, 0)) for x in (k, v, log_decay))
    past, state = decayed_sums(
        pad(r, (0, 0, 0, 1)), late_k, late_v, late_decay, mode=mode, state=state
    )
    own = (r * bonus[..., None, :] * k).sum(-1, keepdim=True) * v
    return (past[..., :-1, :] + own).to(v.dtype), state


@checked
def ssd(
    x: Floats[Tensor, "... #heads n p"],
    dt: Floats[Tensor, "... #heads n"],
    A: Floats[Tensor, "#heads"],
    B: Floats[Tensor, "... #heads n N"],
    C: Floats[Tensor, "... #heads n N"],
    *,
    mode: Mode | None = None,
    state: Floats[Tensor, "...? heads? N p"] | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Return Mamba-2's outputs :math:`y_t = h_t^\top C_t` and the last state, :eq:`eq-ssd`.

    The state is :math:`h_t = e^{\Delta_t A}\, h_{t-1} + B_t\,(\Delta_t x_t)^\top`. So :math:`C_t`
    has the role of the query, :math:`B_t` of the key and :math:`\Delta_t x_t` of the value. The
    state matrix is a multiple of the identity: there is one decay per token and head.

    Args:
        x: Inputs, ``(..., heads, n, p)``.
        dt: Step sizes :math:`\Delta_t > 0`, ``(..., heads, n)``.
        A: Negative decay rates, ``(heads,)``.
        B: Input vectors, ``(..., heads, n, N)``. Vectors for one head are used for all heads.
        C: Output vectors, ``(..., heads, n, N)``. Vectors for one head are used for all heads.
        mode: ``"recurrent"`` computes token by token, ``"chunk"`` chunk by chunk, and
            ``"parallel"`` all tokens with an n × n matrix. Default: None, which chooses the mode
            that is usually fastest.
        state: The state h before the first token, ``(..., heads, N, p)``. Default: zero.

    Returns:
        The outputs, ``(..., heads, n, p)``, not normalised, and the last state.

    Source:
        Dao and Gu 2024.
    """
    log_decay = (dt * A[:, None])[..., None]  # one decay for all features
    y, state = decayed_sums(C, B, dt[..., None] * x, log_decay, mode=mode, state=state)
    return y.to(x.dtype), state  # dt and A may have a wider dtype than x


def _with_all_dimensions(log_decay: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return the decays with leading dimensions of size 1, so that their shape is unambiguous.

    :func:`~stringlib.attention.decay.decayed_sums` accepts several shapes of decays. If decays have
    as many dimensions as queries, keys or values, their last two dimensions are always read as
    tokens and features.
    """
    return log_decay[(None,) * (max(x.ndim for x in (q, k, v)) - log_decay.ndim)]
