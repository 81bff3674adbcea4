r"""Feature maps made for the exponential of softmax: learned (Hedgehog) and a Taylor polynomial."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from stringlib.attention.features import FeatureMap
from stringlib.inputs import require_heads
from stringlib.precision import at_least_float32, without_autocast
from stringlib.spec import Floats, checked


class HedgehogFeatures(FeatureMap):
    r"""Hedgehog's learned feature map, :eq:`eq-hedgehog`.

    The features are :math:`\phi(x) = \mathrm{softmax}([Wx, -Wx])`, two for each channel. The matrix
    W is learned, one for each head. For short vectors :math:`u = Wq` and :math:`w = Wk` the
    similarity is approximately :math:`e^{u^\top w/d}/(2d)`, :eq:`eq-hedgehog-limits`.

    Args:
        head_dim: Number of channels d of a head.
        heads: Number of heads. Default: 1.

    Attributes:
        weight: The matrices W, ``(heads, d, d)``. They are the identity at the start.

    Source:
        Zhang et al. 2024, equation 6.
    """

    place = "before"

    @checked
    def __init__(self, head_dim: int, heads: int = 1) -> None:
        super().__init__()
        self.head_dim, self.heads = int(head_dim), int(heads)
        self.weight = nn.Parameter(torch.empty(self.heads, self.head_dim, self.head_dim))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Set each matrix W to the identity, in place."""
        self.weight.copy_(torch.eye(self.head_dim))

    @checked
    def forward(
        self, x: Floats[Tensor, "... heads n self.head_dim"], is_query: bool = True
    ) -> Tensor:
        """Return the features, ``(..., heads, seq, 2 * d)``, which are positive and add up to 1.

        Args:
            x: Queries or keys, ``(..., heads, seq, d)``.
            is_query: True for queries. Queries and keys are treated alike.

        Returns:
            The features in float32 or float64, because small features are 0 in float16.
        """
        require_heads("x", x, self.heads)
        exact = at_least_float32(x.dtype)
        with without_autocast(x):
            y = x.to(exact) @ self.weight.to(exact).mT
            return torch.cat([y, -y], -1).softmax(-1)

    def extra_repr(self) -> str:
        """Return the arguments that ``repr`` shows."""
        return f"head_dim={self.head_dim}, heads={self.heads}"


class TaylorFeatures(FeatureMap):
    r"""Feature map of the Taylor polynomial :math:`1 + x + \frac12 x^2` of the exponential.

    The similarity of x and y is :math:`1 + x^\top y + \tfrac12 (x^\top y)^2`, :eq:`eq-taylor`,
    which is positive, although features may be negative. A layer divides queries and keys by
    :math:`d^{1/4}`, so that scores are divided by :math:`\sqrt d`, as in softmax attention.

    Args:
        head_dim: Number of channels d of a head. There are :math:`1 + d + d^2` features.

    Source:
        Zhang et al. 2024 for the map; Arora et al. 2024 for its use in Based.
    """

    place = "before"
    nonnegative = False
    normalized = True

    @checked
    def __init__(self, head_dim: int) -> None:
        super().__init__()
        self.head_dim = int(head_dim)
        self.scale = self.head_dim**-0.25

    @checked
    def forward(self, x: Floats[Tensor, "... self.head_dim"], is_query: bool = True) -> Tensor:
        """Return the features, ``(..., 1 + d + d²)``: 1, the channels, and their products.

        Args:
            x: Queries or keys, ``(..., d)``.
            is_query: True for queries. Queries and keys are treated alike.

        Returns:
            The features in float32 or float64, because products of channels overflow in float16.
        """
        y = x.to(at_least_float32(x.dtype))
        products = (y.unsqueeze(-1) * y.unsqueeze(-2)).flatten(-2) / 2**0.5
        return torch.cat([torch.ones_like(y[..., :1]), y, products], -1)

    def extra_repr(self) -> str:
        """Return the arguments that ``repr`` shows."""
        return f"head_dim={self.head_dim}"
