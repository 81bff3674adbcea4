r"""A learned bias for every distance: the Toeplitz weight of Luo et al. 2021."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from stringlib.algebra.toeplitz import (
    hankel_view,
    spectral_product,
    toeplitz,
    toeplitz_sizes,
    toeplitz_spectrum,
)
from stringlib.attention.weights import PositionWeight
from stringlib.encoders.bias import RelativeBias
from stringlib.inputs import require_count, require_floats
from stringlib.precision import widest

MODES = ("parallel", "fft")
TILE = 128
"""Queries whose rows of the matrix exist at one time. Forward, 64 to 256 are within 10 %."""

KEPT = 1024
"""Up to this length the rows are kept for the gradient; beyond it they are computed again."""

CROSSOVER = 800
r"""The FFT is taken from :math:`n = 800\,md/(m + d)` on, d the columns of ``u``.

The rows cost :math:`O(n^2 (m + d))`, the FFTs :math:`O(n \log n \cdot md)`.
"""


class ToeplitzWeight(PositionWeight):
    r"""Weight :math:`w(i, j) = e^{b_{j-i}}`, equation :eq:`eq-toeplitz-attention`.

    Adding a constant to the bias of a head changes nothing after normalisation. A bias of −∞
    hides the keys at its offset. A weight is made anew from the parameter in each forward pass;
    gradients reach ``bias``.

    There are two ways to the sums. ``mode="parallel"`` multiplies rows of the n × n matrix, a tile
    of queries at a time, and is as exact as the dtype. ``mode="fft"`` multiplies by FFT, one
    feature at a time, in float64 whatever the input's dtype: the error of an FFT is relative to
    the largest weight of all, 1e-16 in float64 and 1e-7 in float32, so that weights which are
    smaller than that beside it are lost. The default is the faster, by shape alone, which is the
    matrix up to ten or twenty thousand tokens. There is no recurrence and no state: decoding is
    not made faster.

    Args:
        bias: :math:`b`, on a sequence ``(heads, 2n - 1)`` with :math:`b_{j-i}` at index
            :math:`n - 1 + (j - i)`; on an h × w grid, with tokens row by row,
            ``(heads, 2h - 1, 2w - 1)``, and so on. One head serves any number of heads.
            A bias made for n tokens serves shorter sequences too.

    Raises:
        TypeError: If ``bias`` is not a floating-point tensor.
        ValueError: If it has no dimension for the offsets, or an even number of them.

    Source:
        Luo et al. 2021, section 3 and algorithm 1.
    """

    def __init__(self, bias: Tensor) -> None:
        require_floats("bias", bias)
        if bias.ndim < 2 or not all(size % 2 for size in bias.shape[1:]):
            raise ValueError(
                "bias must have shape (heads, 2n - 1), or (heads, 2h - 1, 2w - 1) on a grid, "
                f"got {tuple(bias.shape)}"
            )
        self.bias = bias

    @classmethod
    def from_bias(cls, bias: RelativeBias, n: int) -> ToeplitzWeight:
        r"""Return the weight :math:`e^{b(i - j)}` of a bias made for softmax attention.

        Those of KERPLE make it positive semidefinite, :eq:`eq-toeplitz-cpd`.

        Args:
            bias: ``ALiBi``, ``T5Bias``, ``KerpleLog`` or ``KerplePower``. It counts distances
                from the key to the query.
            n: Number of tokens.

        Raises:
            TypeError: If ``bias`` is not a ``RelativeBias`` or ``n`` not an integer.
            ValueError: If ``n`` is below 1.
        """
        if not isinstance(bias, RelativeBias):
            raise TypeError(f"bias must be a RelativeBias, got {type(bias).__name__}")
        require_count("n", n)
        # one query at n - 1 and keys at 0 … 2n - 2 stand at all distances, n - 1 … 1 - n
        return cls(bias(1, 2 * n - 1, offset=n - 1).squeeze(1))

    def matrix(self, num_queries: int, num_keys: int) -> Tensor:
        """Return the weights w(i, j), ``(heads, num_queries, num_keys)``; no causal mask.

        Shifted as in :meth:`sums` where the dtype of the bias cannot hold them.

        Raises:
            ValueError: If the numbers differ or do not fit the bias.
        """
        bias = self._fitted(num_queries, num_keys)
        return toeplitz(_moderate_exp(bias), bias.ndim - 1)

    def sums(
        self,
        phi_q: Tensor,
        phi_k: Tensor,
        u: Tensor,
        *,
        causal: bool,
        mode: str | None,
        state: Tensor | None = None,
        start: int = 0,
    ) -> tuple[Tensor, None]:
        r"""Return :math:`\sum_j w(i,j)\,\phi(q_i)^\top\phi(k_j)\,u_j`; there is no state.

        Where the largest bias is beyond ±66 (float32) or ±532 (float64), so that the sums
        themselves could not be represented, the bias of the head is shifted into that range.
        This multiplies a query's sums by a common factor and leaves their ratios alone.

        Args:
            phi_q: Features of the queries, ``(..., heads, n, m)``.
            phi_k: Features of the keys, ``(..., heads, n, m)``.
            u: What is summed, ``(..., heads, n, d_u)``.
            causal: Whether query i sees the keys 0 … i only.
            mode: ``"parallel"``, ``"fft"`` or None, the faster.
            state: Must be None.
            start: Must be 0.

        Raises:
            ValueError: If shapes do not fit, the mode is unknown, or there is a state.
        """
        if mode is not None and mode not in MODES:
            raise ValueError(
                f"mode must be one of {MODES} or None for a ToeplitzWeight, got {mode!r}"
            )
        if state is not None or start:
            raise ValueError("state must be None for a ToeplitzWeight, which has no recurrence")
        lead = torch.broadcast_shapes(*(x.shape[:-2] for x in (phi_q, phi_k, u)))
        heads, n = lead[-1], phi_q.shape[-2]
        bias = self._fitted(n, phi_k.shape[-2])
        if bias.shape[0] not in (1, heads):
            raise ValueError(
                f"bias must have 1 head or the {heads} of phi_q, got shape {tuple(bias.shape)}"
            )
        phi_q = phi_q.expand(*lead, -1, -1)
        if 0 in (*phi_q.shape, *u.shape):
            return phi_q @ (phi_k.mT @ u), None
        if causal:  # in reading order too, the offsets of later keys are those after the centre
            flat = bias.flatten(1)
            later = torch.arange(flat.shape[1], device=bias.device) > flat.shape[1] // 2
            bias = flat.masked_fill(later, -math.inf).view_as(bias)
        if mode is None:
            m, d = phi_q.shape[-1], u.shape[-1]
            mode = "fft" if n * (m + d) > CROSSOVER * m * d else "parallel"
        dtype = torch.promote_types(u.dtype, torch.float32)
        way = _by_fft if mode == "fft" else _by_tiles
        q, k, columns, bias = (x.to(dtype) for x in (phi_q, phi_k, u, bias))
        out = way(q, k, columns, bias, causal)
        return out.to(u.dtype), None

    def _fitted(self, num_queries: int, num_keys: int) -> Tensor:
        """Return the biases of so many tokens: the middle of those of a longer sequence."""
        sizes = toeplitz_sizes(self.bias, self.bias.ndim - 1)
        tokens = math.prod(sizes)
        if num_queries != num_keys:
            raise ValueError(
                "a ToeplitzWeight needs as many queries as keys, numbered alike, "
                f"got {num_queries} and {num_keys}"
            )
        if num_keys > tokens or (len(sizes) > 1 and num_keys != tokens):
            raise ValueError(
                f"bias of shape {tuple(self.bias.shape)} is made for {tokens} tokens, "
                f"got {num_keys}"
            )
        if len(sizes) > 1 or not num_keys:
            return self.bias
        return self.bias[:, tokens - num_keys : tokens + num_keys - 1]


def _by_tiles(phi_q: Tensor, phi_k: Tensor, u: Tensor, bias: Tensor, causal: bool) -> Tensor:
    """Return the sums by rows of the matrix, a tile of queries at a time."""
    sizes, dims = toeplitz_sizes(bias, bias.ndim - 1), list(range(1, bias.ndim))
    long = sizes[0]  # tiles are cut along the first axis; each of its places has `across` tokens
    across = phi_q.shape[-2] // long
    backwards, keys, u = bias.flip(dims), phi_k.flip(-2).mT, u.flip(-2)
    rows = max(1, TILE // across)
    out = []
    for start in range(0, long, rows):
        count = min(rows, long - start)
        first = long - start - count if causal else 0  # the keys before it are all too late
        args = (
            phi_q.narrow(-2, start * across, count * across),
            keys[..., first * across :],
            u[..., first * across :, :],
            backwards.narrow(1, start + first, count + long - first - 1),
            (long - first, *sizes[1:]),
        )
        if long * across > KEPT:
            out.append(checkpoint(_tile, *args, use_reentrant=False, preserve_rng_state=False))
        else:
            out.append(_tile(*args))
    return torch.cat(out, -2)


def _tile(q: Tensor, keys: Tensor, u: Tensor, window: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Return the sums of a tile, from the biases between it and the keys, last key first."""
    # a tile has a shift of its own: a bias that grows all along a sequence underflows nowhere
    weights = hankel_view(_moderate_exp(window), sizes)
    scores = (q @ keys).unflatten(-1, sizes).unflatten(-len(sizes) - 1, (-1, *sizes[1:]))
    # the gradient of the weights needs the scores; where nobody asks for it, spare the memory
    kept = torch.is_grad_enabled() and weights.requires_grad
    scores = scores * weights if kept else scores.mul_(weights)
    return scores.flatten(-len(sizes)).flatten(-len(sizes) - 1, -2) @ u


def _by_fft(phi_q: Tensor, phi_k: Tensor, u: Tensor, bias: Tensor, causal: bool) -> Tensor:
    """Return the sums by FFT, one feature at a time, in float64 where the device has it."""
    axes = bias.ndim - 1
    sizes = toeplitz_sizes(bias, axes)
    wide = widest(u.device)
    spectrum = toeplitz_spectrum(_moderate_exp(bias).to(wide), axes).unsqueeze(1)
    q, k, columns = (x.to(wide).mT.contiguous().unflatten(-1, sizes) for x in (phi_q, phi_k, u))
    features = zip(q.unbind(-axes - 1), k.unbind(-axes - 1), strict=True)
    # the spectra of one feature are as large as u; kept for all, they would be m times that
    parts = (
        checkpoint(
            _feature, *pair, columns, spectrum, axes, use_reentrant=False, preserve_rng_state=False
        )
        for pair in features
    )
    total: Any = sum(parts)
    return total.flatten(-axes).mT.to(u.dtype)


def _feature(q: Tensor, k: Tensor, columns: Tensor, spectrum: Tensor, axes: int) -> Tensor:
    """Return what one feature adds to the sums, ``(..., d_u, *sizes)``."""
    terms = k.unsqueeze(-axes - 1) * columns
    return spectral_product(spectrum, terms, axes) * q.unsqueeze(-axes - 1)


def _moderate_exp(bias: Tensor) -> Tensor:
    """Return exp(bias), each head's multiplied by what keeps its largest within the dtype."""
    info = torch.finfo(bias.dtype)
    bound = 0.75 * math.log(info.max)
    largest = bias.detach().amax(tuple(range(1, bias.ndim)), keepdim=True).clamp(min=info.min)
    return (bias - (largest - largest.clamp(-bound, bound))).exp()
