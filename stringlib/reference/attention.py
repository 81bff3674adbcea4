"""Softmax attention as it is printed: one query after the other."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def softmax_attention(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None, causal: bool = False
) -> Tensor:
    r"""Return :math:`\operatorname{softmax}(QK^\top/\sqrt d + B)\,V`, :eq:`eq-bias-softmax`.

    Without bias and mask it is permutation equivariant, equation :eq:`eq-perm-equivariant`.

    Args:
        q: Queries, ``(heads, seq, d)``.
        k: Keys, ``(heads, keys, d)``.
        v: Values, ``(heads, keys, d_v)``.
        bias: Added to the scaled logits, ``(heads, seq, keys)``.
        causal: Whether query i sees the keys 0 … i only.

    Returns:
        float64, ``(heads, seq, d_v)``.

    Source:
        Vaswani et al. 2017, equation 1.
    """
    q, k, v = q.double(), k.double(), v.double()
    out = torch.zeros(*q.shape[:-1], v.shape[-1], dtype=torch.float64)
    for head in range(q.shape[0]):
        for i in range(q.shape[1]):
            seen = i + 1 if causal else k.shape[1]
            logits = []
            for j in range(seen):
                logit = torch.dot(q[head, i], k[head, j]) / math.sqrt(q.shape[-1])
                logits.append(logit if bias is None else logit + bias[head, i, j].double())
            largest = max(logits)
            weights = [torch.exp(logit - largest) for logit in logits]
            total = sum(weights)
            for j in range(seen):
                out[head, i] += weights[j] / total * v[head, j]
    return out
