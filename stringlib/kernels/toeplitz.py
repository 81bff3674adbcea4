r"""Sums with a Toeplitz weight, computed by tiles of the rows of its matrix or by FFT.

The weight of query i on key j is :math:`e^{b_{j-i}}`, with one bias b for each offset j − i.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from stringlib.inputs import in_torch_func
from stringlib.kernels.fft import (
    hankel_view,
    spectral_product,
    toeplitz_sizes,
    toeplitz_spectrum,
)
from stringlib.precision import LEAST, largest_exponent, widest

TILE = 128
"""Number of queries whose rows of the n × n matrix are in memory at one time.

The times of the forward pass with 64 to 256 queries differ by at most 10 %.
"""

KEPT = 1024
"""Largest number of tokens for which the n × n matrix is kept in memory for the gradient.

For longer sequences the rows of the matrix are computed again.
"""


def toeplitz_by_tiles(
    phi_q: Tensor,
    phi_k: Tensor,
    u: Tensor,
    bias: Tensor,
    causal: bool,
    exact: bool,
    key_scales: tuple[Tensor, Tensor] | None,
) -> tuple[Tensor, Tensor | None]:
    """Return sums with a Toeplitz weight and their log scale, one tile of queries at a time.

    Args:
        phi_q: Features of the queries, ``(..., heads, n, m)``.
        phi_k: Features of the keys, ``(..., heads, n, m)``.
        u: Vectors to be summed, ``(..., heads, n, d_u)``.
        bias: Biases b, ``(heads, 2n - 1)``, or ``(heads, 2h - 1, 2w - 1)`` for a grid.
        causal: If True, keys that are later than all queries of a tile are skipped. The biases of
            all later keys must then be −∞.
        exact: If True, the logarithms of the weights of each query are shifted by their maximum,
            which is returned as the log scale. If False, nothing is shifted, and the log scale is
            None.
        key_scales: Two tensors of logarithms, given only if ``exact``. The first contains the scale
            of each key, ``(..., heads, n)``. The second contains the scale by whose exponential
            the sums of each query are divided, ``(..., heads, n)`` or ``(..., heads, 1)``. None if
            all scales are 0.

    Returns:
        The sums, ``(..., heads, n, d_u)``, divided by the exponential of their log scale, and the
        log scale, ``(..., heads, n)``. If ``exact`` is False, the log scale is None. With
        ``key_scales`` the sums are also divided by the exponential of the second tensor of
        ``key_scales``. The log scale does not contain this second tensor.
    """
    sizes, dims = toeplitz_sizes(bias, bias.ndim - 1), list(range(1, bias.ndim))
    long = sizes[0]  # tiles are cut along the first axis, with `across` tokens per index
    across = phi_q.shape[-2] // long
    backwards, keys, u = bias.flip(dims), phi_k.flip(-2).mT, u.flip(-2)
    if key_scales is not None:
        key_scale, common = key_scales
        key_scales = key_scale.flip(-1), common.expand(*common.shape[:-1], phi_q.shape[-2])
    rows, starts = max(1, TILE // across), range(0)
    if torch.compiler.is_exporting() or (torch.compiler.is_compiling() and long * across <= KEPT):
        rows, starts = long, range(1)  # a loop over tiles would fix the length of a graph
    out: list[Any] = []
    scales: list[Any] = []
    for start in starts or range(0, long, rows):
        count = min(rows, long - start)
        first = long - start - count if causal else 0  # skips keys that are later than all queries
        queries = (start * across, count * across)
        args = (
            phi_q.narrow(-2, *queries),
            keys[..., first * across :],
            u[..., first * across :, :],
            backwards.narrow(1, start + first, count + long - first - 1),
            (long - first, *sizes[1:]),
            exact,
            key_scales
            and (key_scales[0][..., first * across :], key_scales[1].narrow(-1, *queries)),
        )
        # without a comparison of lengths, an exported program works for any length
        kept = torch.compiler.is_exporting() or long * across <= KEPT
        found = _tile(*args) if kept else _sparing(_tile, *args)
        out.append(found[0])
        scales.append(found[1])
    return torch.cat(out, -2), torch.cat(scales, -1) if exact else None


def _tile(
    q: Tensor,
    keys: Tensor,
    u: Tensor,
    window: Tensor,
    sizes: tuple[int, ...],
    exact: bool,
    scales: tuple[Tensor, Tensor] | None,
) -> tuple[Tensor, Tensor | None]:
    """Return the sums of a tile of queries with a Toeplitz weight, and their log scale.

    Args:
        q: Features of the queries of the tile, ``(..., heads, queries, m)``.
        keys: Features of the keys, last key first, ``(..., heads, m, keys)``.
        u: Vectors to be summed, last key first, ``(..., heads, keys, d_u)``.
        window: The biases of the offsets between the queries and the keys, last key first.
        sizes: Number of keys along each axis.
        exact: If True, the logarithms of the weights of each query are shifted by their maximum,
            which is returned as the log scale. If False, the log scale is None.
        scales: Log scales of the keys, last key first, and of the queries of the tile, or None.
    """

    def by_position(pairs: Tensor) -> Tensor:
        return pairs.unflatten(-1, sizes).unflatten(-len(sizes) - 1, (-1, *sizes[1:]))

    scores = by_position(q @ keys)
    largest = None
    if exact:
        logits, axes = hankel_view(window, sizes), list(range(-len(sizes), 0))
        if scales is not None:
            key_scale, common = scales
            # difference of the scales first: added to a large scale, a bias would lose digits
            logits = logits + by_position(key_scale.unsqueeze(-2) - common.unsqueeze(-1))
        # Keys whose product is 0 are excluded from the maximum. Otherwise their large weights could
        # make all other weights underflow.
        logits = torch.where(scores.detach() == 0, -math.inf, logits)
        largest = logits.detach().amax(axes, keepdim=True)
        largest = torch.where(largest == -math.inf, 0, largest)  # all products are 0
        weights = (logits - largest).exp().to(scores.dtype)
        largest = largest.flatten(-2 * len(sizes)).to(scores.dtype)
    else:  # one exponential per offset instead of one per pair
        weights = hankel_view(window.exp().to(scores.dtype), sizes)
    # the gradient of the weights needs the scores; without it, multiply in place to save memory
    kept = exact or (torch.is_grad_enabled() and weights.requires_grad)
    scores = scores * weights if kept else scores.mul_(weights)
    return scores.flatten(-len(sizes)).flatten(-len(sizes) - 1, -2) @ u, largest


def toeplitz_by_fft(phi_q: Tensor, phi_k: Tensor, u: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Return sums with a Toeplitz weight and their log scale, by FFT, one feature at a time.

    The FFTs are computed in float64, or in float32 on a device without float64.

    Args:
        phi_q: Features of the queries, ``(..., heads, n, m)``.
        phi_k: Features of the keys, ``(..., heads, n, m)``.
        u: Vectors to be summed, ``(..., heads, n, d_u)``.
        bias: Biases b, ``(heads, 2n - 1)``, or ``(heads, 2h - 1, 2w - 1)`` for a grid.

    Returns:
        The sums, ``(..., heads, n, d_u)``, divided by the exponential of their log scale, and the
        log scale, which is one number for all queries of a head, ``(heads, 1)``.
    """
    axes = bias.ndim - 1
    sizes = toeplitz_sizes(bias, axes)
    wide = widest(u.device)
    shift = excess(bias.detach().amax(tuple(range(1, bias.ndim)), keepdim=True), u.dtype)
    spectrum = toeplitz_spectrum((bias - shift).exp().to(wide), axes).unsqueeze(1)
    q, k, columns = (x.to(wide).mT.contiguous().unflatten(-1, sizes) for x in (phi_q, phi_k, u))
    features = zip(q.unbind(-axes - 1), k.unbind(-axes - 1), strict=True)
    # The spectra of one feature are as large as u. Kept for all m features, they would be m times
    # as large, so they are recomputed for the gradient.
    parts = (_sparing(_feature, *pair, columns, spectrum, axes) for pair in features)
    total: Any = sum(parts)
    return total.flatten(-axes).mT.to(u.dtype), shift.flatten(1).to(u.dtype)


def _feature(q: Tensor, k: Tensor, columns: Tensor, spectrum: Tensor, axes: int) -> Tensor:
    """Return the contribution of one feature to the sums, ``(..., d_u, *sizes)``.

    Args:
        q: The feature of each query, ``(..., *sizes)``.
        k: The feature of each key, ``(..., *sizes)``.
        columns: Columns of the vectors to be summed, ``(..., d_u, *sizes)``.
        spectrum: Spectrum of the matrix of weights, see
            :func:`~stringlib.kernels.fft.toeplitz_spectrum`.
        axes: Number of dimensions of the offsets.
    """
    terms = k.unsqueeze(-axes - 1) * columns
    return spectral_product(spectrum, terms, axes) * q.unsqueeze(-axes - 1)


def excess(largest: Tensor, dtype: torch.dtype) -> Tensor:
    """Return by how much a logarithm exceeds the range in which exponentials can be summed.

    The result is negative below the range, and 0 within the range.

    Args:
        largest: The largest logarithm in each sum.
        dtype: Dtype of the sums, on which the range depends, see
            :func:`~stringlib.precision.largest_exponent`.
    """
    bound = largest_exponent(dtype)
    largest = largest.clamp(min=LEAST)
    return largest - largest.clamp(-bound, bound)


def _sparing(function: Callable[..., Any], *args: Any) -> Any:
    """Return ``function(*args)``, whose intermediate tensors are computed again for the gradient.

    Computing them again saves memory. Under ``torch.func`` the intermediate tensors are kept,
    because a batch of ``vmap`` no longer exists when the gradient is computed.
    """
    if in_torch_func():
        return function(*args)
    return checkpoint(function, *args, use_reentrant=False, preserve_rng_state=False)
