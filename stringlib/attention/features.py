r"""Feature maps of linear attention: the base class, and the maps that act on each channel.

Linear attention replaces the exponential of softmax by a product of features. The random features
of FAVOR+ are in :mod:`stringlib.attention.favor`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from stringlib.kernels.features import elu_plus_one
from stringlib.moved import forward
from stringlib.precision import at_least_float32
from stringlib.spec import Floats, checked


class FeatureMap(nn.Module):
    r"""Base class of feature maps :math:`\phi`, which define the similarity of linear attention.

    The similarity of query i and key j is :math:`\phi(q_i)^\top\phi(k_j)`. A subclass implements
    ``forward(x, is_query=True)``, which maps ``(..., heads, seq, head_dim)`` to
    ``(..., heads, seq, m)``.

    Attributes:
        scale: The factor by which a layer multiplies queries and keys before the map. It is
            :math:`d^{-1/4}` for a map that estimates :math:`e^{x^\top y}`, because the logits of
            softmax are :math:`q^\top k/\sqrt d`. Default: 1.
        place: The default for ``rotate`` of a layer with a rotary encoder: ``"before"`` (queries
            and keys are rotated) or ``"after"`` (features are rotated). Default: None, which means
            that the layer has no default for ``rotate``.
        nonnegative: True (default) if no feature is negative, so that no similarity is negative.
        normalized: Whether a layer divides by the sum of the weights. By default this is
            ``nonnegative``, because the sum could be 0 if similarities may be negative. A map with
            negative features whose similarities are always positive sets ``normalized`` to True.
    """

    scale: float = 1.0
    place: str | None = None
    nonnegative: bool = True

    @property
    def normalized(self) -> bool:
        """Whether a layer divides by the sum of the weights."""
        return self.nonnegative

    def scaled_keys(self, k: Tensor) -> tuple[Tensor, Tensor | None]:
        r"""Return the features of each key divided by a factor, and the logarithms of the factors.

        A map whose features may overflow divides the features of each key by a factor. In the base
        class all factors are 1.

        Args:
            k: Keys, ``(..., heads, seq, head_dim)``.

        Returns:
            Features, ``(..., heads, seq, m)``, and the logarithms of the factors,
            ``(..., heads, seq)``, or None if all factors are 1. The logarithms are the
            ``key_scale`` of :func:`~stringlib.attention.linear.linear_attention`.
        """
        return self(k, is_query=False), None

    def drawn(self) -> Tensor | None:
        """Return some of the random numbers of the map, ``(1 or heads, count)``, or None.

        A state of causal attention contains these numbers, so that the state is not continued with
        other random features. None, as in the base class, means that the map has no random
        numbers, or that training changes them.
        """
        return None


class IdentityFeatures(FeatureMap):
    r"""Identity feature map :math:`\phi(x) = x`, as in RetNet and GLA.

    A layer does not divide by the sum of the weights, because features may be negative.
    """

    place = "before"
    nonnegative = False

    @checked
    def forward(self, x: Floats[Tensor, "..."], is_query: bool = True) -> Tensor:
        """Return the features, which are ``x`` itself, for queries and for keys."""
        return x


class ReLUFeatures(FeatureMap):
    r"""ReLU feature map :math:`\phi(x) = \max(x, 0)`, with one feature for each channel."""

    @checked
    def forward(self, x: Floats[Tensor, "..."], is_query: bool = True) -> Tensor:
        """Return the features, in the shape of ``x``. Queries and keys are treated alike."""
        return torch.relu(x)


class ELUFeatures(FeatureMap):
    r"""ELU feature map :math:`\phi(x) = \mathrm{elu}(x) + 1`, with one feature for each channel.

    A feature is :math:`x + 1` for :math:`x > 0` and :math:`e^x` for :math:`x \le 0`.

    Source:
        Katharopoulos et al. 2020, equation 7.
    """

    @checked
    def forward(self, x: Floats[Tensor, "..."], is_query: bool = True) -> Tensor:
        """Return the features, in the shape of ``x``. Queries and keys are treated alike.

        The features are float64 if ``x`` is float64, and otherwise float32, because small features
        are 0 in float16, and their gradients overflow.
        """
        return elu_plus_one(x.to(at_least_float32(x.dtype)))


__getattr__ = forward(__name__, "stringlib.attention.favor", "FavorFeatures", "optimal_alpha")
