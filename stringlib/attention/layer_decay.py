r"""How a layer decides what to forget: constant as in RetNet, or from its input as in GLA and SSD.

Each gives :math:`\log` of the decay, at most 0, to :class:`~stringlib.attention.decay.DecayWeight`.
Where the input decides, padding makes nothing forgotten: it is as if it were not there. A constant
decay counts places, padding or not.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from stringlib.attention.decay import DecayWeight
from stringlib.attention.layer_weight import LayerWeight
from stringlib.attention.masks import per_head
from stringlib.attention.state import retnet_log_decay
from stringlib.attention.weights import PositionWeight


class RetNetDecay(LayerWeight):
    r"""One constant for each head, :math:`\gamma_h = 1 - 2^{-5-h}`, :eq:`eq-retnet-decay`.

    Args:
        heads: Number of heads.

    Source:
        Sun et al. 2023.
    """

    causal_only = True
    log_decay: Tensor

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.register_buffer("log_decay", retnet_log_decay(heads), persistent=False)

    def forward(self, x: Tensor, key_mask: Tensor | None = None) -> PositionWeight:
        """Return the weight."""
        return DecayWeight(self.log_decay)


class GLADecay(LayerWeight):
    r"""A vector for each token, :math:`\alpha_t = \sigma(x_t W^1 W^2 + b)^{1/16}`.

    Args:
        dim: Number of channels of a token.
        heads: Number of heads.
        features: Number of features of a head.
        rank: Columns of :math:`W^1`.

    Source:
        Yang et al. 2024.
    """

    causal_only = True

    def __init__(self, dim: int, heads: int, features: int, rank: int = 16) -> None:
        super().__init__()
        self.heads = heads
        self.down = nn.Linear(dim, rank, bias=False)
        self.up = nn.Linear(rank, heads * features)

    def forward(self, x: Tensor, key_mask: Tensor | None = None) -> PositionWeight:
        """Return the weight for tokens ``x``."""
        logits = self.up(self.down(x)).unflatten(-1, (self.heads, -1)).transpose(-3, -2)
        log_decay = nn.functional.logsigmoid(logits) / 16
        if key_mask is not None:
            log_decay = log_decay.masked_fill(
                ~per_head(key_mask, log_decay.shape[:-1])[..., None], 0
            )
        return DecayWeight(log_decay)


class SSDDecay(LayerWeight):
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

    causal_only = True

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

    def forward(self, x: Tensor, key_mask: Tensor | None = None) -> PositionWeight:
        """Return the weight for tokens ``x``."""
        step = nn.functional.softplus(self.to_step(x))
        log_decay = -(self.log_rate.exp() * step).mT
        if key_mask is not None:
            log_decay = log_decay.masked_fill(~per_head(key_mask, log_decay.shape), 0)
        return DecayWeight(log_decay[..., None])  # one for all features, whatever the sizes
