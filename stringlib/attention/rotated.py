r"""Rotations behind the feature map: kernelised attention that depends on offsets exactly."""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor

from stringlib.attention.linear import linear_attention
from stringlib.attention.masks import per_head
from stringlib.attention.weights import PositionWeight
from stringlib.encoders.string import RotaryEncoder


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
        key_scale: Logarithms of factors left out of ``phi_k``, as there; but all keys are divided
            by the largest, also if causal.
        key_mask: False for keys that are padding, as there.

    Returns:
        ``(..., heads, seq, d_v)``, of the dtype of ``v``; computed in float32 at least.

    Raises:
        TypeError: If a tensor is not floating point.
        ValueError: If a shape does not fit.

    Source:
        Su et al. 2024 (RoFormer), equation 19, for ``numerator_only``.
    """
    dtype = torch.promote_types(v.dtype, torch.float32)  # a product may be far below its terms
    phi_q, phi_k, u = phi_q.to(dtype), phi_k.to(dtype), v.to(dtype)
    if key_scale is not None and key_scale.shape[-1]:
        if key_mask is not None:
            hidden = ~per_head(key_mask, phi_k.shape[:-1])
            key_scale = key_scale.masked_fill(hidden, -math.inf)
        largest = key_scale.amax(-1, keepdim=True).clamp(min=torch.finfo(key_scale.dtype).min)
        phi_k = phi_k * (key_scale - largest).exp()[..., None].to(dtype)
    q, k = encoder(phi_q, phi_k, positions)

    def attend(q: Tensor, k: Tensor, u: Tensor, normalize: bool) -> Tensor:
        out = linear_attention(q, k, u, weight, causal, normalize, mode, key_mask=key_mask)
        return cast(Tensor, out)

    if not numerator_only:
        return attend(q, k, u, normalize=True).to(v.dtype)
    below = attend(phi_q, phi_k, torch.ones_like(u[..., :1]), normalize=False)
    return (attend(q, k, u, normalize=False) / below.masked_fill(below == 0, 1)).to(v.dtype)
