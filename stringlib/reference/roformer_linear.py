"""Linear attention with rotations in the numerator, as RoFormer prints it."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def roformer_linear_attention(
    phi_q: Tensor,
    phi_k: Tensor,
    v: Tensor,
    positions: Tensor,
    frequencies: Tensor,
    causal: bool = False,
) -> Tensor:
    r"""Return :math:`\sum_j (R_i\phi(q_i))^\top R_j\phi(k_j) v_j / \sum_j \phi(q_i)^\top\phi(k_j)`.

    Equation :eq:`eq-rotation-numerator`: the denominator is not rotated.

    Args:
        phi_q: Features of the queries, ``(heads, seq, m)`` with even m.
        phi_k: Features of the keys, ``(heads, seq, m)``.
        v: Values, ``(heads, seq, d_v)``.
        positions: Of queries and keys, ``(seq,)``.
        frequencies: Radians per position of each pair of features, ``(m // 2,)``.
        causal: Whether query i sees the keys 0 … i only.

    Returns:
        float64, ``(heads, seq, d_v)``.

    Raises:
        ValueError: If m is odd or the number of frequencies is not m / 2.

    Source:
        Su et al. 2024 (RoFormer), equation 19.
    """
    m = phi_q.shape[-1]
    if m % 2 or frequencies.shape != (m // 2,):
        raise ValueError(
            "phi_q must have an even number m of features and frequencies the shape (m / 2,), "
            f"got {tuple(phi_q.shape)} and {tuple(frequencies.shape)}"
        )
    phi_q, phi_k, v = phi_q.double(), phi_k.double(), v.double()

    def rotated(features: Tensor, position: float) -> Tensor:
        turned = torch.zeros(m, dtype=torch.float64)
        for pair in range(m // 2):
            angle = position * frequencies[pair].item()
            first, second = features[2 * pair], features[2 * pair + 1]
            turned[2 * pair] = first * math.cos(angle) - second * math.sin(angle)
            turned[2 * pair + 1] = first * math.sin(angle) + second * math.cos(angle)
        return turned

    out = torch.zeros(*phi_q.shape[:-1], v.shape[-1], dtype=torch.float64)
    for head in range(phi_q.shape[0]):
        for i in range(phi_q.shape[1]):
            seen = i + 1 if causal else phi_k.shape[1]
            above, below = torch.zeros(v.shape[-1], dtype=torch.float64), 0.0
            query = rotated(phi_q[head, i], positions[i].item())
            for j in range(seen):
                key = rotated(phi_k[head, j], positions[j].item())
                above += torch.dot(query, key) * v[head, j]
                below += torch.dot(phi_q[head, i], phi_k[head, j]).item()
            out[head, i] = above / below
    return out
