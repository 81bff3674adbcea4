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
from stringlib.kernels.recurrence import PLAIN_CHUNK
from stringlib.precision import LEAST


def common_scale(
    key_scale: Tensor,
    causal: bool,
    before: Tensor | None = None,
    documents: Documents | None = None,
) -> Tensor:
    """Return the largest scale c of the keys to which each query attends.

    Args:
        key_scale: The scales of the keys, ``(..., n)`` with n ≥ 1; −∞ for padding.
        causal: If True, query i attends only to the keys 0 … i.
        before: The largest scale c of the earlier tokens, ``(...)``. Default: None, which means
            no earlier tokens.
        documents: The documents of packed sequences. Default: None, one document.

    Returns:
        If causal, the running maximum, ``(..., n)``. Otherwise the maximum over all keys,
        ``(..., 1)``. For packed documents, the maximum within a document, ``(..., n)``, which is
        running if causal. Where all scales are −∞, the result is −1e30.
    """
    key_scale = key_scale.detach()  # a common factor cancels, so it needs no gradient
    if documents is not None:
        if causal:
            return _maximum_in_documents(key_scale, before, documents).clamp(min=LEAST)
        own = key_scale.unsqueeze(-2).masked_fill(documents.apart(), -math.inf)
        return own.amax(-1).clamp(min=LEAST)
    if not causal:
        return key_scale.amax(-1, keepdim=True).clamp(min=LEAST)
    if before is not None and key_scale.shape[-1] == 1:  # one token: no running maximum
        return torch.maximum(key_scale, before[..., None].to(key_scale.dtype))
    common = _running_maximum(key_scale).clamp(min=LEAST)
    return common if before is None else torch.maximum(common, before[..., None].to(common.dtype))


def _running_maximum(x: Tensor) -> Tensor:
    """Return the maximum of each entry of ``x`` and all earlier entries in the last dimension.

    Entries are floating-point numbers, or integers of at least 0.
    """
    if not torch.compiler.is_exporting():
        return x.cummax(-1).values
    # ONNX has no running maximum. In two levels, because one matrix would have n² entries.
    (chunks,) = in_chunks(PLAIN_CHUNK, x.unsqueeze(-1))
    chunks = chunks.squeeze(-1)
    within = _largest_before(chunks, 1)
    before = _largest_before(chunks.amax(-1), 0)
    return torch.maximum(within, before.unsqueeze(-1)).flatten(-2)[..., : x.shape[-1]]


def _largest_before(x: Tensor, own: int) -> Tensor:
    """Return for each entry of ``x`` the maximum of all earlier entries.

    Args:
        x: Entries, ``(..., n)``.
        own: 1 to include the entry itself, 0 to leave it out. Without any entry the maximum is −∞,
            or −1 for integers.
    """
    n = x.shape[-1]
    later = torch.ones(n, n, dtype=torch.bool, device=x.device).triu(own)
    least = -torch.inf if x.is_floating_point() else -1
    return x.unsqueeze(-2).masked_fill(later, least).amax(-1)


def _maximum_in_documents(key_scale: Tensor, before: Tensor | None, documents: Documents) -> Tensor:
    """Return the running maximum of the scales, ``(..., n)``, which restarts in each document.

    The arguments are those of :func:`common_scale`.
    """
    number, n = documents.numbers.unsqueeze(-2), key_scale.shape[-1]
    if before is not None:  # like a first key of the first document
        key_scale = torch.cat([before[..., None].to(key_scale.dtype), key_scale], -1)
        number = pad(number, (1, 0))
    # Each key gets an integer by which keys are ordered first by document and then by scale. So the
    # running maximum of these integers never refers to an earlier document.
    ordered, order = key_scale.sort(-1)
    count = key_scale.shape[-1]
    first = number * count
    top = _running_maximum(first + order.argsort(-1)) - first
    return ordered.expand(top.shape).gather(-1, top)[..., -n:]


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
