r"""Position weights that a layer constructs by name: decays and Toeplitz tables.

With a data-dependent decay, padding causes no decay. With a constant decay, padding causes the same
decay as any other token, because a constant decay counts positions.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from stringlib.attention.decay import DecayWeight, SteppedDecay
from stringlib.attention.state import retnet_log_decay
from stringlib.attention.toeplitz import ToeplitzWeight
from stringlib.attention.weights import PositionWeight
from stringlib.inputs import per_head
from stringlib.precision import at_least_float32
from stringlib.spec import checked


class RetNetDecay(DecayWeight):
    r"""Constant decay per head, :math:`\gamma_h = 1 - 2^{-5-h}`, :eq:`eq-retnet-decay`.

    The heads h are numbered from 0. The decays are not learned.

    Args:
        heads: Number of heads.

    Source:
        Sun et al. 2023.
    """

    def __init__(self, heads: int) -> None:
        dtype = at_least_float32(torch.get_default_dtype())
        super().__init__(retnet_log_decay(heads, dtype))

    def reset_non_persistent_buffers(self) -> None:
        """Compute the decays again. A wrapper may have rounded them or left them uninitialised."""
        self.log_decay.copy_(retnet_log_decay(len(self.log_decay), self.log_decay.dtype))


class TokenDecay(PositionWeight):
    """Base class of data-dependent decays (forget gates), which are computed from the tokens.

    A subclass defines the method ``log_decay``. Calling the module on tokens returns the position
    weight for these tokens, a :class:`~stringlib.attention.decay.DecayWeight`.
    """

    causal_only = True
    has_state = True

    def log_decay(self, x: Tensor) -> Tensor:
        """Return the logarithms of the decays for given tokens.

        Args:
            x: Tokens, ``(..., seq, dim)``.

        Returns:
            ``(..., heads, seq, 1)`` for one decay per token, or ``(..., heads, seq, m)`` for one
            decay per token and feature.
        """
        raise NotImplementedError(f"{type(self).__name__} must define log_decay(x)")

    def forward(self, x: Tensor, key_mask: Tensor | None = None) -> DecayWeight:
        """Return the position weight for given tokens.

        Args:
            x: Tokens, ``(..., seq, dim)``.
            key_mask: False for padding, ``(..., seq)`` or ``(..., heads, seq)``. Padding causes no
                decay. Default: None, no padding.
        """
        log_decay = self.log_decay(x)
        if key_mask is not None:
            padding = ~per_head(key_mask, log_decay.shape[:-1], x.device)
            log_decay = log_decay.masked_fill(padding[..., None], 0)
        return DecayWeight(log_decay)

    def matrix(self, num_queries: int, num_keys: int) -> Tensor:
        """Raise ``ValueError``, because the matrix depends on the tokens.

        If there is one decay per token, the weight that ``forward`` returns for given tokens has a
        matrix. With one decay per feature there is no single matrix.
        """
        raise ValueError(
            f"{type(self).__name__}.matrix() is undefined. The decay depends on the tokens. "
            f"If there is one decay per token, call weight = {type(self).__name__}(…)(x) "
            "with n tokens x, then weight.matrix(n, n). With one decay per feature there is no "
            "single matrix."
        )


class GLADecay(TokenDecay):
    r"""GLA's decay per token and feature, :math:`\alpha_t = \sigma(x_t W^1 W^2 + b)^{1/16}`.

    Here :math:`x_t` is token t, and :math:`W^1, W^2` and b are learned.

    Args:
        dim: Number of channels of a token.
        heads: Number of heads.
        features: Number of features per head.
        rank: Number of columns of :math:`W^1`. Default: 16.

    Source:
        Yang et al. 2024.
    """

    rotatable = False  # a rotation would mix features with different decays

    def __init__(self, dim: int, heads: int, features: int, rank: int = 16) -> None:
        super().__init__()
        self.heads = heads
        self.down = nn.Linear(dim, rank, bias=False)
        self.up = nn.Linear(rank, heads * features)

    def log_decay(self, x: Tensor) -> Tensor:
        """Return the logarithm of the decay for each token and feature.

        Args:
            x: Tokens, ``(..., seq, dim)``.

        Returns:
            ``(..., heads, seq, features)``.
        """
        return nn.functional.logsigmoid(_logits(self, x)) / 16


class SSDDecay(TokenDecay):
    r"""Mamba-2's decay per token and head, :math:`\alpha_t = e^{-A\,\mathrm{softplus}(x_t W + b)}`.

    Here :math:`x_t` is token t. A > 0, W and b are learned. In :eq:`eq-ssd`, A is negative.

    Args:
        dim: Number of channels of a token.
        heads: Number of heads.
        stepped: If True, keys are also multiplied by the step
            :math:`\Delta_t = \mathrm{softplus}(x_t W + b)`, as in Mamba-2. Default: False.

    Attributes:
        log_rate: The parameter :math:`\log A`, ``(heads,)``. Initially A is uniform on (1, 16).
        to_step: The projection with the weight W and the bias b, an ``nn.Linear``. Initially the
            softplus of b is log-uniform on (0.001, 0.1).

    Source:
        Dao and Gu 2024; the initial values are those of the code of Dao and Gu.
    """

    def __init__(self, dim: int, heads: int, stepped: bool = False) -> None:
        super().__init__()
        self.stepped = stepped
        self.log_rate = nn.Parameter(torch.empty(heads))
        self.to_step = nn.Linear(dim, heads)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Resample the parameters A, W and b in place."""
        self.to_step.reset_parameters()
        _reset_rates(self.log_rate, self.to_step.bias)

    def log_decay(self, x: Tensor) -> Tensor:
        """Return the logarithm of the decay for each token and head.

        Args:
            x: Tokens, ``(..., seq, dim)``.

        Returns:
            ``(..., heads, seq, 1)``.
        """
        return self._decay(self._step(x))

    def forward(self, x: Tensor, key_mask: Tensor | None = None) -> DecayWeight:
        """Return the position weight for given tokens.

        Args:
            x: Tokens, ``(..., seq, dim)``.
            key_mask: False for padding, ``(..., seq)`` or ``(..., heads, seq)``. Padding causes no
                decay. Default: None, no padding.
        """
        if not self.stepped:
            return super().forward(x, key_mask)
        step = self._step(x)
        if key_mask is not None:  # a step of 0 causes no decay
            step = step.masked_fill(~per_head(key_mask, step.shape, x.device), 0)
        return SteppedDecay(self._decay(step), step)

    def _decay(self, step: Tensor) -> Tensor:
        """Return the logarithms of the decays for given steps, ``(..., heads, seq, 1)``."""
        return -(wide(self.log_rate).exp()[:, None] * step)[..., None]

    def _step(self, x: Tensor) -> Tensor:
        """Return the steps of given tokens, ``(..., heads, seq)``."""
        # contiguous, because compiled code fails to view the gradient of softplus otherwise
        return nn.functional.softplus(wide(self.to_step(x)).mT.contiguous())


class KDADecay(TokenDecay):
    r"""KDA's decay per token and feature, :eq:`eq-kda`.

    The decay of token :math:`x_t` is
    :math:`\alpha_t = e^{-A\,\mathrm{softplus}(x_t W^1 W^2 + b)}`. There is one number A per head,
    and one number b per head and feature. A, :math:`W^1, W^2` and b are learned.

    Args:
        dim: Number of channels of a token.
        heads: Number of heads.
        features: Number of features per head.
        rank: Number of columns of :math:`W^1`. Default: ``features``.

    Attributes:
        log_rate: The parameter :math:`\log A`, ``(heads,)``. Initially A is uniform on (1, 16).
        down: The projection with the weight :math:`W^1`, an ``nn.Linear``.
        up: The projection with the weight :math:`W^2` and the bias b, an ``nn.Linear``. Initially
            the softplus of b is log-uniform on (0.001, 0.1).

    Source:
        Kimi Team 2025; the initial values are those of its code.
    """

    rotatable = False  # a rotation would mix features with different decays

    def __init__(self, dim: int, heads: int, features: int, rank: int | None = None) -> None:
        super().__init__()
        self.heads = heads
        self.log_rate = nn.Parameter(torch.empty(heads))
        self.down = nn.Linear(dim, features if rank is None else rank, bias=False)
        self.up = nn.Linear(self.down.out_features, heads * features)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Resample the parameters in place."""
        self.down.reset_parameters()
        self.up.reset_parameters()
        _reset_rates(self.log_rate, self.up.bias)

    def log_decay(self, x: Tensor) -> Tensor:
        """Return the logarithm of the decay for each token and feature.

        Args:
            x: Tokens, ``(..., seq, dim)``.

        Returns:
            ``(..., heads, seq, features)``.
        """
        # contiguous, because compiled code fails to view the gradient of softplus otherwise
        step = nn.functional.softplus(_logits(self, x).contiguous())
        return -wide(self.log_rate).exp()[:, None, None] * step


def _logits(decay: GLADecay | KDADecay, x: Tensor) -> Tensor:
    """Return the output of the low-rank projection per head, ``(..., heads, seq, features)``."""
    logits = decay.up(decay.down(x)).unflatten(-1, (decay.heads, -1)).transpose(-3, -2)
    return wide(logits)


def wide(x: Tensor) -> Tensor:
    """Return ``x`` in at least float32, because gradients of decays and rates overflow in float16.

    These gradients are sums over channels. Their products with the small derivative of a sigmoid or
    a softplus are finite.
    """
    return x.to(at_least_float32(x.dtype))


@torch.no_grad()
def _reset_rates(log_rate: Tensor, bias: Tensor) -> None:
    """Resample the logarithms of the rates A and the biases b of a decay, as Mamba-2 does."""
    log_rate.uniform_(1, 16).log_()
    step = torch.empty_like(bias).uniform_(math.log(1e-3), math.log(0.1)).exp()
    bias.copy_(step.expm1().log())  # the inverse of softplus


class LearnedToeplitz(ToeplitzWeight):
    r"""Toeplitz weight :math:`w(i,j) = e^{b_{j-i}}` with one learned bias per head and offset.

    Here i is the position of the query and j that of the key. Give either ``length`` or ``grid``.

    Args:
        heads: Number of heads.
        length: Number of tokens n of the longest sequence. A shorter sequence uses the middle of
            the table of biases, where the small offsets are.
        grid: ``(h, w)``, the numbers of rows and columns of an image.

    Attributes:
        bias: The biases b. For a sequence ``(heads, 2n - 1)``, with :math:`b_{j-i}` at index
            ``n - 1 + (j - i)``. For a grid ``(heads, 2h - 1, 2w - 1)``. The initial values are
            normal with standard deviation 0.02.

    Raises:
        ValueError: If both or neither of ``length`` and ``grid`` are given.

    Source:
        Luo et al. 2021, equation 5.
    """

    @checked
    def __init__(
        self, heads: int, length: int | None = None, grid: tuple[int, int] | None = None
    ) -> None:
        if (length is None) == (grid is None):
            raise ValueError(
                "either length or grid must be given for weight 'toeplitz', and not both, got "
                f"length={length!r} and grid={grid!r}. Pass length, the number of tokens of the "
                "longest sequence, or grid=(rows, columns) of an image."
            )
        size: tuple[Any, ...] = (length,) if grid is None else tuple(grid)
        super().__init__(nn.Parameter(torch.empty(heads, *(2 * n - 1 for n in size))))
        self.size = tuple(int(n) for n in size)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Resample the biases in place."""
        nn.init.normal_(self.bias, std=0.02)

    def forward(self, x: Tensor, key_mask: Tensor | None = None) -> PositionWeight:
        """Return the weight itself, because it does not depend on the values of the tokens.

        Args:
            x: Tokens, ``(..., seq, dim)``.
            key_mask: False for padding, which has no effect on the weight.

        Raises:
            ValueError: If ``x`` is a sequence of more than ``length`` tokens.
        """
        if len(self.size) == 1 and x.shape[-2] > self.size[0]:
            raise ValueError(
                f"x must have at most length = {self.size[0]} tokens, got {x.shape[-2]}. Construct "
                "the layer with a larger length."
            )
        return self

    def extra_repr(self) -> str:
        """Return the arguments that ``repr`` shows."""
        return f"size={self.size}"
