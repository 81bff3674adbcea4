r"""Feature maps: the base class, and the maps that act on each entry.

Linear attention replaces the exponential of softmax by a product of features. The random features
of FAVOR+ are in :mod:`stringlib.attention.favor`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from stringlib.kernels.features import elu_plus_one
from stringlib.moved import forward
from stringlib.spec import Floats, checked


class FeatureMap(nn.Module):
    r"""A map :math:`\phi`: attention weighs value j for query i by :math:`\phi(q_i)^\top\phi(k_j)`.

    ``phi(x, is_query=True)`` takes ``(..., heads, seq, head_dim)`` to ``(..., heads, seq, m)``.

    Attributes:
        scale: What a layer multiplies queries and keys by before the map. One that estimates
            :math:`e^{x^\top y}` says :math:`d^{-1/4}`, as softmax has :math:`q^\top k/\sqrt d`.
        place: Where a layer rotates unless it is told, ``"before"`` or ``"after"`` the map; None
            if it has to be told.
        nonnegative: Whether no feature is negative, so that no weight is. If one may be, a layer
            does not divide by the sum of the weights, which may be 0.
    """

    scale: float = 1.0
    place: str | None = None
    nonnegative: bool = True

    def scaled_keys(self, k: Tensor) -> tuple[Tensor, Tensor | None]:
        r"""Return features of keys, and the logarithm of a factor left out of each.

        Args:
            k: ``(..., heads, seq, head_dim)``.

        Returns:
            Features ``(..., heads, seq, m)``, and a ``key_scale`` for
            :func:`~stringlib.attention.linear.linear_attention`: ``(..., heads, seq)``, or None
            where nothing was left out.
        """
        return self(k, is_query=False), None


class IdentityFeatures(FeatureMap):
    r""":math:`\phi(x) = x`, as RetNet, GLA, Mamba-2 and DeltaNet have it: divided by no sum."""

    place = "before"
    nonnegative = False

    @checked
    def forward(self, x: Floats[Tensor, "..."], is_query: bool = True) -> Tensor:
        """Return ``x``; queries and keys alike."""
        return x


class ReLUFeatures(FeatureMap):
    r""":math:`\phi(x) = \max(x, 0)`, entry by entry: as many features as channels."""

    @checked
    def forward(self, x: Floats[Tensor, "..."], is_query: bool = True) -> Tensor:
        """Return the features, of the shape of ``x``; queries and keys alike."""
        return torch.relu(x)


class ELUFeatures(FeatureMap):
    r""":math:`\phi(x) = \mathrm{elu}(x) + 1`: :math:`x + 1` above 0, :math:`e^x` below.

    Source:
        Katharopoulos et al. 2020, equation 7.
    """

    @checked
    def forward(self, x: Floats[Tensor, "..."], is_query: bool = True) -> Tensor:
        """Return the features, of the shape of ``x``; queries and keys alike."""
        return elu_plus_one(x)


__getattr__ = forward(__name__, "stringlib.attention.favor", "FavorFeatures", "optimal_alpha")
