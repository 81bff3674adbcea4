"""A causal language model with any encoder and any attention."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from stringlib.attention.features import FeatureMap
from stringlib.attention.multihead import State
from stringlib.encoders.absolute import LearnedAbsolute, Sinusoidal
from stringlib.encoders.registry import BIASES, make_bias
from stringlib.encoders.relative_bias import RelativeBias
from stringlib.encoders.string import RotaryEncoder
from stringlib.inputs import per_head, require_places, require_same_device
from stringlib.models.blocks import (
    Block,
    Blocks,
    initialize,
    phases_of,
    require_known,
    share_encoders,
)
from stringlib.spec import Count0, Indices, NotNegative, Positions, checked


class LanguageModel(Blocks):
    r"""Embedding, causal blocks, norm, and a score for each token that may follow.

    Args:
        vocab: Number of different tokens.
        dim: Number of channels of a token.
        depth: Number of blocks.
        heads: Number of heads of each block, a divisor of ``dim``.
        encoder: Where position enters. A name in
            :data:`~stringlib.encoders.registry.ENCODERS`: each block has an encoder of its own,
            or all have one if it learns nothing. A name in
            :data:`~stringlib.encoders.registry.BIASES`: one bias for all blocks.
            ``"sinusoidal"`` or ``"learned"``: a vector added to each token. A module: an encoder
            or bias that all blocks share. None: position enters through causality alone.
        attention: As for :class:`~stringlib.attention.multihead.MultiHeadAttention`.
        gate: As for :class:`~stringlib.attention.multihead.MultiHeadAttention`.
        hidden: As for :class:`~stringlib.models.blocks.Block`.
        mlp: ``"swiglu"``, ``"mlp"``, or None for attention alone.
        tied: Whether the scores use the embedding's vectors.
        length: Longest sequence, for a learned table: encoder ``"learned"`` or weight
            ``"toeplitz"``. Without one it is not used.
        **options: Options of attention, for every block, such as ``weight``, ``num_features`` or
            ``shift``.

    Attributes:
        embed: The vectors of the tokens, ``(vocab, dim)``, with a standard deviation of
            :math:`1/\sqrt{\mathrm{dim}}`: each starts about 1 long. Sinusoids are scaled to this
            length; Vaswani et al. enlarge the tokens instead.
        absolute: What is added to a token because of its place, or None.
        blocks: The blocks, each a :class:`~stringlib.models.blocks.Block`.

    Source:
        Vaswani et al. 2017, section 3.4, for the embedding; Radford et al. 2019.

    Example:
        >>> model = LanguageModel(vocab=256, dim=64, depth=2, heads=4, encoder="rope")
        >>> tokens = torch.randint(256, (8, 100))
        >>> model(tokens).shape, model.generate(tokens, count=5).shape
        (torch.Size([8, 100, 256]), torch.Size([8, 105]))
    """

    @checked
    def __init__(
        self,
        vocab: int,
        dim: int,
        depth: int,
        heads: int,
        encoder: RotaryEncoder | RelativeBias | str | None = None,
        attention: FeatureMap | str = "softmax",
        gate: str | None = None,
        *,
        hidden: int | None = None,
        mlp: str | None = "swiglu",
        tied: bool = True,
        length: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        require_known(encoder)
        self.length = None
        if encoder == "learned" or options.get("weight") == "toeplitz":
            if length is None:
                raise ValueError(
                    "length, the longest sequence, must be given for encoder 'learned' and weight "
                    "'toeplitz', got None"
                )
            self.length = int(length)
        self.embed = nn.Embedding(vocab, dim)
        self.absolute: Sinusoidal | LearnedAbsolute | None = None
        if encoder == "sinusoidal":
            self.absolute, encoder = Sinusoidal(dim), None
        elif encoder == "learned":
            assert self.length is not None
            self.absolute, encoder = LearnedAbsolute(self.length, dim), None
        elif isinstance(encoder, str) and encoder in BIASES:
            encoder = make_bias(encoder, heads, causal=True)
        if options.get("weight") == "toeplitz":
            options["length"] = self.length
        options |= {"encoder": encoder, "attention": attention, "gate": gate}
        self.blocks = nn.ModuleList(
            Block(dim, heads, mlp=mlp, hidden=hidden, causal=True, **options) for _ in range(depth)
        )
        if isinstance(encoder, str):
            share_encoders(self.blocks)
        self.norm = nn.LayerNorm(dim)
        self.readout = nn.Linear(dim, vocab, bias=False)
        initialize(self, self.blocks)
        nn.init.normal_(self.embed.weight, std=dim**-0.5)
        self.tied = tied
        self._tie()
        self.register_load_state_dict_post_hook(_tied_again)

    @checked
    def forward(
        self,
        tokens: Indices[Tensor, "batch seq"],
        positions: Positions[Tensor, "... n coord_dim"] | None = None,
        *,
        key_mask: Tensor | None = None,
        state: Sequence[State] | None = None,
        return_state: bool = False,
        logits_to_keep: int | None = None,
    ) -> Tensor | tuple[Tensor, tuple[State, ...]]:
        """Return the logits of the next token, after each token.

        Args:
            tokens: Whole numbers from 0 to ``vocab - 1``, ``(batch, seq)``. Others are an error on
                the CPU; a GPU stops with an assertion of its own.
            positions: ``(seq, 1)`` or ``(batch, seq, 1)``, read by a rotary encoder and by
                ``"sinusoidal"`` and ``"learned"``. If omitted, tokens are counted from 0, or from
                the end of ``state``. Biases and weights count tokens themselves.
            key_mask: False for padding, which no token sees, ``(batch, seq)``. It has a place like
                any token: where absolute positions count, say them.
            state: The states after the earlier tokens, one for each block.
            return_state: Whether to also return the states after the last token.
            logits_to_keep: Number of last tokens for which logits are computed. Default: all.

        Returns:
            ``(batch, seq or logits_to_keep, vocab)``; with ``return_state`` a pair.

        Raises:
            ValueError: If a shape does not fit, there are more tokens than a learned table knows,
                or a state is asked of layers that have none: with the weight ``"toeplitz"``, with
                a bias on features, or with features that are rotated.
        """
        before = self._require_tokens(tokens, state)
        try:
            x = self.embed(tokens)
        except IndexError:
            raise ValueError(
                f"tokens must be from 0 to vocab - 1 = {self.embed.num_embeddings - 1}, "
                f"got {tokens.min().item()} to {tokens.max().item()}"
            ) from None
        require_places("tokens", x, positions)
        if positions is None:
            positions = torch.arange(before, before + tokens.shape[-1], device=x.device)[:, None]
        if isinstance(self.absolute, Sinusoidal):
            norm = math.sqrt(self.absolute.dim / 2)  # of its vectors; a token's is about 1
            x = self.absolute(x * norm, positions) / norm
        elif self.absolute is not None:
            x = self.absolute(x, positions)
        after = []
        read = phases_of(self.blocks, positions, x)
        for i, (block, places) in enumerate(zip(self.blocks, read, strict=True)):
            earlier = None if state is None else state[i]
            x, left = block(x, places, key_mask=key_mask, state=earlier, return_state=return_state)
            after.append(left)
        if logits_to_keep is not None:
            x = x[:, -logits_to_keep:]
        scores = self.readout(self.norm(x))
        return (scores, tuple(after)) if return_state else scores

    @torch.no_grad()
    @checked
    def init_state(
        self, batch_shape: int | Sequence[int], max_length: int | None = None
    ) -> tuple[State, ...]:
        """Return the states before the first token, one for each block.

        Args:
            batch_shape: Size of the batch, as a number or as a tuple.
            max_length: Number of tokens for which the caches of softmax attention get memory, see
                :meth:`MultiHeadAttention.init_state
                <stringlib.attention.multihead.MultiHeadAttention.init_state>`.

        Raises:
            ValueError: If a layer has no state.
        """
        attentions = [block.attention for block in self.blocks if isinstance(block, Block)]
        return tuple(attention.init_state(batch_shape, max_length) for attention in attentions)

    @torch.no_grad()
    @checked
    def generate(
        self,
        tokens: Indices[Tensor, "batch seq"],
        count: Count0,
        *,
        key_mask: Tensor | None = None,
        temperature: NotNegative = 1.0,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return the tokens with ``count`` further ones behind them, drawn one after another.

        Each step reads one token and the state of those before it. Softmax attention keeps all keys
        and values; a linear state stays of one size, so that a step costs the same at any length.

        Args:
            tokens: Those to begin with, at least one, ``(batch, seq)``.
            count: How many to draw.
            key_mask: False for padding, ``(batch, seq)``, which stands in front of the shorter
                ones of several beginnings; positions are then counted behind it.
            temperature: What scores are divided by; 0 takes the largest, the first of equals.
            generator: Draws the tokens; the global generator if omitted.

        Returns:
            ``(batch, seq + count)``.

        Raises:
            ValueError: If ``tokens`` are empty or end in padding, a number does not fit, or the
                layers have no state.
        """
        self._require_tokens(tokens, None)
        if not tokens.shape[-1]:
            raise ValueError("tokens must hold at least one token to go on from, got none")
        for block in self.blocks:
            assert isinstance(block, Block)
            if count and not block.attention.has_state:
                raise ValueError(
                    "generate goes on from the states of its layers, got a model whose layers "
                    "have none: with the weight 'toeplitz', with a bias on features, or with "
                    "features that are rotated"
                )
        positions = None
        if key_mask is not None:
            per_head(key_mask, (len(tokens), 1, tokens.shape[-1]), tokens.device)
            key_mask = key_mask.view(-1, tokens.shape[-1]).expand(tokens.shape)
            if not key_mask[:, -1].all():
                raise ValueError(
                    "key_mask must be True for the last token of each row: padding stands in "
                    f"front, got {key_mask[:, -1].tolist()}"
                )
            # padding stands where the first token does: nobody sees it
            positions = (key_mask.cumsum(-1) - 1).clamp(min=0)[..., None]
        drawn = [tokens]
        state = self.init_state(len(tokens), tokens.shape[-1] + count) if count else None
        for _ in range(count):
            scores, state = self(
                drawn[-1],
                positions,
                key_mask=key_mask,
                state=state,
                return_state=True,
                logits_to_keep=1,
            )
            if positions is not None:
                positions, key_mask = positions[:, -1:] + 1, None
            last = scores[:, -1]
            if temperature == 0:
                token = last.argmax(-1, keepdim=True)
            else:
                shares = (last.float() / temperature).softmax(-1)
                token = torch.multinomial(shares, 1, generator=generator)
            drawn.append(token)
        return torch.cat(drawn, -1)

    def _tie(self) -> None:
        if self.tied:
            self.readout.weight = self.embed.weight

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> LanguageModel:
        """Move; a weight that two modules hold may have become two, from the meta device."""
        super()._apply(fn, recurse)
        self._tie()
        return self

    def _require_tokens(self, tokens: Tensor, state: Sequence[State] | None) -> int:
        """Return how many tokens came before these; raise if they or the state do not fit."""
        require_same_device("the model", self.embed.weight, "tokens", tokens)
        if state is not None and len(state) != len(self.blocks):
            raise ValueError(
                f"state must hold one state for each of {len(self.blocks)} blocks, got {len(state)}"
            )
        before = 0 if state is None else state[0].length
        if self.length is not None and before + tokens.shape[-1] > self.length:
            raise ValueError(
                f"tokens must be at most length = {self.length}, those before included, "
                f"got {before + tokens.shape[-1]}"
            )
        return before


def _tied_again(model: LanguageModel, _: Any) -> None:
    """Tie what ``load_state_dict(assign=True)`` has made two weights."""
    model._tie()
