"""Linear attention whose features are rotated by their positions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from stringlib.attention.linear import CONSTANT, attend
from stringlib.attention.linear_arguments import packed, prepared, require_fitting
from stringlib.attention.quotient import moderate_rows, require_no_signs, where_has_gradient
from stringlib.attention.weights import PositionWeight
from stringlib.documents import Documents
from stringlib.encoders.rotary import Phases, RotaryEncoder
from stringlib.inputs import all_eager, any_eager
from stringlib.precision import largest_exponent, without_autocast
from stringlib.spec import Floats, Indices, checked

LARGEST = 1e4
"""Largest output of :func:`rotated_linear_attention`, as a multiple of the largest value.

The limit is checked only with ``numerator_only``, where the weights of a query do not sum to 1. It
is relative to the largest absolute entry of ``v``.
"""


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
    document_ids: Indices[Tensor, "...? keys"] | Documents | None = None,
    key_positions: Tensor | Phases | None = None,
) -> Tensor:
    r"""Return the output of linear attention whose features are rotated by their positions.

    The similarity of query i and key j is :math:`\phi(q_i)^\top R(r_j - r_i)\,\phi(k_j)`, equation
    :eq:`eq-rotation-after`, where R is the rotation of the encoder and :math:`r_i` a position. The
    similarity is a sum of cosines of the offset, :eq:`eq-rotation-pair`. It does not change if all
    positions are shifted by the same amount. But the similarity may be negative, and then the
    denominator may be 0. If each feature is padded with a zero, the similarity of nonnegative
    features is not negative for small offsets, :eq:`eq-rotation-padded`. If nonnegative features
    are permuted by a :class:`~stringlib.attention.roll.Roll` instead, the similarity is never
    negative.

    With ``numerator_only`` the sum is divided by the sum without rotation,
    :math:`\sum_j \phi(q_i)^\top\phi(k_j)`, equation :eq:`eq-rotation-numerator`. This denominator
    is positive for positive features, but the weights of a query do not sum to 1 and are not
    bounded. For example, queries and keys of large norm often have random features whose product is
    nearly 0, while the product of the rotated features is not nearly 0. Outputs and gradients then
    become very large. On the CPU, an output more than :data:`LARGEST` times as large as the largest
    value raises an error. On a GPU, and in compiled code, the outputs are not checked. If the
    denominator of a query is 0, the output of this query is 0.

    To rotate before the feature map, :eq:`eq-rotation-before`, apply the feature map to encoded
    queries and keys, and call :func:`~stringlib.attention.linear.linear_attention` with these
    features.

    Args:
        phi_q: Features of the queries, ``(..., heads, seq, m)``. With ``numerator_only`` no feature
            may be negative.
        phi_k: Features of the keys, ``(..., heads, keys, m)``. With ``numerator_only`` no feature
            may be negative.
        v: Values, ``(..., heads, keys, d_v)``.
        encoder: A rotary encoder whose ``head_dim`` is the number m of features.
        positions: Positions of the queries, ``(..., seq, coord_dim)``, or the
            :class:`~stringlib.encoders.rotary.Phases` of the encoder at these positions.
        weight: A position weight, which is applied in numerator and denominator. A constant
            :class:`~stringlib.attention.decay.DecayWeight` gives equation
            :eq:`eq-rotation-decay`. Default: None, the constant weight 1.
        causal: If True, query i attends only to the keys 0 … i. Default: False.
        numerator_only: If True, only the features of the numerator are rotated. Default: False.
        mode: How to compute the sums, one of the modes of
            :func:`~stringlib.attention.linear.linear_attention`. Default: None, which chooses for
            speed.
        key_scale: Logarithms of factors that were divided out of ``phi_k``, ``(..., heads, keys)``,
            as ``FavorFeatures.scaled_keys`` returns them. Default: None, which means that all
            factors are 1.
        key_mask: False for keys that are padding, ``(..., keys)`` or ``(..., heads, keys)``.
            Default: None, no padding.
        document_ids: For packed sequences, integers that increase from document to document,
            ``(..., keys)``. A query attends only to the keys of its own document. Default: None,
            one document.
        key_positions: Positions of the keys, or the phases of these positions, if keys and queries
            have different positions. Default: ``positions``.

    Returns:
        Outputs, ``(..., heads, seq, d_v)``, in the dtype of ``v``; sums are computed in float32 or
        float64.

    Raises:
        ValueError: If an argument does not fit the others, or if ``weight`` has no denominator,
            such as a delta rule. Also, on the CPU with ``numerator_only``, if a feature is negative
            or an output exceeds the limit.

    Source:
        Su et al. 2024 (RoFormer), equation 19, for ``numerator_only``.
    """
    weight = weight or CONSTANT
    require_fitting(phi_q, phi_k, v, causal, mode)
    if not weight.normalized:
        raise ValueError(
            f"weight must have a denominator for rotated features, got a {type(weight).__name__}. "
            "Rotate queries and keys before the feature map instead."
        )
    packing: dict[str, Any] = {}
    if document_ids is not None:
        packing["documents"] = packed(phi_q, phi_k, document_ids)
    with without_autocast(v):
        # rows are scaled, because positive and negative terms may cancel to a very small sum
        q, k, u, key_scale = prepared(moderate_rows(phi_q), phi_k, v, key_scale, key_mask)
        if key_positions is None:
            rotated_q, rotated_k = encoder(q, k, positions)
        else:
            rotated_q, rotated_k = encoder(q, k, positions, key_positions)
        if not numerator_only:
            scaled = {"mode": mode, "key_scale": key_scale, **packing}
            out, _ = attend(rotated_q, rotated_k, u, weight, causal, **scaled)
            return out.to(v.dtype)
        require_no_signs(q, k, u, None)
        ones = torch.ones_like(u[..., :1])
        options = {"causal": causal, "mode": mode, **packing}
        above = weight.sums(rotated_q, rotated_k, u, key_scale, **options)
        below = weight.sums(q, k, ones, key_scale, **options)
        # a denominator 0 means that no key shares a feature with the query; the numerator is then
        # the effect of the rotation or of rounding alone
        rotated = above.sums.masked_fill(below.sums == 0, 0)
        numerator, denominator = where_has_gradient(rotated, below.sums)
        out = numerator / denominator
        if above.log_scale is not None and below.log_scale is not None:
            # a Toeplitz weight scales each row by the largest bias at a product other than 0; the
            # rotated products may have other zeros, so the scales may differ by any amount
            scale = above.log_scale - below.log_scale
            out = out * scale.clamp(max=largest_exponent(scale.dtype)).exp()[..., None]
    _require_moderate(out, q, k, u)
    return out.to(v.dtype)


def _require_moderate(out: Tensor, phi_q: Tensor, phi_k: Tensor, u: Tensor) -> None:
    """Raise ``ValueError`` if an output exceeds :data:`LARGEST` times the largest value.

    Nothing is raised if a feature or a value is not finite. The check is made on the CPU only.
    """
    if any_eager(out, lambda x: ~(x.abs() <= LARGEST * u.detach().abs().amax())) and all(
        all_eager(x, torch.isfinite) for x in (phi_q, phi_k, u)
    ):
        raise ValueError(
            "numerator_only (in a layer, rotate='after') must give outputs of at most "
            f"{LARGEST:g} times the largest value ({u.detach().abs().amax().item():.2g}), got an "
            f"output of {out.detach().abs().amax().item():.2g}. For these queries and keys the "
            "denominator, which is not rotated, is too small. In a layer use rotate='before' or "
            "normalize_qk=True."
        )
