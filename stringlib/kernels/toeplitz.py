r"""Sums with a Toeplitz weight :math:`e^{b_{j-i}}`: by tiles of its rows, or by FFT."""

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
"""Queries whose rows of the matrix exist at one time. Forward, 64 to 256 are within 10 %."""

KEPT = 1024
"""Up to this length the rows are kept for the gradient; beyond it they are computed again."""


def toeplitz_by_tiles(
    phi_q: Tensor,
    phi_k: Tensor,
    u: Tensor,
    bias: Tensor,
    causal: bool,
    exact: bool,
    key_scales: tuple[Tensor, Tensor] | None,
) -> tuple[Tensor, Tensor | None]:
    """Return the sums by rows of the matrix, a tile of queries at a time, and their log scale.

    Args:
        phi_q: Features of the queries, ``(..., heads, n, m)``.
        phi_k: Features of the keys, ``(..., heads, n, m)``.
        u: What is summed, ``(..., heads, n, d_u)``.
        bias: ``(heads, 2n - 1)``, or that of a grid.
        causal: Whether the biases of all later keys are −∞, and so need not be looked at.
        exact: Whether each query has a shift of its own, its largest logarithm, which is returned.
        key_scales: Scales of the keys, and what each query's are divided by, ``(..., heads, n)``
            both, the second also with 1 for all n. Only if exact.
    """
    sizes, dims = toeplitz_sizes(bias, bias.ndim - 1), list(range(1, bias.ndim))
    long = sizes[0]  # tiles are cut along the first axis; each of its places has `across` tokens
    across = phi_q.shape[-2] // long
    backwards, keys, u = bias.flip(dims), phi_k.flip(-2).mT, u.flip(-2)
    if key_scales is not None:
        key_scale, common = key_scales
        key_scales = key_scale.flip(-1), common.expand(*common.shape[:-1], phi_q.shape[-2])
    rows, starts = max(1, TILE // across), range(0)
    if torch.compiler.is_exporting() or (torch.compiler.is_compiling() and long * across <= KEPT):
        rows, starts = long, range(1)  # a graph with a loop over tiles would be for one length
    out: list[Any] = []
    scales: list[Any] = []
    for start in starts or range(0, long, rows):
        count = min(rows, long - start)
        first = long - start - count if causal else 0  # the keys before it are all too late
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
        # a program that compares lengths would be for the shorter or for the longer ones
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
    """Return the sums of a tile, from the biases between it and the keys, last key first."""

    def by_place(pairs: Tensor) -> Tensor:
        return pairs.unflatten(-1, sizes).unflatten(-len(sizes) - 1, (-1, *sizes[1:]))

    scores = by_place(q @ keys)
    largest = None
    if exact:
        logits, axes = hankel_view(window, sizes), list(range(-len(sizes), 0))
        if scales is not None:
            key_scale, common = scales
            # their difference first: beside a large scale a bias would lose its digits
            logits = logits + by_place(key_scale.unsqueeze(-2) - common.unsqueeze(-1))
        # a key that answers nothing must not set the shift: the others would underflow beside it
        logits = torch.where(scores.detach() == 0, -math.inf, logits)
        largest = logits.detach().amax(axes, keepdim=True)
        largest = torch.where(largest == -math.inf, 0, largest)  # a query that no key answers
        weights = (logits - largest).exp().to(scores.dtype)
        largest = largest.flatten(-2 * len(sizes)).to(scores.dtype)
    else:  # one exponential an offset, not one a pair
        weights = hankel_view(window.exp().to(scores.dtype), sizes)
    # the gradient of the weights needs the scores; where nobody asks for it, spare the memory
    kept = exact or (torch.is_grad_enabled() and weights.requires_grad)
    scores = scores * weights if kept else scores.mul_(weights)
    return scores.flatten(-len(sizes)).flatten(-len(sizes) - 1, -2) @ u, largest


def toeplitz_by_fft(phi_q: Tensor, phi_k: Tensor, u: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sums by FFT, one feature at a time, in float64 where the device has it.

    And the logarithm of the factor that was left out of all sums of a head, ``(heads, 1)``.
    """
    axes = bias.ndim - 1
    sizes = toeplitz_sizes(bias, axes)
    wide = widest(u.device)
    shift = excess(bias.detach().amax(tuple(range(1, bias.ndim)), keepdim=True), u.dtype)
    spectrum = toeplitz_spectrum((bias - shift).exp().to(wide), axes).unsqueeze(1)
    q, k, columns = (x.to(wide).mT.contiguous().unflatten(-1, sizes) for x in (phi_q, phi_k, u))
    features = zip(q.unbind(-axes - 1), k.unbind(-axes - 1), strict=True)
    # the spectra of one feature are as large as u; kept for all, they would be m times that
    parts = (_sparing(_feature, *pair, columns, spectrum, axes) for pair in features)
    total: Any = sum(parts)
    return total.flatten(-axes).mT.to(u.dtype), shift.flatten(1).to(u.dtype)


def _feature(q: Tensor, k: Tensor, columns: Tensor, spectrum: Tensor, axes: int) -> Tensor:
    """Return what one feature adds to the sums, ``(..., d_u, *sizes)``."""
    terms = k.unsqueeze(-axes - 1) * columns
    return spectral_product(spectrum, terms, axes) * q.unsqueeze(-axes - 1)


def excess(largest: Tensor, dtype: torch.dtype) -> Tensor:
    """Return how far a logarithm is beyond those whose exponentials sum within the dtype."""
    bound = largest_exponent(dtype)
    largest = largest.clamp(min=LEAST)
    return largest - largest.clamp(-bound, bound)


def _sparing(function: Callable[..., Any], *args: Any) -> Any:
    """Call, and compute again for the gradient what would have to be kept for it.

    Not under ``torch.func``: a batch of ``vmap`` has ended when the gradient is taken.
    """
    if in_torch_func():
        return function(*args)
    return checkpoint(function, *args, use_reentrant=False, preserve_rng_state=False)
