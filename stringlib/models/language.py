"""A causal language model with any position encoding and any attention of this package."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from stringlib.attention.features import FeatureMap
from stringlib.attention.states import State
from stringlib.documents import documents_of
from stringlib.encoders.absolute import LearnedAbsolute, Sinusoidal
from stringlib.encoders.registry import BIASES, make_bias
from stringlib.encoders.relative_bias import RelativeBias
from stringlib.encoders.rotary import RotaryEncoder
from stringlib.inputs import is_offloaded, require_places, require_same_device
from stringlib.models.blocks import (
    Block,
    Blocks,
    causal_options,
    initialize,
    phases_of,
    require_defaults,
    require_known,
    share_encoders,
)
from stringlib.models.sampling import sampled
from stringlib.models.tied import Tied
from stringlib.options import FIXED, known_options
from stringlib.spec import Count0, Indices, NotNegative, Positions, Share, checked


class LanguageModel(Tied, Blocks):
    r"""Causal language model: an embedding, causal blocks, a norm, and logits of the next token.

    Args:
        vocab: Number of different tokens.
        dim: Number of channels of a token.
        depth: Number of blocks.
        heads: Number of heads of each block; must divide ``dim``.
        encoder: Position encoding.

            - A name in :data:`~stringlib.encoders.registry.ENCODERS`: each block has its own rotary
              encoder; if the encoder has no parameters, all blocks share one.
            - ``"selective-rope"``: RoPE whose angles are computed from the tokens, by steps that
              each block learns (``position_steps``).
            - A name in :data:`~stringlib.encoders.registry.BIASES`: all blocks share one relative
              bias.
            - ``"sinusoidal"`` or ``"learned"``: a vector is added to each token.
            - A module: all blocks share this rotary encoder or relative bias.
            - None (default): the position of a token has an effect through the causal mask, and
              through a position weight, a key shift or a window if there is one.
        attention: ``"softmax"`` (default), the name of a feature map in
            :data:`~stringlib.attention.registry.FEATURES`, or a feature map of your own.
        gate: Output gate: None (default), ``"headwise"`` or ``"elementwise"``; see
            :class:`~stringlib.attention.gate.Gate`.
        hidden: Number of hidden channels of the feed-forward layers. Default: ``4 * dim`` for
            ``"mlp"``, and ``8 * dim // 3`` for ``"swiglu"``.
        mlp: Feed-forward layers: ``"swiglu"`` (default), ``"mlp"``, or None for blocks of attention
            alone.
        residual_dropout: Dropout probability in training. Dropout is applied to the outputs of
            attention and of the feed-forward layers, before these outputs are added to the tokens.
            Default: 0.
        tied: If True (default), the embedding and the output projection share their weight.
        length: Number of tokens of the longest sequence. It must be given for encoder ``"learned"``
            and for weight ``"toeplitz"``, which have a table of this size. Otherwise ``length`` is
            ignored.
        layer: Name of a published layer of linear attention, such as ``"kda"`` or ``"mamba2"``, in
            place of multi-head attention, see
            :func:`~stringlib.attention.published.make_layer`. A published layer has an encoder, a
            feature map and a gate of its own, so ``encoder``, ``attention`` and ``gate`` must have
            their defaults. Default: None.
        **options: Further arguments of
            :class:`~stringlib.attention.multihead.MultiHeadAttention`, or of the published layer,
            the same for every block, such as ``weight``, ``num_features`` or ``shift``. If one of
            them is a module, all blocks share this module. A name gives each block its own module.

    Attributes:
        embed: The embedding of the tokens, with a weight of shape ``(vocab, dim)``. The initial
            values have standard deviation :math:`1/\sqrt{\mathrm{dim}}`, so that each vector has a
            norm of about 1. The model scales sinusoidal encodings to norm 1 to match. Vaswani et
            al. scale up the embeddings instead.
        absolute: The module that adds an absolute position encoding to the tokens, or None.
        blocks: The blocks, each a :class:`~stringlib.models.blocks.Block`.

    Raises:
        TypeError: If an option is not an argument of the model.
        ValueError: If a name is unknown, arguments do not fit together, or ``length`` is missing.

    Source:
        Vaswani et al. 2017, section 3.4, for the embedding; Radford et al. 2019 for the
        architecture.

    Example:
        >>> model = LanguageModel(vocab=256, dim=64, depth=2, heads=4, encoder="rope")
        >>> tokens = torch.randint(256, (8, 100))
        >>> model(tokens).shape, model.generate(tokens, count=5).shape
        (torch.Size([8, 100, 256]), torch.Size([8, 105]))
    """

    @known_options(causal_options, FIXED | {"causal": "a language model is always causal"})
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
        residual_dropout: Share = 0.0,
        layer: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        require_known(encoder)
        if layer is not None:
            require_defaults(layer, encoder=encoder, attention=attention, gate=gate)
        self.length = None
        if encoder == "learned" or options.get("weight") == "toeplitz":
            if length is None:
                raise ValueError(
                    "length must be given for encoder 'learned' or weight 'toeplitz', got None. "
                    "Pass the number of tokens of the longest sequence."
                )
            self.length = int(length)
        self.embed = nn.Embedding(vocab, dim)
        self.absolute: Sinusoidal | LearnedAbsolute | None = None
        self.sinusoidal = encoder == "sinusoidal"  # asked here, because a wrapper hides the type
        if encoder == "sinusoidal":
            self.absolute, encoder = Sinusoidal(dim), None
        elif encoder == "learned":
            assert self.length is not None
            self.absolute, encoder = LearnedAbsolute(self.length, dim), None
        elif isinstance(encoder, str) and encoder in BIASES:
            encoder = make_bias(encoder, heads, causal=True)
        if options.get("weight") == "toeplitz":
            options["length"] = self.length
        if layer is None:
            options |= {"encoder": encoder, "attention": attention, "gate": gate, "causal": True}
        options |= {"mlp": mlp, "hidden": hidden, "residual_dropout": residual_dropout}
        self.blocks = nn.ModuleList(Block(dim, heads, layer=layer, **options) for _ in range(depth))
        if isinstance(encoder, str):
            share_encoders(self.blocks)
        self.norm = nn.LayerNorm(dim)
        self.readout = nn.Linear(dim, vocab, bias=False)
        initialize(self)
        nn.init.normal_(self.embed.weight, std=dim**-0.5)
        self.tied = tied
        self._tie()

    @checked
    def forward(
        self,
        tokens: Indices[Tensor, "batch seq"],
        positions: Positions[Tensor, "... n coord_dim"] | None = None,
        *,
        key_mask: Tensor | None = None,
        document_ids: Indices[Tensor, "...ids seq"] | None = None,
        state: Sequence[State] | None = None,
        return_state: bool = False,
        logits_to_keep: int | None = None,
    ) -> Tensor | tuple[Tensor, tuple[State, ...]]:
        """Return, for each token, the logits of the token that follows it.

        Args:
            tokens: Integers from 0 to ``vocab - 1``, ``(batch, seq)``. On the CPU other integers
                raise a ``ValueError``; a GPU stops with a device-side assertion.
            positions: Positions of the tokens, ``(seq, 1)`` or ``(batch, seq, 1)``, for a rotary
                encoder, ``"sinusoidal"`` or ``"learned"``. Default: 0, 1, 2, … With ``state`` the
                default positions continue from the number of tokens in the state. Relative biases
                and position weights ignore this argument and use the index of each token.
            key_mask: False for padding, ``(batch, seq)``. No token attends to padding. By default
                padding has a position like any other token. If there is padding before the tokens
                and the encoding is absolute, give ``positions``. Default: None, no padding.
            document_ids: For packed sequences, the document of each token, ``(batch, seq)`` or
                ``(seq,)``: integers that increase from document to document, see
                :func:`~stringlib.documents.document_ids_of`. No token attends to a token of another
                document, and default positions restart at 0 in each document. So each document has
                the same logits as alone. Default: None, one document per row.
            state: The states that the model returned for the earlier tokens, one for each block.
                With ``document_ids``, the first document of each row continues from these states.
                All other documents start without a state. Default: None, no earlier tokens.
            return_state: If True, the states after the last token are also returned. With
                ``document_ids``, the returned states contain only the last document of each row,
                which must have the same number of tokens in all rows. Default: False.
            logits_to_keep: Number of tokens at the end for which logits are computed. Default: all
                tokens.

        Returns:
            The logits, ``(batch, seq or logits_to_keep, vocab)``. With ``return_state`` a pair of
            the logits and the states.

        Raises:
            ValueError: If a shape does not fit; if there are more tokens than ``length`` for a
                learned table; or if a state is given to or requested from layers without a state.
                Layers with the weight ``"toeplitz"``, linear attention with a relative bias, and
                linear attention with rotated features have no state.
        """
        before = self._require_tokens(tokens, state)
        try:
            x = self.embed(tokens)
        except IndexError:
            vocab = getattr(self.embed, "num_embeddings", None)  # an adapter may have none
            if vocab is None:
                raise
            raise ValueError(
                f"tokens must be from 0 to vocab - 1 = {vocab - 1}, "
                f"got values from {tokens.min().item()} to {tokens.max().item()}"
            ) from None
        require_places("tokens", x, positions)
        if positions is None and document_ids is not None:
            positions = documents_of(x.unsqueeze(-3), document_ids, before).positions[..., None]
        elif positions is None:
            positions = torch.arange(before, before + tokens.shape[-1], device=x.device)[:, None]
        if self.absolute is not None and self.sinusoidal:
            norm = math.sqrt(x.shape[-1] / 2)  # of a sinusoidal vector; of a token about 1
            x = self.absolute(x * norm, positions) / norm
        elif self.absolute is not None:
            x = self.absolute(x, positions)
        after = []
        read = phases_of(self.blocks, positions, x)
        given: dict[str, Any] = {"key_mask": key_mask, "return_state": return_state}
        if document_ids is not None:
            given["document_ids"] = document_ids
        for i, (block, block_positions) in enumerate(zip(self.blocks, read, strict=True)):
            earlier = None if state is None else state[i]
            x, left = block(x, block_positions, state=earlier, **given)
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
            batch_shape: Size of the batch, as an integer or as a tuple.
            max_length: Number of tokens for which the key–value caches of softmax attention
                allocate memory, see
                :meth:`~stringlib.attention.layer.AttentionLayer.init_state` of the layers.
                Default: None, which means that the memory grows with the tokens.

        Raises:
            ValueError: If a layer has no state.
        """
        shape = (batch_shape,) if isinstance(batch_shape, int) else tuple(batch_shape)
        if len(shape) != 1:
            raise ValueError(
                f"batch_shape must contain one number, the size of the batch, got {batch_shape}"
            )
        # the model itself reads no tokens, so that wrappers and hooks of its blocks run
        device = next(self.parameters()).device
        nothing = torch.zeros(*shape, 0, dtype=torch.int64, device=device)
        return self._state_after(nothing, max_length)

    def _state_after(self, tokens: Tensor, max_length: int | None) -> tuple[State, ...]:
        """Return the states after the given tokens, with memory for ``max_length`` tokens."""
        _, state = self(tokens, return_state=True)
        return state if max_length is None else tuple(s.with_room(max_length) for s in state)

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
        """Return the prompt followed by ``count`` tokens that the model samples one by one.

        After the prompt, each step processes one token and the states of the tokens before it. The
        key–value cache of softmax attention grows with each token. The state of linear attention
        has a constant size, so that the cost of a step does not depend on the length.

        Args:
            tokens: The prompts, at least one token each, ``(batch, seq)``.
            count: Number of tokens to sample.
            key_mask: False for padding, ``(batch, seq)``. Padding must come before the tokens of
                the shorter prompts (left padding). The first token after the padding then has
                position 0. Default: None, no padding.
            temperature: Number by which the logits are divided, at least 1e-30. 0 selects the token
                with the largest logit, and the first of several equal ones. Default: 1.
            generator: Random number generator. Default: the global generator.

        Returns:
            Prompts and sampled tokens, ``(batch, seq + count)``.

        Raises:
            ValueError: If ``tokens`` are empty or end in padding, an argument has an invalid value
                or shape, or the layers have no state.
        """
        return sampled(self, tokens, count, key_mask, temperature, generator)

    def _require_tokens(self, tokens: Tensor, state: Sequence[State] | None) -> int:
        """Return the number of tokens that the states already contain, after checks.

        Raises:
            ValueError: If the tokens are on another device than the model, if there is not one
                state for each block, or if there are more tokens than ``length``.
        """
        weight = getattr(self.embed, "weight", None)  # a quantised embedding has another, or none
        if isinstance(weight, Tensor) and not is_offloaded(self.embed):
            require_same_device("the model", weight, "tokens", tokens)
        if state is not None and len(state) != len(self.blocks):
            raise ValueError(
                f"state must contain {len(self.blocks)} states, one for each block, got "
                f"{len(state)}. Pass the states that this model returned."
            )
        before = 0 if state is None else state[0].length
        if self.length is not None and before + tokens.shape[-1] > self.length:
            raise ValueError(
                f"tokens and state together must have at most length = {self.length} tokens, got "
                f"{before + tokens.shape[-1]}, of which {before} are in state. Create the model "
                "with a larger length."
            )
        return before
