"""Kernelised attention as it is printed: a sum over all pairs of tokens."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from stringlib.reference.rope import apply_rope


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
    turned_q, turned_k = (apply_rope(phi, positions, frequencies) for phi in (phi_q, phi_k))
    above = linear_attention(turned_q, turned_k, v, causal=causal, normalize=False)
    below = linear_attention(phi_q, phi_k, torch.ones_like(v), causal=causal, normalize=False)
    return above / below


def cosine_attention(
    phi_q: Tensor,
    phi_k: Tensor,
    v: Tensor,
    horizon: float,
    positive: bool = False,
    causal: bool = False,
) -> Tensor:
    r"""Return attention with the cosine weight of every pair of tokens.

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
    heads, n, keys = *phi_q.shape[:2], phi_k.shape[1]
    weights = torch.zeros(n, keys, dtype=torch.float64)
    for i in range(n):
        for j in range(keys):
            weight = math.cos(math.pi * (i - j) / (2 * horizon))
            weights[i, j] = (1 + weight) / 2 if positive else weight
    return linear_attention(phi_q, phi_k, v, weights.expand(heads, n, keys), causal)


def falling_weight(distances: Tensor, degree: int) -> Tensor:
    r"""Return the falling polynomial of most weight at 0 over its mean, :eq:`eq-falling-best`.

    By what defines it, with no Gauss formula: :math:`-w'` is the square of a polynomial q, for even
    degrees times :math:`1 - t`, and its mean place :math:`\int t(-w')\,dt / \int -w'\,dt` is the
    least. In powers of t that is the least eigenvalue of a pair of matrices of moments.

    Args:
        distances: In horizons, from 0 to 1, of any shape.
        degree: p, from 1 to about 8: the matrices of moments are nearly singular.

    Returns:
        float64, of the shape of ``distances``; 1 at distance 0.
    """
    size = (degree + 1) // 2

    def moment(k: int) -> float:
        return 1 / (k + 1) if degree % 2 else 1 / (k + 1) - 1 / (k + 2)

    whole, first = (
        torch.tensor(
            [[moment(i + j + m) for j in range(size)] for i in range(size)], dtype=torch.float64
        )
        for m in (0, 1)
    )
    inverse = torch.linalg.inv(torch.linalg.cholesky(whole))
    q = inverse.mT @ torch.linalg.eigh(inverse @ first @ inverse.mT).eigenvectors[:, 0]
    slope = [0.0] * (degree + 1)  # of -w', power by power
    for i in range(size):
        for j in range(size):
            slope[i + j] += float(q[i] * q[j])
            if degree % 2 == 0:
                slope[i + j + 1] -= float(q[i] * q[j])
    t = distances.double()
    left = sum((c / (k + 1) * (1 - t ** (k + 1)) for k, c in enumerate(slope)), torch.zeros_like(t))
    return left / sum(c / (k + 1) for k, c in enumerate(slope))


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
