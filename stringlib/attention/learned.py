r"""Position weights that a layer learns: the decays of RetNet, GLA and SSD, and Toeplitz tables.

A data-dependent decay treats padding as if it were absent: padding causes no decay. A constant
decay counts positions, and padding has positions too.
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
    r"""One constant for each head, :math:`\gamma_h = 1 - 2^{-5-h}`, :eq:`eq-retnet-decay`.

    Args:
        heads: Number of heads.

    Source:
        Sun et al. 2023.
    """

    def __init__(self, heads: int) -> None:
        super().__init__(retnet_log_decay(heads))

    def _refill(self) -> None:
        self.log_decay.copy_(retnet_log_decay(len(self.log_decay)))


class TokenDecay(PositionWeight):
    """Base of the decays that the tokens decide: a weight once it has seen them."""

    causal_only = True
    has_state = True

    def log_decay(self, x: Tensor) -> Tensor:
        """Return the logarithms for tokens ``x``: ``(..., heads, seq, 1)``, or m in place of 1."""
        raise NotImplementedError

    def forward(self, x: Tensor, key_mask: Tensor | None = None) -> DecayWeight:
        """Return the weight for tokens ``x``, ``(..., seq, dim)``."""
        log_decay = self.log_decay(x)
        if key_mask is not None:
            padding = ~per_head(key_mask, log_decay.shape[:-1], x.device)
            log_decay = log_decay.masked_fill(padding[..., None], 0)
        return DecayWeight(log_decay)

    def matrix(self, num_queries: int, num_keys: int) -> Tensor:
        """Raise: there is a matrix for given tokens only, that of what ``forward`` returns."""
        raise ValueError(
            f"weight must have seen its tokens to have a matrix: call the {type(self).__name__} "
            "with them, got none"
        )


class GLADecay(TokenDecay):
    r"""A vector for each token, :math:`\alpha_t = \sigma(x_t W^1 W^2 + b)^{1/16}`.

    Args:
        dim: Number of channels of a token.
        heads: Number of heads.
        features: Number of features of a head.
        rank: Columns of :math:`W^1`.

    Source:
        Yang et al. 2024.
    """

    rotatable = False  # features that are forgotten at different rates

    def __init__(self, dim: int, heads: int, features: int, rank: int = 16) -> None:
        super().__init__()
        self.heads = heads
        self.down = nn.Linear(dim, rank, bias=False)
        self.up = nn.Linear(rank, heads * features)

    def log_decay(self, x: Tensor) -> Tensor:
        """Return one logarithm a token and feature, ``(..., heads, seq, features)``."""
        logits = self.up(self.down(x)).unflatten(-1, (self.heads, -1)).transpose(-3, -2)
        return nn.functional.logsigmoid(logits) / 16


class SSDDecay(TokenDecay):
    r"""A number for each token and head, :math:`a_t = \exp(-A\,\mathrm{softplus}(x_t W + b))`.

    Args:
        dim: Number of channels of a token.
        heads: Number of heads.

    Attributes:
        log_rate: :math:`\log A`, ``(heads,)``; A starts uniform in (1, 16).
        to_step: W and b; the softplus of b starts log-uniform in (0.001, 0.1).

    Source:
        Dao and Gu 2024; the initial state is that of their code.
    """

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.log_rate = nn.Parameter(torch.empty(heads))
        self.to_step = nn.Linear(dim, heads)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw rates and steps anew."""
        self.to_step.reset_parameters()
        self.log_rate.uniform_(1, 16).log_()
        step = torch.empty_like(self.log_rate).uniform_(math.log(1e-3), math.log(0.1)).exp()
        self.to_step.bias.copy_(step.expm1().log())  # the inverse of softplus

    def log_decay(self, x: Tensor) -> Tensor:
        """Return one logarithm a token, for all features: ``(..., heads, seq, 1)``."""
        step = nn.functional.softplus(self.to_step(x))
        # contiguous: compiled, the gradient of softplus gets strides that it cannot view
        return -(self.log_rate.exp() * step).mT.contiguous()[..., None]


class LearnedDelta(ReplacingWeight):
    r"""The delta rule whose rates the tokens decide, :math:`\beta_t = 2\,\sigma(x_t W + b)`.

    Rates above 1 turn what the state held to its negative, which lets it count:
    :eq:`eq-delta-parity`.

    Args:
        dim: Number of channels of a token.
        heads: Number of heads.
        gated: Whether the state decays as well, as in :class:`SSDDecay`.

    Attributes:
        to_rate: W and b, an ``nn.Linear``.
        decay: The decay, or None.

    Source:
        Yang et al. 2024; Yang et al. 2025 for the decay; Grazzi et al. 2025 for the factor 2.
    """

    def __init__(self, dim: int, heads: int, gated: bool = False) -> None:
        super().__init__()
        self.to_rate = nn.Linear(dim, heads)
        self.decay = SSDDecay(dim, heads) if gated else None

    def forward(self, x: Tensor, key_mask: Tensor | None = None) -> DeltaWeight:
        """Return the rule for tokens ``x``, ``(..., seq, dim)``; padding writes nothing."""
        beta = 2 * torch.sigmoid(self.to_rate(x)).mT
        if key_mask is not None:
            beta = beta.masked_fill(~per_head(key_mask, beta.shape, x.device), 0)
        if self.decay is None:
            return DeltaWeight(beta)
        return DeltaWeight(beta, self.decay(x, key_mask).log_decay.squeeze(-1))

    def extra_repr(self) -> str:
        """Say whether the state decays."""
        return f"gated={self.decay is not None}"


class LearnedToeplitz(ToeplitzWeight):
    r"""One learned number for each head and offset, :math:`w(i,j) = e^{b_{j-i}}`.

    Args:
        heads: Number of heads.
        length: Tokens of a sequence, n; one may be shorter: it uses the middle of the table.
        grid: Rows and columns of an image, ``(h, w)``, in place of a length.

    Attributes:
        bias: ``(heads, 2n - 1)``, entry ``n - 1 + (j - i)``, or ``(heads, 2h - 1, 2w - 1)``.
            Starts normal with a standard deviation of 0.02.

    Source:
        Luo et al. 2021, equation 5.
    """

    @checked
    def __init__(
        self, heads: int, length: int | None = None, grid: tuple[int, int] | None = None
    ) -> None:
        if (length is None) == (grid is None):
            raise ValueError(
                "length, the longest sequence, or grid, (rows, columns), must be given for the "
                f"weight toeplitz, one of the two, got length={length!r} and grid={grid!r}"
            )
        size: tuple[Any, ...] = (length,) if grid is None else tuple(grid)
        super().__init__(nn.Parameter(torch.empty(heads, *(2 * n - 1 for n in size))))
        self.size = tuple(int(n) for n in size)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the numbers anew."""
        nn.init.normal_(self.bias, std=0.02)

    def forward(self, x: Tensor, key_mask: Tensor | None = None) -> PositionWeight:
        """Return the weight itself.

        Raises:
            ValueError: If ``x`` is a sequence longer than the table.
        """
        if len(self.size) == 1 and x.shape[-2] > self.size[0]:
            raise ValueError(
                f"x must have at most length = {self.size[0]} tokens, got {x.shape[-2]}"
            )
        return self

    def extra_repr(self) -> str:
        """Describe the table in ``repr``."""
        return f"size={self.size}"
