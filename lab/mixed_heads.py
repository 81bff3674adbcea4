"""A layer whose heads are of different kinds: softmax beside a state, for instance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor, nn

from stringlib import MultiHeadAttention
from stringlib.attention.registry import WEIGHTS
from stringlib.inputs import require_split
from stringlib.parts import make_part


class MixedHeads(nn.Module):
    """Heads that all read the same tokens, and whose outputs are added: one layer of a model.

    Args:
        parts: The heads. Each takes what
            :class:`~stringlib.attention.multihead.MultiHeadAttention` takes, and returns as many
            channels as it reads.
    """

    encoder = None
    """Each head has its own or none, so a model hands positions on as they are."""

    def __init__(self, parts: Iterable[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Return what all heads add to the tokens, ``(..., seq, dim)``."""
        return sum(head(x, *args, **kwargs) for head in self.parts)


def one_of_each(dim: int, depth: int, *kinds: Mapping[str, Any]) -> MixedHeads:
    """Return a causal layer with one head of each kind, for a model of several blocks.

    It has the parameters of a layer of as many heads, and starts like one in a model: a head reads
    all channels, and has its share of them inside.

    Args:
        dim: Number of channels of a token, which the number of kinds divides.
        depth: Number of blocks of the model.
        *kinds: Options of each head, as
            :class:`~stringlib.attention.multihead.MultiHeadAttention` takes them; no gate.

    Raises:
        ValueError: If the heads cannot share the channels.
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
    """Return the options with the weight made, if there is one: it too reads all channels."""
    options = dict(kind)
    if "weight" in options:
        offered = {"dim": dim, "heads": 1, "features": width}
        options["weight"] = make_part("weight", options["weight"], WEIGHTS, offered, options)
    return options
