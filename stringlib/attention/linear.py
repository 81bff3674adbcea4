r"""Kernelised attention: softmax's exponential replaced by a product of features."""

from __future__ import annotations

import math
from typing import Literal, overload

import torch
from torch import Tensor

from stringlib.attention.weights import ConstantWeight, LinearState, PositionWeight, WeightedSums
from stringlib.encoders.string import Phases, RotaryEncoder
from stringlib.inputs import (
    common_shape,
    finds,
    is_known,
    may_look,
    per_head,
    require_kind_of_state,
)
from stringlib.precision import at_least_float32, largest_exponent, without_autocast
from stringlib.spec import Floats, checked

CONSTANT = ConstantWeight()

LARGEST = 1e4
"""How often the largest value an output may be whose weights are turned and do not sum to 1."""


@overload
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
    return_state: Literal[False] = False,
) -> Tensor: ...
@overload
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
    return_state: Literal[True],
) -> tuple[Tensor, LinearState]: ...
@overload
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
    return_state: bool,
) -> Tensor | tuple[Tensor, LinearState]: ...
@checked
def linear_attention(
    phi_q: Floats[Tensor, "... #heads n m"],
    phi_k: Floats[Tensor, "... #heads keys m"],
    v: Floats[Tensor, "... #heads keys d_v"],
    weight: PositionWeight | None = None,
    causal: bool = False,
    normalize: bool = True,
    mode: str | None = None,
    *,
    key_scale: Floats[Tensor, "...? heads? keys"] | None = None,
    key_mask: Tensor | None = None,
    state: LinearState | None = None,
    return_state: bool = False,
) -> Tensor | tuple[Tensor, LinearState]:
    r"""Return :math:`\sum_j A_{ij} v_j / \sum_j A_{ij}`, :eq:`eq-linear-attention`.

    :math:`A_{ij} = w(i,j)\,\phi(q_i)^\top\phi(k_j)`. With a column of ones beside the values,
    numerator and denominator are one product, :eq:`eq-linear-ones`.

    Args:
        phi_q: Features of the queries, ``(..., heads, n, m)``. Where a sum divides, none may be
            negative: the sum could be 0. On the CPU that is an error, elsewhere nothing looks.
        phi_k: Features of the keys, ``(..., heads, keys, m)``; so with these.
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
        ``return_state`` a pair, the :class:`~stringlib.attention.weights.LinearState` second.

    Raises:
        ValueError: If an option does not apply, or, on the CPU, if features that are divided by
            their sum are negative.

    Example:
        >>> from stringlib import CosineWeight, ReLUFeatures
        >>> phi, (q, k, v) = ReLUFeatures(), torch.randn(3, 8, 6, 196, 64)
        >>> phi_q, phi_k = phi(q), phi(k, is_query=False)
        >>> linear_attention(phi_q, phi_k, v, CosineWeight(256), causal=True).shape
        torch.Size([8, 6, 196, 64])
    """
    weight = weight or CONSTANT
    _require_fitting(phi_q, phi_k, v, causal, mode)
    _require_state(causal, state, return_state, weight)
    if normalize and not weight.normalized:
        raise ValueError(
            f"normalize must be False for {type(weight).__name__}, which has no sum to divide by, "
            "got True"
        )
    out, after = attend(
        phi_q,
        phi_k,
        v,
        weight,
        causal,
        mode=mode,
        key_scale=key_scale,
        key_mask=key_mask,
        state=state,
        normalize=normalize,
        # the column of ones makes a state whole too
        ones=normalize or return_state or state is not None,
    )
    if normalize:
        _require_no_signs(phi_q, phi_k, v, key_mask)
    if not return_state:
        return out
    if after is None:
        raise ValueError(
            f"return_state must be False for {type(weight).__name__}, which has no state, got True"
        )
    return out, after._replace(kind=weight.kind)


def attend(
    phi_q: Tensor,
    phi_k: Tensor,
    v: Tensor,
    weight: PositionWeight,
    causal: bool,
    *,
    mode: str | None = None,
    key_scale: Tensor | None = None,
    key_mask: Tensor | None = None,
    state: LinearState | None = None,
    normalize: bool = True,
    ones: bool = True,
) -> tuple[Tensor, LinearState | None]:
    """Do what :func:`linear_attention` does, unchecked, and return the state if there is one.

    The state does not say its kind, nor is that of the given one looked at.

    Raises:
        ValueError: If keys have a scale, but those that the state has seen had none, or vice versa.
    """
    if state is not None and state.length and (state.log_scale is None) != (key_scale is None):
        given = "no key_scale" if key_scale is None else "a key_scale"
        raise ValueError(
            f"key_scale must be given if and only if it was when the state was made, got {given}"
        )
    with without_autocast(v):  # a sum needs its digits
        q, k, u, key_scale = _prepared(phi_q, phi_k, v, key_scale, key_mask)
        if ones:
            u = torch.cat([u, u.new_ones(*u.shape[:-1], 1)], -1)

        def sums(q: Tensor) -> tuple[WeightedSums, Tensor, Tensor]:
            found = weight.sums(q, k, u, key_scale, causal=causal, mode=mode, state=state)
            # split, not slices: two slices would have two gradients of full width to add
            return found, *found.sums.split([v.shape[-1], int(ones)], -1)

        if normalize and not may_look(v):
            q = _moderate_rows(q)
        found, out, total = sums(q)
        if normalize:
            if not is_known(total, _has_gradient):
                if may_look(v) and not is_known(q, _has_moderate_rows):
                    found, out, total = sums(_moderate_rows(q))
                out, total = _where_has_gradient(out, total)
            out = out / total
        elif found.log_scale is not None:
            half = (found.log_scale / 2).exp()[..., None]  # in two steps 0 stays 0 for longer
            out = out * half * half
    return out.to(v.dtype), found.state


@checked
def rotated_linear_attention(
    phi_q: Floats[Tensor, "... #heads n m"],
    phi_k: Floats[Tensor, "... #heads keys m"],
    v: Floats[Tensor, "... #heads keys d_v"],
    encoder: RotaryEncoder,
    positions: Tensor | Phases,
    weight: PositionWeight | None = None,
    causal: bool = False,
    *,
    numerator_only: bool = False,
    mode: str | None = None,
    key_scale: Floats[Tensor, "...? heads? keys"] | None = None,
    key_mask: Tensor | None = None,
) -> Tensor:
    r"""Turn features instead of queries and keys: :math:`\phi(q_i)^\top R(r_j - r_i)\,\phi(k_j)`.

    Equation :eq:`eq-rotation-after`, or with ``numerator_only`` equation
    :eq:`eq-rotation-numerator`. A product is a sum of cosines of the offset,
    :eq:`eq-rotation-pair`. Shifting all positions changes nothing, but products may be negative
    unless features are padded, :eq:`eq-rotation-padded`, and their sum, the denominator, may be 0;
    features that are rolled by a :class:`~stringlib.attention.roll.Roll` stay positive.
    With ``numerator_only`` the denominator is :math:`\sum_j \phi(q_i)^\top\phi(k_j)`: positive for
    positive features, but then the weights of a query do not sum to 1, and a query whose
    denominator is 0 gets 0. Nothing bounds these weights: random features of long queries and keys
    have nearly nothing in common, turned ones have, and outputs and gradients grow without end.
    An output :data:`LARGEST` times as large as any value is refused where values can be looked at
    for free; on a GPU, or compiled, nothing looks. To turn *before* the
    feature map, :eq:`eq-rotation-before`, give encoded queries and keys to the feature map and its
    features to :func:`linear_attention`.

    Args:
        phi_q: Features of the queries, ``(..., heads, seq, m)``.
        phi_k: Features of the keys, of the same shape.
        v: Values, ``(..., heads, seq, d_v)``.
        encoder: A rotary encoder of ``head_dim`` m.
        positions: ``(..., seq, coord_dim)``, or the encoder's
            :class:`~stringlib.encoders.string.Phases` there.
        weight: A position weight, in numerator and denominator; with a constant
            :class:`~stringlib.attention.decay.DecayWeight` equation :eq:`eq-rotation-decay`.
        causal: Whether query i sees the keys 0 … i only.
        numerator_only: Whether the denominator stays as it is without positions.
        mode: As for :func:`linear_attention`.
        key_scale: Logarithms of factors left out of ``phi_k``, as there.
        key_mask: False for keys that are padding, as there.

    Returns:
        ``(..., heads, seq, d_v)``, of the dtype of ``v``; computed in float32 at least.

    Raises:
        ValueError: If an option does not apply or, on the CPU, outputs are beyond all values.

    Source:
        Su et al. 2024 (RoFormer), equation 19, for ``numerator_only``.
    """
    weight = weight or CONSTANT
    _require_fitting(phi_q, phi_k, v, causal, mode)
    if not weight.normalized:
        raise ValueError(
            "weight must have a sum to divide by, or queries and keys be rotated instead of "
            f"features, got {type(weight).__name__}"
        )
    with without_autocast(v):
        # a product may be far below its terms
        q, k, u, key_scale = _prepared(_moderate_rows(phi_q), phi_k, v, key_scale, key_mask)
        turned_q, turned_k = encoder(q, k, positions)
        if not numerator_only:
            out, _ = attend(turned_q, turned_k, u, weight, causal, mode=mode, key_scale=key_scale)
            return out.to(v.dtype)
        _require_no_signs(q, k, u, None)
        ones = torch.ones_like(u[..., :1])
        above = weight.sums(turned_q, turned_k, u, key_scale, causal=causal, mode=mode)
        below = weight.sums(q, k, ones, key_scale, causal=causal, mode=mode)
        # beside a denominator 0 there is no partner but by the turn, or by its rounding alone
        turned = above.sums.masked_fill(below.sums == 0, 0)
        numerator, denominator = _where_has_gradient(turned, below.sums)
        out = numerator / denominator
        if above.log_scale is not None and below.log_scale is not None:
            # a numerator may have partners that its denominator has not, and any scale beside it
            scale = above.log_scale - below.log_scale
            out = out * scale.clamp(max=largest_exponent(scale.dtype)).exp()[..., None]
    _require_moderate(out, q, k, u)
    return out.to(v.dtype)


def _require_moderate(out: Tensor, phi_q: Tensor, phi_k: Tensor, u: Tensor) -> None:
    """Raise if outputs of finite features and values are far beyond the values."""
    if finds(out, lambda x: ~(x.abs() <= LARGEST * u.detach().abs().amax())) and all(
        is_known(x, torch.isfinite) for x in (phi_q, phi_k, u)
    ):
        raise ValueError(
            "rotate must be before, or queries and keys shorter (normalize_qk=True): features "
            "turned after the map are divided by a sum of those that are not, and that is so small "
            f"here that an output is more than {LARGEST:g} times as large as any value"
        )


def _prepared(
    phi_q: Tensor, phi_k: Tensor, v: Tensor, key_scale: Tensor | None, key_mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Return all in one dtype, float32 at least, and keys that are padding as 0."""
    dtype = torch.promote_types(phi_q.dtype, torch.promote_types(phi_k.dtype, v.dtype))
    dtype = at_least_float32(dtype)
    q, k, u = (x.to(dtype) for x in (phi_q, phi_k, v))
    if key_scale is not None:
        key_scale = key_scale.to(dtype)
    if key_mask is not None:
        lead = common_shape(*(x.shape[:-2] for x in (q, k, u)))
        kept = per_head(key_mask, (*lead, u.shape[-2]), u.device)
        k, u = (x.masked_fill(~kept[..., None], 0) for x in (k, u))  # 0 · NaN is NaN
        key_scale = None if key_scale is None else key_scale.masked_fill(~kept, -math.inf)
    return q, k, u, key_scale


def _moderate_rows(phi_q: Tensor) -> Tensor:
    """Return features of queries, each divided by the power of 2 next to its largest.

    It cancels in a quotient of two sums, which could be too small for their gradient. Rows of
    features so small that their own gradient could not be represented have none.
    """
    if not phi_q.shape[-1]:
        return phi_q
    wide = phi_q.to(at_least_float32(phi_q.dtype))
    largest = wide.detach().abs().amax(-1, keepdim=True)
    wide = torch.where(largest < _least(wide.dtype), wide.detach(), wide)
    return wide * torch.exp2(-largest.clamp(min=torch.finfo(wide.dtype).tiny).log2().round())


def _has_moderate_rows(phi_q: Tensor) -> Tensor:
    """Return for which queries there is nothing to divide by, all features being 0, or no need."""
    largest = phi_q.abs().amax(-1) if phi_q.shape[-1] else phi_q.new_zeros(())
    return (largest == 0) | (largest > 1e-3)


def _has_gradient(total: Tensor) -> Tensor:
    """Return where a quotient with this denominator has a gradient that can be represented."""
    return total.abs() >= _least(total.dtype)


def _where_has_gradient(sums: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
    """Return numerator and denominator; without gradient where it could not be represented.

    A denominator 0 becomes 1.
    """
    kept = _has_gradient(total.detach())
    sums, total = (torch.where(kept, x, x.detach()) for x in (sums, total))
    return sums, total.masked_fill(total == 0, 1)


def _least(dtype: torch.dtype) -> float:
    """Return what can be divided by with room for the numbers of a gradient: 5e-31 in float32."""
    return float(torch.finfo(dtype).tiny ** 0.8)


def _require_fitting(
    phi_q: Tensor, phi_k: Tensor, v: Tensor, causal: bool, mode: str | None
) -> None:
    """Raise unless all are on one device, and causal queries stand at the keys."""
    if not causal and mode in ("recurrent", "chunk"):
        raise ValueError(f"mode must be None or 'parallel' unless causal, got {mode!r}")
    if causal and phi_q.shape[-2] != phi_k.shape[-2]:
        raise ValueError(
            f"phi_k must have a token for each of the {phi_q.shape[-2]} of phi_q when causal "
            f"(earlier ones are in the state), got shape {tuple(phi_k.shape)}"
        )


def _require_no_signs(phi_q: Tensor, phi_k: Tensor, v: Tensor, key_mask: Tensor | None) -> None:
    """Raise if features whose sum divides are known to have signs; padding may hold anything."""
    if key_mask is not None:
        lead = common_shape(*(x.shape[:-2] for x in (phi_q, phi_k, v)))
        padding = ~per_head(key_mask, (*lead, phi_k.shape[-2])).unsqueeze(-1)
        phi_k = phi_k.detach().masked_fill(padding, 0)
    for name, phi in (("phi_q", phi_q), ("phi_k", phi_k)):
        if finds(phi, lambda x: x.amin() < 0):
            raise ValueError(
                f"{name} must not be negative where a sum of products divides, got "
                f"{phi.min().item():g}: apply a feature map such as ELUFeatures, or give "
                "normalize=False"
            )


def _require_state(
    causal: bool, state: LinearState | None, return_state: bool, weight: PositionWeight
) -> None:
    """Raise unless a state fits the attention that it is for."""
    if not causal and (state is not None or return_state):
        name, given = ("return_state", True) if state is None else ("state", "a state")
        raise ValueError(
            f"{name} must be left out unless causal, where there is a last token, got {given}"
        )
    if state is not None:
        require_kind_of_state(state.kind, weight.kind)
