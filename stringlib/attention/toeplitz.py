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
from stringlib.attention.known import is_known
from stringlib.attention.scale import LEAST
from stringlib.attention.weights import PositionWeight, ScaledSums, require_pairs
from stringlib.encoders.bias import RelativeBias
from stringlib.inputs import require_count, require_floats
from stringlib.precision import widest

MODES = ("parallel", "fft")
TILE = 128
"""Queries whose rows of the matrix exist at one time. Forward, 64 to 256 are within 10 %."""

KEPT = 1024
"""Up to this length the rows are kept for the gradient; beyond it they are computed again."""

CROSSOVER = 800
r"""The FFT is the faster from :math:`n = 800\,md/(m + d)` on, d the columns of ``u``.

The rows cost :math:`O(n^2 (m + d))`, the FFTs :math:`O(n \log n \cdot md)`.
"""

FLAT = {torch.float32: 16.0, torch.float64: 8.0}
r"""How far biases may be apart, that the FFT in float64 serves sums of a dtype.

Its error beside a query's own sums is at most about :math:`10^{-16} \sqrt n\,e^{16} < 10^{-6}`,
or :math:`10^{-16} \sqrt n\,e^8 < 10^{-10}`.
"""


class ToeplitzWeight(PositionWeight):
    r"""Weight :math:`w(i, j) = e^{b_{j-i}}`, equation :eq:`eq-toeplitz-attention`.

    Adding a constant to the bias of a head changes nothing after normalisation. A bias of −∞
    hides the keys at its offset. A weight is made anew from the parameter in each forward pass;
    gradients reach ``bias``.

    There are two ways to the sums. ``mode="parallel"`` multiplies rows of the n × n matrix, a tile
    of queries at a time, and is as exact as the dtype for biases of any range: where they are
    large, each query has a shift of its own, by the largest bias that meets a product other than
    0. ``mode="fft"`` multiplies by FFT, one feature at a time, in float64 whatever the input's
    dtype, and is imprecise: its error is relative to the largest weights, keys and values of *all*
    rows, 1e-16 of them in float64 and 1e-7 in float32. A query whose own sums are small beside
    that gets a wrong result, as do early queries if later keys are large, or NaN.

    The default is the matrix, but for the one case in which the FFT is known to serve and, by
    shape, is the faster: not causal, with 64 features from twenty thousand tokens on, and a table
    that lies on the CPU, where looking at it costs nothing, and spans at most 16 (8 in float64).
    Then every query sees every key, and none by less than 1e-7 of the largest weight. There is no
    recurrence and no state: decoding is not made faster.

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

    bias: Tensor

    def __init__(self, bias: Tensor) -> None:
        require_floats("bias", bias)
        if bias.ndim < 2 or not all(size % 2 for size in bias.shape[1:]):
            raise ValueError(
                "bias must have shape (heads, 2n - 1), or (heads, 2h - 1, 2w - 1) on a grid, "
                f"got {tuple(bias.shape)}"
            )
        super().__init__()
        self._hold("bias", bias)

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

        A row whose largest weight the dtype cannot hold is divided by a factor of its own.

        Raises:
            ValueError: If the numbers differ or do not fit the bias.
        """
        require_pairs(num_queries, num_keys)
        bias = self._fitted(num_queries, num_keys)
        rows = toeplitz(bias, bias.ndim - 1)
        if not num_keys:
            return rows
        return (rows - _excess(rows.detach().amax(-1, keepdim=True), rows.dtype)).exp()

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

        Args:
            phi_q: Features of the queries, ``(..., heads, n, m)``.
            phi_k: Features of the keys, ``(..., heads, n, m)``.
            u: What is summed, ``(..., heads, n, d_u)``.
            causal: Whether query i sees the keys 0 … i only.
            mode: ``"parallel"``, ``"fft"`` or None, the faster that is exact.
            state: Must be None.
            start: Must be 0.

        Raises:
            ValueError: If shapes do not fit, the mode is unknown, or there is a state.
        """
        found = self.scaled_sums(
            phi_q, phi_k, u, None, causal=causal, mode=mode, state=state, start=start
        )
        if found.log_scale is None:
            return found.sums, None
        return found.sums * found.log_scale.exp()[..., None].to(found.sums), None

    def scaled_sums(
        self,
        phi_q: Tensor,
        phi_k: Tensor,
        u: Tensor,
        key_scale: Tensor | None,
        *,
        causal: bool,
        mode: str | None,
        state: Tensor | None = None,
        start: int = 0,
        largest: Tensor | None = None,
    ) -> ScaledSums:
        """Return the sums less a factor for each query; see ``PositionWeight.scaled_sums``."""
        if key_scale is not None and causal:
            self._require_plain(mode, state)
        if mode is not None and mode not in MODES:
            raise ValueError(
                f"mode must be one of {MODES} or None for a ToeplitzWeight, got {mode!r}"
            )
        if state is not None or start:
            raise ValueError(
                "state must be None for a ToeplitzWeight, which has no recurrence, got one of "
                f"{start} tokens"
            )
        lead = torch.broadcast_shapes(*(x.shape[:-2] for x in (phi_q, phi_k, u)))
        heads, n = lead[-1], phi_q.shape[-2]
        bias = self._fitted(n, phi_k.shape[-2])
        if bias.shape[0] not in (1, heads):
            raise ValueError(
                f"bias must have 1 head or the {heads} of phi_q, got shape {tuple(bias.shape)}"
            )
        phi_q = phi_q.expand(*lead, -1, -1)
        if 0 in (*phi_q.shape, *u.shape):
            return ScaledSums(phi_q @ (phi_k.mT @ u), None, None, None)
        dtype = torch.promote_types(u.dtype, torch.float32)
        q, k, columns = (x.to(dtype) for x in (phi_q, phi_k, u))
        bias = bias.to(torch.promote_types(bias.dtype, torch.float32))
        if mode is None:
            fast = n * (q.shape[-1] + u.shape[-1]) > CROSSOVER * q.shape[-1] * u.shape[-1]
            mode = "fft" if fast and not causal and _is_flat(bias, dtype) else "parallel"
        if causal:  # in reading order too, the offsets of later keys are those after the centre
            flat = bias.flatten(1)
            later = torch.arange(flat.shape[1], device=bias.device) > flat.shape[1] // 2
            bias = flat.masked_fill(later, -math.inf).view_as(bias)
        common, near = None, _is_near(bias, dtype)
        if key_scale is not None:
            common = key_scale.detach()
            common = common.cummax(-1).values if causal else common.amax(-1, keepdim=True)
            common = common.clamp(min=LEAST)
            near = near and not causal and _is_near(key_scale - common, dtype)
            if near or mode == "fft":
                k = k * (key_scale - common).exp()[..., None]
        scale: Tensor | None
        if mode == "fft":
            out, scale = _by_fft(q, k, columns, bias)
        else:
            scales = (None, None) if near else (key_scale, common)
            out, scale = _by_tiles(q, k, columns, bias, causal, not near, *scales)
        if common is not None:
            scale = common if scale is None else scale + common
        return ScaledSums(out.to(u.dtype), scale, None, None)

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


def _by_tiles(
    phi_q: Tensor,
    phi_k: Tensor,
    u: Tensor,
    bias: Tensor,
    causal: bool,
    exact: bool,
    key_scale: Tensor | None,
    common: Tensor | None,
) -> tuple[Tensor, Tensor | None]:
    """Return the sums by rows of the matrix, a tile of queries at a time, and their log scale."""
    sizes, dims = toeplitz_sizes(bias, bias.ndim - 1), list(range(1, bias.ndim))
    long = sizes[0]  # tiles are cut along the first axis; each of its places has `across` tokens
    across = phi_q.shape[-2] // long
    backwards, keys, u = bias.flip(dims), phi_k.flip(-2).mT, u.flip(-2)
    if key_scale is not None and common is not None:
        key_scale, common = key_scale.flip(-1), common.expand(*common.shape[:-1], phi_q.shape[-2])
    rows = max(1, TILE // across)
    out, scales = [], []
    for start in range(0, long, rows):
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
            None if key_scale is None else key_scale[..., first * across :],
            None if common is None else common.narrow(-1, *queries),
        )
        if long * across > KEPT:
            found = checkpoint(_tile, *args, use_reentrant=False, preserve_rng_state=False)
        else:
            found = _tile(*args)
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
    key_scale: Tensor | None,
    common: Tensor | None,
) -> tuple[Tensor, Tensor | None]:
    """Return the sums of a tile, from the biases between it and the keys, last key first."""

    def by_place(pairs: Tensor) -> Tensor:
        return pairs.unflatten(-1, sizes).unflatten(-len(sizes) - 1, (-1, *sizes[1:]))

    scores = by_place(q @ keys)
    largest = None
    if exact:
        logits, axes = hankel_view(window, sizes), list(range(-len(sizes), 0))
        if key_scale is not None and common is not None:
            # their difference first: beside a large scale a bias would lose its digits
            logits = logits + by_place(key_scale.unsqueeze(-2) - common.unsqueeze(-1))
        # a key that answers nothing must not set the shift: the others would underflow beside it
        logits = torch.where(scores.detach() == 0, -math.inf, logits)
        largest = logits.detach().amax(axes, keepdim=True).clamp(min=LEAST)
        weights = (logits - largest).exp().to(scores.dtype)
        largest = largest.flatten(-2 * len(sizes)).to(scores.dtype)
    else:  # one exponential an offset, not one a pair
        weights = hankel_view(window.exp().to(scores.dtype), sizes)
    # the gradient of the weights needs the scores; where nobody asks for it, spare the memory
    kept = exact or (torch.is_grad_enabled() and weights.requires_grad)
    scores = scores * weights if kept else scores.mul_(weights)
    return scores.flatten(-len(sizes)).flatten(-len(sizes) - 1, -2) @ u, largest


def _by_fft(phi_q: Tensor, phi_k: Tensor, u: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sums by FFT, one feature at a time, in float64 where the device has it.

    And the logarithm of the factor that was left out of all sums of a head, ``(heads, 1)``.
    """
    axes = bias.ndim - 1
    sizes = toeplitz_sizes(bias, axes)
    wide = widest(u.device)
    shift = _excess(bias.detach().amax(tuple(range(1, bias.ndim)), keepdim=True), u.dtype)
    spectrum = toeplitz_spectrum((bias - shift).exp().to(wide), axes).unsqueeze(1)
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
    return total.flatten(-axes).mT.to(u.dtype), shift.flatten(1).to(u.dtype)


def _feature(q: Tensor, k: Tensor, columns: Tensor, spectrum: Tensor, axes: int) -> Tensor:
    """Return what one feature adds to the sums, ``(..., d_u, *sizes)``."""
    terms = k.unsqueeze(-axes - 1) * columns
    return spectral_product(spectrum, terms, axes) * q.unsqueeze(-axes - 1)


def _excess(largest: Tensor, dtype: torch.dtype) -> Tensor:
    """Return how far a logarithm is beyond those whose exponentials sum within the dtype."""
    bound = 0.75 * math.log(torch.finfo(dtype).max)
    largest = largest.clamp(min=LEAST)
    return largest - largest.clamp(-bound, bound)


def _is_near(logs: Tensor, dtype: torch.dtype) -> bool:
    """Return whether exponentials, but for those that are 0, are known to be of moderate size."""
    bound = 0.35 * math.log(torch.finfo(dtype).max)
    return is_known(logs, lambda x: (x.abs() <= bound) | (x == -math.inf))


def _is_flat(bias: Tensor, dtype: torch.dtype) -> bool:
    """Return whether a table is known to span no more than ``FLAT``."""
    dims, span = tuple(range(1, bias.ndim)), FLAT[dtype]
    return is_known(bias, lambda x: x >= x.amax(dims, keepdim=True) - span)
