r"""Skew-symmetric matrices, rotations made from them, and the two ways to pair channels.

A real skew-symmetric matrix L, :math:`L^\top = -L`, generates rotations: :math:`e^{tL}` is a
rotation for every real :math:`t`. In a suitable orthogonal basis, this rotation rotates each plane
of two basis vectors separately. The Cayley transform is another way to make a rotation from L.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from stringlib.inputs import Layout
from stringlib.spec import Count0, Even, Reals, Share, checked

TOGETHER = 128
"""Largest number of rows of matrices that are solved as one batch on the CPU.

Larger matrices are solved one by one. With 160 rows or more, the batched solve returns wrong
results without an error after ``torch.set_num_threads(2)`` (torch 2.13 with oneMKL).
"""


def skew(upper: Tensor) -> Tensor:
    r"""Return skew-symmetric matrices, given their entries above the diagonal.

    Args:
        upper: The entries :math:`L_{ij}, i < j`, row by row, ``(..., d * (d - 1) // 2)``.

    Returns:
        The matrix :math:`L` with :math:`L^\top = -L`, ``(..., d, d)``.

    Raises:
        ValueError: If the size of the last dimension is not d(d−1)/2 for an integer d.
    """
    count = upper.shape[-1]
    size = (1 + math.isqrt(1 + 8 * count)) // 2
    if size * (size - 1) // 2 != count:
        raise ValueError(
            "upper must have d(d-1)/2 entries in its last dimension for an integer d, got "
            f"{count} entries"
        )
    rows, columns = torch.triu_indices(size, size, offset=1, device=upper.device)
    half = upper.new_zeros(*upper.shape[:-1], size, size)
    half[..., rows, columns] = upper
    return half - half.mT


@checked
def upper_support(size: int, density: Share) -> Tensor:
    """Draw indices of entries above the diagonal of a matrix, uniformly and without replacement.

    The global random generator of torch is used.

    Args:
        size: Number of rows and columns d.
        density: Fraction of the d(d−1)/2 indices to draw, from 0 to 1. The number of drawn indices
            is rounded to an integer.

    Returns:
        Rows and columns, integers, ``(2, count)``, sorted by row and then by column.
    """
    count = support_count(size, density)
    indices = torch.triu_indices(size, size, offset=1)
    chosen = torch.randperm(indices.shape[1])[:count]
    return indices[:, chosen.sort().values]


def support_count(size: int, density: float) -> int:
    """Return the number of indices that :func:`upper_support` draws."""
    return round(float(density) * (size * (size - 1) // 2))


def sparse_skew(entries: Tensor, support: Tensor, size: int) -> Tensor:
    r"""Return skew-symmetric matrices with given entries at given indices, :eq:`eq-cayley-sparse`.

    Args:
        entries: The entries :math:`S_{ij}`, ``(..., count)``.
        support: Row and column indices of the entries, ``(2, count)``, all above the diagonal.
        size: Number of rows and columns d.

    Returns:
        The matrix :math:`S` with :math:`S^\top = -S`, ``(..., d, d)``. Entries at other indices
        are 0.
    """
    rows, columns = support
    half = entries.new_zeros(*entries.shape[:-1], size * size)
    # scatter, because vmap over supports does not work with half[..., rows, columns] = entries
    half = half.scatter(-1, (size * rows + columns).expand(entries.shape), entries)
    half = half.unflatten(-1, (size, size))
    return half - half.mT


def cayley(skew: Tensor) -> Tensor:
    r"""Return the Cayley transform of skew-symmetric matrices, equation :eq:`eq-cayley-transform`.

    The Cayley transform of S is :math:`P = (I - S)(I + S)^{-1}`. The eigenvalues of S are
    imaginary, so I + S is invertible for every skew-symmetric S, :eq:`eq-cayley-determinant`. P is
    orthogonal, has determinant 1, and does not have the eigenvalue −1. With two channels P is a
    rotation of the plane, :eq:`eq-cayley-plane`. P is computed by solving a system of linear
    equations, without an inverse.

    Args:
        skew: Skew-symmetric matrices S, ``(..., d, d)``. Use float64 for an accurate result.

    Returns:
        The matrix P, ``(..., d, d)``, orthogonal up to rounding errors even if S is large.

    Source:
        Cayley 1846; Schenck et al. 2025, section on Cayley-STRING.
    """
    eye = torch.eye(skew.shape[-1], dtype=skew.dtype, device=skew.device)
    # the two factors commute, so P = (I + S)⁻¹ (I − S), the solution of one system
    solution = _solved(eye + skew, eye - skew)
    # Rounding in the solve makes P deviate from orthogonal by up to ‖S‖ ε (1e-11 at ‖S‖ = 1e5). One
    # Newton step towards the nearest orthogonal matrix reduces this to ε. The exact P is orthogonal
    # and does not change in this step, so the step needs no gradient.
    exact = solution.detach()
    return solution + 0.5 * (exact - exact @ (exact.mT @ exact))


def _solved(a: Tensor, b: Tensor) -> Tensor:
    """Return the solution x of ax = b for matrices a = I + S with S skew-symmetric."""
    if torch.compiler.is_exporting() and torch.onnx.is_in_onnx_export():
        return _by_elimination(a, b)  # ONNX has no operator that solves linear equations
    # solve_ex, because solve synchronises with the GPU to check that a is invertible
    if a.device.type != "cpu" or a.shape[-1] <= TOGETHER or a.shape[:-2].numel() < 2:
        return torch.linalg.solve_ex(a, b).result
    pairs = zip(a.flatten(0, -3), b.flatten(0, -3), strict=True)
    return torch.stack([torch.linalg.solve_ex(*pair).result for pair in pairs]).view_as(a)


def _by_elimination(a: Tensor, b: Tensor) -> Tensor:
    """Return the solution x of ax = b by elimination without a search for pivots.

    The symmetric part of a is the identity. After each step, subtracting the identity from the
    symmetric part of the remaining matrix leaves a positive semidefinite matrix. So every pivot is
    at least 1.
    """
    both = torch.cat([a, b], -1)
    size = a.shape[-1]
    for i, unit in enumerate(torch.eye(size, dtype=a.dtype, device=a.device)):
        row = both[..., i : i + 1, :] / both[..., i : i + 1, i : i + 1]
        both = both - (both[..., i : i + 1] - unit[:, None]) * row
    return both[..., size:]


def connected_parts(support: Tensor, size: int) -> Tensor:
    """Return the connected components of the channels that the entries of a matrix link.

    Two channels are in one component if an entry of the matrix links them, directly or through
    other channels.

    Args:
        support: Row and column indices of the entries, ``(2, count)``.
        size: Number of channels.

    Returns:
        For each channel, the smallest index of a channel in the same component, integers,
        ``(size,)``.
    """
    parts = torch.arange(size, device=support.device)
    ends = torch.cat([support, support.flip(0)], 1)
    while True:
        smaller = parts.scatter_reduce(0, ends[0], parts[ends[1]], "amin")
        if torch.equal(smaller, parts):
            return parts
        parts = smaller


@checked
def pair_channels(
    pairs: Count0, layout: Layout = "interleaved", device: torch.device | None = None
) -> Tensor:
    """Return the indices of the two channels of each pair.

    Args:
        pairs: Number of pairs.
        layout: ``"interleaved"`` (default) pairs (2i, 2i + 1), ``"half"`` pairs (i, i + pairs).
        device: Device of the result. Default: the default device of torch.

    Returns:
        An integer tensor, ``(pairs, 2)``.
    """
    channels = torch.arange(2 * pairs, device=device)
    return channels.view(pairs, 2) if layout == "interleaved" else channels.view(2, pairs).T


@checked
def layout_permutation(head_dim: Even) -> Tensor:
    r"""Return the permutation that converts the interleaved layout to the half layout.

    ``x[..., layout_permutation(d)]`` is the vector :math:`\Pi x` with the first channels of all
    pairs, followed by the second channels of all pairs. So
    :math:`R_{\text{half}}\,\Pi x = \Pi\,R_{\text{interleaved}}\,x`, equation :eq:`eq-layout`.

    Args:
        head_dim: Number of channels; must be even.

    Returns:
        An integer tensor, ``(head_dim,)``.
    """
    return pair_channels(head_dim // 2).T.flatten()


@checked
def planar_skew(
    frequencies: Reals[Tensor, "... pairs"], size: int, layout: Layout = "interleaved"
) -> Tensor:
    r"""Return the generator that rotates each pair of channels with its own frequency.

    The generator contains the block :math:`\omega \begin{pmatrix} 0 & -1 \\ 1 & 0 \end{pmatrix}`
    for every pair of channels, equation :eq:`eq-rope-generator`. The rows and columns of the
    channels after the pairs are 0, so that they do not rotate.

    Args:
        frequencies: Frequencies ω of the pairs in radians per unit of position, ``(..., pairs)``.
        size: Number of channels, at least ``2 * pairs``.
        layout: ``"interleaved"`` (default) pairs (2i, 2i + 1), ``"half"`` pairs (i, i + pairs).

    Returns:
        Skew-symmetric matrices, ``(..., size, size)``.

    Raises:
        ValueError: If ``size`` is less than ``2 * pairs``.
    """
    pairs = frequencies.shape[-1]
    if size < 2 * pairs:
        raise ValueError(f"size must be at least 2 * pairs = {2 * pairs}, got {size}")
    first, second = pair_channels(pairs, layout, frequencies.device).unbind(-1)
    generator = frequencies.new_zeros(*frequencies.shape[:-1], size, size)
    generator[..., first, second] = -frequencies
    generator[..., second, first] = frequencies
    return generator


def turned_by(generators: Tensor, positions: Tensor) -> Tensor:
    r"""Return the rotations that generators give at positions, equation :eq:`eq-string-generators`.

    The rotation at position r is :math:`\exp(\sum_k r_k L_k)`.

    Args:
        generators: Skew-symmetric matrices :math:`L_k`, ``(heads, coord_dim, d, d)``.
        positions: Positions r, ``(..., seq, coord_dim)``, in the dtype of the generators.

    Returns:
        Orthogonal matrices, ``(..., heads, seq, d, d)``.
    """
    exponent = torch.einsum("...nk,hkij->...hnij", positions, generators)
    # two copies, because torch 2.13's matrix_exp has an error of 1e-10 for a single small matrix,
    # but of 1e-15 for a batch
    both = torch.stack([exponent, exponent])
    # flattened here, because a compiled matrix_exp may get strides that it cannot flatten itself
    return torch.matrix_exp(both.flatten(0, -3)).view(both.shape)[0]
