r"""Position weights that a layer constructs by name: decays, the delta rule and Toeplitz tables.

With a data-dependent decay, padding causes no decay. With a constant decay, padding causes the same
decay as any other token, because a constant decay counts positions.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from stringlib.attention.decay import DecayWeight
from stringlib.attention.delta import DeltaWeight, ReplacingWeight
from stringlib.attention.state import retnet_log_decay
from stringlib.attention.toeplitz import ToeplitzWeight
from stringlib.attention.weights import PositionWeight
from stringlib.inputs import per_head
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
        super().__init__(retnet_log_decay(heads))

    def reset_non_persistent_buffers(self) -> None:
        """Compute the decays again. A wrapper may have rounded them or left them uninitialised."""
        self.log_decay.copy_(retnet_log_decay(len(self.log_decay)))


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
        logits = self.up(self.down(x)).unflatten(-1, (self.heads, -1)).transpose(-3, -2)
        return nn.functional.logsigmoid(logits) / 16


class SSDDecay(TokenDecay):
    r"""Mamba-2's decay per token and head, :math:`\alpha_t = e^{-A\,\mathrm{softplus}(x_t W + b)}`.

    Here :math:`x_t` is token t, and A, W and b are learned.

    Args:
        dim: Number of channels of a token.
        heads: Number of heads.

    Attributes:
        log_rate: The parameter :math:`\log A`, ``(heads,)``. Initially A is uniform on (1, 16).
        to_step: The projection with the weight W and the bias b, an ``nn.Linear``. Initially the
            softplus of b is log-uniform on (0.001, 0.1).

    Source:
        Dao and Gu 2024; the initial values are those of the code of Dao and Gu.
    """

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.log_rate = nn.Parameter(torch.empty(heads))
        self.to_step = nn.Linear(dim, heads)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Resample the parameters A, W and b in place."""
        self.to_step.reset_parameters()
        self.log_rate.uniform_(1, 16).log_()
        step = torch.empty_like(self.log_rate).uniform_(math.log(1e-3), math.log(0.1)).exp()
        self.to_step.bias.copy_(step.expm1().log())  # the inverse of softplus

    def log_decay(self, x: Tensor) -> Tensor:
        """Return the logarithm of the decay for each token and head.

        Args:
            x: Tokens, ``(..., seq, dim)``.

        Returns:
            ``(..., heads, seq, 1)``.
        """
        # contiguous, because compiled code fails to view the gradient of softplus otherwise
        step = nn.functional.softplus(self.to_step(x).mT.contiguous())
        return -(self.log_rate.exp()[:, None] * step)[..., None]


class LearnedDelta(ReplacingWeight):
    r"""The delta rule with data-dependent rates :math:`\beta_t = 2\,\sigma(x_t W + b)`.

    Here :math:`x_t` is token t, and W and b are learned. A rate greater than 1 reverses the sign of
    the old value of the key. With rates greater than 1 the state can track the parity of a sequence
    of bits, :eq:`eq-delta-parity`.

    Args:
        dim: Number of channels of a token.
        heads: Number of heads.
        gated: If True, the state also decays, as in :class:`SSDDecay`. Default: False.

    Attributes:
        to_rate: The projection with the weight W and the bias b, an ``nn.Linear``.
        decay: The :class:`SSDDecay` if ``gated``, otherwise None.

    Source:
        Yang et al. 2024; Yang et al. 2025 for the decay; Grazzi et al. 2025 for the factor 2.
    """

    def __init__(self, dim: int, heads: int, gated: bool = False) -> None:
        super().__init__()
        self.to_rate = nn.Linear(dim, heads)
        self.decay = SSDDecay(dim, heads) if gated else None

    def forward(self, x: Tensor, key_mask: Tensor | None = None) -> DeltaWeight:
        """Return the delta rule for given tokens.

        Args:
            x: Tokens, ``(..., seq, dim)``.
            key_mask: False for padding, ``(..., seq)`` or ``(..., heads, seq)``. Padding does not
                change the state. Default: None, no padding.
        """
        beta = 2 * torch.sigmoid(self.to_rate(x)).mT
        if key_mask is not None:
            beta = beta.masked_fill(~per_head(key_mask, beta.shape, x.device), 0)
        if self.decay is None:
            return DeltaWeight(beta)
        return DeltaWeight(beta, self.decay(x, key_mask=key_mask).log_decay.squeeze(-1))

    def extra_repr(self) -> str:
        """Return the arguments that ``repr`` shows."""
        return f"gated={self.decay is not None}"


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
