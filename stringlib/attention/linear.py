r"""Kernelised attention: softmax's exponential replaced by a product of features."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from stringlib.attention.constant import ConstantWeight
from stringlib.attention.masks import per_head
from stringlib.attention.scale import LEAST, running_maximum
from stringlib.attention.weights import PositionWeight
from stringlib.autocast import without_autocast
from stringlib.inputs import expands, require_attention, require_causal, require_floats


class LinearState(NamedTuple):
    """What the tokens so far leave behind: all that later ones need to know of them.

    Attributes:
        sums: Features times [values, 1], ``(..., heads, m, d_v + 1)``; float32 or float64.
        log_scale: Natural logarithm of the factor left out of ``sums``, ``(..., heads)``, or None.
        length: Number of tokens so far.
    """

    sums: Tensor
    log_scale: Tensor | None
    length: int


def linear_attention(
    phi_q: Tensor,
    phi_k: Tensor,
    v: Tensor,
    weight: PositionWeight | None = None,
    causal: bool = False,
    normalize: bool = True,
    mode: str | None = None,
    *,
    key_scale: Tensor | None = None,
    key_mask: Tensor | None = None,
    state: LinearState | None = None,
    return_state: bool = False,
) -> Tensor | tuple[Tensor, LinearState]:
    r"""Return :math:`\sum_j A_{ij} v_j / \sum_j A_{ij}`, :eq:`eq-linear-attention`.

    :math:`A_{ij} = w(i,j)\,\phi(q_i)^\top\phi(k_j)`. With a column of ones beside the values,
    numerator and denominator are one product, :eq:`eq-linear-ones`.

    Args:
        phi_q: Features of the queries, ``(..., heads, n, m)``.
        phi_k: Features of the keys, ``(..., heads, keys, m)``.
        v: Values, ``(..., heads, keys, d_v)``.
        weight: The position weight :math:`w`; 1 if omitted.
        causal: Whether query i sees the keys 0 … i only. Then there is a key for each query.
        normalize: Whether to divide. Where the denominator is exactly 0 the numerator is
            returned as it is: 0 if no key answers.
        mode: ``"parallel"`` fills the matrix A, ``"recurrent"`` goes token by token and
            ``"chunk"`` chunk by chunk (both only if causal), ``"fft"`` is for
            :class:`~stringlib.attention.toeplitz.ToeplitzWeight`. None picks the fastest.
        key_scale: Logarithms of factors left out of ``phi_k``, ``(..., heads, keys)``, as
            ``FavorFeatures.scaled_keys`` gives them; −∞ for a factor 0. Only their differences
            count, and a causal sum compares a key with earlier ones alone.
        key_mask: False for keys that are padding, ``(..., keys)`` or ``(..., heads, keys)``.
            What their features and values hold is never read, be it NaN.
        state: What earlier tokens left; only if causal.
        return_state: Whether to return the state after the last token too; only if causal.

    Returns:
        ``(..., heads, n, d_v)``, of the dtype of ``v``; sums are in float32 at least. With
        ``return_state`` a pair, the :class:`LinearState` second.

    Raises:
        TypeError: If an argument has the wrong type or dtype.
        ValueError: If shapes do not fit, or an option does not apply.
    """
    _check(phi_q, phi_k, v, weight, causal, mode, key_scale, state, return_state)
    weight, start = weight or ConstantWeight(), 0 if state is None else state.length
    dtype = torch.float32
    for x in (phi_q, phi_k, v):
        dtype = torch.promote_types(dtype, x.dtype)
    sums_before = None if state is None else state.sums.to(dtype)
    largest = None
    if state is not None and state.log_scale is not None:
        largest = state.log_scale.to(dtype)
    common = None
    with without_autocast(v):  # a sum needs its digits
        q, k = phi_q.to(dtype), phi_k.to(dtype)
        u = v.to(dtype)
        if normalize or return_state or state is not None:
            u = torch.cat([u, v.new_ones(*v.shape[:-1], 1, dtype=dtype)], -1)
        if key_scale is not None:
            key_scale = key_scale.to(dtype)
        if key_mask is not None:
            lead = torch.broadcast_shapes(*(x.shape[:-2] for x in (phi_q, phi_k, v)))
            kept = per_head(key_mask, (*lead, v.shape[-2]))
            k, u = (x.masked_fill(~kept[..., None], 0) for x in (k, u))  # 0 · NaN is NaN
            key_scale = None if key_scale is None else key_scale.masked_fill(~kept, -math.inf)
        if key_scale is None or not key_scale.shape[-1]:
            sums, after = weight.sums(
                q, k, u, causal=causal, mode=mode, state=sums_before, start=start
            )
        elif causal:
            # a common factor cancels whatever it is, so it needs no gradient
            common, log_decay = running_maximum(key_scale.detach(), largest)
            largest = common[..., -1]
            k = k * (key_scale - common).exp()[..., None]
            sums, after = weight.rescaled_sums(
                q, k, u, log_decay, mode=mode, state=sums_before, start=start
            )
        else:
            common = key_scale.detach().amax(-1, keepdim=True).clamp(min=LEAST)
            k = k * (key_scale - common).exp()[..., None]
            sums, after = weight.sums(q, k, u, causal=False, mode=mode)
        out = sums
        if u.shape[-1] > v.shape[-1]:
            # split, not slices: two slices would have two gradients of full width to add
            out, total = sums.split([v.shape[-1], 1], -1)
        if normalize:
            out = out / total.masked_fill(total == 0, 1)
        elif common is not None:
            out = out * common.exp()[..., None]
    out = out.to(v.dtype)
    if not return_state:
        return out
    if after is None:
        raise ValueError(f"return_state must be False for {type(weight).__name__}: it has no state")
    return out, LinearState(after, largest, start + v.shape[-2])


def _check(
    phi_q: Tensor,
    phi_k: Tensor,
    v: Tensor,
    weight: PositionWeight | None,
    causal: bool,
    mode: str | None,
    key_scale: Tensor | None,
    state: LinearState | None,
    return_state: bool,
) -> None:
    """Raise unless the arguments fit; looks at types, shapes and dtypes only."""
    require = require_causal if causal else require_attention
    require(("phi_q", phi_q), ("phi_k", phi_k), ("v", v))
    if weight is not None and not isinstance(weight, PositionWeight):
        raise TypeError(f"weight must be a PositionWeight or None, got {weight!r}")
    if state is not None and not isinstance(state, LinearState):
        raise TypeError(f"state must be a LinearState or None, got {type(state).__name__}")
    if not causal:
        if mode in ("recurrent", "chunk"):
            raise ValueError(f"mode must be None or 'parallel' unless causal, got {mode!r}")
        if state is not None or return_state:
            name = "return_state" if state is None else "state"
            raise ValueError(f"{name} must be left out unless causal: there is no last token")
    if key_scale is not None:
        require_floats("key_scale", key_scale)
        wanted = phi_k.shape[:-1]
        fits = key_scale.ndim >= 2 and expands(key_scale.shape, wanted)
        if not fits or key_scale.shape[-1] != wanted[-1]:
            raise ValueError(
                f"key_scale must have shape {tuple(wanted)}, one number for each row of phi_k, "
                f"got {tuple(key_scale.shape)}"
            )
    if state is not None and state.length and (state.log_scale is None) != (key_scale is None):
        given = "no key_scale" if key_scale is None else "a key_scale"
        raise ValueError(
            f"key_scale must be given if and only if it was when the state was made, got {given}"
        )
