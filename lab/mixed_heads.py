"""A layer whose heads are of different kinds, for example softmax and linear attention."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor, nn

from stringlib import MultiHeadAttention
from stringlib.attention.registry import WEIGHTS
from stringlib.inputs import require_split
from stringlib.parts import make_part


class MixedHeads(nn.Module):
    """Layer of a model that adds the outputs of different heads, which read the same tokens.

    Args:
        parts: The heads. The ``forward`` of each head has the arguments of
            :class:`~stringlib.attention.multihead.MultiHeadAttention`, and returns tokens with as
            many channels as it reads.
    """

    encoder = None
    """Always None, so that a model passes positions on unchanged. Each head has its own encoder."""

    def __init__(self, parts: Iterable[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Return the sum of the outputs of all heads, ``(..., seq, dim)``."""
        return sum(head(x, *args, **kwargs) for head in self.parts)


def one_of_each(dim: int, depth: int, *kinds: Mapping[str, Any]) -> MixedHeads:
    """Return a causal layer with one head of each kind, for a model of several blocks.

    The projections have as many weights as those of an ordinary layer with the same number of
    heads, and the same distribution of initial weights as in a model. Each head reads all ``dim``
    channels of a token. The queries, keys and values of a head have ``dim / len(kinds)`` channels.

    Args:
        dim: Number of channels of a token; must be a multiple of the number of kinds.
        depth: Number of blocks of the model.
        *kinds: Options of each head, which are keyword arguments of
            :class:`~stringlib.attention.multihead.MultiHeadAttention`. The option ``gate`` is not
            supported.

    Raises:
        ValueError: If ``dim`` is not a multiple of the number of kinds.
    """
    require_split(dim, len(kinds))
    width = dim // len(kinds)
    heads = [
        MultiHeadAttention(width, 1, causal=True, **_with_weight(kind, dim, width))
        for kind in kinds
    ]
    for head in heads:
        head.dim = head.context_dim = dim
        for name in ("to_q", "to_k", "to_v"):
            setattr(head, name, nn.Linear(dim, width, bias=False))
        head.to_out = nn.Linear(width, dim, bias=False)
        for linear in (head.to_q, head.to_k, head.to_v):
            nn.init.normal_(linear.weight, std=dim**-0.5)
        nn.init.normal_(head.to_out.weight, std=(dim * 2 * depth) ** -0.5)
    return MixedHeads(heads)


def _with_weight(kind: Mapping[str, Any], dim: int, width: int) -> dict[str, Any]:
    """Return the options of a head, with the position weight built for ``dim`` channels, if any."""
    options = dict(kind)
    if "weight" in options:
        offered = {"dim": dim, "heads": 1, "features": width}
        options["weight"] = make_part("weight", options["weight"], WEIGHTS, offered, options)
    return options
