r"""A learned bias for every distance: the Toeplitz weight of Luo et al. 2021."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from stringlib.algebra.toeplitz import toeplitz
from stringlib.attention.weights import (
    LinearState,
    PositionWeight,
    WeightedSums,
    common_scale,
)
from stringlib.encoders.relative_bias import RelativeBias
from stringlib.inputs import common_shape, is_known
from stringlib.kernels.fft import toeplitz_sizes
from stringlib.kernels.toeplitz import excess, toeplitz_by_fft, toeplitz_by_tiles
from stringlib.precision import at_least_float32
from stringlib.spec import Count0, Floats, checked

MODES = ("parallel", "fft")

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
        ValueError: If it has no dimension for the offsets, or an even number of them.

    Source:
        Luo et al. 2021, section 3 and algorithm 1.
    """

    bias: Tensor

    @checked
    def __init__(self, bias: Floats[Tensor, "..."]) -> None:
        if bias.ndim < 2 or not all(size % 2 for size in bias.shape[1:]):
            raise ValueError(
                "bias must have shape (heads, 2n - 1), or (heads, 2h - 1, 2w - 1) on a grid, "
                f"got {tuple(bias.shape)}"
            )
        super().__init__()
        self._hold("bias", bias)

    @classmethod
    @checked
    def from_bias(cls, bias: RelativeBias, n: int) -> ToeplitzWeight:
        r"""Return the weight :math:`e^{b(i - j)}` of a bias made for softmax attention.

        Those of KERPLE make it positive semidefinite, :eq:`eq-toeplitz-cpd`.

        Args:
            bias: ``ALiBi``, ``T5Bias``, ``KerpleLog`` or ``KerplePower``. It counts distances
                from the key to the query.
            n: Number of tokens.
        """
        # one query at n - 1 and keys at 0 … 2n - 2 stand at all distances, n - 1 … 1 - n
        return cls(bias(1, 2 * n - 1, offset=n - 1).squeeze(1))

    @checked
    def matrix(self, num_queries: Count0, num_keys: Count0) -> Tensor:
        """Return the weights w(i, j), ``(heads, num_queries, num_keys)``; no causal mask.

        A row whose largest weight the dtype cannot hold is divided by a factor of its own.
        """
        bias = self._fitted(num_queries, num_keys)
        if not num_keys:
            return bias.new_zeros(len(bias), 0, 0)
        rows = toeplitz(bias, bias.ndim - 1)
        return (rows - excess(rows.detach().amax(-1, keepdim=True), rows.dtype)).exp()

    def sums(
        self,
        phi_q: Tensor,
        phi_k: Tensor,
        u: Tensor,
        key_scale: Tensor | None = None,
        *,
        causal: bool,
        mode: str | None = None,
        state: LinearState | None = None,
    ) -> WeightedSums:
        """Return the weighted sums, less a factor; see ``PositionWeight.sums``."""
        if causal and key_scale is not None:
            self._require_plain(mode, state)
        if mode is not None and mode not in MODES:
            raise ValueError(
                f"mode must be one of {MODES} or None for a ToeplitzWeight, got {mode!r}"
            )
        if state is not None:
            raise ValueError(
                "state must be None for a ToeplitzWeight, which has no recurrence, got one of "
                f"{state.length} tokens"
            )
        lead = common_shape(*(x.shape[:-2] for x in (phi_q, phi_k, u)))
        heads, n = lead[-1], phi_q.shape[-2]
        bias = self._fitted(n, phi_k.shape[-2])
        if bias.shape[0] != 1 and bias.shape[0] != heads:
            raise ValueError(
                f"bias must have 1 head or the {heads} of phi_q, got shape {tuple(bias.shape)}"
            )
        phi_q = phi_q.expand(*lead, -1, -1)
        if 0 in (*phi_q.shape, *u.shape):
            return WeightedSums(phi_q @ (phi_k.mT @ u), None, None)
        dtype = u.dtype
        bias = bias.to(at_least_float32(bias.dtype))
        if mode is None:
            m, width = phi_q.shape[-1], u.shape[-1]
            short = torch.compiler.is_exporting() or n * (m + width) <= CROSSOVER * m * width
            mode = "parallel" if short or causal or not _is_flat(bias, dtype) else "fft"
        if causal:  # in reading order too, the offsets of later keys are those after the centre
            flat = bias.flatten(1)
            later = torch.arange(flat.shape[1], device=bias.device) > flat.shape[1] // 2
            bias = flat.masked_fill(later, -math.inf).view_as(bias)
        common, near = None, _is_near(bias, dtype)
        if key_scale is not None:
            common = common_scale(key_scale, causal)
            near = near and not causal and _is_near(key_scale - common, dtype)
            if near or mode == "fft":
                phi_k = phi_k * (key_scale - common).exp()[..., None]
        scale: Tensor | None
        if mode == "fft":
            out, scale = toeplitz_by_fft(phi_q, phi_k, u, bias)
        else:
            apart = None if near or key_scale is None or common is None else (key_scale, common)
            out, scale = toeplitz_by_tiles(phi_q, phi_k, u, bias, causal, not near, apart)
        if common is not None:
            scale = common if scale is None else scale + common
        return WeightedSums(out, scale, None)

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
        first, end = tokens - num_keys, tokens + num_keys - 1
        if torch.compiler.is_exporting():  # a slice that may be the whole is for that length alone
            return self.bias.index_select(1, torch.arange(first, end, device=self.bias.device))
        return self.bias[:, first:end]


def _is_near(logs: Tensor, dtype: torch.dtype) -> bool:
    """Return whether exponentials, but for those that are 0, are known to be of moderate size."""
    bound = 0.35 * math.log(torch.finfo(dtype).max)
    return is_known(logs, lambda x: (x.abs() <= bound) | (x == -math.inf))


def _is_flat(bias: Tensor, dtype: torch.dtype) -> bool:
    """Return whether a table is known to span no more than ``FLAT``."""
    dims, span = tuple(range(1, bias.ndim)), FLAT[dtype]
    return is_known(bias, lambda x: x >= x.amax(dims, keepdim=True) - span)


class BiasWeight(PositionWeight):
    r"""A relative bias of softmax attention as a weight: :math:`w(i,j) = e^{b(i-j)}`.

    Softmax attention that adds b to its logits multiplies each exponential by :math:`e^b`; this
    multiplies the products of features by the same.

    Args:
        bias: A :class:`~stringlib.encoders.relative_bias.RelativeBias`.
    """

    def __init__(self, bias: RelativeBias) -> None:
        super().__init__()
        self.bias = bias

    def forward(self, x: Tensor, key_mask: Tensor | None = None) -> PositionWeight:
        """Return the weight for the length of ``x``."""
        return ToeplitzWeight.from_bias(self.bias, max(x.shape[-2], 1))

    def matrix(self, num_queries: int, num_keys: int) -> Tensor:
        """Return the weights w(i, j), ``(heads, num_queries, num_keys)``."""
        return self.bias(num_queries, num_keys).exp()
