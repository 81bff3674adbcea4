"""The pre-norm transformer block, its feed-forward layers, and the initialisation of models."""

from __future__ import annotations

import copy
import math
from typing import Any, Self

import torch
from torch import Tensor, nn

from stringlib.attention.layer import AttentionLayer
from stringlib.attention.logit_bias import TokenBias
from stringlib.attention.multihead import MultiHeadAttention
from stringlib.attention.path import STEPPED_ENCODERS, PositionSteps
from stringlib.attention.published import LAYERS, make_layer
from stringlib.attention.published import layer_options as published_options
from stringlib.attention.registry import layer_options
from stringlib.attention.states import State
from stringlib.attention.weights import PositionWeight
from stringlib.encoders.registry import BIASES, ENCODERS
from stringlib.encoders.relative_bias import RelativeBias
from stringlib.encoders.rotary import Phases, RotaryEncoder
from stringlib.inputs import did_you_mean, require_name, require_same_tokens
from stringlib.options import named
from stringlib.precision import at_least_float32
from stringlib.spec import Share, checked


class MLP(nn.Module):
    """Feed-forward layer of two linear projections with a GELU between them.

    The layer has ``2 * dim * hidden`` weights and two bias vectors.

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
        """Return the output for tokens ``x``, in their shape ``(..., dim)``."""
        return self.to_out(nn.functional.gelu(self.to_hidden(x)))


class SwiGLU(nn.Module):
    r"""Gated feed-forward layer :math:`(\mathrm{SiLU}(x W_1) \odot x W_2) W_3` without biases.

    The layer has ``3 * dim * hidden`` weights. So the layer has as many weights as an :class:`MLP`
    if ``hidden`` is two thirds of the ``hidden`` of the MLP.

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
        """Return the output for tokens ``x``, in their shape ``(..., dim)``."""
        return self.to_out(nn.functional.silu(self.to_gate(x)) * self.to_hidden(x))


ABSOLUTE = ("sinusoidal", "learned")
"""Names of the absolute position encodings, which add a vector to each token."""

FEED_FORWARD: dict[str, type[MLP] | type[SwiGLU]] = {"mlp": MLP, "swiglu": SwiGLU}
"""Feed-forward layers by name. The arguments of each class are ``(dim, hidden)``."""


class Block(nn.Module):
    """Pre-norm transformer block, :eq:`eq-vit-block`.

    The block computes ``x = x + attention(norm(x))`` and then ``x = x + feed_forward(norm(x))``.
    Without position encoding, position weight, key shift, window and causal mask, the block is
    equivariant to permutations of the tokens, :eq:`eq-vit-equivariant`.

    Args:
        dim: Number of channels of a token.
        heads: Number of heads.
        mlp: Feed-forward layer: ``"mlp"`` (default) for :class:`MLP`, ``"swiglu"`` for
            :class:`SwiGLU`, or None for a block of attention alone.
        hidden: Number of hidden channels of the feed-forward layer. Default: ``4 * dim`` for
            ``"mlp"``, and ``8 * dim // 3`` for ``"swiglu"``, so that the two kinds have about the
            same number of weights.
        residual_dropout: Dropout probability in training. Dropout is applied to the outputs of
            attention and of the feed-forward layer, before these outputs are added to the tokens.
            Default: 0.
        layer: Name of a published layer in :data:`~stringlib.attention.published.LAYERS`, in place
            of multi-head attention. Default: None.
        **attention: Arguments of :class:`~stringlib.attention.multihead.MultiHeadAttention`, or of
            the published layer.

    Source:
        Xiong et al. 2020, for the position of the norm; Vaswani et al. 2017, section 5.4, for the
        dropout.
    """

    @checked
    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        mlp: str | None = "mlp",
        hidden: int | None = None,
        residual_dropout: Share = 0.0,
        layer: str | None = None,
        **attention: Any,
    ) -> None:
        super().__init__()
        if mlp is not None and mlp not in FEED_FORWARD:
            raise ValueError(
                f"mlp must be None or one of {', '.join(FEED_FORWARD)}, got {mlp!r}"
                f"{did_you_mean(mlp, FEED_FORWARD)}"
            )
        if hidden is None:
            hidden = 8 * dim // 3 if mlp == "swiglu" else 4 * dim
        self.attention: AttentionLayer
        if layer is None:
            self.attention = MultiHeadAttention(dim, heads, **attention)
        else:
            require_name("layer", layer, LAYERS)
            self.attention = make_layer(layer, dim, heads, **attention)
        self.norm_attention = nn.LayerNorm(dim)
        self.mlp = None if mlp is None else FEED_FORWARD[mlp](dim, hidden)
        self.norm_mlp = None if mlp is None else nn.LayerNorm(dim)
        self.residual_dropout = nn.Dropout(residual_dropout) if residual_dropout else None

    def forward(
        self,
        x: Tensor,
        positions: Tensor | Phases | None = None,
        *,
        key_mask: Tensor | None = None,
        document_ids: Tensor | None = None,
        state: State | None = None,
        return_state: bool = False,
    ) -> tuple[Tensor, State | None]:
        """Return the tokens after the block, and the state of its attention.

        Args:
            x: Tokens, ``(..., seq, dim)``.
            positions: Positions of the tokens for a rotary encoder, ``(..., seq, coord_dim)``, or
                the phases that the encoder computes from them. Default: the default positions of
                the attention layer.
            key_mask: False for padding, ``(..., seq)``. No token attends to padding. Default: None,
                no padding.
            document_ids: For packed sequences, integers that increase from document to document,
                ``(..., seq)``. No token attends to a token of another document. Default: None, one
                document per row.
            state: The state that the block returned for the earlier tokens. Only a block with
                :attr:`has_state` has one. Default: None, no earlier tokens.
            return_state: If True, the state after the last token is also returned. Default: False.

        Returns:
            The tokens, ``(..., seq, dim)``, and the state, or None without ``return_state``.
        """
        found = self.attention(
            self.norm_attention(x),
            positions,
            key_mask=key_mask,
            document_ids=document_ids,
            state=state,
            return_state=return_state,
        )
        added, after = found if return_state else (found, None)
        dropout = self.residual_dropout
        x = x + (added if dropout is None else dropout(added))
        mlp, norm = self.mlp, self.norm_mlp
        if mlp is not None and norm is not None:
            added = mlp(norm(x))
            x = x + (added if dropout is None else dropout(added))
        return x, after

    @property
    def has_state(self) -> bool:
        """Whether the block can continue from the state that earlier tokens left."""
        return self.attention.has_state


def share_encoders(blocks: nn.ModuleList) -> None:
    """Let all blocks share one rotary encoder if it has no parameters.

    Encoders without parameters are equal in all blocks. If the blocks share one encoder, its phases
    are computed once for all blocks.
    """
    attentions = [block.attention for block in blocks if isinstance(block, Block)]
    first = attentions[0].encoder
    if isinstance(first, RotaryEncoder) and not [*first.parameters()]:
        for attention in attentions:
            attention.encoder = first


def phases_of(blocks: nn.ModuleList, positions: Tensor, x: Tensor) -> list[Tensor | Phases | None]:
    """Return the argument ``positions`` of each block, either phases or the positions themselves.

    If an encoder has no parameters, its phases are computed once, for all blocks that share the
    encoder. If an encoder has parameters, its blocks are given positions and compute the phases
    themselves, because a wrapper such as FSDP makes the parameters of a block available only while
    this block runs. A block inside a wrapper that hides the attribute ``attention`` is also given
    positions. A block whose layer has ``position_steps`` is given None.

    Args:
        blocks: The blocks of a model.
        positions: ``(..., seq, coord_dim)``.
        x: The tokens, ``(..., seq, dim)``.
    """
    made: dict[int, Phases] = {}
    read: list[Tensor | Phases | None] = []
    for block in blocks:
        attention = getattr(block, "attention", None)
        encoder = getattr(attention, "encoder", None)
        if getattr(attention, "position_steps", None) is not None:
            read.append(None)
        elif id(encoder) in made:
            read.append(made[id(encoder)])
        elif not isinstance(encoder, RotaryEncoder) or next(encoder.parameters(), None) is not None:
            read.append(positions)
        else:
            require_same_tokens("x", x.unsqueeze(-3), "positions", positions)
            made[id(encoder)] = encoder.phases(positions).to(at_least_float32(x.dtype))
            read.append(made[id(encoder)])
    return read


def require_defaults(layer: str, **given: Any) -> None:
    """Raise ``ValueError`` if an argument is given that a published layer sets itself."""
    for name, value in given.items():
        default = "softmax" if name == "attention" else None
        if value != default and not (name == "encoder" and value in ABSOLUTE):
            raise ValueError(
                f"{name} must be {default!r} with layer={layer!r}, got {value!r}. The paper of "
                f"this layer fixes {name}. Leave out {name}, or leave out layer."
            )


def require_known(encoder: object) -> None:
    """Raise ``ValueError`` if the encoder of a model is given by an unknown name."""
    names = (*ENCODERS, *STEPPED_ENCODERS, *BIASES, *ABSOLUTE)
    if isinstance(encoder, str) and encoder not in names:
        raise ValueError(
            f"encoder must be None or one of {', '.join(names)}, got {encoder!r}"
            f"{did_you_mean(encoder, names)}"
        )


def block_options() -> set[str]:
    """Return the names of the options that a model passes to its blocks."""
    return {*named(MultiHeadAttention), *layer_options()}


def causal_options() -> set[str]:
    """Return the names of the options of the blocks of a causal model, published layers too."""
    return block_options() | published_options()


class Blocks(nn.Module):
    """Base class of models that can merge the bases of their encoders into the projections.

    Attributes:
        blocks: The blocks, each a :class:`Block`, or a module around one, such as
            ``torch.compile(block)``, that is called in the same way and returns the same pair.
    """

    blocks: nn.ModuleList

    def folded(self) -> Self:
        """Return a copy in which the bases of the encoders are merged into the projections.

        The copy has the same outputs up to rounding, and its encoders are as fast as RoPE.

        Raises:
            ValueError: If a layer is not softmax attention with a rotary encoder, or has hooks,
                adapters or wrappers.
        """
        shared: dict[int, RotaryEncoder | RelativeBias | None] = {}
        made: dict[int, Any] = {}
        for block in self.blocks:
            attention = getattr(block, "attention", None)
            if not isinstance(attention, MultiHeadAttention):
                raise ValueError(
                    "attention of every block must be a MultiHeadAttention to be folded, got "
                    f"{type(attention).__name__} in a {type(block).__name__}. Call folded() before "
                    "you wrap the blocks of the model."
                )
            folded = made[id(attention)] = attention.folded()
            folded.encoder = shared.setdefault(id(attention.encoder), folded.encoder)
        return copy.deepcopy(self, made)  # which has the folded layers in place of its own


@torch.no_grad()
def initialize(model: nn.Module) -> None:
    r"""Initialise the linear layers of a model such that activations keep about the same size.

    The weights of each linear layer are normal with standard deviation
    :math:`1/\sqrt{\mathrm{inputs}}`, and its biases are 0. The output projections of attention and
    of the feed-forward layer are then divided by :math:`\sqrt{2\,\mathrm{depth}}`, so that all
    blocks together add about as much to a token as one block would. Encoders, feature maps,
    position weights, token biases and position steps keep the initial values that their sources
    prescribe.

    Args:
        model: The model, whose linear layers are changed in place.

    Source:
        Radford et al. 2019, section 2.3, for the division.
    """
    of_positions = (PositionWeight, TokenBias, PositionSteps)
    kept = {p for m in model.modules() if isinstance(m, of_positions) for p in m.modules()}
    for module in model.modules():
        if isinstance(module, nn.Linear) and module not in kept:
            nn.init.normal_(module.weight, std=1 / math.sqrt(module.in_features))
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    blocks = [module for module in model.modules() if isinstance(module, Block)]
    for block in blocks:
        for part in (block.attention, block.mlp):
            if part is not None:
                part.to_out.weight /= math.sqrt(2 * len(blocks))
