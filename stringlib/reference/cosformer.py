"""cosFormer as it is printed, and the same attention with every weight written out."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def cosine_attention(
    phi_q: Tensor,
    phi_k: Tensor,
    v: Tensor,
    horizon: float,
    positive: bool = False,
    causal: bool = False,
) -> Tensor:
    r"""Return attention with the cosine weight, one pair of tokens after the other.

    The weight of query i and key j is :math:`\cos(\pi(i-j)/2M)`, :eq:`eq-cosine-weight`, or
    half of one plus that, :eq:`eq-cosine-positive`. It may be negative here: nothing refuses a
    horizon that is too short.

    Args:
        phi_q: Features of the queries, ``(heads, seq, m)``.
        phi_k: Features of the keys, ``(heads, keys, m)``.
        v: Values, ``(heads, keys, d_v)``.
        horizon: M, in tokens.
        positive: Which of the two weights.
        causal: Whether query i sees the keys 0 … i only.

    Returns:
        float64, ``(heads, seq, d_v)``.
    """
    phi_q, phi_k, v = phi_q.double(), phi_k.double(), v.double()
    out = torch.zeros(*phi_q.shape[:-1], v.shape[-1], dtype=torch.float64)
    for head in range(phi_q.shape[0]):
        for i in range(phi_q.shape[1]):
            total = torch.zeros((), dtype=torch.float64)
            for j in range(i + 1 if causal else phi_k.shape[1]):
                weight = math.cos(math.pi * (i - j) / (2 * horizon))
                if positive:
                    weight = (1 + weight) / 2
                score = weight * torch.dot(phi_q[head, i], phi_k[head, j])
                out[head, i] += score * v[head, j]
                total = total + score
            out[head, i] /= total
    return out


def cosformer(q: Tensor, k: Tensor, v: Tensor, causal: bool = False, eps: float = 1e-6) -> Tensor:
    r"""Return cosFormer's attention by its four sums, :eq:`eq-cosine-features`.

    As in the authors' code: ReLU features, positions from 1, a horizon that is the longer of the
    two lengths AT HAND, and denominators of at least ``eps``.

    Args:
        q: Queries, ``(heads, seq, d)``.
        k: Keys, ``(heads, keys, d)``.
        v: Values, ``(heads, keys, d_v)``.
        causal: Whether query i sees the keys 0 … i only.
        eps: Smaller denominators are replaced by this.

    Returns:
        float64, ``(heads, seq, d_v)``.

    Source:
        Qin et al. 2022, section 3, and their code.
    """
    q, k, v = q.double().clamp(min=0), k.double().clamp(min=0), v.double()
    horizon = max(q.shape[1], k.shape[1])
    out = torch.zeros(*q.shape[:-1], v.shape[-1], dtype=torch.float64)
    for head in range(q.shape[0]):
        for i in range(q.shape[1]):
            angle_i = math.pi / 2 * (i + 1) / horizon
            cos_kv = torch.zeros(k.shape[-1], v.shape[-1], dtype=torch.float64)
            sin_kv, cos_k, sin_k = cos_kv.clone(), cos_kv[:, 0].clone(), cos_kv[:, 0].clone()
            for j in range(i + 1 if causal else k.shape[1]):
                angle_j = math.pi / 2 * (j + 1) / horizon
                cos_kv += math.cos(angle_j) * torch.outer(k[head, j], v[head, j])
                sin_kv += math.sin(angle_j) * torch.outer(k[head, j], v[head, j])
                cos_k += math.cos(angle_j) * k[head, j]
                sin_k += math.sin(angle_j) * k[head, j]
            cos_q, sin_q = math.cos(angle_i) * q[head, i], math.sin(angle_i) * q[head, i]
            total = torch.dot(cos_q, cos_k) + torch.dot(sin_q, sin_k)
            out[head, i] = (cos_q @ cos_kv + sin_q @ sin_kv) / total.clamp(min=eps)
    return out
