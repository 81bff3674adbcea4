"""A causal language model with any encoder and any attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from stringlib.attention.multihead import State
from stringlib.encoders.absolute import LearnedAbsolute, Sinusoidal
from stringlib.encoders.registry import BIASES, make_bias
from stringlib.inputs import require_count
from stringlib.models.blocks import Block, initialize


class LanguageModel(nn.Module):
    r"""Embedding, causal blocks, norm, and a score for each token that may follow.

    Args:
        vocab: Number of different tokens.
        dim: Number of channels of a token.
        depth: Number of blocks.
        heads: Number of heads of each block, a divisor of ``dim``.
        encoder: Where position enters. A name in
            :data:`~stringlib.encoders.registry.ENCODERS`: each block has an encoder of its own. A
            name in :data:`~stringlib.encoders.registry.BIASES`: one bias for all blocks.
            ``"sinusoidal"`` or ``"learned"``: a vector added to each token. A module: an encoder
            or bias that all blocks share. None: position enters through causality alone.
        attention: As for :class:`~stringlib.attention.multihead.MultiHeadAttention`.
        gate: As for :class:`~stringlib.attention.multihead.MultiHeadAttention`.
        hidden: Channels between the projections of the feed-forward part; if omitted
            ``4 * dim`` for ``"mlp"``, two thirds of it for ``"swiglu"``.
        mlp: ``"swiglu"``, ``"mlp"``, or None for attention alone.
        tied: Whether the scores use the embedding's vectors.
        length: Longest sequence, for a learned table: encoder ``"learned"`` or weight
            ``"toeplitz"``. Without one it is not used.
        **options: Options of attention, for every block, such as ``weight``, ``num_features`` or
            ``shift``.

    Attributes:
        embed: The vectors of the tokens, ``(vocab, dim)``, with a standard deviation of
            :math:`1/\sqrt{\mathrm{dim}}`: each starts about 1 long. Sinusoids are scaled to the
            same length, which is what Vaswani et al. do when they enlarge the tokens instead.
        absolute: What is added to a token because of its place, or None.
        blocks: The blocks, each a :class:`~stringlib.models.blocks.Block`.

    Raises:
        TypeError: If an argument has the wrong kind.
        ValueError: If a name is unknown, a number does not fit, or parts cannot go together.

    Source:
        Vaswani et al. 2017, section 3.4, for the embedding; Radford et al. 2019.
    """

    def __init__(
        self,
        vocab: int,
        dim: int,
        depth: int,
        heads: int,
        encoder: Any = None,
        attention: Any = "softmax",
        gate: str | None = None,
        *,
        hidden: int | None = None,
        mlp: str | None = "swiglu",
        tied: bool = True,
        length: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        for name, number in (("vocab", vocab), ("dim", dim), ("depth", depth)):
            require_count(name, number)
        toeplitz = options.get("weight") == "toeplitz"
        if length is None and (encoder == "learned" or toeplitz):
            raise ValueError(
                "length, the longest sequence, must be given for encoder 'learned' and weight "
                "'toeplitz', got None"
            )
        self.embed = nn.Embedding(vocab, dim)
        self.absolute: Sinusoidal | LearnedAbsolute | None = None
        if encoder == "sinusoidal":
            self.absolute, encoder = Sinusoidal(dim), None
        elif encoder == "learned":
            assert length is not None
            self.absolute, encoder = LearnedAbsolute(length, dim), None
        elif isinstance(encoder, str) and encoder in BIASES:
            encoder = make_bias(encoder, heads, causal=True)
        if toeplitz:
            options["length"] = length
        self.blocks = nn.ModuleList(
            Block(
                dim,
                heads,
                mlp=mlp,
                hidden=hidden or (8 * dim // 3 if mlp == "swiglu" else 4 * dim),
                encoder=encoder,
                attention=attention,
                gate=gate,
                causal=True,
                **options,
            )
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(dim)
        self.readout = nn.Linear(dim, vocab, bias=False)
        initialize(self, self.blocks)
        nn.init.normal_(self.embed.weight, std=dim**-0.5)
        if tied:
            self.readout.weight = self.embed.weight

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor | None = None,
        *,
        state: Sequence[State] | None = None,
        return_state: bool = False,
    ) -> Any:
        """Return scores, ``(batch, seq, vocab)``, of the token after each."""
        x = self.embed(tokens)
        if positions is None:
            before = 0 if state is None else state[0].length
            positions = torch.arange(before, before + tokens.shape[-1], device=x.device)[:, None]
        if isinstance(self.absolute, Sinusoidal):
            length = math.sqrt(self.absolute.dim / 2)  # of its vectors; a token's have length 1
            x = self.absolute(x * length, positions) / length
        elif self.absolute is not None:
            x = self.absolute(x, positions)
        after = []
        for i, block in enumerate(self.blocks):
            earlier = None if state is None else state[i]
            x, left = block(x, positions, state=earlier, return_state=return_state)
            after.append(left)
        scores = self.readout(self.norm(x))
        return (scores, tuple(after)) if return_state else scores
