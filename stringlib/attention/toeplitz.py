r"""Toeplitz position weights: the weight of an offset is the exponential of its bias.

The weights are those of Luo et al. 2021.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from stringlib.algebra.toeplitz import toeplitz
from stringlib.attention.scales import common_scale
from stringlib.attention.states import LinearState
from stringlib.attention.weights import PositionWeight, WeightedSums
from stringlib.documents import Documents
from stringlib.encoders.relative_bias import RelativeBias
from stringlib.inputs import all_eager, common_shape
from stringlib.kernels.fft import toeplitz_sizes
from stringlib.kernels.toeplitz import excess, toeplitz_by_fft, toeplitz_by_tiles
from stringlib.precision import at_least_float32
from stringlib.spec import Count0, Floats, checked

MODES = ("parallel", "fft")

CROSSOVER = 800
r"""Number c such that the FFT is faster for more than :math:`c\,md/(m + d)` tokens, as measured.

Here m is the number of features and d the number of channels of the vectors that are summed. For n
tokens the n × n matrix costs :math:`O(n^2 (m + d))` operations, and the FFTs cost
:math:`O(n \log n \cdot md)`.
"""

FLAT = {torch.float32: 16.0, torch.float64: 8.0}
r"""Largest range of biases (maximum − minimum) for which the FFT is accurate enough, by dtype.

The FFT is computed in float64. Its relative error in the sums of a query is at most about
:math:`10^{-16} \sqrt n\,e^{16} < 10^{-6}` for float32 inputs, and about
:math:`10^{-16} \sqrt n\,e^8 < 10^{-10}` for float64 inputs.
"""


class ToeplitzWeight(PositionWeight):
    r"""Position weight :math:`w(i, j) = e^{b_{j-i}}` with a bias b for each offset.

    Here i is the position of the query and j that of the key, :eq:`eq-toeplitz-attention`. Adding a
    constant to all biases of a head does not change normalised attention. A bias of −∞ masks the
    keys at its offset. The weight is computed from ``bias`` in each forward pass, so that gradients
    reach ``bias``.

    Two modes compute the sums. ``mode="parallel"`` forms the n × n matrix, a tile of queries at a
    time. This mode is as accurate as the dtype allows, for biases of any range. If biases or scales
    of keys are large, the logarithms of the weights of each query are shifted by their maximum over
    the keys whose product with the query is not 0.

    ``mode="fft"`` multiplies by FFT in float64, one feature at a time. This mode is less accurate.
    The error of each sum is about 1e-16 times the product of the largest weight, key and value of
    *all* tokens, or 1e-7 times this product on a device without float64. The result of a query is
    therefore wrong if the sums of this query are much smaller than this product. In causal
    attention, large or NaN values of later tokens can also make the results of earlier queries
    wrong.

    By default the matrix is used, unless three conditions hold:

    - Attention is not causal.
    - The FFT is faster for the shapes. For 64 features and values of 64 channels this is the case
      from about 26,000 tokens on.
    - The biases are on the CPU, and their range in each head is at most 16 (8 for float64). Then
      the FFT is accurate enough, because every weight is at least 1e-7 of the largest weight. On
      other devices the biases are not inspected, because this would take time.

    This weight has no recurrent form and no state. Decoding token by token therefore computes the
    attention of all earlier tokens again for each new token.

    Args:
        bias: The biases b. For a sequence ``(heads, 2n - 1)``, with :math:`b_{j-i}` at index
            :math:`n - 1 + (j - i)`. For an h × w grid, with tokens in row-major order,
            ``(heads, 2h - 1, 2w - 1)``. A grid of more dimensions has a size for each further
            dimension. The biases of one head are used for all heads. Biases for a sequence of n
            tokens are also used for shorter sequences.

    Raises:
        ValueError: If ``bias`` has no dimension for the offsets, or an even number of offsets.

    Source:
        Luo et al. 2021, section 3 and algorithm 1.
    """

    bias: Tensor

    @checked
    def __init__(self, bias: Floats[Tensor, "..."]) -> None:
        if bias.ndim < 2 or not all(size % 2 for size in bias.shape[1:]):
            raise ValueError(
                "bias must have shape (heads, 2n - 1) for a sequence or (heads, 2h - 1, 2w - 1) "
                f"for a grid, with an odd number of offsets, got {tuple(bias.shape)}"
            )
        super().__init__()
        self._hold("bias", bias)

    @classmethod
    @checked
    def from_bias(cls, bias: RelativeBias, n: int) -> ToeplitzWeight:
        r"""Return the weight :math:`e^{b(i - j)}` of a relative bias for softmax attention.

        For the biases of KERPLE the matrix of weights is positive semidefinite,
        :eq:`eq-toeplitz-cpd`.

        Args:
            bias: A relative bias, such as ``ALiBi``, ``T5Bias``, ``KerpleLog`` or ``KerplePower``.
                It is a function of the distance i − j from the key to the query.
            n: Number of tokens.
        """
        # a query at position n - 1 and keys at 0 … 2n - 2 have all distances, n - 1 … 1 - n
        return cls(bias(num_queries=1, num_keys=2 * n - 1, offset=n - 1).squeeze(1))

    @checked
    def matrix(self, num_queries: Count0, num_keys: Count0) -> Tensor:
        """Return the weights of all pairs without a causal mask, ``(heads, queries, keys)``.

        A row whose largest weight would overflow or underflow is divided by a factor of its own,
        which normalisation cancels.

        Raises:
            ValueError: If ``num_queries`` differs from ``num_keys``, or if there are not enough
                biases for this number of tokens. For a grid, also if there are too many.
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
        documents: Documents | None = None,
    ) -> WeightedSums:
        """Return the weighted sums of all queries, each divided by a factor of its own.

        The arguments are those of ``PositionWeight.sums``. ``mode`` is ``"parallel"``, ``"fft"``
        or None, which chooses one of the two as :class:`ToeplitzWeight` describes.
        """
        if causal and key_scale is not None and mode not in (None, "parallel"):
            raise ValueError(
                "mode must be None or 'parallel' for a causal ToeplitzWeight with key_scale, got "
                f"{mode!r}. The FFT needs one scale for all queries. Leave out mode."
            )
        if mode is not None and mode not in MODES:
            raise ValueError(
                f"mode must be None or one of {', '.join(MODES)} for a ToeplitzWeight, got {mode!r}"
            )
        if state is not None:
            raise ValueError(
                f"state must be None for a ToeplitzWeight, got a state of length {state.length}. "
                "This weight has no recurrent form. Pass all tokens at once, or use a "
                "DecayWeight."
            )
        batch_shape = common_shape(*(x.shape[:-2] for x in (phi_q, phi_k, u)))
        heads, n = batch_shape[-1], phi_q.shape[-2]
        bias = self._fitted(n, phi_k.shape[-2])
        if bias.shape[0] != 1 and bias.shape[0] != heads:
            raise ValueError(
                f"bias must have a first dimension of size {'' if heads == 1 else '1 or '}{heads} "
                f"(the number of heads of the features), got shape {tuple(bias.shape)}"
            )
        phi_q = phi_q.expand(*batch_shape, -1, -1)
        if 0 in (*phi_q.shape, *u.shape):
            return WeightedSums(phi_q @ (phi_k.mT @ u), None, None)
        dtype = u.dtype
        bias = bias.to(at_least_float32(bias.dtype))
        if documents is not None:
            shape = tuple(documents.numbers.shape)
            if bias.ndim > 2:
                raise ValueError(
                    "document_ids must be None for a ToeplitzWeight of a grid, got a tensor of "
                    f"shape {shape} with a bias of shape {tuple(bias.shape)}. Pass each image as "
                    "an entry of the batch."
                )
            if mode == "fft":
                raise ValueError(
                    f"document_ids must be None with mode='fft', got a tensor of shape {shape}. "
                    "Use mode='parallel'."
                )
            return _sums_by_document(phi_q, phi_k, u, key_scale, bias, causal, documents)
        if mode is None:
            m, width = phi_q.shape[-1], u.shape[-1]
            short = torch.compiler.is_exporting() or n * (m + width) <= CROSSOVER * m * width
            mode = "parallel" if short or causal or not _is_flat(bias, dtype) else "fft"
        if causal:  # on a grid too, later keys in row-major order have the offsets after the centre
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
        """Return the biases for the given number of tokens.

        For a sequence that is shorter than the longest possible one, these are the biases of the
        smallest offsets, in the middle of the table.

        Raises:
            ValueError: If the numbers of queries and keys differ, or do not fit the biases.
        """
        sizes = toeplitz_sizes(self.bias, self.bias.ndim - 1)
        tokens = math.prod(sizes)
        if num_queries != num_keys:
            raise ValueError(
                f"num_keys must be num_queries = {num_queries} for a ToeplitzWeight, got {num_keys}"
            )
        if num_keys > tokens or (len(sizes) > 1 and num_keys != tokens):
            raise ValueError(
                f"the number of tokens must be {'at most ' if len(sizes) == 1 else ''}{tokens} for "
                f"a bias of shape {tuple(self.bias.shape)}, got {num_keys} tokens. The bias needs "
                "one number for each offset of two tokens. Create the weight with a bias, or in a "
                "layer with a length or grid, for this number of tokens."
            )
        if len(sizes) > 1 or not num_keys:
            return self.bias
        first, end = tokens - num_keys, tokens + num_keys - 1
        if torch.compiler.is_exporting():  # a slice would fix the length of an exported program
            return self.bias.index_select(1, torch.arange(first, end, device=self.bias.device))
        return self.bias[:, first:end]


def _sums_by_document(
    phi_q: Tensor,
    phi_k: Tensor,
    u: Tensor,
    key_scale: Tensor | None,
    bias: Tensor,
    causal: bool,
    documents: Documents,
) -> WeightedSums:
    """Return the sums of packed documents, computed with the whole n × n matrix of weights.

    The arguments are those of :meth:`ToeplitzWeight.sums`, except for ``bias``, which contains the
    biases of these n tokens, ``(heads or 1, 2n - 1)``. The logarithms of the weights of each
    query are shifted by their maximum over the keys whose product with the query is not 0.
    """
    scores, hidden = phi_q @ phi_k.mT, documents.apart()
    if causal:
        hidden = hidden | torch.ones_like(hidden).triu(1)
    logits = toeplitz(bias, 1)
    common: Tensor | None = None
    if key_scale is not None:
        restart = torch.where(documents.starts, -math.inf, 0.0).unsqueeze(-2)
        common = common_scale(
            key_scale, causal, documents=documents, log_decay=restart if causal else None
        )
        # difference of the scales first: added to a large scale, a bias would lose digits
        logits = logits + (key_scale.unsqueeze(-2) - common.unsqueeze(-1))
    logits = torch.where(hidden | (scores.detach() == 0), -math.inf, logits)
    largest = logits.detach().amax(-1, keepdim=True)
    largest = largest.masked_fill(largest == -math.inf, 0)  # all products are 0
    weights = (logits - largest).exp().to(scores.dtype)
    scale = largest.squeeze(-1).to(u.dtype)
    scale = scale if common is None else scale + common
    return WeightedSums((scores * weights) @ u, scale, None)


def _is_near(logs: Tensor, dtype: torch.dtype) -> bool:
    """Return whether the exponentials of all ``logs`` are known to be 0 or of moderate size.

    Values are inspected on the CPU only. On other devices the result is False.
    """
    bound = 0.35 * math.log(torch.finfo(dtype).max)
    return all_eager(logs, lambda x: (x.abs() <= bound) | (x == -math.inf))


def _is_flat(bias: Tensor, dtype: torch.dtype) -> bool:
    """Return whether the range of the biases in each head is known to be at most ``FLAT``.

    Values are inspected on the CPU only. On other devices the result is False.
    """
    dims, span = tuple(range(1, bias.ndim)), FLAT[dtype]
    return all_eager(bias, lambda x: x >= x.amax(dims, keepdim=True) - span)


class BiasWeight(PositionWeight):
    r"""Position weight :math:`w(i,j) = e^{b(i-j)}` from a relative bias b for softmax attention.

    Here i is the position of the query and j that of the key. Softmax attention adds b to its
    logits, which multiplies each exponential by :math:`e^b`. This weight multiplies the products of
    features by the same factor.

    Args:
        bias: A :class:`~stringlib.encoders.relative_bias.RelativeBias`.
    """

    def __init__(self, bias: RelativeBias) -> None:
        super().__init__()
        self.bias = bias

    def forward(self, x: Tensor, key_mask: Tensor | None = None) -> PositionWeight:
        """Return the Toeplitz weight for the number of tokens of ``x``, ``(..., seq, dim)``."""
        return ToeplitzWeight.from_bias(self.bias, max(x.shape[-2], 1))

    def matrix(self, num_queries: int, num_keys: int) -> Tensor:
        """Return the weights of all pairs, ``(heads, num_queries, num_keys)``."""
        return self.bias(num_queries, num_keys).exp()
