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
from stringlib.inputs import common_shape, expands, require_causal, require_count, require_floats
from stringlib.precision import widest


def retnet_log_decay(heads: int) -> Tensor:
    r"""Return :math:`\log \gamma_h` for :math:`\gamma_h = 1 - 2^{-5-h}`, h from 0: ``(heads,)``.

    Equation :eq:`eq-retnet-decay`.

    Raises:
        TypeError: If ``heads`` is not an integer.
        ValueError: If it is below 1.

    Source:
        Sun et al. 2023.
    """
    require_count("heads", heads)
    return torch.log1p(-torch.exp2(-5.0 - torch.arange(heads, dtype=widest()))).float()


def retention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor,
    *,
    mode: str | None = None,
    state: Tensor | None = None,
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

    Raises:
        TypeError: If an argument is not a floating-point tensor.
        ValueError: If shapes do not fit, or there is no such mode.

    Source:
        Sun et al. 2023.
    """
    require_causal(("q", q), ("k", k), ("v", v))
    return decayed_sums(q, k, v, log_decay, mode=mode, state=state)


def gated_linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor,
    *,
    mode: str | None = None,
    state: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Return GLA's :math:`q_t S_t`: each channel of the key decays by itself, :eq:`eq-gla`.

    Arguments, results and errors are those of :func:`retention`, but for ``log_decay``, which is
    :math:`\log \alpha_t`, ``(..., heads, n, d)``.

    Source:
        Yang et al. 2024.
    """
    require_causal(("q", q), ("k", k), ("v", v))
    log_decay = _with_all_dimensions(log_decay, q, k, v)
    return decayed_sums(q, k, v, log_decay, mode=mode, state=state)


def rwkv6(
    r: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor,
    bonus: Tensor,
    *,
    mode: str | None = None,
    state: Tensor | None = None,
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
    require_causal(("r", r), ("k", k), ("v", v))
    log_decay = _with_all_dimensions(log_decay, r, k, v)
    lead = common_shape(*(x.shape[:-2] for x in (r, k, v)))
    _require("bonus", bonus, lead[-1:], k.shape[-1:])
    # one further token, which nobody reads, so that the last state has seen all; what a token
    # reads is then the state of the one before it
    late_k, late_v, late_decay = (pad(x, (0, 0, 1, 0)) for x in (k, v, log_decay))
    past, state = decayed_sums(
        pad(r, (0, 0, 0, 1)), late_k, late_v, late_decay, mode=mode, state=state
    )
    own = (r * bonus[..., None, :] * k).sum(-1, keepdim=True) * v
    return (past[..., :-1, :] + own).to(v.dtype), state


def ssd(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    *,
    mode: str | None = None,
    state: Tensor | None = None,
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
    require_causal(("C", C), ("B", B), ("x", x))
    lead = common_shape(*(y.shape[:-2] for y in (C, B, x)))
    _require("dt", dt, lead, x.shape[-2:-1])
    _require("A", A, lead[-1:], ())
    log_decay = (dt * A[:, None])[..., None]  # one for all features
    y, state = decayed_sums(C, B, dt[..., None] * x, log_decay, mode=mode, state=state)
    return y.to(x.dtype), state  # dt and A may be wider


def _with_all_dimensions(log_decay: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return the decays with ones in front, so that nobody mistakes their dimensions for others."""
    lead = common_shape(*(x.shape[:-2] for x in (q, k, v)))
    _require("log_decay", log_decay, lead, k.shape[-2:])
    return log_decay[(None,) * (len(lead) + 2 - log_decay.ndim)]


def _require(name: str, x: Tensor, lead: tuple[int, ...], own: tuple[int, ...]) -> None:
    """Raise unless ``x`` has shape ``(*lead, *own)``; one head, or one batch, serves all."""
    require_floats(name, x)
    split = x.ndim - len(own)
    if split < 1 or x.shape[split:] != own or not expands(x.shape[:split], lead):
        raise ValueError(f"{name} must have shape {(*lead, *own)}, got {tuple(x.shape)}")
