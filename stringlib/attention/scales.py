r"""Scales of keys: the largest factor among the keys to which a query attends.

The feature of key j is :math:`e^{s_j}\phi(k_j)`, where :math:`s_j` is the scale of the key. The
scales are kept apart from the features, because their exponentials may overflow.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from stringlib.documents import Documents
from stringlib.kernels.chunks import in_chunks
from stringlib.kernels.decays import log_decay_matrix
from stringlib.kernels.recurrence import PLAIN_CHUNK
from stringlib.precision import LEAST


def common_scale(
    key_scale: Tensor,
    causal: bool,
    before: Tensor | None = None,
    documents: Documents | None = None,
    log_decay: Tensor | None = None,
) -> Tensor:
    r"""Return the largest scale c of the keys to which each query attends.

    In causal attention with the decays :math:`e^{a_t}`, the weight of an earlier key falls from
    token to token. So c falls too: :math:`c_i = \max(c_{i-1} + a_i, s_i)`. If c did not fall, a key
    that has been forgotten could still determine c, and then the features of all later keys could
    be rounded to 0.

    Args:
        key_scale: The scales s of the keys, ``(..., n)`` with n ≥ 1; −∞ for padding.
        causal: If True, query i attends only to the keys 0 … i.
        before: The largest scale c of the earlier tokens, ``(...)``; only if causal. Default: None,
            which means no earlier tokens.
        documents: The documents of packed sequences; only if not causal. For causal attention,
            ``log_decay`` is −∞ at the first token of each document. Default: None, one document.
        log_decay: The logarithms a of the decays, ``(..., n)``; only if causal. Default: None, no
            decay.

    Returns:
        If causal, the scale c of each query, ``(..., n)``. Otherwise the maximum over all keys,
        ``(..., 1)``, or over the keys of each document, ``(..., n)``. Where all scales are −∞, the
        result is −1e30.
    """
    key_scale = key_scale.detach()  # a common factor cancels, so it needs no gradient
    if not causal:
        if documents is None:
            return key_scale.amax(-1, keepdim=True).clamp(min=LEAST)
        own = key_scale.unsqueeze(-2).masked_fill(documents.apart(), -math.inf)
        return own.amax(-1).clamp(min=LEAST)
    common = key_scale
    if log_decay is not None:
        log_decay = log_decay.detach().to(key_scale.dtype)
    if key_scale.shape[-1] > 1:
        common = _running_maximum(key_scale, log_decay)
    if before is not None:
        earlier = before[..., None].to(common.dtype)
        if log_decay is not None:
            earlier = earlier + log_decay.cumsum(-1)
        common = torch.maximum(common, earlier)
    return common.clamp(min=LEAST)


def _running_maximum(x: Tensor, log_decay: Tensor | None) -> Tensor:
    r"""Return the running maximum :math:`c_i = \max(c_{i-1} + a_i, x_i)`, ``(..., n)``.

    Args:
        x: Numbers, ``(..., n)``.
        log_decay: The logarithms a, ``(..., n)``. None means that all are 0.
    """
    if log_decay is None:
        if not torch.compiler.is_exporting():  # ONNX has no running maximum
            return x.cummax(-1).values
        log_decay = torch.zeros_like(x)
    # within chunks first; a matrix for all tokens would have n² entries
    cut = in_chunks(PLAIN_CHUNK, x.unsqueeze(-1), log_decay.unsqueeze(-1))
    within, decays = (each.squeeze(-1) for each in cut)
    span, over = 1, decays  # `within` is the maximum over the last `span` tokens
    while span < PLAIN_CHUNK:
        earlier = pad(within, (span, -span), value=-math.inf) + over
        within = torch.maximum(within, earlier)
        over = over + pad(over, (span, -span))
        span *= 2
    # then from chunk to chunk
    through = (within[..., None, :, -1] + log_decay_matrix(decays.sum(-1))).amax(-1)
    before = pad(through, (1, -1), value=-math.inf).unsqueeze(-1) + decays.cumsum(-1)
    return torch.maximum(within, before).flatten(-2)[..., : x.shape[-1]]


def shrinking(common: Tensor, before: Tensor | None = None) -> Tensor:
    """Return the logarithms of the decay that a growing scale of the state causes, ``(..., n)``.

    The state is divided by the exponential of the largest scale so far, :func:`common_scale`. If
    this scale grows from one token to the next, the state shrinks.

    Args:
        common: The largest scale up to each token, ``(..., n)``.
        before: The largest scale of the earlier tokens, ``(...)``. Default: None, which means no
            earlier tokens.
    """
    first = common[..., :1] if before is None else before[..., None].to(common.dtype)
    if common.shape[-1] == 1:
        return first - common
    # cut after joining: an exported program has no slice of n - 1 tokens, which could be none
    previous = torch.cat([first.expand_as(common[..., :1]), common], -1)[..., :-1]
    return previous - common


def scaled(
    q: Tensor, k: Tensor, log_decay: Tensor | None, key_scale: Tensor, before: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Divide the features of the keys by the exponentials of the common scales, for causal sums.

    This changes the decays too, see :func:`shrinking`. If there is one decay per feature, there is
    also one scale c per feature, because features may forget a key at different tokens. Then the
    sum of each query is divided by the exponential of its largest scale.

    Args:
        q: Features of the queries, ``(..., n, m)``.
        k: Features of the keys, ``(..., n, m)``.
        log_decay: The logarithms of the decays, ``(..., n, 1)`` or ``(..., n, m)``. None for no
            decay.
        key_scale: The scales of the keys, ``(..., n)``.
        before: The largest scales of the earlier tokens, ``(..., 1)`` or ``(..., m)``. None for no
            earlier tokens.

    Returns:
        Five tensors. They are the features of the queries, the features of the keys, the logarithms
        of the decays, the logarithm of the factor by which the sum of each query is divided,
        ``(..., n)``, and the scales after the last token.
    """
    key_scale = key_scale.unsqueeze(-2)
    decays = None if log_decay is None else log_decay.mT
    scales = common_scale(key_scale, True, before, log_decay=decays)  # (..., 1 or m, n)
    further = shrinking(scales, before).mT
    k = k * (key_scale - scales).exp().mT
    common = scales.amax(-2)
    if scales.shape[-2] > 1:
        q = q * (scales - common.unsqueeze(-2)).exp().mT
    return q, k, further if log_decay is None else log_decay + further, common, scales[..., -1]
