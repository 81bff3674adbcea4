"""Kernelised attention as it is printed: a sum over all pairs, and a recurrence over tokens."""

from __future__ import annotations

import torch
from torch import Tensor


def linear_attention(
    phi_q: Tensor,
    phi_k: Tensor,
    v: Tensor,
    weights: Tensor | None = None,
    causal: bool = False,
    normalize: bool = True,
) -> Tensor:
    r"""Return the double sum of equation :eq:`eq-linear-attention`, pair by pair.

    Args:
        phi_q: Features of the queries, ``(heads, n, m)``.
        phi_k: Features of the keys, ``(heads, keys, m)``.
        v: Values, ``(heads, keys, d_v)``.
        weights: w(i, j), ``(heads, n, keys)``; 1 if omitted.
        causal: Whether query i sees the keys 0 … i only.
        normalize: Whether to divide by the sum without the values.

    Returns:
        float64, ``(heads, n, d_v)``.

    Source:
        Katharopoulos et al. 2020.
    """
    phi_q, phi_k, v = phi_q.double(), phi_k.double(), v.double()
    rows = []
    for head in range(phi_q.shape[0]):
        for i in range(phi_q.shape[1]):
            numerator = torch.zeros(v.shape[-1], dtype=torch.float64)
            denominator = torch.zeros((), dtype=torch.float64)
            for j in range(i + 1 if causal else phi_k.shape[1]):
                a = torch.dot(phi_q[head, i], phi_k[head, j])
                if weights is not None:
                    a = a * weights[head, i, j].double()
                numerator = numerator + a * v[head, j]
                denominator = denominator + a
            rows.append(numerator / denominator if normalize else numerator)
    return torch.stack(rows).reshape(*phi_q.shape[:2], v.shape[-1])


def recurrent_attention(phi_q: Tensor, phi_k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    r"""Return causal attention by the recurrence of equation :eq:`eq-linear-state`.

    Args:
        phi_q: Features of the queries, ``(heads, n, m)``.
        phi_k: Features of the keys, ``(heads, n, m)``.
        v: Values, ``(heads, n, d_v)``.

    Returns:
        In float64 the outputs ``(heads, n, d_v)``, the last state S ``(heads, m, d_v)`` and the
        last normaliser z ``(heads, m)``.

    Source:
        Katharopoulos et al. 2020.
    """
    phi_q, phi_k, v = phi_q.double(), phi_k.double(), v.double()
    heads, n, m = phi_q.shape
    S = torch.zeros(heads, m, v.shape[-1], dtype=torch.float64)
    z = torch.zeros(heads, m, dtype=torch.float64)
    rows = []
    for t in range(n):
        S = S + torch.einsum("hm,hd->hmd", phi_k[:, t], v[:, t])
        z = z + phi_k[:, t]
        numerator = torch.einsum("hm,hmd->hd", phi_q[:, t], S)
        denominator = torch.einsum("hm,hm->h", phi_q[:, t], z)
        rows.append(numerator / denominator[:, None])
    return torch.stack(rows, 1), S, z


def state_space(A: Tensor, B: Tensor, C: Tensor, x: Tensor) -> Tensor:
    r"""Return the outputs of a linear state-space model, equation :eq:`eq-linear-ssm`.

    Args:
        A: Transitions, ``(n, m, m)``.
        B: What writes, ``(n, m)``.
        C: What reads, ``(n, m)``.
        x: Inputs, ``(n, d)``.

    Returns:
        float64, ``(n, d)``.

    Source:
        Dao and Gu 2024.
    """
    S = torch.zeros(A.shape[-1], x.shape[-1], dtype=torch.float64)
    rows = []
    for t in range(x.shape[0]):
        S = A[t].double() @ S + torch.outer(B[t].double(), x[t].double())
        rows.append(C[t].double() @ S)
    return torch.stack(rows)
