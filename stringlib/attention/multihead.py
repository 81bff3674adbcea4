"""A layer of attention, put together from its parts: encoder, feature map, weight and gate."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn

from stringlib.attention.cache import KeyValueCache
from stringlib.attention.compose import compose
from stringlib.attention.features import FeatureMap
from stringlib.attention.gate import Gate
from stringlib.attention.layer_weight import LayerShape
from stringlib.attention.linear import LinearState, linear_attention
from stringlib.attention.masks import per_head
from stringlib.attention.rotated import rotated_linear_attention
from stringlib.attention.shift import KeyShift, ShiftedState
from stringlib.attention.softmax import softmax_attention
from stringlib.attention.weights import PositionWeight
from stringlib.encoders.bias import RelativeBias
from stringlib.encoders.string import RotaryEncoder
from stringlib.inputs import (
    require_bool,
    require_generator,
    require_places,
    require_positive,
    require_split,
    require_tokens,
)
from stringlib.positions import grid_positions

State = LinearState | KeyValueCache | ShiftedState


class MultiHeadAttention(nn.Module):
    r"""Project, attend in several heads, gate, project back: :eq:`eq-gated-layer`.

    Softmax attention, or kernelised attention, :eq:`eq-linear-attention`, with the feature map
    that ``attention`` names and the position weight that ``weight`` names.

    Args:
        dim: Number of channels of a token.
        heads: Number of heads, a divisor of ``dim``; each has ``dim // heads`` channels.
        encoder: A rotary encoder or its name in :data:`~stringlib.encoders.registry.ENCODERS`,
            or a :class:`~stringlib.encoders.bias.RelativeBias`. A bias is added to the logits of
            softmax; kernelised attention takes its exponential as a Toeplitz weight.
        attention: ``"softmax"``, a name in :data:`~stringlib.attention.registry.FEATURES`, or a
            feature map of your own.
        gate: None, ``"headwise"`` or ``"elementwise"``, see
            :class:`~stringlib.attention.gate.Gate`.
        weight: None, a name in :data:`~stringlib.attention.registry.WEIGHTS`, or a
            :class:`~stringlib.attention.weights.PositionWeight`.
        causal: Whether a token sees itself and earlier ones only.
        num_features: Number of random features of FAVOR+; ``dim // heads`` if omitted.
        horizon: M of the weights ``"cosine"`` and ``"cosine-positive"``, in tokens.
        length: Longest sequence of the weight ``"toeplitz"``.
        grid: Rows and columns of an image, for ``"toeplitz"`` instead of ``length``. Then an
            encoder asked for by name reads two coordinates, and positions default to the grid's.
        coord_dim: Number of coordinates that an encoder asked for by name reads; if omitted 1,
            or 2 with a ``grid``.
        rotate: Whether kernelised attention rotates queries and keys ``"before"`` the feature map
            or features ``"after"`` it, in the numerator only. If omitted the map says it: FAVOR+
            rotates before; ReLU and ELU must be told, for neither place is right for all uses.
        normalize_qk: Whether queries and keys get one length, so that softmax and FAVOR+ see
            :math:`e^{\tau\cos(q,k)}` with a learned temperature :math:`\tau` for each head. With
            ReLU features :math:`\tau` cancels.
        temperature: Where :math:`\tau` starts. At 1, as in Luo et al. 2021, no key counts more
            than :math:`e^2` times as much as another.
        shift: Whether the key of a token takes in the key of the token before it, see
            :class:`~stringlib.attention.shift.KeyShift`.
        bias: Whether the four projections add a constant. The gate has none.
        generator: Draws the random features; the global generator if omitted.

    Attributes:
        to_q: :math:`W_q`, an ``nn.Linear``; and so ``to_k``, ``to_v`` and ``to_out``.
        features: The feature map; None for softmax.
        encoder: The rotary encoder, the bias of softmax, or None.
        weight: What makes the position weight of each call; None for weight 1.
        gate: The gate, or None.
        log_temperature: Logarithm of :math:`\tau`, ``(heads,)``; None without ``normalize_qk``.
        shift: The mixture of keys, or None.

    Raises:
        TypeError: If an argument has the wrong kind.
        ValueError: If a name is unknown, a number does not fit, or parts cannot go together.

    Source:
        Vaswani et al. 2017, section 3.2.2; Qiu et al. 2025 for the place of the gate.
    """

    features: FeatureMap | None
    encoder: RotaryEncoder | RelativeBias | None

    def __init__(
        self,
        dim: int,
        heads: int,
        encoder: RotaryEncoder | RelativeBias | str | None = None,
        attention: str | FeatureMap = "softmax",
        gate: str | None = None,
        *,
        weight: PositionWeight | str | None = None,
        causal: bool = False,
        num_features: int | None = None,
        horizon: float | None = None,
        length: int | None = None,
        grid: tuple[int, int] | None = None,
        coord_dim: int | None = None,
        rotate: str | None = None,
        normalize_qk: bool = False,
        temperature: float = 1.0,
        shift: bool = False,
        bias: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        require_split(dim, heads)
        require_positive("temperature", temperature)
        require_bool(causal=causal, shift=shift, bias=bias, normalize_qk=normalize_qk)
        require_generator(generator)
        if temperature != 1 and not normalize_qk:
            raise ValueError(f"temperature must be 1 unless normalize_qk, got {temperature}")
        self.dim, self.heads, self.head_dim = int(dim), int(heads), int(dim // heads)
        self.causal, self.grid = causal, grid
        self.to_q, self.to_k, self.to_v, self.to_out = (
            nn.Linear(self.dim, self.dim, bias=bias) for _ in range(4)
        )
        shape = LayerShape(self.dim, self.heads, causal, horizon, length, grid, coord_dim)
        parts = compose(shape, encoder, attention, weight, num_features, rotate, generator)
        self.features, self.encoder, self.rotate, self.weight = parts
        self.gate = None if gate is None else Gate(self.dim, self.heads, gate)
        start = torch.full((self.heads,), math.log(temperature))
        self.log_temperature = nn.Parameter(start) if normalize_qk else None
        self.shift = KeyShift(self.heads) if shift else None

    def forward(
        self,
        x: Tensor,
        positions: Tensor | None = None,
        *,
        key_mask: Tensor | None = None,
        state: State | None = None,
        return_state: bool = False,
    ) -> Tensor | tuple[Tensor, State]:
        """Return what the layer adds to its tokens.

        Args:
            x: Tokens, normalised already where a model normalises, ``(..., seq, dim)``.
            positions: For a rotary encoder, ``(..., seq, coord_dim)``, the leading dimensions
                expanding to those of ``x``. If omitted, tokens are counted from 0, or from the
                end of ``state``, or along the rows of ``grid``.
                Without a rotary encoder they are not used.
            key_mask: False for padding, which no token sees, ``(..., seq)``. It still has a
                place: tokens behind it are not counted anew.
            state: What earlier tokens left, for a causal layer.
            return_state: Whether to return the state behind the last token as well.

        Returns:
            ``(..., seq, dim)``, of the dtype of ``x``; with ``return_state`` a pair. The state is
            a :class:`~stringlib.attention.linear.LinearState`, or for softmax a
            :class:`~stringlib.attention.cache.KeyValueCache`; with a ``shift`` it is a
            :class:`~stringlib.attention.shift.ShiftedState`.

        Raises:
            TypeError: If ``x`` is not floating point or another argument has the wrong kind.
            ValueError: If a shape does not fit, positions are missing, or a state is asked of a
                layer that has none.
        """
        require_tokens(x, self.dim)
        require_bool(return_state=return_state)
        require_places("x", x, positions)
        self._require_state(state, return_state)
        v = self._split(self.to_v(x))
        out, after = self._attend(x, v, positions, key_mask, state, return_state)
        if self.gate is not None:
            out = self.gate(out, x)
        out = self.to_out(out.transpose(-3, -2).flatten(-2))
        return (out, after) if after is not None else out

    def attention_weights(
        self, x: Tensor, positions: Tensor | None = None, *, key_mask: Tensor | None = None
    ) -> Tensor:
        """Return how much every token counts for every other, ``(..., heads, seq, seq)``.

        It attends to the unit vectors in place of values, so it holds for every kind of layer.
        """
        require_tokens(x, self.dim)
        require_places("x", x, positions)
        n = x.shape[-2]
        unit = torch.eye(n, dtype=x.dtype, device=x.device)
        return self._attend(x, unit.expand(*x.shape[:-2], self.heads, n, n), positions, key_mask)[0]

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
        for projection in (layer.to_q, layer.to_k):
            projection.weight.copy_(self.encoder.fold(projection.weight))
            if projection.bias is not None:
                projection.bias.copy_(self.encoder.fold(projection.bias))
        layer.encoder = self.encoder.folded()
        return layer

    def extra_repr(self) -> str:
        """Describe the arguments in ``repr``."""
        kind = "softmax" if self.features is None else type(self.features).__name__
        encoder = f", encoder={type(self.encoder).__name__}" if self.encoder is not None else ""
        return (
            f"dim={self.dim}, heads={self.heads}, attention={kind}{encoder}, causal={self.causal}"
        )

    def _split(self, x: Tensor) -> Tensor:
        """Return ``(..., seq, dim)`` as ``(..., heads, seq, head_dim)``."""
        return x.unflatten(-1, (self.heads, self.head_dim)).transpose(-3, -2)

    def _require_state(self, state: object, return_state: bool) -> None:
        if state is None and not return_state:
            return
        if not self.causal or self.rotate == "after":
            raise ValueError(
                "state must be None, and return_state False, unless the layer is causal and does "
                f"not rotate features; got a layer with causal={self.causal}, rotate={self.rotate}"
            )
        kind: type = KeyValueCache if self.features is None else LinearState
        kind = kind if self.shift is None else ShiftedState
        if state is not None and not isinstance(state, kind):
            raise TypeError(f"state must be a {kind.__name__}, got {type(state).__name__}")

    def _attend(
        self,
        x: Tensor,
        v: Tensor,
        positions: Tensor | None,
        key_mask: Tensor | None,
        state: Any = None,
        return_state: bool = False,
    ) -> tuple[Tensor, State | None]:
        """Return what the heads say, ``(..., heads, seq, d_v)``, and the state if asked for."""
        q, k = self._split(self.to_q(x)), self._split(self.to_k(x))
        if self.shift is None:
            return self._attend_to(k, q, v, x, positions, key_mask, state, return_state)
        before, rest = (None, None) if state is None else state
        k, last = self.shift(k, before, key_mask)
        out, after = self._attend_to(k, q, v, x, positions, key_mask, rest, return_state)
        return out, None if after is None else ShiftedState(last, after)

    def _attend_to(
        self,
        k: Tensor,
        q: Tensor,
        v: Tensor,
        x: Tensor,
        positions: Tensor | None,
        key_mask: Tensor | None,
        state: Any,
        return_state: bool,
    ) -> tuple[Tensor, LinearState | KeyValueCache | None]:
        if self.log_temperature is not None:
            # products over √d are then τ cos(q, k)
            norm = (self.log_temperature / 2).exp() * self.head_dim**0.25
            q, k = (_with_norm(y, norm[:, None, None]) for y in (q, k))
        if isinstance(self.encoder, RotaryEncoder) and positions is None:
            positions = self._positions(self.encoder.coord_dim, x, state)
        if self.features is None:
            out, cache = self._softmax(q, k, v, positions, key_mask, state)
            return out, cache if return_state else None
        if self.features.scale != 1:
            q, k = (y * self.features.scale for y in (q, k))
        weight = None if self.weight is None else self.weight(x, key_mask)
        found = self._kernelised(
            self.features, weight, q, k, v, positions, key_mask, state, return_state
        )
        return found if isinstance(found, tuple) else (found, None)

    def _softmax(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        positions: Tensor | None,
        key_mask: Tensor | None,
        state: KeyValueCache | None,
    ) -> tuple[Tensor, KeyValueCache]:
        if isinstance(self.encoder, RotaryEncoder) and positions is not None:
            q, k = self.encoder(q, k, positions)
        if key_mask is not None:
            key_mask = per_head(key_mask, k.shape[:-1]).expand(k.shape[:-1])
        cache, before, n = KeyValueCache(k, v, key_mask), 0, q.shape[-2]
        if state is not None:
            before, cache = state.length, state.extended(k, v, key_mask)
        bias = None
        if isinstance(self.encoder, RelativeBias):
            bias = self.encoder(n, cache.length, offset=before)
        if before and n > 1:
            # query i stands at before + i, of which the kernel's own causal mask knows nothing
            later = torch.ones(n, cache.length, dtype=torch.bool, device=q.device).triu(before + 1)
            bias = (q.new_zeros(()) if bias is None else bias).masked_fill(later, -math.inf)
        causal = self.causal and not before
        out = softmax_attention(q, cache.keys, cache.values, bias, causal, key_mask=cache.mask)
        return out, cache

    def _kernelised(
        self,
        phi: FeatureMap,
        weight: PositionWeight | None,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        positions: Tensor | None,
        key_mask: Tensor | None,
        state: LinearState | None,
        return_state: bool,
    ) -> Tensor | tuple[Tensor, LinearState]:
        if isinstance(self.encoder, RotaryEncoder) and positions is not None:
            if self.rotate == "after":
                phi_k, scale = phi.scaled_keys(k)
                return rotated_linear_attention(
                    *(phi(q), phi_k, v, self.encoder, positions, weight, self.causal),
                    numerator_only=True,
                    key_scale=scale,
                    key_mask=key_mask,
                )
            # R(r)x itself: the outer basis cancels in a product, not in a feature
            q, k = (self.encoder.rotate(y, positions) for y in (q, k))
        # what all keys are divided by looks at later ones and at padding; these scales do not
        phi_k, scale = phi.scaled_keys(k)
        return linear_attention(
            phi(q),
            phi_k,
            v,
            weight,
            self.causal,
            key_scale=scale,
            key_mask=key_mask,
            state=state,
            return_state=return_state,
        )

    def _positions(self, coord_dim: int, x: Tensor, state: State | None) -> Tensor:
        """Return where the tokens stand when nobody says it."""
        if coord_dim == 1:
            before = 0 if state is None else state.length
            return torch.arange(before, before + x.shape[-2], device=x.device)[:, None]
        if self.grid is None or coord_dim != 2:
            raise ValueError(
                f"positions must be given, (..., {x.shape[-2]}, {coord_dim}), for an encoder of "
                f"{coord_dim} coordinates, got None"
            )
        places = grid_positions(*self.grid).to(x.device)
        before = 0 if state is None else state.length
        return places[before : before + x.shape[-2]] if self.causal else places


def _with_norm(x: Tensor, norm: Tensor) -> Tensor:
    """Return vectors of that norm; a zero vector stays 0."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return (nn.functional.normalize(wide, dim=-1) * norm).to(x.dtype)
