"""Checks and conversions of the arguments that all functions of linear attention share."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from stringlib.attention.states import LinearState
from stringlib.documents import Documents, documents_of
from stringlib.inputs import common_shape, per_head


def packed(
    phi_q: Tensor, phi_k: Tensor, document_ids: Tensor | Documents, state: LinearState | None = None
) -> Documents:
    """Return the documents of packed sequences.

    Raises:
        ValueError: If the number of keys is not the number of queries, or if ``document_ids`` do
            not fit the tokens.
    """
    if phi_q.shape[-2] != phi_k.shape[-2]:
        raise ValueError(
            f"phi_k must have {phi_q.shape[-2]} tokens, as many as phi_q, if document_ids are "
            f"given, got {phi_k.shape[-2]} tokens in shape {tuple(phi_k.shape)}"
        )
    return documents_of(phi_q, document_ids, 0 if state is None else state.length)


def prepared(
    phi_q: Tensor, phi_k: Tensor, v: Tensor, key_scale: Tensor | None, key_mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Return all tensors in one dtype, float32 or float64, with 0 for keys that are padding.

    The arguments are those of :func:`~stringlib.attention.linear.linear_attention`.

    Returns:
        The features of queries and keys, the values, and the scales of the keys or None. The scale
        of padding is −∞.
    """
    dtype = phi_q.dtype
    if not dtype == phi_k.dtype == v.dtype or dtype.itemsize < 4:
        dtype = torch.promote_types(dtype, phi_k.dtype)
        dtype = torch.promote_types(dtype, torch.promote_types(v.dtype, torch.float32))
    q, k, u = phi_q.to(dtype), phi_k.to(dtype), v.to(dtype)
    if key_scale is not None:
        key_scale = key_scale.to(dtype)
    if key_mask is not None:
        lead = common_shape(*(x.shape[:-2] for x in (q, k, u)))
        kept = per_head(key_mask, (*lead, u.shape[-2]), u.device)
        k, u = (x.masked_fill(~kept[..., None], 0) for x in (k, u))  # 0 · NaN is NaN
        key_scale = None if key_scale is None else key_scale.masked_fill(~kept, -math.inf)
    return q, k, u, key_scale


def require_fitting(
    phi_q: Tensor, phi_k: Tensor, v: Tensor, causal: bool, mode: str | None
) -> None:
    """Raise ``ValueError`` if ``mode`` or the number of keys does not fit ``causal``."""
    if not causal and mode in ("recurrent", "chunk"):
        raise ValueError(
            f"causal must be True with mode={mode!r}, got False. Pass causal=True, or leave out "
            "mode."
        )
    if causal and phi_q.shape[-2] != phi_k.shape[-2]:
        raise ValueError(
            f"phi_k must have {phi_q.shape[-2]} tokens, as many as phi_q, if causal=True, got "
            f"{phi_k.shape[-2]} tokens in shape {tuple(phi_k.shape)}. Pass earlier tokens through "
            "state."
        )
