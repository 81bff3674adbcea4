"""Cayley-STRING as it is printed, and the two misplaced forms in circulation.

Plain loops in float64: one linear system for every token.
"""

from __future__ import annotations

import torch
from torch import Tensor

from stringlib.reference.rope import apply_rope


def build_skew_symmetric(param_vec: Tensor, d_model: int) -> Tensor:
    r"""Fill a skew-symmetric matrix from its entries above the diagonal.

    Args:
        param_vec: The entries :math:`S_{ij}, i < j`, row by row, ``(d (d - 1) // 2,)``.
        d_model: d.

    Returns:
        float64, ``(d, d)``.

    Raises:
        ValueError: If the number of entries does not fit.
    """
    if param_vec.shape != (d_model * (d_model - 1) // 2,):
        raise ValueError(
            f"param_vec must have the shape ({d_model * (d_model - 1) // 2},) for d_model "
            f"{d_model}, got {tuple(param_vec.shape)}"
        )
    pairs = [(i, j) for i in range(d_model) for j in range(i + 1, d_model)]
    index = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2)
    return build_sparse_skew_symmetric(param_vec, index, d_model)


def make_sparse_mask(d_model: int, f: float) -> Tensor:
    """Draw a part f of all index pairs i < j, uniformly and without replacement.

    Args:
        d_model: d.
        f: The part, from 0 to 1.

    Returns:
        The chosen pairs, ``(K, 2)``, K = f d(d − 1)/2 rounded.

    Raises:
        ValueError: If f is not between 0 and 1.
    """
    if not 0 <= f <= 1:
        raise ValueError(f"f must be between 0 and 1, got {f}")
    pairs = [(i, j) for i in range(d_model) for j in range(i + 1, d_model)]
    order = torch.randperm(len(pairs))[: round(f * len(pairs))]
    chosen = [pairs[n] for n in sorted(order.tolist())]
    return torch.tensor(chosen, dtype=torch.long).reshape(-1, 2)


def build_sparse_skew_symmetric(param_vec: Tensor, chosen_indices: Tensor, d_model: int) -> Tensor:
    r"""Fill a skew-symmetric matrix at the chosen places, :eq:`eq-cayley-sparse`.

    Args:
        param_vec: One entry a place, ``(K,)``.
        chosen_indices: Index pairs i < j, ``(K, 2)``.
        d_model: d.

    Returns:
        float64, ``(d, d)``.

    Raises:
        ValueError: If there is not one place for each entry.
    """
    if param_vec.ndim != 1 or tuple(chosen_indices.shape) != (len(param_vec), 2):
        raise ValueError(
            "param_vec must have the shape (K,) and chosen_indices (K, 2), "
            f"got {tuple(param_vec.shape)} and {tuple(chosen_indices.shape)}"
        )
    skew = torch.zeros(d_model, d_model, dtype=torch.float64)
    for value, (i, j) in zip(param_vec.double(), chosen_indices.tolist(), strict=True):
        skew[i, j] = value
        skew[j, i] = -value
    return skew


def cayley_apply(S: Tensor, h: Tensor) -> Tensor:
    r"""Return :math:`(I - S)(I + S)^{-1} h`, one solve a token, :eq:`eq-cayley-transform`.

    Args:
        S: Skew-symmetric, ``(d, d)``.
        h: ``(..., d)``.

    Returns:
        float64, of the shape of ``h``.
    """
    S, eye = S.double(), torch.eye(S.shape[-1], dtype=torch.float64)
    tokens = []
    for token in h.double().reshape(-1, h.shape[-1]):
        z = torch.linalg.solve(eye + S, token)
        tokens.append((eye - S) @ z)
    return torch.stack(tokens).reshape(h.shape) if tokens else h.double()


def cayley_string(x: Tensor, positions: Tensor, S: Tensor, omega: Tensor) -> Tensor:
    r"""Encode one head: :math:`\mathrm{RoPE}(\Omega r)\,P^\top x`, :eq:`eq-cayley-before`.

    Args:
        x: ``(..., seq, d)``.
        positions: ``(seq, coord_dim)``.
        S: Skew-symmetric, ``(d, d)``; P is its Cayley transform.
        omega: Ω, ``(d // 2, coord_dim)``.

    Returns:
        float64, of the shape of ``x``.

    Source:
        Schenck et al. 2025, theorem 3.4 and Cayley-STRING.
    """
    # the transform of −S is the transpose of that of S
    return _turn(cayley_apply(-S, x), positions, omega)


def cayley_after_rope(x: Tensor, positions: Tensor, S: Tensor, omega: Tensor) -> Tensor:
    r"""Encode one head the wrong way round: :math:`U\,\mathrm{RoPE}(\Omega r)\,x`.

    U is orthogonal and the same for queries and keys: it cancels in every score,
    :eq:`eq-cayley-after`. Kept to show what fails.

    Args:
        x: ``(..., seq, d)``.
        positions: ``(seq, coord_dim)``.
        S: Skew-symmetric, ``(d, d)``; U is its Cayley transform.
        omega: Ω, ``(d // 2, coord_dim)``.

    Returns:
        float64, of the shape of ``x``.
    """
    return cayley_apply(S, _turn(x.double(), positions, omega))


def cayley_before_split(
    x: Tensor, positions: Tensor, S: Tensor, omega: Tensor, heads: int
) -> Tensor:
    r"""Turn all D channels, apply a D×D Cayley transform, then split into heads.

    U mixes channels of different heads after they have been turned: the scores of a single
    head are not relative. Kept to show what fails.

    Args:
        x: ``(..., seq, D)``.
        positions: ``(seq, coord_dim)``.
        S: Skew-symmetric, ``(D, D)``.
        omega: Ω, ``(D // 2, coord_dim)``.
        heads: A divisor of D.

    Returns:
        float64, ``(..., heads, seq, D // heads)``.
    """
    whole = cayley_after_rope(x, positions, S, omega)
    return whole.unflatten(-1, (heads, -1)).transpose(-3, -2)


def _turn(x: Tensor, positions: Tensor, omega: Tensor) -> Tensor:
    """Turn pair i of token n by the angle Σ_k Ω_ik r_nk, one coordinate after the other."""
    turned, rest = x.tensor_split([2 * len(omega)], -1)
    for k in range(positions.shape[1]):
        turned = apply_rope(turned, positions[:, k], omega[:, k])
    return torch.cat([turned, rest], -1)
