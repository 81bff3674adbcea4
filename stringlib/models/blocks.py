"""The pre-norm block of a transformer, its two kinds of feed-forward part, and their start."""

from __future__ import annotations

import copy
import math
from typing import Any, Self

import torch
from torch import Tensor, nn

from stringlib.attention.multihead import MultiHeadAttention, State
from stringlib.attention.weights import PositionWeight
from stringlib.encoders.registry import BIASES, ENCODERS
from stringlib.encoders.relative_bias import RelativeBias
from stringlib.encoders.string import Phases, RotaryEncoder
from stringlib.inputs import require_same_tokens
from stringlib.precision import at_least_float32
from stringlib.spec import checked


class MLP(nn.Module):
    """Two projections with a GELU between them: ``2 * dim * hidden`` weights and two biases.

    Args:
        dim: Number of channels of a token.
        hidden: Number of channels between the projections.
    """

    @checked
    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.to_hidden = nn.Linear(dim, hidden)
        self.to_out = nn.Linear(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``(..., dim)``."""
        return self.to_out(nn.functional.gelu(self.to_hidden(x)))


class SwiGLU(nn.Module):
    r"""Three projections, :math:`(\mathrm{SiLU}(x W_1) \odot x W_2) W_3`, without biases.

    ``3 * dim * hidden`` weights: two thirds of the ``hidden`` of a plain MLP make as many.

    Args:
        dim: Number of channels of a token.
        hidden: Number of channels between the projections.

    Source:
        Shazeer 2020.
    """

    @checked
    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.to_gate = nn.Linear(dim, hidden, bias=False)
        self.to_hidden = nn.Linear(dim, hidden, bias=False)
        self.to_out = nn.Linear(hidden, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``(..., dim)``."""
        return self.to_out(nn.functional.silu(self.to_gate(x)) * self.to_hidden(x))


ABSOLUTE = ("sinusoidal", "learned")
"""Encoders that add a vector to each token."""

FEED_FORWARD: dict[str, type[MLP] | type[SwiGLU]] = {"mlp": MLP, "swiglu": SwiGLU}
"""Name → class of ``(dim, hidden)``."""


class Block(nn.Module):
    """x + attention(norm(x)), then x + feed-forward(norm(x)), :eq:`eq-vit-block`.

    Without an encoder, and not causal, it keeps the order of its tokens, :eq:`eq-vit-equivariant`.

    Args:
        dim: Number of channels of a token.
        heads: Number of heads.
        mlp: A name in :data:`FEED_FORWARD`, or None for attention alone.
        hidden: Channels of the feed-forward part between its projections; if omitted ``4 * dim``
            for ``"mlp"`` and two thirds of it for ``"swiglu"``, which makes as many weights.
        **attention: What :class:`~stringlib.attention.multihead.MultiHeadAttention` takes.

    Source:
        Xiong et al. 2020 for the place of the norm.
    """

    @checked
    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        mlp: str | None = "mlp",
        hidden: int | None = None,
        **attention: Any,
    ) -> None:
        super().__init__()
        if mlp is not None and mlp not in FEED_FORWARD:
            raise ValueError(f"mlp must be None or one of {', '.join(FEED_FORWARD)}, got {mlp!r}")
        if hidden is None:
            hidden = 8 * dim // 3 if mlp == "swiglu" else 4 * dim
        self.attention = MultiHeadAttention(dim, heads, **attention)
        self.norm_attention = nn.LayerNorm(dim)
        self.mlp = None if mlp is None else FEED_FORWARD[mlp](dim, hidden)
        self.norm_mlp = None if mlp is None else nn.LayerNorm(dim)

    def forward(
        self,
        x: Tensor,
        positions: Tensor | Phases | None = None,
        *,
        key_mask: Tensor | None = None,
        state: State | None = None,
        return_state: bool = False,
    ) -> tuple[Tensor, State | None]:
        """Return the tokens after the block, and its attention's state.

        Args:
            x: Tokens, ``(..., seq, dim)``.
            positions: ``(..., seq, coord_dim)``, for a rotary encoder, or its phases there.
            key_mask: False for padding, which no token sees, ``(..., seq)``.
            state: What earlier tokens left in this block, for causal attention.
            return_state: Whether to return the state behind the last token.

        Returns:
            ``(..., seq, dim)``, and the state or None.
        """
        found = self.attention(
            self.norm_attention(x),
            positions,
            key_mask=key_mask,
            state=state,
            return_state=return_state,
        )
        added, after = found if return_state else (found, None)
        x = x + added
        if self.mlp is not None and self.norm_mlp is not None:
            x = x + self.mlp(self.norm_mlp(x))
        return x, after


def share_encoders(blocks: nn.ModuleList) -> None:
    """Let blocks whose encoders learn nothing have one: they are alike, and so are their phases."""
    attentions = [block.attention for block in blocks if isinstance(block, Block)]
    first = attentions[0].encoder
    if isinstance(first, RotaryEncoder) and not [*first.parameters()]:
        for attention in attentions:
            attention.encoder = first


def phases_of(blocks: nn.ModuleList, positions: Tensor, x: Tensor) -> list[Tensor | Phases]:
    """Return what each block is given as positions: phases, or the positions themselves.

    The phases of an encoder without parameters are computed once, for all blocks that share it. An
    encoder with parameters computes its phases inside each block, because a wrapper such as FSDP
    makes the parameters of a block available only while this block runs.

    Args:
        blocks: The blocks of a model.
        positions: ``(..., seq, coord_dim)``.
        x: The tokens, ``(..., seq, dim)``.
    """
    made: dict[int, Phases] = {}
    read: list[Tensor | Phases] = []
    for block in blocks:
        assert isinstance(block, Block)
        encoder = block.attention.encoder
        if not isinstance(encoder, RotaryEncoder) or next(encoder.parameters(), None) is not None:
            read.append(positions)
            continue
        if id(encoder) not in made:
            require_same_tokens("x", x.unsqueeze(-3), "positions", positions)
            made[id(encoder)] = encoder.phases(positions).to(at_least_float32(x.dtype))
        read.append(made[id(encoder)])
    return read


def require_known(encoder: object) -> None:
    """Raise ``ValueError`` if the encoder of a model is a name that nothing has."""
    names = (*ENCODERS, *BIASES, *ABSOLUTE)
    if isinstance(encoder, str) and encoder not in names:
        raise ValueError(f"encoder must be None or one of {', '.join(names)}, got {encoder!r}")


class Blocks(nn.Module):
    """Base of the models: they fold as their blocks do."""

    blocks: nn.ModuleList

    def folded(self) -> Self:
        """Return a copy whose encoders cost what RoPE costs: their basis is in the projections.

        Raises:
            ValueError: If a layer has no rotary encoder or is not softmax attention.
        """
        model = copy.deepcopy(self)
        shared: dict[int, RotaryEncoder | RelativeBias | None] = {}
        for block in model.blocks:
            assert isinstance(block, Block)
            encoder = block.attention.encoder
            block.attention = block.attention.folded()
            block.attention.encoder = shared.setdefault(id(encoder), block.attention.encoder)
        return model


@torch.no_grad()
def initialize(model: nn.Module, blocks: nn.ModuleList) -> None:
    r"""Draw the projections of a model anew, so that no layer makes its tokens larger or smaller.

    Every projection is normal with a standard deviation of :math:`1/\sqrt{\mathrm{inputs}}` and
    has the bias 0. What a block adds to its tokens is divided by :math:`\sqrt{2\,\mathrm{depth}}`,
    so that all blocks together add about as much as one would. Encoders, feature maps and decays
    keep the start that their sources give them.

    Args:
        model: The model.
        blocks: Its blocks.

    Source:
        Radford et al. 2019, section 2.3, for the division.
    """
    kept = {p for m in model.modules() if isinstance(m, PositionWeight) for p in m.modules()}
    for module in model.modules():
        if isinstance(module, nn.Linear) and module not in kept:
            nn.init.normal_(module.weight, std=1 / math.sqrt(module.in_features))
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    for block in blocks:
        assert isinstance(block, Block)
        for part in (block.attention, block.mlp):
            if part is not None:
                part.to_out.weight /= math.sqrt(2 * len(blocks))
