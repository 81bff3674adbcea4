"""Reference implementations of linear (kernelised) attention: sums over all pairs of tokens."""

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
    r"""Return linear attention with position weights, equation :eq:`eq-linear-attention`.

    The output of query i is :math:`\sum_j w(i,j)\,\phi(q_i)^\top\phi(k_j)\,v_j`, divided by the
    same sum without the values :math:`v_j`. With ``normalize=False`` there is no division.

    Args:
        phi_q: Features of the queries, ``(heads, n, m)``.
        phi_k: Features of the keys, ``(heads, keys, m)``.
        v: Values, ``(heads, keys, d_v)``.
        weights: Position weights w(i, j), ``(heads, n, keys)``. Default: 1 for every pair.
        causal: If True, query i attends only to the keys 0 … i. Default: False.
        normalize: Whether to divide by the sum without the values. Default: True.

    Returns:
        Outputs of the queries, float64, ``(heads, n, d_v)``.

    Source:
        Katharopoulos et al. 2020.
    """
    a = torch.einsum("hif,hjf->hij", phi_q.double(), phi_k.double())  # φ(qᵢ)ᵀφ(kⱼ)
    if weights is not None:
        a = a * weights.double()
    if causal:
        a = a.tril()
    numerator = torch.einsum("hij,hjc->hic", a, v.double())
    return numerator / a.sum(-1, keepdim=True) if normalize else numerator


def roformer_linear_attention(
    phi_q: Tensor,
    phi_k: Tensor,
    v: Tensor,
    positions: Tensor,
    frequencies: Tensor,
    causal: bool = False,
) -> Tensor:
    r"""Return linear attention with features that are rotated in the numerator only.

    .. math:: y_i = \frac{\sum_j (R_i\phi(q_i))^\top R_j\phi(k_j)\,v_j}
        {\sum_j \phi(q_i)^\top\phi(k_j)} ,

    equation :eq:`eq-rotation-numerator`, where :math:`R_i` is the rotation of RoPE at the position
    of token i.

    Args:
        phi_q: Features of the queries, ``(heads, seq, m)`` with even m.
        phi_k: Features of the keys, ``(heads, seq, m)``.
        v: Values, ``(heads, seq, d_v)``.
        positions: Position of each token, ``(seq,)``.
        frequencies: Radians per position of each pair of features, ``(m // 2,)``.
        causal: If True, query i attends only to the keys 0 … i. Default: False.

    Returns:
        Outputs of the queries, float64, ``(heads, seq, d_v)``.

    Raises:
        ValueError: If m is odd or the number of frequencies is not m / 2.

    Source:
        Su et al. 2024 (RoFormer), equation 19.
    """
    m = phi_q.shape[-1]
    if m % 2 or frequencies.shape != (m // 2,):
        raise ValueError(
            "phi_q must have an even number m of features, and frequencies must have shape "
            f"(m / 2,), got shapes {tuple(phi_q.shape)} and {tuple(frequencies.shape)}"
        )
    rotated_q, rotated_k = (apply_rope(phi, positions, frequencies) for phi in (phi_q, phi_k))
    above = linear_attention(rotated_q, rotated_k, v, causal=causal, normalize=False)
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
    r"""Return linear attention with a cosine position weight.

    The weight of query i and key j is :math:`\cos(\pi(i-j)/2M)`, :eq:`eq-cosine-weight`. With
    ``positive=True`` the weight is :math:`(1 + \cos(\pi(i-j)/2M))/2`, :eq:`eq-cosine-positive`. The
    cosine is negative at distances between M and 3M. This function nevertheless allows distances
    above M, for which :class:`~stringlib.attention.cosine.CosineWeight` with ``positive=False``
    raises an error.

    Args:
        phi_q: Features of the queries, ``(heads, seq, m)``.
        phi_k: Features of the keys, ``(heads, keys, m)``.
        v: Values, ``(heads, keys, d_v)``.
        horizon: Horizon M of the weight, in tokens.
        positive: If True, use :math:`(1 + \cos(\pi(i-j)/2M))/2`, which is never negative. If False
            (default), use the cosine itself.
        causal: If True, query i attends only to the keys 0 … i. Default: False.

    Returns:
        Outputs of the queries, float64, ``(heads, seq, d_v)``.
    """
    heads, n, keys = *phi_q.shape[:2], phi_k.shape[1]
    distances = torch.arange(n)[:, None] - torch.arange(keys)
    weights = torch.cos(math.pi * distances.double() / (2 * horizon))
    if positive:
        weights = (1 + weights) / 2
    return linear_attention(phi_q, phi_k, v, weights.expand(heads, n, keys), causal)


def falling_weight(distances: Tensor, degree: int) -> Tensor:
    r"""Return the decreasing polynomial weight that is most concentrated at distance 0.

    Consider all polynomials w of degree p that never increase on [0, 1] and are 0 at 1. The weight
    is the polynomial with the largest ratio of :math:`w(0)` to the mean of w, equation
    :eq:`eq-falling-best`. Its derivative has the form :math:`-w' = q^2` for odd p and
    :math:`-w' = (1 - t)\,q^2` for even p, with a polynomial q. The ratio is the inverse of
    :math:`\int t(-w')\,dt / \int (-w')\,dt`, so q minimises this quotient. The coefficients of q
    are the eigenvector with the smallest eigenvalue of a generalised eigenvalue problem, whose two
    matrices contain moments. The package computes the same weight in another way, from the nodes of
    a Gauss quadrature formula.

    Args:
        distances: Distances divided by the horizon, from 0 to 1, of any shape.
        degree: Degree p, from 1 to about 8. For higher degrees the matrices of moments are too
            close to singular.

    Returns:
        The weights, float64, of the shape of ``distances``. The weight at distance 0 is 1.
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
    slope = [0.0] * (degree + 1)  # coefficients of -w', lowest power first
    for i in range(size):
        for j in range(size):
            slope[i + j] += float(q[i] * q[j])
            if degree % 2 == 0:
                slope[i + j + 1] -= float(q[i] * q[j])
    t = distances.double()
    left = sum((c / (k + 1) * (1 - t ** (k + 1)) for k, c in enumerate(slope)), torch.zeros_like(t))
    return left / sum(c / (k + 1) for k, c in enumerate(slope))


def cosformer(q: Tensor, k: Tensor, v: Tensor, causal: bool = False, eps: float = 1e-6) -> Tensor:
    r"""Return the attention of cosFormer, computed from four sums, :eq:`eq-cosine-features`.

    Two sums add up the keys, weighted by the cosine or by the sine of each key's angle. The two
    remaining sums add up the products of keys and values, with the same weights. As in the authors'
    code, the features are ReLU, positions start at 1, and denominators are at least ``eps``. The
    horizon is the number of queries or of keys, whichever is larger. So the horizon depends on the
    length of the sequence. The weight of every pair at a distance above 0 then also depends on this
    length.

    Args:
        q: Queries before ReLU, ``(heads, seq, d)``.
        k: Keys before ReLU, ``(heads, keys, d)``.
        v: Values, ``(heads, keys, d_v)``.
        causal: If True, query i attends only to the keys 0 … i. Default: False.
        eps: Smallest denominator. Smaller denominators are replaced by ``eps``. Default: 1e-6.

    Returns:
        Outputs of the queries, float64, ``(heads, seq, d_v)``.

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
