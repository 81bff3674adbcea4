r"""RetNet, GLA, RWKV-6 and Mamba-2 by their names: one recurrence, four kinds of decay.

All run :math:`S_t = e^{a_t} S_{t-1} + k_t v_t^\top`. None divides by a sum of weights; for the
normalised form give a :class:`~stringlib.attention.decay.DecayWeight` to ``linear_attention``.
Each returns the outputs and the last state, which continues the sequence when it is passed back.
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
def retnet_log_decay(heads: int) -> Tensor:
    r"""Return :math:`\log \gamma_h` for :math:`\gamma_h = 1 - 2^{-5-h}`, h from 0: ``(heads,)``.

    Equation :eq:`eq-retnet-decay`.

    Source:
        Sun et al. 2023.
    """
    return torch.log1p(-torch.exp2(-5.0 - torch.arange(heads, dtype=widest()))).float()


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
    r"""Return RetNet's :math:`q_t S_t` under a constant decay, equation :eq:`eq-retnet`.

    Args:
        q: Queries, ``(..., heads, n, d)``.
        k: Keys, ``(..., heads, n, d)``.
        v: Values, ``(..., heads, n, d_v)``.
        log_decay: :math:`\log \gamma`, ``(heads,)``, as of :func:`retnet_log_decay`.
        mode: As for :func:`~stringlib.attention.decay.decayed_sums`.
        state: :math:`S_{-1}`, ``(..., heads, d, d_v)``; zero if omitted.

    Returns:
        Outputs ``(..., heads, n, d_v)``, not normalised, and the last state.

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
    r"""Return GLA's :math:`q_t S_t`: each channel of the key decays by itself, :eq:`eq-gla`.

    Arguments, results and errors are those of :func:`retention`, but for ``log_decay``, which is
    :math:`\log \alpha_t`, ``(..., heads, n, d)``.

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
    r"""Return RWKV-6's :math:`r_t (S_{t-1} + \mathrm{diag}(u)\,k_t v_t^\top)`, :eq:`eq-rwkv6`.

    A token reads the state before it is decayed and before it writes; for the token itself the
    bonus u takes the place of the decay. The other arguments, results and errors are those of
    :func:`gated_linear_attention`.

    Args:
        r: Receptance, which is the query, ``(..., heads, n, d)``.
        k: Keys, ``(..., heads, n, d)``.
        v: Values, ``(..., heads, n, d_v)``.
        log_decay: :math:`\log w_t`, ``(..., heads, n, d)``.
        bonus: u, ``(heads, d)``.
        mode: As there.
        state: As there.

    Source:
        Peng et al. 2024.
    """
    log_decay = _with_all_dimensions(log_decay, r, k, v)
    # one further token, which nobody reads, so that the last state has seen all; what a token
    # reads is then the state of the one before it
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
    r"""Return Mamba-2's :math:`y_t = C_t^\top h_t`: one decay for all of a head, :eq:`eq-ssd`.

    :math:`h_t = e^{\Delta_t A}\, h_{t-1} + B_t\,(\Delta_t x_t)^\top`. So C is the query, B the
    key, :math:`\Delta x` the value, and the state matrix a multiple of the identity. The other
    arguments, results and errors are those of :func:`retention`.

    Args:
        x: Inputs, ``(..., heads, n, p)``.
        dt: Steps :math:`\Delta_t > 0`, ``(..., heads, n)``.
        A: Rates, negative, ``(heads,)``.
        B: Input maps, ``(..., heads, n, N)``, or 1 head for all.
        C: Output maps, of the shape of ``B``.
        mode: As there.
        state: :math:`h_{-1}`, ``(..., heads, N, p)``; zero if omitted.

    Source:
        Dao and Gu 2024.
    """
    log_decay = (dt * A[:, None])[..., None]  # one for all features
    y, state = decayed_sums(C, B, dt[..., None] * x, log_decay, mode=mode, state=state)
    return y.to(x.dtype), state  # dt and A may be wider


def _with_all_dimensions(log_decay: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return the decays with ones in front, so that nobody mistakes their dimensions for others."""
    return log_decay[(None,) * (max(x.ndim for x in (q, k, v)) - log_decay.ndim)]
