r"""Skew-symmetric matrices, and the two ways to number the channels of a plane.

A real skew-symmetric matrix, :math:`L^\top = -L`, generates rotations: :math:`e^{tL}`
is orthogonal for every real :math:`t`. In a suitable basis it only turns planes. The Cayley
transform makes a rotation of it too.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from stringlib.inputs import Layout
from stringlib.spec import Count0, Even, Reals, Share, checked

TOGETHER = 128
"""Up to so many rows matrices are solved as a batch. From 160 on that goes wrong, without an error,
after ``torch.set_num_threads(2)`` (torch 2.13 with oneMKL)."""


def skew(upper: Tensor) -> Tensor:
    r"""Build skew-symmetric matrices from their entries above the diagonal.

    Args:
        upper: The entries :math:`L_{ij}, i < j`, row by row: ``(..., d * (d - 1) // 2)``.

    Returns:
        :math:`L` with :math:`L^\top = -L`, shape ``(..., d, d)``.

    Raises:
        ValueError: If the last dimension is not a triangular number.
    """
    count = upper.shape[-1]
    size = (1 + math.isqrt(1 + 8 * count)) // 2
    if size * (size - 1) // 2 != count:
        raise ValueError(f"upper must have d(d-1)/2 entries in its last dimension, got {count}")
    rows, columns = torch.triu_indices(size, size, offset=1, device=upper.device)
    half = upper.new_zeros(*upper.shape[:-1], size, size)
    half[..., rows, columns] = upper
    return half - half.mT


@checked
def upper_support(size: int, density: Share) -> Tensor:
    """Draw places above the diagonal, uniformly and without replacement.

    Args:
        size: Number of rows and columns d.
        density: Which part of the d(d−1)/2 places to draw, from 0 to 1. Their number is rounded.

    Returns:
        Integers, ``(2, count)``, rows and columns in reading order. The global random
        generator decides.
    """
    count = support_count(size, density)
    places = torch.triu_indices(size, size, offset=1)
    chosen = torch.randperm(places.shape[1])[:count]
    return places[:, chosen.sort().values]


def support_count(size: int, density: float) -> int:
    """Return how many places :func:`upper_support` draws."""
    return round(float(density) * (size * (size - 1) // 2))


def sparse_skew(entries: Tensor, support: Tensor, size: int) -> Tensor:
    r"""Build skew-symmetric matrices from entries at given places, :eq:`eq-cayley-sparse`.

    Args:
        entries: The entries :math:`S_{ij}`, ``(..., count)``.
        support: Their rows and columns, ``(2, count)``, all above the diagonal.
        size: Number of rows and columns d.

    Returns:
        :math:`S` with :math:`S^\top = -S`, zero elsewhere, ``(..., d, d)``.
    """
    rows, columns = support
    half = entries.new_zeros(*entries.shape[:-1], size * size)
    # not half[..., rows, columns] = entries: vmap over several supports cannot do that
    half = half.scatter(-1, (size * rows + columns).expand(entries.shape), entries)
    half = half.unflatten(-1, (size, size))
    return half - half.mT


def cayley(skew: Tensor) -> Tensor:
    r"""Return :math:`P = (I - S)(I + S)^{-1}`, equation :eq:`eq-cayley-transform`.

    The eigenvalues of S are imaginary, so I + S is invertible for every S,
    :eq:`eq-cayley-determinant`. P is orthogonal, has determinant 1 and no eigenvalue −1; of two
    channels it turns the plane, :eq:`eq-cayley-plane`. One solve for all matrices, no inverse.

    Args:
        skew: Skew-symmetric, float64 for an exact result, ``(..., d, d)``.

    Returns:
        Orthogonal to rounding, however large S is, ``(..., d, d)``.

    Source:
        Cayley 1846; Schenck et al. 2025, section on Cayley-STRING.
    """
    eye = torch.eye(skew.shape[-1], dtype=skew.dtype, device=skew.device)
    # the two factors commute, so one solve does
    solution = _solved(eye + skew, eye - skew)
    # The solve loses up to ‖S‖ ε (1e-11 at ‖S‖ = 1e5). One Newton step towards the nearest
    # orthogonal matrix takes that to ε. It fixes every orthogonal matrix, so it needs no gradient.
    exact = solution.detach()
    return solution + 0.5 * (exact - exact @ (exact.mT @ exact))


def _solved(a: Tensor, b: Tensor) -> Tensor:
    """Return the solution x of ax = b for regular matrices, all of one shape."""
    # solve_ex because solve waits for the device to learn that a is regular
    if a.device.type != "cpu" or a.shape[-1] <= TOGETHER or a.shape[:-2].numel() < 2:
        return torch.linalg.solve_ex(a, b).result
    pairs = zip(a.flatten(0, -3), b.flatten(0, -3), strict=True)
    return torch.stack([torch.linalg.solve_ex(*pair).result for pair in pairs]).view_as(a)


def connected_parts(support: Tensor, size: int) -> Tensor:
    """Return which channels a support links, directly or through others.

    Args:
        support: Rows and columns, ``(2, count)``.
        size: Number of channels.

    Returns:
        Integers, ``(size,)``, for each channel the smallest one of its part.
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
    """Return the two channels of each pair.

    Args:
        pairs: Number of pairs.
        layout: ``"interleaved"`` pairs channels (2i, 2i+1), ``"half"`` (i, i + pairs).
        device: Where the result is to be; the default device if omitted.

    Returns:
        An integer tensor of shape ``(pairs, 2)``.
    """
    channels = torch.arange(2 * pairs, device=device)
    return channels.view(pairs, 2) if layout == "interleaved" else channels.view(2, pairs).T


@checked
def layout_permutation(head_dim: Even) -> Tensor:
    r"""Return the index that takes interleaved channels to half-split ones.

    ``x[..., layout_permutation(d)]`` puts the first members of all pairs before the
    second ones, so that :math:`R_{\text{half}}\,\Pi x = \Pi\,R_{\text{interleaved}}\,x`,
    equation :eq:`eq-layout`.

    Args:
        head_dim: Even number of channels.

    Returns:
        An integer tensor of shape ``(head_dim,)``.
    """
    return pair_channels(head_dim // 2).T.flatten()


@checked
def planar_skew(
    frequencies: Reals[Tensor, "... pairs"], size: int, layout: Layout = "interleaved"
) -> Tensor:
    r"""Build the generator that turns each pair of channels at its own frequency.

    Every pair :math:`(a, b)` gets the block :math:`\omega \begin{pmatrix} 0 & -1 \\ 1 & 0
    \end{pmatrix}`, equation :eq:`eq-rope-generator`; channels after the pairs stay still.

    Args:
        frequencies: Radians per unit of position, ``(..., pairs)``.
        size: Number of channels, at least ``2 * pairs``.
        layout: ``"interleaved"`` or ``"half"``.

    Returns:
        Skew-symmetric matrices, ``(..., size, size)``.

    Raises:
        ValueError: If ``size`` is too small.
    """
    pairs = frequencies.shape[-1]
    if size < 2 * pairs:
        raise ValueError(f"size must be at least {2 * pairs} for {pairs} pairs, got {size}")
    first, second = pair_channels(pairs, layout, frequencies.device).unbind(-1)
    generator = frequencies.new_zeros(*frequencies.shape[:-1], size, size)
    generator[..., first, second] = -frequencies
    generator[..., second, first] = frequencies
    return generator


def turned_by(generators: Tensor, positions: Tensor) -> Tensor:
    r"""Return the rotations :math:`\exp(\sum_k r_k L_k)`, equation :eq:`eq-string-generators`.

    Args:
        generators: Skew-symmetric :math:`L_k`, ``(heads, coord_dim, d, d)``.
        positions: r, ``(..., seq, coord_dim)``, of the same dtype.

    Returns:
        ``(..., heads, seq, d, d)``.
    """
    exponent = torch.einsum("...nk,hkij->...hnij", positions, generators)
    # twice: torch 2.13 exponentiates a single small matrix to 1e-10 only, a batch to 1e-15
    both = torch.stack([exponent, exponent])
    # flat: compiled, matrix_exp gets strides that it cannot flatten itself
    return torch.matrix_exp(both.flatten(0, -3)).view(both.shape)[0]
