r"""Kernelised attention: softmax's exponential replaced by a product of features."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from stringlib.attention.constant import ConstantWeight
from stringlib.attention.known import is_known, may_look
from stringlib.attention.masks import per_head
from stringlib.attention.weights import PositionWeight, ScaledSums
from stringlib.inputs import (
    expands,
    require_attention,
    require_bool,
    require_causal,
    require_floats,
)
from stringlib.precision import without_autocast


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
            returned as it is: 0 if no key answers. Where, in float32, a query's features or
            the denominator beside them are below 5e-31, there is no gradient: it could not be
            represented.
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
    require_bool(normalize=normalize, return_state=return_state)
    require_fitting(phi_q, phi_k, v, weight, causal, mode, key_scale, state, return_state)
    # the column of ones; it makes a state whole too
    ones = normalize or return_state or state is not None

    def attend(phi_q: Tensor) -> tuple[ScaledSums, Tensor, Tensor]:
        found = weighted_sums(
            *(phi_q, phi_k, v, weight, causal, mode),
            key_scale=key_scale,
            key_mask=key_mask,
            state=state,
            ones=ones,
        )
        # split, not slices: two slices would have two gradients of full width to add
        return found, *found.sums.split([v.shape[-1], int(ones)], -1)

    with without_autocast(v):  # a sum needs its digits
        if normalize and not may_look(v):
            phi_q = moderate_rows(phi_q)
        found, out, total = attend(phi_q)
        if normalize:
            if not is_known(total, has_gradient):
                if may_look(v) and not is_known(phi_q, _has_moderate_rows):
                    found, out, total = attend(moderate_rows(phi_q))
                out, total = where_has_gradient(out, total)
            out = out / total
        elif found.log_scale is not None:
            half = (found.log_scale / 2).exp()[..., None]  # in two steps 0 stays 0 for longer
            out = out * half * half
    out = out.to(v.dtype)
    if not return_state:
        return out
    if found.state is None:
        raise ValueError(
            f"return_state must be False for {type(weight).__name__}, which has no state, got True"
        )
    start = 0 if state is None else state.length
    return out, LinearState(found.state, found.largest, start + v.shape[-2])


def weighted_sums(
    phi_q: Tensor,
    phi_k: Tensor,
    v: Tensor,
    weight: PositionWeight | None,
    causal: bool,
    mode: str | None,
    *,
    key_scale: Tensor | None,
    key_mask: Tensor | None,
    state: LinearState | None = None,
    ones: bool = False,
) -> ScaledSums:
    """Return what :func:`linear_attention` divides, in float32 at least, unchecked.

    Args:
        phi_q: As there, and so are the others.
        phi_k: Features of the keys.
        v: Values.
        weight: The position weight.
        causal: Whether query i sees the keys 0 … i only.
        mode: How to compute it.
        key_scale: Logarithms of factors left out of ``phi_k``.
        key_mask: False for keys that are padding.
        state: What earlier tokens left.
        ones: Whether to sum a column of ones too, the last.
    """
    dtype = torch.float32
    for x in (phi_q, phi_k, v):
        dtype = torch.promote_types(dtype, x.dtype)
    sums_before, largest, start = None, None, 0
    if state is not None:
        sums_before, start = state.sums.to(dtype), state.length
        largest = None if state.log_scale is None else state.log_scale.to(dtype)
    q, k, u = phi_q.to(dtype), phi_k.to(dtype), v.to(dtype)
    if ones:
        u = torch.cat([u, v.new_ones(*v.shape[:-1], 1, dtype=dtype)], -1)
    if key_scale is not None:
        key_scale = key_scale.to(dtype)
    if key_mask is not None:
        lead = torch.broadcast_shapes(*(x.shape[:-2] for x in (phi_q, phi_k, v)))
        kept = per_head(key_mask, (*lead, v.shape[-2]))
        k, u = (x.masked_fill(~kept[..., None], 0) for x in (k, u))  # 0 · NaN is NaN
        key_scale = None if key_scale is None else key_scale.masked_fill(~kept, -math.inf)
    return (weight or ConstantWeight()).scaled_sums(
        *(q, k, u, key_scale),
        causal=causal,
        mode=mode,
        state=sums_before,
        start=start,
        largest=largest,
    )


def moderate_rows(phi_q: Tensor) -> Tensor:
    """Return features of queries, each divided by the power of 2 next to its largest.

    It cancels in a quotient of two sums, which could be too small for their gradient. Rows of
    features so small that their own gradient could not be represented have none.
    """
    if not phi_q.shape[-1]:
        return phi_q
    wide = phi_q.to(torch.promote_types(phi_q.dtype, torch.float32))
    largest = wide.detach().abs().amax(-1, keepdim=True)
    wide = torch.where(largest < _least(wide.dtype), wide.detach(), wide)
    return wide * torch.exp2(-largest.clamp(min=torch.finfo(wide.dtype).tiny).log2().round())


def _has_moderate_rows(phi_q: Tensor) -> Tensor:
    """Return for which queries there is nothing to divide by, all features being 0, or no need."""
    largest = phi_q.abs().amax(-1) if phi_q.shape[-1] else phi_q.new_zeros(())
    return (largest == 0) | (largest > 1e-3)


def has_gradient(total: Tensor) -> Tensor:
    """Return where a quotient with this denominator has a gradient that can be represented."""
    return total.abs() >= _least(total.dtype)


def where_has_gradient(sums: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
    """Return numerator and denominator; without gradient where it could not be represented.

    A denominator 0 becomes 1.
    """
    kept = has_gradient(total.detach())
    sums, total = (torch.where(kept, x, x.detach()) for x in (sums, total))
    return sums, total.masked_fill(total == 0, 1)


def _least(dtype: torch.dtype) -> float:
    """Return what can be divided by with room for the numbers of a gradient: 5e-31 in float32."""
    return float(torch.finfo(dtype).tiny ** 0.8)


def require_fitting(
    phi_q: Tensor,
    phi_k: Tensor,
    v: Tensor,
    weight: PositionWeight | None,
    causal: bool,
    mode: str | None,
    key_scale: Tensor | None,
    state: LinearState | None = None,
    return_state: bool = False,
) -> None:
    """Raise unless the arguments fit; looks at types, shapes and dtypes only."""
    require_bool(causal=causal)
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
            raise ValueError(
                f"{name} must be left out unless causal, where there is a last token, got "
                f"{return_state if state is None else 'a state'}"
            )
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
