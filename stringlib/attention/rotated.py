r"""Rotations behind the feature map: kernelised attention that depends on offsets exactly."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from stringlib.attention.linear import (
    linear_attention,
    moderate_rows,
    require_fitting,
    weighted_sums,
    where_has_gradient,
)
from stringlib.attention.weights import PositionWeight, ScaledSums
from stringlib.encoders.string import RotaryEncoder
from stringlib.inputs import require_bool
from stringlib.precision import without_autocast


def rotated_linear_attention(
    phi_q: Tensor,
    phi_k: Tensor,
    v: Tensor,
    encoder: RotaryEncoder,
    positions: Tensor,
    weight: PositionWeight | None = None,
    causal: bool = False,
    *,
    numerator_only: bool = False,
    mode: str | None = None,
    key_scale: Tensor | None = None,
    key_mask: Tensor | None = None,
) -> Tensor:
    r"""Turn features instead of queries and keys: :math:`\phi(q_i)^\top R(r_j - r_i)\,\phi(k_j)`.

    Equation :eq:`eq-rotation-after`, or with ``numerator_only`` equation
    :eq:`eq-rotation-numerator`. A product is a sum of cosines of the offset,
    :eq:`eq-rotation-pair`. Shifting all positions changes nothing, but products may be negative
    unless features are padded, :eq:`eq-rotation-padded`, and their sum, the denominator, may be 0.
    With ``numerator_only`` the denominator is :math:`\sum_j \phi(q_i)^\top\phi(k_j)`: positive for
    positive features, but then the weights of a query do not sum to 1. To turn *before* the
    feature map, :eq:`eq-rotation-before`, give encoded queries and keys to the feature map and its
    features to :func:`~stringlib.attention.linear.linear_attention`.

    Args:
        phi_q: Features of the queries, ``(..., heads, seq, m)``.
        phi_k: Features of the keys, of the same shape.
        v: Values, ``(..., heads, seq, d_v)``.
        encoder: A rotary encoder of ``head_dim`` m.
        positions: ``(..., seq, coord_dim)``.
        weight: A position weight, in numerator and denominator; with a constant
            :class:`~stringlib.attention.decay.DecayWeight` equation :eq:`eq-rotation-decay`.
        causal: Whether query i sees the keys 0 … i only.
        numerator_only: Whether the denominator stays as it is without positions.
        mode: As for :func:`~stringlib.attention.linear.linear_attention`.
        key_scale: Logarithms of factors left out of ``phi_k``, as there.
        key_mask: False for keys that are padding, as there.

    Returns:
        ``(..., heads, seq, d_v)``, of the dtype of ``v``; computed in float32 at least.

    Raises:
        TypeError: If an argument has the wrong type or dtype.
        ValueError: If shapes do not fit, or an option does not apply.

    Source:
        Su et al. 2024 (RoFormer), equation 19, for ``numerator_only``.
    """
    require_fitting(phi_q, phi_k, v, weight, causal, mode, key_scale)
    require_bool(numerator_only=numerator_only)
    if not isinstance(encoder, RotaryEncoder):
        raise TypeError(f"encoder must be a RotaryEncoder, got {type(encoder).__name__}")
    dtype = torch.promote_types(v.dtype, torch.float32)  # a product may be far below its terms
    phi_q, phi_k, u = moderate_rows(phi_q).to(dtype), phi_k.to(dtype), v.to(dtype)
    q, k = encoder(phi_q, phi_k, positions)

    if not numerator_only:
        out = linear_attention(
            *(q, k, u, weight, causal), mode=mode, key_scale=key_scale, key_mask=key_mask
        )
        return cast(Tensor, out).to(v.dtype)

    def sums(q: Tensor, k: Tensor, u: Tensor) -> ScaledSums:
        return weighted_sums(
            *(q, k, u, weight, causal, mode), key_scale=key_scale, key_mask=key_mask
        )

    with without_autocast(v):
        above, below = sums(q, k, u), sums(phi_q, phi_k, torch.ones_like(u[..., :1]))
        numerator, denominator = where_has_gradient(above.sums, below.sums)
        out = numerator / denominator
        if above.log_scale is not None and below.log_scale is not None:
            out = out * (above.log_scale - below.log_scale).exp()[..., None]
    return out.to(v.dtype)
