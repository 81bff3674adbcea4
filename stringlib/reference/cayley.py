"""Reference implementation of Cayley-STRING, and of two wrong forms of it.

The first wrong form applies the orthogonal matrix after RoPE. The second wrong form applies one
orthogonal matrix to the channels of all heads together. Everything is computed in float64, by plain
loops that solve one linear system per token.
"""

from __future__ import annotations

import torch
from torch import Tensor

from stringlib.reference.rope import apply_rope


def build_skew_symmetric(param_vec: Tensor, d_model: int) -> Tensor:
    r"""Return the skew-symmetric matrix with the given entries above the diagonal.

    Args:
        param_vec: The entries :math:`S_{ij}` with :math:`i < j`, row by row,
            ``(d (d - 1) // 2,)``.
        d_model: Number of rows and columns d.

    Returns:
        The matrix S, float64, ``(d, d)``.

    Raises:
        ValueError: If ``param_vec`` does not have d(d − 1)/2 entries.
    """
    if param_vec.shape != (d_model * (d_model - 1) // 2,):
        raise ValueError(
            f"param_vec must have shape ({d_model * (d_model - 1) // 2},) for d_model={d_model}, "
            f"got {tuple(param_vec.shape)}"
        )
    pairs = [(i, j) for i in range(d_model) for j in range(i + 1, d_model)]
    index = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2)
    return build_sparse_skew_symmetric(param_vec, index, d_model)


def make_sparse_mask(d_model: int, f: float) -> Tensor:
    """Draw a given fraction of all index pairs i < j, uniformly and without replacement.

    Args:
        d_model: Number of rows and columns d of the matrix.
        f: Fraction of the pairs to draw, from 0 to 1.

    Returns:
        The drawn pairs (i, j) in increasing order, int64, ``(K, 2)``. Their number K is
        f d(d − 1)/2, rounded.

    Raises:
        ValueError: If ``f`` is less than 0 or greater than 1.
    """
    if not 0 <= f <= 1:
        raise ValueError(f"f must be from 0 to 1, got {f}")
    pairs = [(i, j) for i in range(d_model) for j in range(i + 1, d_model)]
    order = torch.randperm(len(pairs))[: round(f * len(pairs))]
    chosen = [pairs[n] for n in sorted(order.tolist())]
    return torch.tensor(chosen, dtype=torch.long).reshape(-1, 2)


def build_sparse_skew_symmetric(param_vec: Tensor, chosen_indices: Tensor, d_model: int) -> Tensor:
    r"""Return the skew-symmetric matrix with entries at the chosen indices, :eq:`eq-cayley-sparse`.

    Args:
        param_vec: The entry :math:`S_{ij}` of each chosen index pair, ``(K,)``.
        chosen_indices: Index pairs i < j, ``(K, 2)``. All other entries above the diagonal
            are 0.
        d_model: Number of rows and columns d.

    Returns:
        The matrix S, float64, ``(d, d)``.

    Raises:
        ValueError: If ``param_vec`` and ``chosen_indices`` do not have the shapes ``(K,)`` and
            ``(K, 2)`` with the same K.
    """
    if param_vec.ndim != 1 or tuple(chosen_indices.shape) != (len(param_vec), 2):
        raise ValueError(
            "param_vec and chosen_indices must have shapes (K,) and (K, 2) with the same K, "
            f"got {tuple(param_vec.shape)} and {tuple(chosen_indices.shape)}"
        )
    skew = torch.zeros(d_model, d_model, dtype=torch.float64)
    for value, (i, j) in zip(param_vec.double(), chosen_indices.tolist(), strict=True):
        skew[i, j] = value
        skew[j, i] = -value
    return skew


def cayley_apply(S: Tensor, h: Tensor) -> Tensor:
    r"""Multiply each token by the Cayley transform of a skew-symmetric matrix.

    The result for a token h is :math:`(I - S)(I + S)^{-1} h`, equation :eq:`eq-cayley-transform`.
    One linear system is solved per token.

    Args:
        S: Skew-symmetric matrix, ``(d, d)``.
        h: Tokens, ``(..., d)``.

    Returns:
        The products, float64, of the shape of ``h``.
    """
    S, eye = S.double(), torch.eye(S.shape[-1], dtype=torch.float64)
    tokens = []
    for token in h.double().reshape(-1, h.shape[-1]):
        z = torch.linalg.solve(eye + S, token)
        tokens.append((eye - S) @ z)
    return torch.stack(tokens).reshape(h.shape) if tokens else h.double()


def cayley_string(x: Tensor, positions: Tensor, S: Tensor, omega: Tensor) -> Tensor:
    r"""Encode queries or keys of one head by Cayley-STRING.

    The result is :math:`\mathrm{RoPE}(\Omega r)\,P^\top x`, equation :eq:`eq-cayley-before`. First
    the orthogonal matrix :math:`P^\top` is applied, then :math:`\mathrm{RoPE}(\Omega r)` rotates
    each pair of channels. In this order the scores depend on P. They depend on the positions of
    query and key only through the difference of the positions.

    Args:
        x: Queries or keys, ``(..., seq, d)``.
        positions: Position r of each token, ``(seq, coord_dim)``.
        S: Skew-symmetric matrix, ``(d, d)``. P is its Cayley transform.
        omega: The frequencies Ω of each pair of channels along each coordinate, in radians per
            unit of position, ``(d // 2, coord_dim)``.

    Returns:
        The encoded vectors, float64, of the shape of ``x``.

    Source:
        Schenck et al. 2025, theorem 3.4 and Cayley-STRING.
    """
    # the Cayley transform of −S is the transpose of the Cayley transform of S
    return _turn(cayley_apply(-S, x), positions, omega)


def cayley_after_rope(x: Tensor, positions: Tensor, S: Tensor, omega: Tensor) -> Tensor:
    r"""Encode queries or keys of one head by RoPE, then an orthogonal matrix (the wrong order).

    The result is :math:`U\,\mathrm{RoPE}(\Omega r)\,x`. First :math:`\mathrm{RoPE}(\Omega r)`
    rotates each pair of channels, then U is applied. The matrix U is orthogonal and the same for
    queries and keys. Therefore U cancels in every score, and the scores are those of RoPE alone,
    :eq:`eq-cayley-after`. This wrong form exists to demonstrate the failure.

    Args:
        x: Queries or keys, ``(..., seq, d)``.
        positions: Position r of each token, ``(seq, coord_dim)``.
        S: Skew-symmetric matrix, ``(d, d)``. U is its Cayley transform.
        omega: The frequencies Ω of each pair of channels along each coordinate, in radians per
            unit of position, ``(d // 2, coord_dim)``.

    Returns:
        The encoded vectors, float64, of the shape of ``x``.
    """
    return cayley_apply(S, _turn(x.double(), positions, omega))


def cayley_before_split(
    x: Tensor, positions: Tensor, S: Tensor, omega: Tensor, heads: int
) -> Tensor:
    r"""Encode all heads by RoPE and one Cayley transform of all channels, then split into heads.

    The Cayley transform mixes channels of different heads after their rotation. The scores of a
    single head therefore depend on more than the difference of positions. This wrong form
    exists to demonstrate the failure.

    Args:
        x: Queries or keys of all heads side by side, ``(..., seq, D)``.
        positions: Position of each token, ``(seq, coord_dim)``.
        S: Skew-symmetric matrix, ``(D, D)``.
        omega: The frequencies Ω of each pair of channels along each coordinate, in radians per
            unit of position, ``(D // 2, coord_dim)``.
        heads: Number of heads; must divide D.

    Returns:
        The encoded vectors of each head, float64, ``(..., heads, seq, D // heads)``.
    """
    whole = cayley_after_rope(x, positions, S, omega)
    return whole.unflatten(-1, (heads, -1)).transpose(-3, -2)


def _turn(x: Tensor, positions: Tensor, omega: Tensor) -> Tensor:
    """Rotate each pair of channels by its frequencies times the position, summed over coordinates.

    Pair i of the token at position r is rotated by the angle Σ_k Ω_ik r_k. Channels after the last
    pair, if any, are not rotated.

    Args:
        x: Queries or keys, ``(..., seq, d)``.
        positions: Position r of each token, ``(seq, coord_dim)``.
        omega: Frequencies Ω of each pair along each coordinate, ``(d // 2, coord_dim)``.
    """
    rotated, rest = x.tensor_split([2 * len(omega)], -1)
    for k in range(positions.shape[1]):
        rotated = apply_rope(rotated, positions[:, k], omega[:, k])
    return torch.cat([rotated, rest], -1)
