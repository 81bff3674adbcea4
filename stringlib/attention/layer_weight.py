"""Where a layer takes its position weight from: made anew at every call, from what is learned."""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from stringlib.attention.toeplitz import ToeplitzWeight
from stringlib.attention.weights import PositionWeight
from stringlib.encoders.bias import RelativeBias


class LayerShape(NamedTuple):
    """What a layer is told, of which each weight reads what it needs.

    Attributes:
        dim: Number of channels of a token.
        heads: Number of heads.
        causal: Whether a token sees itself and earlier ones only.
        horizon: M of the cosine weights.
        length: Longest sequence of a Toeplitz table.
        grid: Rows and columns of an image.
        coord_dim: Coordinates that an encoder asked for by name reads; None for the default.
        features: Number of features of a head.
    """

    dim: int
    heads: int
    causal: bool
    horizon: float | None
    length: int | None
    grid: tuple[int, int] | None
    coord_dim: int | None = None
    features: int = 0

    @property
    def head_dim(self) -> int:
        """Number of channels of a head."""
        return self.dim // self.heads


class LayerWeight(nn.Module):
    """Base: from the layer's input to the weight of that call."""

    causal_only = False

    @abstractmethod
    def forward(self, x: Tensor, key_mask: Tensor | None = None) -> PositionWeight:
        """Return the weight for tokens ``x``, ``(..., seq, dim)``.

        What a token that the mask calls padding holds is not read.
        """


class GivenWeight(LayerWeight):
    """A weight that is what it is, whatever the tokens.

    Args:
        weight: The weight. Its parameters are those of the layer, and its tensors move along.

    Raises:
        ValueError: If it was computed from what learns: nobody would find that to train it.
    """

    def __init__(self, weight: PositionWeight) -> None:
        super().__init__()
        if "_parameters" not in vars(weight):  # one's own, whose constructor calls no other
            nn.Module.__init__(weight)
        for name, tensor in weight.named_buffers():
            if tensor.requires_grad:
                raise ValueError(
                    "weight must hold parameters, or tensors without gradient: give "
                    f"{type(weight).__name__}(nn.Parameter({name})), or what {name} comes from "
                    f"as encoder; got {name} with requires_grad"
                )
        self.weight = weight
        self.causal_only = weight.causal_only

    def forward(self, x: Tensor, key_mask: Tensor | None = None) -> PositionWeight:
        """Return the weight."""
        return self.weight

    def extra_repr(self) -> str:
        """Name the weight in ``repr``."""
        return type(self.weight).__name__


class LearnedToeplitz(LayerWeight):
    r"""One learned number for each head and offset, :math:`w(i,j) = e^{b_{j-i}}`.

    Args:
        heads: Number of heads.
        size: Tokens of a sequence, ``(n,)``, or rows and columns of an image, ``(h, w)``. A
            sequence may be shorter: it uses the middle of the table.

    Attributes:
        bias: ``(heads, 2n - 1)``, entry ``n - 1 + (j - i)``, or ``(heads, 2h - 1, 2w - 1)``.
            Starts normal with a standard deviation of 0.02.

    Source:
        Luo et al. 2021, equation 5.
    """

    def __init__(self, heads: int, size: tuple[int, ...]) -> None:
        super().__init__()
        self.size = size
        self.bias = nn.Parameter(torch.empty(heads, *(2 * n - 1 for n in size)))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the numbers anew."""
        nn.init.normal_(self.bias, std=0.02)

    def forward(self, x: Tensor, key_mask: Tensor | None = None) -> PositionWeight:
        """Return the weight for the length of ``x``.

        Raises:
            ValueError: If the sequence is longer than the table.
        """
        if len(self.size) > 1:
            return ToeplitzWeight(self.bias)
        (longest,), n = self.size, x.shape[-2]
        if n > longest:
            raise ValueError(f"x must have at most length = {longest} tokens, got {n}")
        # n = 0 asks for no weight, but a table has at least one entry
        return ToeplitzWeight(self.bias[:, longest - max(n, 1) : longest - 1 + max(n, 1)])

    def extra_repr(self) -> str:
        """Describe the table in ``repr``."""
        return f"size={self.size}"


class BiasWeight(LayerWeight):
    r"""A relative bias of softmax attention as a weight: :math:`w(i,j) = e^{b(i-j)}`.

    Softmax attention that adds b to its logits multiplies each exponential by :math:`e^b`; this
    multiplies the products of features by the same.

    Args:
        bias: A :class:`~stringlib.encoders.bias.RelativeBias`.
    """

    def __init__(self, bias: RelativeBias) -> None:
        super().__init__()
        self.bias = bias

    def forward(self, x: Tensor, key_mask: Tensor | None = None) -> PositionWeight:
        """Return the weight for the length of ``x``."""
        n = max(x.shape[-2], 1)
        # an entry of the table belongs to key minus query, a bias to query minus key
        return ToeplitzWeight(self.bias.at(torch.arange(n - 1, -n, -1, device=x.device)))
