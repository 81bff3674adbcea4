r"""The delta rule and Kimi Delta Attention with data-dependent rates and decays.

Padding does not change the state.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from stringlib.attention.delta import DeltaWeight, KDAWeight, ReplacingWeight
from stringlib.attention.learned import KDADecay, SSDDecay, TokenDecay, wide
from stringlib.inputs import per_head
from stringlib.spec import NotNegative, Positive, require


class LearnedDelta(ReplacingWeight):
    r"""The delta rule with data-dependent rates :math:`\beta_t = c\,\sigma(x_t W + b)`.

    Here :math:`x_t` is token t, W and b are learned, and c is the largest rate. A rate greater than
    1 reverses the sign of the old value of the key. With rates greater than 1 the state can track
    the parity of a sequence of bits, :eq:`eq-delta-parity`.

    Args:
        dim: Number of channels of a token.
        heads: Number of heads.
        gated: If True, the state also decays, as in
            :class:`~stringlib.attention.learned.SSDDecay`. Default: False.
        largest_rate: The largest rate c. Default: 2.
        eps: Number added to the squared norm by which the features are divided, see
            :class:`~stringlib.attention.delta.DeltaWeight`. Default: 0.

    Attributes:
        to_rate: The projection with the weight W and the bias b, an ``nn.Linear``.
        decay: The :class:`~stringlib.attention.learned.SSDDecay` if ``gated``, otherwise None.

    Source:
        Yang et al. 2024; Yang et al. 2025 for the decay; Grazzi et al. 2025 for the factor 2.
    """

    decay: TokenDecay | None

    def __init__(
        self,
        dim: int,
        heads: int,
        gated: bool = False,
        *,
        largest_rate: Positive = 2.0,
        eps: NotNegative = 0.0,
    ) -> None:
        super().__init__()
        require("largest_rate", largest_rate, Positive)
        if largest_rate > 2:
            raise ValueError(
                f"largest_rate must be at most 2, got {largest_rate}. A rate greater than 2 "
                "enlarges the state with every write. Pass 1, or 2 for negative eigenvalues."
            )
        require("eps", eps, NotNegative)
        self.largest_rate, self.eps = largest_rate, eps
        self.to_rate = nn.Linear(dim, heads)
        self.decay = SSDDecay(dim, heads) if gated else None

    def forward(self, x: Tensor, key_mask: Tensor | None = None) -> DeltaWeight:
        """Return the delta rule for given tokens.

        Args:
            x: Tokens, ``(..., seq, dim)``.
            key_mask: False for padding, ``(..., seq)`` or ``(..., heads, seq)``. Padding does not
                change the state. Default: None, no padding.
        """
        beta = self.largest_rate * torch.sigmoid(wide(self.to_rate(x))).mT
        if key_mask is not None:
            beta = beta.masked_fill(~per_head(key_mask, beta.shape, x.device), 0)
        if self.decay is None:
            return DeltaWeight(beta, eps=self.eps)
        log_decay = self.decay(x, key_mask=key_mask).log_decay
        return self._made(beta, log_decay)

    def _made(self, beta: Tensor, log_decay: Tensor) -> DeltaWeight:
        """Return the weight for given rates and the decays that ``decay`` returns."""
        return DeltaWeight(beta, log_decay.squeeze(-1), eps=self.eps)

    def extra_repr(self) -> str:
        """Return the arguments that ``repr`` shows."""
        more = "" if self.largest_rate == 2 else f", largest_rate={self.largest_rate:g}"
        return f"gated={self.decay is not None}{more}"


class LearnedKDA(LearnedDelta):
    r"""The delta rule with data-dependent rates and one decay per token and feature, :eq:`eq-kda`.

    The rates are those of :class:`LearnedDelta`, and the decays those of
    :class:`~stringlib.attention.learned.KDADecay`.

    Args:
        dim: Number of channels of a token.
        heads: Number of heads.
        features: Number of features per head.
        rank: Number of columns of :math:`W^1` of the decay. Default: ``features``.
        largest_rate: The largest rate. Default: 2.
        eps: Number added to the squared norm by which the features are divided. Default: 0.

    Source:
        Kimi Team 2025, where the largest rate is 1.
    """

    decay: KDADecay

    def __init__(
        self,
        dim: int,
        heads: int,
        features: int,
        rank: int | None = None,
        *,
        largest_rate: Positive = 2.0,
        eps: NotNegative = 0.0,
    ) -> None:
        super().__init__(dim, heads, largest_rate=largest_rate, eps=eps)
        self.decay = KDADecay(dim, heads, features, rank)

    def _made(self, beta: Tensor, log_decay: Tensor) -> DeltaWeight:
        """Return the weight for given rates and the decays that ``decay`` returns."""
        return KDAWeight(beta, log_decay, eps=self.eps)
