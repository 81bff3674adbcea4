"""A layer of attention, put together from its parts: encoder, feature map, weight and gate."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn

from stringlib.attention.features import FeatureMap
from stringlib.attention.gate import Gate
from stringlib.attention.learned import BiasWeight
from stringlib.attention.linear import CONSTANT, attend, rotated_linear_attention
from stringlib.attention.registry import FEATURES, WEIGHTS
from stringlib.attention.roll import Roll
from stringlib.attention.shift import KeyShift, ShiftedState
from stringlib.attention.softmax import KeyValueCache, continued_softmax
from stringlib.attention.weights import LinearState, PositionWeight, described
from stringlib.encoders.bias import RelativeBias
from stringlib.encoders.registry import BIASES, ENCODERS, make_bias, make_encoder
from stringlib.encoders.string import Phases, RotaryEncoder
from stringlib.inputs import (
    require_kind_of_state,
    require_like_weight,
    require_name,
    require_places,
    require_same_tokens,
    require_split,
)
from stringlib.kernels.features import unit
from stringlib.parts import Known, part, require_none_left, taken_out
from stringlib.positions import grid_positions
from stringlib.precision import at_least_float32, without_autocast
from stringlib.spec import Floats, Positive, Reals, checked, require

State = LinearState | KeyValueCache | ShiftedState
PLACES = ("before", "after")


class MultiHeadAttention(nn.Module):
    r"""Project, attend in several heads, gate, project back: :eq:`eq-gated-layer`.

    Without a gate and with a rotary encoder, softmax attention is :eq:`eq-vit-heads`.
    Softmax attention, or kernelised attention, :eq:`eq-linear-attention`, with the feature map
    that ``attention`` names and the position weight that ``weight`` names.

    With fewer ``key_heads`` than ``heads`` the first heads share the first keys and values, the
    next the next (grouped queries). The cache of softmax holds each once. Kernelised attention
    repeats them before its feature map: its state stays as large as it was.

    Args:
        dim: Number of channels of a token.
        heads: Number of heads, a divisor of ``dim``; each has ``dim // heads`` channels.
        encoder: A rotary encoder or its name in :data:`~stringlib.encoders.registry.ENCODERS`,
            or a :class:`~stringlib.encoders.bias.RelativeBias`. A bias is added to the logits of
            softmax; kernelised attention takes its exponential as a Toeplitz weight. A rotary
            encoder has one head or ``key_heads`` (``heads`` if it rotates features), a bias
            ``heads``.
        attention: ``"softmax"``, a name in :data:`~stringlib.attention.registry.FEATURES`, or a
            feature map of your own.
        gate: None, ``"headwise"`` or ``"elementwise"``, see
            :class:`~stringlib.attention.gate.Gate`.
        weight: None, a name in :data:`~stringlib.attention.registry.WEIGHTS`, or a
            :class:`~stringlib.attention.weights.PositionWeight`.
        key_heads: Number of heads of keys and values, a divisor of ``heads``; ``heads`` if omitted.
        causal: Whether a token sees itself and earlier ones only.
        grid: Rows and columns of an image. Positions default to the grid's, an encoder asked for
            by name reads two coordinates, and the weight ``"toeplitz"`` has a number for each
            offset in the plane.
        rotate: Whether kernelised attention rotates queries and keys ``"before"`` the feature map
            or features ``"after"`` it, in the numerator only. If omitted the map says it: FAVOR+
            rotates before; ReLU and ELU must be told, for neither place is right for all uses.
            After FAVOR+, outputs grow without end with the length of queries and keys, see
            :func:`~stringlib.attention.linear.rotated_linear_attention`; on the CPU that is an
            error, elsewhere nothing looks.
            ``"roll"`` needs no encoder: it moves features on by their position, see
            :class:`~stringlib.attention.roll.Roll`, in numerator and denominator.
        normalize_qk: Whether queries and keys get one length, so that softmax and FAVOR+ see
            :math:`e^{\tau\cos(q,k)}` with a learned temperature :math:`\tau` for each head of
            keys. With ReLU features :math:`\tau` cancels.
        shift: Whether the key of a token takes in the key of the token before it, see
            :class:`~stringlib.attention.shift.KeyShift`.
        bias: Whether the four projections add a constant. The gate has none.
        **options: What the parts take that are asked for by name, each by the name it has in their
            constructor: ``num_features`` (``dim // heads`` if omitted) and ``generator`` of the
            FAVOR family, ``horizon`` of ``"cosine"``, ``"ramp"`` and ``"falling"``, ``degree`` of
            the last, ``length`` of ``"toeplitz"``, ``coord_dim`` (1, or 2 with a ``grid``) or
            ``base`` of an encoder. And ``cycles`` of a roll (one for all features if omitted; their
            sum is the number of features of a head), ``temperature`` of ``normalize_qk``: where
            :math:`\tau` starts. At 1, as in Luo et al. 2021, no key counts more than :math:`e^2`
            times as much as another.

    Attributes:
        to_q: :math:`W_q`, an ``nn.Linear``; and so ``to_k``, ``to_v`` and ``to_out``.
        features: The feature map; None for softmax.
        encoder: The rotary encoder, the bias of softmax, or None.
        roll: What rolls features by their position, or None.
        weight: What makes the position weight of each call; None for weight 1.
        gate: The gate, or None.
        log_temperature: Logarithm of :math:`\tau`, ``(key_heads,)``; None without
            ``normalize_qk``.
        shift: The mixture of keys, or None.

    Source:
        Vaswani et al. 2017, section 3.2.2; Ainslie et al. 2023 for grouped queries; Qiu et al. 2025
        for the place of the gate.

    Example:
        >>> layer = MultiHeadAttention(384, heads=6, encoder="rope", attention="favor", causal=True)
        >>> out, state = layer(torch.randn(8, 196, 384), return_state=True)
        >>> layer(torch.randn(8, 1, 384), state=state).shape  # the next token
        torch.Size([8, 1, 384])
    """

    features: FeatureMap | None
    encoder: RotaryEncoder | RelativeBias | None

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
        key_heads: int | None = None,
        causal: bool = False,
        rotate: str | None = None,
        grid: tuple[int, int] | None = None,
        normalize_qk: bool = False,
        shift: bool = False,
        bias: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        require_split(dim, heads)
        key_heads = heads if key_heads is None else key_heads
        if heads % key_heads:
            raise ValueError(f"key_heads must divide heads {heads}, got {key_heads}")
        self.dim, self.heads, self.head_dim = int(dim), int(heads), int(dim // heads)
        self.key_heads, self.group = int(key_heads), int(heads // key_heads)
        self.causal, self.grid = causal, grid
        key_dim = self.key_heads * self.head_dim
        self.to_q, self.to_k, self.to_v, self.to_out = (
            nn.Linear(self.dim, rows, bias=bias) for rows in (self.dim, key_dim, key_dim, self.dim)
        )
        options = {name: given for name, given in options.items() if given is not None}
        self.features, width = self._make_features(attention, options)
        rotary = isinstance(encoder, RotaryEncoder) or (
            isinstance(encoder, str) and encoder not in BIASES
        )
        self.rotate = _place_of_rotation(rotary, self.features, rotate)
        self.roll = self._make_roll(options, width)
        # features are those of all heads, while keys are turned before they are repeated
        turned = (self.heads, width) if self.rotate == "after" else (self.key_heads, self.head_dim)
        self.encoder = self._make_encoder(encoder, options, *turned)
        self.weight = self._make_weight(weight, options, width)
        if self.features is not None and isinstance(self.encoder, RelativeBias):
            self.weight, self.encoder = BiasWeight(self.encoder), None
        self.gate = None if gate is None else Gate(self.dim, self.heads, gate)
        temperature = options.pop("temperature", 1.0)
        require("temperature", temperature, Positive)
        if temperature != 1 and not normalize_qk:
            raise ValueError(f"temperature must be 1 unless normalize_qk, got {temperature}")
        start = torch.full((self.key_heads,), math.log(temperature))
        self.log_temperature = nn.Parameter(start) if normalize_qk else None
        self.shift = KeyShift(self.key_heads) if shift else None
        known: dict[str, Known] = {"attention": FEATURES, "weight": WEIGHTS}
        require_none_left(options, known | {"encoder": ENCODERS | BIASES})

    @checked
    def forward(
        self,
        x: Floats[Tensor, "... n self.dim"],
        positions: Reals[Tensor, "...p seq coord_dim"] | Phases | None = None,
        *,
        key_mask: Tensor | None = None,
        state: State | None = None,
        return_state: bool = False,
    ) -> Tensor | tuple[Tensor, State]:
        """Return what the layer adds to its tokens.

        Args:
            x: Tokens, normalised already where a model normalises, ``(..., seq, dim)``.
            positions: For a rotary encoder, ``(..., seq, coord_dim)``, the leading dimensions
                expanding to those of ``x``, or what ``encoder.phases`` made of it; for a roll whole
                numbers, ``(..., seq, 1)``. If omitted, tokens are counted from 0, or from the end
                of ``state``, or along the rows of ``grid``. Otherwise they are not used.
            key_mask: False for padding, which no token sees, ``(..., seq)``. It still has a
                place: tokens behind it are not counted anew.
            state: What earlier tokens left, for a causal layer.
            return_state: Whether to return the state behind the last token as well.

        Returns:
            ``(..., seq, dim)``, of the dtype of ``x``; with ``return_state`` a pair. The state is
            a :class:`~stringlib.attention.weights.LinearState`, or for softmax a
            :class:`~stringlib.attention.softmax.KeyValueCache`; with a ``shift`` it is a
            :class:`~stringlib.attention.shift.ShiftedState`.

        Raises:
            ValueError: If a shape does not fit, positions are missing, a state is asked of a layer
                that has none, or it is of another kind of layer.
        """
        require_like_weight("x", x, self.to_q)
        if positions is not None:
            _require_places(x, positions)
        if state is not None or return_state:
            self._require_state(state)
        v = self._split(self.to_v(x))
        out, after = self._attend(x, v, positions, key_mask, state)
        if self.gate is not None:
            out = self.gate(out, x)
        out = self.to_out(out.transpose(-3, -2).flatten(-2))
        if not return_state:
            return out
        assert after is not None  # a layer without a state has refused
        return out, self._of_its_kind(after)

    @checked
    def attention_weights(
        self,
        x: Floats[Tensor, "... n self.dim"],
        positions: Reals[Tensor, "...p seq coord_dim"] | Phases | None = None,
        *,
        key_mask: Tensor | None = None,
    ) -> Tensor:
        """Return how much every token counts for every other, ``(..., heads, seq, seq)``.

        It attends to the unit vectors in place of values, so it holds for every kind of layer.
        """
        require_like_weight("x", x, self.to_q)
        if positions is not None:
            _require_places(x, positions)
        n = x.shape[-2]
        unit = torch.eye(n, dtype=x.dtype, device=x.device)
        v = unit.expand(*x.shape[:-2], self.key_heads, n, n)
        return self._attend(x, v, positions, key_mask)[0]

    @torch.no_grad()
    def folded(self) -> MultiHeadAttention:
        """Return a copy whose encoder costs what RoPE costs: its basis is in the projections.

        Equation :eq:`eq-fold`. For softmax alone: before a feature map the basis does not cancel.

        Raises:
            ValueError: If the layer has no rotary encoder or is not softmax attention.
        """
        if not isinstance(self.encoder, RotaryEncoder) or self.features is not None:
            raise ValueError(
                "attention must be softmax with a rotary encoder to be folded, "
                f"got {self.extra_repr()}"
            )
        layer = copy.deepcopy(self)
        for parameter in (*layer.to_q.parameters(), *layer.to_k.parameters()):
            # the queries of a key one by one: each has the basis of that key
            for rows in parameter.unflatten(0, (self.key_heads, -1, self.head_dim)).unbind(1):
                folded = self.encoder.fold(rows.flatten(0, 1), self.key_heads)
                rows.copy_(folded.view_as(rows))
        layer.encoder = self.encoder.folded()
        return layer

    def extra_repr(self) -> str:
        """Describe the arguments in ``repr``."""
        kind = "softmax" if self.features is None else type(self.features).__name__
        encoder = f", encoder={type(self.encoder).__name__}" if self.encoder is not None else ""
        heads = f"heads={self.heads}" + (f", key_heads={self.key_heads}" if self.group > 1 else "")
        return f"dim={self.dim}, {heads}, attention={kind}{encoder}, causal={self.causal}"

    @property
    def has_state(self) -> bool:
        """Whether the layer can be continued token by token, from the state of earlier ones."""
        weighted = self.weight is not None and not self.weight.has_state
        return self.causal and self.rotate != "after" and not weighted

    def _split(self, x: Tensor) -> Tensor:
        """Return ``(..., seq, heads * head_dim)`` as ``(..., heads, seq, head_dim)``."""
        return x.unflatten(-1, (-1, self.head_dim)).transpose(-3, -2)

    def _require_state(self, state: object) -> None:
        """Raise unless the layer has a state, and ``state``, if it is not None, is one of its."""
        if not self.causal or self.rotate == "after":
            raise ValueError(
                "state must be None, and return_state False, unless the layer is causal and does "
                f"not rotate features; got a layer with causal={self.causal}, rotate={self.rotate}"
            )
        if not self.has_state:
            told = "return_state must be False" if state is None else "state must be None"
            raise ValueError(
                f"{told} for {type(self.weight).__name__}, which has no state, "
                f"got {True if state is None else 'one'}"
            )
        if state is None:
            return
        kind: type = KeyValueCache if self.features is None else LinearState
        kind = kind if self.shift is None else ShiftedState
        if not isinstance(state, kind):
            raise TypeError(f"state must be a {kind.__name__}, got {type(state).__name__}")
        rest: Any = state.rest if isinstance(state, ShiftedState) else state
        require_kind_of_state(rest.kind, self._kind())

    def _of_its_kind(self, state: State) -> State:
        """Return a state that says what it is of."""
        if isinstance(state, ShiftedState):
            return state._replace(rest=state.rest._replace(kind=self._kind()))
        return state._replace(kind=self._kind())

    def _kind(self) -> str:
        """Return what a state has to be of: one of others would be read without an error."""
        parts = ["softmax" if self.features is None else described(self.features)]
        parts += [described(part) for part in (self.weight, self.roll) if part is not None]
        if isinstance(self.encoder, RotaryEncoder):
            parts.append("a rotary encoder")  # of any class: a folded one reads the same keys
        elif self.encoder is not None:
            parts.append(type(self.encoder).__name__)
        return " with ".join(parts)

    def _make_features(
        self, attention: Any, options: dict[str, Any]
    ) -> tuple[FeatureMap | None, int]:
        """Return the feature map, None for softmax, and the number of features of a head."""
        generator = options.pop("generator", None)
        require("generator", generator, torch.Generator | None)
        if isinstance(attention, str):
            require_name("attention", attention, ("softmax", *FEATURES))
            if attention == "softmax":
                return None, self.head_dim
            offered = {"head_dim": self.head_dim, "heads": self.heads, "generator": generator}
            attention = part("attention", attention, FEATURES, offered, options)
        require("scale of the feature map", attention.scale, Positive)
        return attention, _count_features(attention, self.head_dim, self.heads)

    def _make_roll(self, options: dict[str, Any], width: int) -> Roll | None:
        """Return what rolls a head's features, in one cycle unless told otherwise, or None."""
        cycles = options.pop("cycles", None)
        if self.rotate != "roll":
            if cycles is not None:
                raise ValueError(f"cycles must be None unless rotate is roll, got {cycles!r}")
            return None
        roll = Roll((width,) if cycles is None else cycles)
        if sum(roll.cycles) != width:
            raise ValueError(
                f"cycles must have the sum {width}, the features of a head, got {roll.cycles}"
            )
        return roll

    def _make_encoder(
        self, encoder: Any, options: dict[str, Any], heads: int, channels: int
    ) -> RotaryEncoder | RelativeBias | None:
        """Return the encoder, asked for by name or given, for what a rotary one would turn."""
        coord_dim = options.pop("coord_dim", None)
        if coord_dim is not None and (not isinstance(encoder, str) or encoder in BIASES):
            raise ValueError(f"coord_dim must be None unless encoder is a name, got {coord_dim}")
        if encoder is None:
            return None
        if isinstance(encoder, str):
            known = ENCODERS | BIASES
            require_name("encoder", encoder, known)
            own = taken_out(options, known[encoder])
            if encoder in BIASES:
                return make_bias(encoder, self.heads, causal=self.causal, **own)
            if coord_dim is None:
                coord_dim = 1 if self.grid is None else 2
            try:
                return make_encoder(encoder, channels, coord_dim, heads=heads, **own)
            except ValueError as error:
                raise ValueError(
                    f"encoder must fit heads of {channels} channels and {coord_dim} coordinates, "
                    f"got {encoder!r}: {error}"
                ) from error
        rotary = isinstance(encoder, RotaryEncoder)
        if encoder.heads not in ((1, heads) if rotary else (self.heads,)):
            expected = heads if rotary else self.heads
            raise ValueError(f"encoder must have {expected} heads, got {encoder.heads}")
        if rotary and encoder.head_dim != channels:
            raise ValueError(
                f"encoder must have head_dim {channels}, the number of channels or features that "
                f"it rotates, got {encoder.head_dim}"
            )
        return encoder

    def _make_weight(self, weight: Any, options: dict[str, Any], width: int) -> Any:
        """Return the position weight, or say what contradicts it."""
        reads_grid = isinstance(self.encoder, RotaryEncoder) and self.encoder.coord_dim == 2
        if self.grid is not None and weight != "toeplitz" and not reads_grid:
            raise ValueError(
                "grid must be None unless weight is toeplitz or an encoder reads two "
                f"coordinates, got {self.grid!r}"
            )
        if weight is None:
            return None
        if self.features is None:
            raise ValueError(
                "weight must be None for softmax attention, whose logits take a bias instead "
                f"(encoder=ALiBi(heads), for instance), got {weight!r}"
            )
        if isinstance(self.encoder, RelativeBias):
            raise ValueError(
                "weight must be None with a RelativeBias as encoder, which is itself the "
                f"weight of kernelised attention, got {weight!r}"
            )
        made = weight
        if isinstance(weight, str):
            offered = {"dim": self.dim, "heads": self.heads, "features": width, "grid": self.grid}
            made = part("weight", weight, WEIGHTS, offered, options)
        _adopt(made)
        if made.causal_only and not self.causal:
            raise ValueError(
                f"causal must be True for weight {weight!r}, which looks back only, "
                f"got {self.causal}"
            )
        if self.rotate in ("after", "roll") and not made.rotatable:
            raise ValueError(
                f"rotate must be before with the weight {weight}, whose features may not be "
                f"rotated into each other, got {self.rotate}"
            )
        return made

    def _attend(
        self,
        x: Tensor,
        v: Tensor,
        positions: Tensor | Phases | None,
        key_mask: Tensor | None,
        state: Any = None,
    ) -> tuple[Tensor, State | None]:
        """Return what the heads say, ``(..., heads, seq, d_v)``, and the state if there is one."""
        before = last = None
        if self.shift is not None and state is not None:
            before, state = state
        q, k, at = self._queries_and_keys(x, self._places(x, positions, state))
        if self.shift is not None:
            k, last = self.shift(k, before, key_mask)
        if self.log_temperature is not None:
            # products over √d are then τ cos(q, k)
            norm = ((self.log_temperature / 2).exp() * self.head_dim**0.25)[:, None, None]
            q, k = _with_norm(q, norm.repeat_interleave(self.group, 0)), _with_norm(k, norm)
        out: Tensor
        after: Any
        if self.features is None:
            out, after = self._by_softmax(q, k, v, at, key_mask, state)
        else:
            weight = CONSTANT if self.weight is None else self.weight(x, key_mask)
            out, after = self._by_features(weight, q, k, v, at, key_mask, state)
        return out, after if after is None or last is None else ShiftedState(last, after)

    def _queries_and_keys(self, x: Tensor, at: Any) -> tuple[Tensor, Tensor, Any]:
        """Return queries and keys, and where they stand: in the encoder's basis where that pays."""
        if not self._folds(x, at):
            return self._split(self.to_q(x)), self._split(self.to_k(x)), at
        q, k = (self._split(_folded(linear, x, at.basis)) for linear in (self.to_q, self.to_k))
        return q, k, at._replace(basis=None)

    def _folds(self, x: Tensor, at: Any) -> bool:
        """Return whether P meets the projections instead of the tokens."""
        encoder = self.encoder
        if self.features is not None or not isinstance(encoder, RotaryEncoder) or at.basis is None:
            return False  # P does not cancel before a feature map
        if at.turns.shape[-4] != encoder.heads or at.basis.shape[-1] != self.head_dim:
            return False  # phases of another encoder, which this one will refuse
        # a graph is for any number of tokens, and the state of a shift is a key in one basis
        if torch.compiler.is_compiling() or self.shift is not None:
            return False
        linears = self.to_q, self.to_k
        plain = encoder.basis_first and all(type(linear) is nn.Linear for linear in linears)
        if not plain or any(_is_hooked(module) for module in (*linears, encoder)):
            return False  # an adapter, or somebody who wants to see queries as they were
        # One CPU thread, CPU time of a layer with P in the projections over one with P on tokens,
        # with gradients, Cayley and circulant, dim 256 to 768: 1.02 to 1.09 for half as many tokens
        # in a batch as channels, .96 to 1.00 for as many, .90 to .97 for twice, .86 to .94 for four
        # times as many; without gradients 1.03 to 1.15, .98 to 1.01, .89 to .97, .93 to .95.
        return x.numel() > self.dim**2

    def _by_softmax(
        self, q: Tensor, k: Tensor, v: Tensor, at: Any, key_mask: Tensor | None, state: Any
    ) -> tuple[Tensor, KeyValueCache]:
        """Attend by softmax of what an encoder has turned, or of logits with its bias."""
        if at is not None:
            q, k = self._turned(q, k, at)
        bias = self.encoder if isinstance(self.encoder, RelativeBias) else None
        return continued_softmax(q, k, v, bias, self.causal, key_mask, state)

    def _by_features(
        self,
        weight: PositionWeight,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        at: Any,
        key_mask: Tensor | None,
        state: Any,
    ) -> tuple[Tensor, LinearState | None]:
        r"""Return :math:`\sum_j w(i,j)\,\phi(q_i)^\top\phi(k_j)\,v_j`, divided where it may be.

        Positions act on queries and keys before the map, on features after it, or roll them.
        """
        phi, rotate = self.features, None if at is None else self.rotate
        assert phi is not None
        if phi.scale != 1:
            q, k = q * phi.scale, k * phi.scale
        if rotate == "before":
            q, k = self._turned(q, k, at)
        if self.group > 1:
            k, v = (y.repeat_interleave(self.group, -3) for y in (k, v))
        # what all keys are divided by looks at later ones and at padding; these scales do not
        phi_k, scale = phi.scaled_keys(k)
        phi_q = phi(q)
        told: dict[str, Any] = {"key_scale": scale, "key_mask": key_mask}
        if rotate == "after":
            encoder: Any = self.encoder
            told["numerator_only"] = True
            out = rotated_linear_attention(
                phi_q, phi_k, v, encoder, at, weight, self.causal, **told
            )
            return out, None
        if rotate == "roll" and self.roll is not None:
            phi_q, phi_k = self.roll(phi_q, phi_k, at)
        # what may be negative has no sum to divide by
        normalize = phi.nonnegative and weight.normalized
        return attend(
            phi_q, phi_k, v, weight, self.causal, state=state, normalize=normalize, **told
        )

    def _turned(self, q: Tensor, k: Tensor, phases: Phases) -> tuple[Tensor, Tensor]:
        """Return queries and keys as softmax, or the feature map, is to see them."""
        encoder = self.encoder
        assert isinstance(encoder, RotaryEncoder)
        grouped = self.group > 1 and encoder.heads > 1
        if grouped:
            # the queries of a key stand side by side as in a batch, so that its turn is theirs
            q, k = q.unflatten(-3, (-1, self.group)).transpose(-4, -3), k.unsqueeze(-4)
            phases = phases._replace(turns=phases.turns.unsqueeze(-5))
        if self.features is None:
            q, k = encoder(q, k, phases)
        else:
            # R(r)x itself: the outer basis cancels in a product, not in a feature
            q, k = encoder.rotate(q, phases), encoder.rotate(k, phases)
        return (q.transpose(-4, -3).flatten(-4, -3), k.squeeze(-4)) if grouped else (q, k)

    def _places(
        self, x: Tensor, positions: Tensor | Phases | None, state: State | None
    ) -> Tensor | Phases | None:
        """Return where the tokens stand: the phases of an encoder, or whole numbers for a roll.

        They are counted if nobody says them; None if positions act nowhere.
        """
        encoder = self.encoder if isinstance(self.encoder, RotaryEncoder) else None
        if encoder is None and self.roll is None:
            return None
        if positions is None:
            positions = self._counted(1 if encoder is None else encoder.coord_dim, x, state)
        if encoder is None or isinstance(positions, Phases):
            return positions
        require_same_tokens("x", x.unsqueeze(-3), "positions", positions)
        return encoder.phases(positions).to(x.dtype)

    def _counted(self, coord_dim: int, x: Tensor, state: State | None) -> Tensor:
        """Return where the tokens stand when nobody says it."""
        before = 0 if state is None else state.length
        if coord_dim == 1:
            return torch.arange(before, before + x.shape[-2], device=x.device)[:, None]
        if self.grid is None or coord_dim != 2:
            raise ValueError(
                f"positions must be given, (..., {x.shape[-2]}, {coord_dim}), for an encoder of "
                f"{coord_dim} coordinates, got None"
            )
        places = grid_positions(*self.grid, device=x.device)
        return places[before : before + x.shape[-2]] if self.causal else places


def _require_places(x: Tensor, positions: Tensor | Phases) -> None:
    """Raise unless positions, or their phases, are for tokens of this batch and no others."""
    if isinstance(positions, Phases):
        require_places("x", x, positions.turns, own=4)
    else:
        require_places("x", x, positions)


def _is_hooked(module: nn.Module) -> bool:
    """Return whether a call of a module does more than its ``forward``, or another one."""
    hooks = module._forward_hooks, module._forward_pre_hooks
    backward = module._backward_hooks, module._backward_pre_hooks
    return "forward" in vars(module) or any(hooks) or any(backward)


def _folded(linear: nn.Linear, x: Tensor, basis: Tensor) -> Tensor:
    """Return Pᵀ of what a projection says, with P in the projection: :eq:`eq-fold`.

    Args:
        linear: Projects to all heads; those that share a basis stand side by side.
        x: Tokens, ``(..., seq, dim)``.
        basis: P, ``(heads or 1, head_dim, head_dim)``.
    """

    def fold(parameter: Tensor | None) -> Tensor | None:
        if parameter is None:
            return None
        exact, (heads, size, _) = at_least_float32(parameter.dtype), basis.shape
        by_head = parameter.to(exact).reshape(heads, -1, size, parameter[0].numel())
        folded = basis.to(exact).mT.unsqueeze(1) @ by_head
        return folded.reshape(parameter.shape).to(parameter.dtype)

    with without_autocast(x):
        weight, bias = fold(linear.weight), fold(linear.bias)
    assert weight is not None
    return nn.functional.linear(x, weight, bias)


def _with_norm(x: Tensor, norm: Tensor) -> Tensor:
    """Return vectors of that norm; a zero vector stays 0."""
    wide = x.to(at_least_float32(x.dtype))
    return (unit(wide) * norm).to(x.dtype)


@torch.no_grad()
def _count_features(features: FeatureMap, head_dim: int, heads: int) -> int:
    """Return how many features the map gives for a head's channels.

    Raises:
        ValueError: If it is not made for such heads.
    """
    tensors = (*features.parameters(), *features.buffers())
    like = next((t for t in tensors if t.is_floating_point()), torch.zeros(()))
    try:
        return features(like.new_zeros(heads, 1, head_dim)).shape[-1]
    except ValueError as error:
        raise ValueError(
            f"attention must be a map for {heads} heads of {head_dim} channels, "
            f"got {type(features).__name__}: {error}"
        ) from error


def _place_of_rotation(rotary: bool, features: FeatureMap | None, rotate: str | None) -> str | None:
    """Return where positions act: a rotary encoder before or after the feature map, or a roll."""
    if rotate is not None and rotate not in (PLACES if rotary else ("roll",)):
        expected = f"one of {', '.join(PLACES)} with" if rotary else "roll without"
        raise ValueError(f"rotate must be None or {expected} a rotary encoder, got {rotate!r}")
    if features is None and rotate in ("after", "roll"):
        raise ValueError(
            f"rotate must be None or before for softmax: it has no features to rotate, got {rotate}"
        )
    if not rotary:
        return rotate
    if features is None:
        return "before"
    if rotate == "after" and not features.nonnegative:
        raise ValueError(
            f"rotate must be None or before for {type(features).__name__}, whose features may be "
            "negative and are divided by no sum, got after"
        )
    rotate = rotate or features.place
    if rotate is None:
        raise ValueError(
            f"rotate must be before or after for {type(features).__name__}, got None: before it, "
            "scores depend on more than the offset; after it, weights may be negative"
        )
    return rotate


def _adopt(weight: PositionWeight) -> None:
    """Make a weight, perhaps one that somebody wrote, ready to be part of a layer."""
    if "_parameters" not in vars(weight):  # one's own, whose constructor calls no other
        nn.Module.__init__(weight)
    for name, tensor in weight.named_buffers():
        if tensor.requires_grad:
            raise ValueError(
                "weight must hold parameters, or tensors without gradient: give "
                f"{type(weight).__name__}(nn.Parameter({name})), or what {name} comes from "
                f"as encoder; got {name} with requires_grad"
            )
