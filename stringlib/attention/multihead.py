"""The attention layer: projections to heads, a core, an output gate, and an output projection."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from stringlib.attention.core import PARTS
from stringlib.attention.layer import AttentionLayer, require_tokens
from stringlib.attention.logit_bias import TokenBias
from stringlib.attention.states import PathState, ShiftedState, State, opened
from stringlib.encoders.relative_bias import RelativeBias
from stringlib.encoders.rotary import Phases, RotaryEncoder
from stringlib.inputs import require_split
from stringlib.options import FIXED, known_options
from stringlib.spec import Floats, Indices, Positive, Reals, Share, checked, require

if TYPE_CHECKING:  # make_core checks the classes of features and weight
    from stringlib.attention.context import Context
    from stringlib.attention.features import FeatureMap
    from stringlib.attention.weights import PositionWeight


def _options() -> set[str]:
    """Return the names of the options of a layer, which are arguments of parts given by name."""
    from stringlib.attention.registry import layer_options

    return layer_options()


RENAMED = "key_heads is now called kv_heads; the old name is removed in the next version"


class MultiHeadAttention(AttentionLayer):
    r"""Multi-head attention whose position encoder, kernel, position weight and gate you choose.

    The layer projects the tokens to queries, keys and values, applies softmax or linear attention
    in each head, multiplies the output by a gate if the layer has one, and projects back,
    :eq:`eq-gated-layer`. With softmax, a rotary encoder and no gate the layer is standard attention
    with RoPE, :eq:`eq-vit-heads`. With any other ``attention`` the layer is linear (kernelised)
    attention, :eq:`eq-linear-attention`. The cost of linear attention is linear in the number of
    tokens, except with a Toeplitz weight or a relative bias.

    Input and output have the shape ``(..., seq, dim)``. With ``return_state=True`` a causal layer
    also returns its state (a key–value cache for softmax). Pass this state as ``state`` together
    with the next tokens. If other tokens are given as ``context``, a layer that is not causal
    computes cross-attention. Keys and values are then those of the context.

    Args:
        dim: Number of channels of a token.
        heads: Number of query heads; must divide ``dim``. A head has ``dim // heads`` channels.
        encoder: Position encoding: a rotary encoder, ``"selective-rope"`` or another name in
            :data:`~stringlib.encoders.registry.ENCODERS`, or a
            :class:`~stringlib.encoders.relative_bias.RelativeBias` or its name in
            :data:`~stringlib.encoders.registry.BIASES`. A bias is added to the logits of softmax;
            linear attention uses the exponential of the bias as a Toeplitz weight. A rotary encoder
            must have 1 or ``kv_heads`` heads, or 1 or ``heads`` if it rotates features. A bias must
            have ``heads`` heads. Default: None, no encoder.
        attention: ``"softmax"`` (default), the name of a feature map in
            :data:`~stringlib.attention.registry.FEATURES`, or a feature map of your own.
        gate: Output gate: None (default), ``"headwise"`` or ``"elementwise"``; see
            :class:`~stringlib.attention.gate.Gate`.
        weight: Position weight of linear attention: None (default), a name in
            :data:`~stringlib.attention.registry.WEIGHTS`, or a
            :class:`~stringlib.attention.weights.PositionWeight`.
        kv_heads: Number of key and value heads; must divide ``heads``. Fewer than ``heads`` is
            grouped-query attention: consecutive query heads share a key head. The cache of softmax
            stores each key head once. Linear attention repeats the keys before its feature map, so
            its state is not smaller. Default: ``heads``.
        causal: If True, a token attends only to itself and to earlier tokens. Default: False.
        grid: ``(rows, columns)`` of an image. Positions then default to those of the grid, a rotary
            encoder given by name takes two coordinates, and the weight ``"toeplitz"`` learns one
            number for each two-dimensional offset. Default: None, a sequence.
        rotate: Where linear attention applies positions: ``"before"`` the feature map (queries and
            keys are rotated), ``"after"`` it (features are rotated, in the numerator only), or
            ``"roll"`` (without an encoder, features are shifted by their position in numerator and
            denominator; see :class:`~stringlib.attention.roll.Roll`). Default: ``"before"`` for
            FAVOR+ and ``"identity"``. For ReLU and ELU with a rotary encoder there is no default:
            choose ``"before"`` or ``"after"``. With ``"before"`` the weight of a key depends on
            more than the offset. With ``"after"`` weights may be negative, and with FAVOR+ outputs
            grow without bound with the norms of queries and keys, see
            :func:`~stringlib.attention.rotated_linear.rotated_linear_attention`. On the CPU an
            output more than 10,000 times as large as any value raises an error. On a GPU, and in
            compiled code, the outputs are not checked.
        normalize_qk: If True, queries and keys are scaled to one norm, so that softmax and FAVOR+
            compute :math:`e^{\tau\cos(q,k)}` with a learned temperature :math:`\tau` for each key
            head (QK-norm). With ReLU features :math:`\tau` cancels. Default: False.
        shift: If True, each key is mixed with the key of the previous token (key shift); see
            :class:`~stringlib.attention.shift.KeyShift`. Default: False.
        position_bias: A bias that is added to the logits of softmax, with or without a rotary
            encoder. A name in :data:`~stringlib.encoders.registry.BIASES`, or a relative bias,
            gives numbers that depend on the distance. A name in
            :data:`~stringlib.attention.token_bias.TOKEN_BIASES`, for example ``"fox"``, or a
            :class:`~stringlib.attention.logit_bias.TokenBias`, gives numbers that depend on the
            tokens. Default: None.
        position_steps: Makes the positions of a rotary encoder depend on the tokens. A module that
            returns the steps of the tokens, ``(..., seq, coord_dim)``, or a name in
            :data:`~stringlib.attention.path.POSITION_STEPS`, such as ``"learned"``. The position of
            a token is the sum of the steps up to this token, :eq:`eq-path-sum`. The step of padding
            is 0. Default: ``"learned"`` for encoder ``"selective-rope"``; otherwise None, no steps.
        bias: If True, the four projections have a bias. The gate never has a bias. Default: False.
        window: Number w of tokens in the sliding window, for softmax only. If causal, a token
            attends to itself and to the w − 1 tokens before it; otherwise also to the w − 1 tokens
            after it. The distance is that of the indices of the tokens, in row-major order for a
            ``grid``. The cache of softmax keeps all tokens. Default: None, no window.
        attention_dropout: Probability of setting an attention weight to 0 in training, for softmax
            only; the other weights are scaled up. Default: 0.
        context_dim: Number of channels of a token of the context, for cross-attention. Must be None
            if causal. Default: ``dim``.
        **options: Arguments of the parts that are given by name, under the names that they have in
            the constructors of these parts. For example ``num_features`` (default
            ``dim // heads``) and ``generator`` for FAVOR+ and its variants; ``horizon`` for
            ``"cosine"``, ``"ramp"`` and ``"falling"``; ``degree`` for ``"falling"``; ``length`` for
            ``"toeplitz"``; ``coord_dim`` (default 1, or 2 with a ``grid``) and ``base`` for a
            rotary encoder. Two further options belong to the layer: ``cycles``, the lengths of the
            cycles for ``rotate="roll"`` (default: one cycle of all features; the lengths must add
            up to the number of features of a head), and ``temperature``, the initial :math:`\tau`
            for ``normalize_qk`` (default 1). With :math:`\tau = 1`, as in Luo et al. 2021, no key
            counts more than :math:`e^2` times as much as another.

    Attributes:
        to_q: The projection :math:`W_q`, an ``nn.Linear``. The other projections are ``to_k``,
            ``to_v`` and ``to_out``.
        core: The :class:`~stringlib.attention.softmax.SoftmaxAttention` or
            :class:`~stringlib.attention.kernelised.LinearAttention` between the projections. The
            parts ``features``, ``encoder``, ``roll`` and ``weight`` of the core are attributes of
            the layer too, and can be replaced there.
        features: The feature map; None for softmax.
        encoder: The rotary encoder, the bias of softmax, or None.
        roll: The roll of the features, or None.
        weight: The position weight, or the module that computes it from the tokens. None for the
            constant weight 1.
        gate: The gate, or None.
        log_temperature: Logarithm of :math:`\tau`, ``(kv_heads,)``; None without
            ``normalize_qk``.
        shift: The key shift, or None.
        position_bias: The bias of the logits, or None. It is a part of the core and can be replaced
            there, as the four parts above.
        position_steps: The module that computes the steps of the positions, or None.

    Source:
        Vaswani et al. 2017, section 3.2.2; Ainslie et al. 2023 for grouped queries; Qiu et al. 2025
        for the gate.

    Example:
        >>> layer = MultiHeadAttention(384, heads=6, encoder="rope", attention="favor", causal=True)
        >>> out, state = layer(torch.randn(8, 196, 384), return_state=True)
        >>> layer(torch.randn(8, 1, 384), state=state).shape  # the next token
        torch.Size([8, 1, 384])
    """

    @known_options(_options, FIXED)
    @checked
    def __init__(
        self,
        dim: int,
        heads: int,
        encoder: RotaryEncoder | RelativeBias | str | None = None,
        attention: str | FeatureMap = "softmax",
        gate: str | None = None,
        *,
        weight: PositionWeight | str | None = None,
        kv_heads: int | None = None,
        causal: bool = False,
        rotate: str | None = None,
        grid: tuple[int, int] | None = None,
        normalize_qk: bool = False,
        shift: bool = False,
        position_bias: RelativeBias | TokenBias | str | None = None,
        position_steps: nn.Module | str | None = None,
        bias: bool = False,
        window: int | None = None,
        attention_dropout: Share = 0.0,
        context_dim: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        require_split(dim, heads)
        if "key_heads" in options:
            warnings.warn(RENAMED, DeprecationWarning, stacklevel=4)
            kv_heads = options.pop("key_heads")
        kv_heads = heads if kv_heads is None else kv_heads
        if heads % kv_heads:
            raise ValueError(f"kv_heads must divide heads = {heads}, got {kv_heads}")
        self.dim, self.heads, self.head_dim = int(dim), int(heads), int(dim // heads)
        self.kv_heads, self.group = int(kv_heads), int(heads // kv_heads)
        self.causal, self.grid = causal, grid
        key_dim = self.kv_heads * self.head_dim
        if context_dim is not None and causal:
            raise ValueError(
                f"context_dim must be None if causal=True, got {context_dim}. A causal layer "
                "has no context. Use causal=False for cross-attention."
            )
        self.context_dim = self.dim if context_dim is None else int(context_dim)
        self.to_q, self.to_k, self.to_v, self.to_out = (
            nn.Linear(columns, rows, bias=bias)
            for columns, rows in (
                (self.dim, self.dim),
                (self.context_dim, key_dim),
                (self.context_dim, key_dim),
                (self.dim, self.dim),
            )
        )
        options = {name: given for name, given in options.items() if given is not None}
        # imported here, so that a reader of softmax attention does not meet the optional parts
        from stringlib.attention.build import make_core, require_all_used
        from stringlib.attention.gate import make_gate
        from stringlib.attention.path import make_steps
        from stringlib.attention.shift import KeyShift

        self.core = make_core(
            attention,
            encoder,
            weight,
            position_bias,
            dim=self.dim,
            heads=self.heads,
            kv_heads=self.kv_heads,
            causal=causal,
            rotate=rotate,
            grid=grid,
            window=window,
            attention_dropout=attention_dropout,
            options=options,
        )
        self.gate = make_gate(gate, self.dim, self.heads)
        temperature = options.pop("temperature", 1.0)
        require("temperature", temperature, Positive)
        if temperature != 1 and not normalize_qk:
            raise ValueError(
                f"temperature must be 1 unless normalize_qk=True, got {temperature}. Pass "
                "normalize_qk=True, or leave out temperature."
            )
        start = torch.full((self.kv_heads,), math.log(temperature))
        self.log_temperature = nn.Parameter(start) if normalize_qk else None
        self.shift = KeyShift(self.kv_heads) if shift else None
        self.position_steps = make_steps(position_steps, self, encoder)
        require_all_used(options)

    @checked
    def forward(
        self,
        x: Floats[Tensor, "... n self.dim"],
        positions: Reals[Tensor, "...p seq coord_dim"] | Phases | None = None,
        *,
        key_mask: Tensor | None = None,
        document_ids: Indices[Tensor, "...? n"] | None = None,
        state: State | None = None,
        return_state: bool = False,
        context: Floats[Tensor, "...? keys self.context_dim"] | None = None,
        context_positions: Reals[Tensor, "...c places coord_dim"] | Phases | None = None,
        context_mask: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, State]:
        """Return the output of attention, which a model adds to the tokens.

        Args:
            x: Tokens, ``(..., seq, dim)``, after the norm of a pre-norm model.
            positions: Positions of the tokens. A rotary encoder takes coordinates,
                ``(..., seq, coord_dim)``, whose leading dimensions expand to those of ``x``, or
                phases of the encoder. A roll takes integers, ``(..., seq, 1)``. Other layers, and
                layers with ``position_steps``, do not use positions. Default: 0, 1, 2, …, or the
                positions of ``grid``. With ``state`` the default positions continue from the number
                of tokens in the state.
            key_mask: False for padding, to which no token attends, ``(..., seq)``. Padding still
                counts in the default positions. Default: None, no padding.
            document_ids: For packed sequences, the document of each token, ``(..., seq)``:
                integers that increase from document to document, see
                :func:`~stringlib.documents.document_ids_of`. No token attends to a token of another
                document, and default positions restart at 0 in each document. So each document has
                the same output as alone. Causal linear attention remains linear in the number of
                tokens; softmax, layers that are not causal and Toeplitz weights use an n × n mask.
                Default: None, one document per row.
            state: The state that the layer returned for the earlier tokens. A causal layer has a
                state, unless the layer rotates features, has a Toeplitz weight, or has a relative
                bias in linear attention.
                With ``document_ids``, the first document of each row continues from this state. All
                other documents start without a state. Default: None, no earlier tokens.
            return_state: If True, the state after the last token is also returned. With
                ``document_ids`` this is the state of the last document alone, which must have the
                same number of tokens in each row. Default: False.
            context: The tokens to which those of ``x`` attend in cross-attention,
                ``(..., keys, context_dim)``, with leading dimensions that expand to those of ``x``.
                A relative bias of softmax and a position weight use the difference of the indices
                in ``x`` and ``context``. Must be None for causal layers, layers with a window, and
                layers with a weight that is made for the tokens of one sequence, such as
                ``"toeplitz"`` or a bias in linear attention. Default: None, which means that the
                tokens attend to each other.
            context_positions: Positions of the context, in the form of ``positions``. Default: 0,
                1, 2, …, or those of ``grid``.
            context_mask: False for padding in the context, ``(..., keys)``. Default: None, no
                padding.

        Returns:
            The output, ``(..., seq, dim)``, in the dtype of ``x``. With ``return_state`` a pair of
            the output and the state. The state is a
            :class:`~stringlib.attention.cache.KeyValueCache` for softmax, and otherwise a
            :class:`~stringlib.attention.states.LinearState`. With a ``shift`` it is a
            :class:`~stringlib.attention.states.ShiftedState`, which contains one of the two. With
            ``position_steps`` it is a :class:`~stringlib.attention.states.PathState`, which
            contains one of these.

        Raises:
            TypeError: If ``state`` is not of the class that this layer returns, or if the dtype of
                the tokens is not that of the weights.
            ValueError: If a shape does not fit, if positions are missing, if a state is given to or
                asked of a layer without states, or if ``state`` comes from another kind of layer.
        """
        if return_state and state is None:  # before anything is computed
            self.core.require_state(None)
        require_tokens(self, x, positions)
        alone = {"key_mask": key_mask, "document_ids": document_ids}
        other = self._context(x, context, context_positions, context_mask, **alone)
        v = self._split(self.to_v(x if other is None else other.tokens))
        out, after = self._attended(
            x, v, positions, key_mask, state, document_ids, return_state, other
        )
        if self.gate is not None:
            out = self.gate(out, x)
        out = self.to_out(out.transpose(-3, -2).flatten(-2))
        return (out, after) if return_state else out

    @checked
    def attention_weights(
        self,
        x: Floats[Tensor, "... n self.dim"],
        positions: Reals[Tensor, "...p seq coord_dim"] | Phases | None = None,
        *,
        key_mask: Tensor | None = None,
        document_ids: Indices[Tensor, "...? n"] | None = None,
        context: Floats[Tensor, "...? keys self.context_dim"] | None = None,
        context_positions: Reals[Tensor, "...c places coord_dim"] | Phases | None = None,
        context_mask: Tensor | None = None,
    ) -> Tensor:
        """Return the attention weights, ``(..., heads, seq, seq)``, with one row for each query.

        With a ``context`` the shape is ``(..., heads, seq, keys)``. The arguments are those of
        calling the layer. The weights of every kind of layer are computed in the same way, as the
        outputs for unit vectors as values. In training, the weights are those after dropout.
        """
        require_tokens(self, x, positions)
        alone = {"key_mask": key_mask, "document_ids": document_ids}
        other = self._context(x, context, context_positions, context_mask, **alone)
        n = (x if context is None else context).shape[-2]
        eye = torch.eye(n, dtype=x.dtype, device=x.device)
        v = eye.expand(*x.shape[:-2], self.kv_heads, n, n)
        return self._attended(x, v, positions, key_mask, None, document_ids, False, other)[0]

    def folded(self) -> MultiHeadAttention:
        """Return a copy with the basis of the encoder merged into the projections, :eq:`eq-fold`.

        The encoder of the copy is as fast as RoPE. Only softmax attention can be folded, because
        the basis does not cancel before a feature map.

        Raises:
            ValueError: If the layer is not softmax attention with a rotary encoder, or if the
                encoder overrides ``forward``. Also if ``to_q`` or ``to_k`` computes more than the
                product with its weight (adapters, quantisation), or if a part has a hook.
        """
        from stringlib.attention.fold import folded

        layer: MultiHeadAttention = folded(self)
        return layer

    def extra_repr(self) -> str:
        """Return the arguments that ``repr`` shows."""
        kind = "softmax" if self.features is None else type(self.features).__name__
        encoder = f", encoder={type(self.encoder).__name__}" if self.encoder is not None else ""
        heads = f"heads={self.heads}" + (f", kv_heads={self.kv_heads}" if self.group > 1 else "")
        window, dropout = (getattr(self.core, name, None) for name in ("window", "dropout"))
        more = "" if self.context_dim == self.dim else f", context_dim={self.context_dim}"
        more += "" if window is None else f", window={window}"
        more += f", attention_dropout={dropout}" if dropout else ""
        return f"dim={self.dim}, {heads}, attention={kind}{encoder}, causal={self.causal}{more}"

    @property
    def key_heads(self) -> int:
        """The old name of ``kv_heads``."""
        warnings.warn(RENAMED, DeprecationWarning, stacklevel=2)
        return self.kv_heads

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *args: Any) -> None:
        """Load weights, also those of version 0.1, whose names lack ``core.`` before a part."""
        old = tuple(f"{prefix}{part}." for part in PARTS)
        for key in [key for key in state if key.startswith(old)]:
            state[f"{prefix}core.{key[len(prefix) :]}"] = state.pop(key)
        super()._load_from_state_dict(state, prefix, *args)

    def _context(
        self, x: Tensor, context: Any, positions: Any, mask: Any, **tokens_alone: Any
    ) -> Context | None:
        """Return the context with its positions and mask, or None without a context."""
        if context is positions is mask is None and self.context_dim == self.dim:
            return None
        from stringlib.attention.context import checked_context

        return checked_context(self, x, context, positions, mask, **tokens_alone)

    def _split(self, x: Tensor) -> Tensor:
        """Split ``(..., seq, heads * head_dim)`` into heads, ``(..., heads, seq, head_dim)``."""
        # not Tensor.unflatten, whose code in Python takes a third of the time
        return torch.unflatten(x, -1, (-1, self.head_dim)).transpose(-3, -2)

    def _attended(
        self,
        x: Tensor,
        v: Tensor,
        positions: Any,
        key_mask: Tensor | None,
        state: Any = None,
        document_ids: Tensor | None = None,
        return_state: bool = False,
        other: Context | None = None,
    ) -> tuple[Tensor, Any]:
        """Return the outputs of the heads, ``(..., heads, seq, d_v)``, and the state or None."""
        documents = None
        if document_ids is not None:
            from stringlib.documents import documents_of

            # a state of another type, without a length, is refused by the core
            earlier = getattr(state, "length", 0)
            documents = documents_of(x.unsqueeze(-3), document_ids, earlier)
        at = None
        if self.position_steps is not None:
            # given positions are not used; a wrapper around a block may hide that none are needed
            positions, at, state = self._stepped(x, key_mask, state, documents)
        before = last = None
        if self.shift is not None and state is not None:
            before, state = opened(state, ShiftedState)
        named = {}
        many = not torch.compiler.is_compiling() and x.numel() > self.dim**2
        if other is None and many and self.core.encoder is not None:
            # with more tokens than channels, a basis is multiplied with the weights
            from stringlib.attention.fold import projected

            q, k, positions = projected(self, x, positions, state, documents)
        else:
            q, k = self.to_q(x), self.to_k(x if other is None else other.tokens)
        q, k = self._split(q), self._split(k)
        if other is not None:
            k, key_mask = k.expand(*x.shape[:-2], *k.shape[-3:]), other.mask
            named["key_positions"] = self.core.located(k, other.positions, name="context_positions")
        if self.shift is not None:
            k, last = self.shift(k, before=before, key_mask=key_mask, document_ids=documents)
        if self.log_temperature is not None:
            from stringlib.attention.qk_norm import with_one_norm

            q, k = with_one_norm(q, k, self.log_temperature)
        out, after = self.core(
            q,
            k,
            v,
            positions,
            tokens=x,
            key_mask=key_mask,
            state=state,
            document_ids=documents,
            return_state=return_state,
            **named,
        )
        if after is not None and last is not None:
            after = ShiftedState(last, after)
        return out, after if after is None or at is None else PathState(at, after)
