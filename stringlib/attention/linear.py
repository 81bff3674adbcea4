r"""Linear (kernelised) attention of features that are already computed.

Linear attention replaces the exponential of softmax by a product of features. The cost is linear
in the number of tokens, unless the position weight needs the n × n matrix.
"""

from __future__ import annotations

from typing import Any, Literal, overload

import torch
from torch import Tensor

from stringlib.attention.linear_arguments import packed, prepared, require_fitting
from stringlib.attention.quotient import (
    all_have_gradient,
    has_moderate_rows,
    moderate_rows,
    require_no_signs,
    where_has_gradient,
)
from stringlib.attention.states import LinearState
from stringlib.attention.weights import ConstantWeight, PositionWeight
from stringlib.documents import Documents
from stringlib.inputs import (
    all_eager,
    can_inspect,
    require_kind_of_state,
)
from stringlib.moved import forward
from stringlib.precision import without_autocast
from stringlib.spec import Floats, Indices, checked

CONSTANT = ConstantWeight()


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
    document_ids: Tensor | None = None,
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
    document_ids: Tensor | None = None,
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
    document_ids: Tensor | None = None,
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
    document_ids: Indices[Tensor, "...? keys"] | None = None,
    state: LinearState | None = None,
    return_state: bool = False,
) -> Tensor | tuple[Tensor, LinearState]:
    r"""Return the output of linear attention for features that are already computed.

    The output of query i is :math:`\sum_j A_{ij} v_j / \sum_j A_{ij}` with
    :math:`A_{ij} = w(i,j)\,\phi(q_i)^\top\phi(k_j)`, where w is the position weight,
    :eq:`eq-linear-attention`. A column of ones is appended to the values, so that one product gives
    numerator and denominator, :eq:`eq-linear-ones`.

    Args:
        phi_q: Features of the queries, ``(..., heads, n, m)``. With ``normalize`` no feature may
            be negative, because the denominator could then be 0. A negative feature then raises an
            error on the CPU. On a GPU, and in compiled code, the features are not checked.
        phi_k: Features of the keys, ``(..., heads, keys, m)``. With ``normalize`` no feature may be
            negative.
        v: Values, ``(..., heads, keys, d_v)``.
        weight: The position weight w. Default: None, the constant weight 1.
        causal: If True, query i attends only to the keys 0 … i, and the number of keys must be
            the number of queries. Default: False.
        normalize: If True (default), the sum is divided by :math:`\sum_j A_{ij}`. If this
            denominator is exactly 0, the numerator is returned, which is 0 too if all
            :math:`A_{ij}` are 0. In float32, a query gets no gradient if its largest feature is
            below 5e-31, because the gradient could overflow. The same holds if the denominator is
            below 5e-31 after the features of the query are scaled so that the largest is about 1.
        mode: How to compute the sums. ``"parallel"`` uses the n × n matrix A. ``"recurrent"`` goes
            token by token and ``"chunk"`` chunk by chunk, only with ``causal`` and a weight that
            has a recurrent form. ``"fft"`` is only for
            :class:`~stringlib.attention.toeplitz.ToeplitzWeight`. None (default) chooses the mode
            that is usually fastest for the position weight.
        key_scale: Logarithms :math:`s_j` of factors that were divided out of ``phi_k``,
            ``(..., heads, keys)``, as ``FavorFeatures.scaled_keys`` returns them; −∞ for a factor
            0. With ``normalize`` only the differences of these logarithms matter. In causal
            attention the scale of a later key has no influence on an earlier query. Default: None,
            which means that all factors are 1.
        key_mask: False for keys that are padding, ``(..., keys)`` or ``(..., heads, keys)``.
            Features and values of padding are ignored, even if they are NaN. Default: None, no
            padding.
        document_ids: For packed sequences, integers that increase from document to document,
            ``(..., keys)``. A query attends only to the keys of its own document, and only the
            first document continues ``state``. Without ``causal``, and for a weight without a
            recurrent form such as :class:`~stringlib.attention.toeplitz.ToeplitzWeight`, packed
            documents use the n × n matrix. Default: None, one document.
        state: The state that this function returned for the earlier tokens; only with ``causal``.
            Default: None, which means no earlier tokens.
        return_state: If True, the state after the last token is also returned; only with
            ``causal``. Default: False.

    Returns:
        Outputs, ``(..., heads, n, d_v)``, in the dtype of ``v``; sums are computed in float32 or
        float64. With ``return_state``, a pair of the outputs and a
        :class:`~stringlib.attention.states.LinearState`.

    Raises:
        ValueError: If an argument does not fit the others. Also, on the CPU with ``normalize``, if
            a feature is negative.

    Example:
        >>> from stringlib import CosineWeight, ReLUFeatures
        >>> phi, (q, k, v) = ReLUFeatures(), torch.randn(3, 8, 6, 196, 64)
        >>> phi_q, phi_k = phi(q), phi(k, is_query=False)
        >>> linear_attention(phi_q, phi_k, v, CosineWeight(256), causal=True).shape
        torch.Size([8, 6, 196, 64])
    """
    weight = weight or CONSTANT
    require_fitting(phi_q, phi_k, v, causal, mode)
    _require_state(causal, state, return_state, weight)
    documents = None
    if document_ids is not None:
        documents = packed(phi_q, phi_k, document_ids, state)
    if normalize and not weight.normalized:
        raise ValueError(
            f"normalize must be False for {type(weight).__name__}, got True. This weight has no "
            "denominator. Pass normalize=False."
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
        documents=documents,
        normalize=normalize,
        # a state contains the denominator too, so it needs the column of ones
        ones=normalize or return_state or state is not None,
    )
    if normalize:
        require_no_signs(phi_q, phi_k, v, key_mask)
    if not return_state:
        return out
    if after is None:
        raise ValueError(
            f"return_state must be False for {type(weight).__name__}, got True. This weight "
            "has no state. Pass all tokens at once, or use a DecayWeight."
        )
    if documents is not None:
        after = after._replace(length=documents.last_length())
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
    documents: Documents | None = None,
    normalize: bool = True,
    ones: bool = True,
) -> tuple[Tensor, LinearState | None]:
    """Return the outputs of linear attention and the state, with few checks of the arguments.

    The arguments are those of :func:`linear_attention`. The ``kind`` of a given state is not
    checked, and the ``kind`` of the returned state is empty.

    Args:
        phi_q: Features of the queries.
        phi_k: Features of the keys.
        v: Values.
        weight: The position weight.
        causal: If True, query i attends only to the keys 0 … i.
        mode: How to compute the sums.
        key_scale: Logarithms of factors that were divided out of ``phi_k``.
        key_mask: False for keys that are padding.
        state: The state after the earlier tokens, or None.
        documents: The documents of packed sequences, or None. The returned state is that of the
            last document, except for its length, which counts the tokens of all documents.
        normalize: If True, the sum is divided by the sum of the weights. Requires ``ones=True``.
        ones: If True, a column of ones is appended to the values. The state then contains the
            denominator too.

    Returns:
        The outputs and the state after the last token. The state is None if the weight has no
        recurrent form, or if not causal.

    Raises:
        ValueError: If ``key_scale`` is given and the state was made without key scales, or if
            ``key_scale`` is None and the state was made with key scales.
    """
    if state is not None and state.length and (state.log_scale is None) != (key_scale is None):
        expected, how = ("be given", "with") if key_scale is None else ("be None", "without")
        given = "None" if key_scale is None else f"a tensor of shape {tuple(key_scale.shape)}"
        raise ValueError(
            f"key_scale must {expected}, got {given}. The state was computed {how} key scales. "
            "Pass key_scale in every call that shares a state, or in none."
        )
    with without_autocast(v):  # long sums in half precision would lose too many digits
        q, k, u, key_scale = prepared(phi_q, phi_k, v, key_scale, key_mask)
        if ones:
            u = torch.cat([u, u.new_ones(*u.shape[:-1], 1)], -1)
        rest: dict[str, Any] = {"causal": causal, "mode": mode, "state": state}
        if documents is not None:
            rest["documents"] = documents
        inspected = can_inspect(v)
        if normalize and not inspected:
            q = moderate_rows(q)
        found = weight.sums(q, k, u, key_scale, **rest)
        # split instead of two slices, because the backward pass of two slices adds two gradients of
        # full width
        widths = [v.shape[-1], int(ones)]
        out, total = found.sums.split_with_sizes(widths, -1)
        if normalize:
            if not inspected or not all_have_gradient(total):
                if inspected and not all_eager(q, has_moderate_rows):
                    found = weight.sums(moderate_rows(q), k, u, key_scale, **rest)
                    out, total = found.sums.split_with_sizes(widths, -1)
                out, total = where_has_gradient(out, total)
            out = out / total
        elif found.log_scale is not None:
            # the scale is applied in two steps, because its exponential may overflow although the
            # product does not, and 0 · ∞ is NaN
            half = (found.log_scale / 2).exp()[..., None]
            out = out * half * half
    return out.to(v.dtype), found.state


def _require_state(
    causal: bool, state: LinearState | None, return_state: bool, weight: PositionWeight
) -> None:
    """Raise ``ValueError`` if a state is used without ``causal``, or is that of another weight."""
    if not causal and (state is not None or return_state):
        expected, given = "return_state must be False", "True"
        if state is not None:
            expected, given = "state must be None", f"a state of length {state.length}"
        raise ValueError(
            f"{expected} unless causal=True, got {given}. Without a causal mask there is no state. "
            "Pass causal=True, or leave out state and return_state."
        )
    if state is not None:
        require_kind_of_state(state.kind, weight.kind)


__getattr__ = forward(
    __name__, "stringlib.attention.rotated_linear", "LARGEST", "rotated_linear_attention"
)
