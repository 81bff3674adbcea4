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

    In causal attention with the decays :math:`e^{a_t}`, the scale of an earlier key falls with the
    decay, so that :math:`c_i = \max(c_{i-1} + a_i, s_i)`. Without this a key whose decay is almost
    0 would set c, and the features of all later keys could be rounded to 0.

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
        If causal, c for each token, ``(..., n)``. Otherwise the maximum over all keys,
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
    # in two levels, because one matrix would have n² entries
    cut = in_chunks(PLAIN_CHUNK, x.unsqueeze(-1), log_decay.unsqueeze(-1))
    chunks, decays = (each.squeeze(-1) for each in cut)
    within = _largest_before(chunks, decays)
    through = _largest_before(within[..., -1], decays.sum(-1))
    before = pad(through, (1, -1), value=-math.inf).unsqueeze(-1) + decays.cumsum(-1)
    return torch.maximum(within, before).flatten(-2)[..., : x.shape[-1]]


def _largest_before(x: Tensor, log_decay: Tensor) -> Tensor:
    """Return the running maximum of :func:`_running_maximum`, computed with an n × n matrix."""
    return (x.unsqueeze(-2) + log_decay_matrix(log_decay)).amax(-1)


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
