r"""The core of an attention layer: what each head computes between the projections.

A core takes queries, keys and values that are split into heads, and returns the outputs of the
heads. :class:`~stringlib.attention.softmax.SoftmaxAttention` is softmax attention.
:class:`LinearAttention` replaces the exponential of softmax by a feature map. Both apply the
positions, and both work without a layer::

    core = LinearAttention(FavorFeatures(64), RoPE(64), CosineWeight(512))
    out, state = core(q, k, v)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from stringlib.attention.features import FeatureMap
from stringlib.attention.linear import CONSTANT, attend
from stringlib.attention.roll import Roll
from stringlib.attention.rotated_linear import rotated_linear_attention
from stringlib.attention.weights import LinearState, PositionWeight, described
from stringlib.documents import Documents, documents_of
from stringlib.encoders.relative_bias import RelativeBias
from stringlib.encoders.rotary import Phases, RotaryEncoder
from stringlib.inputs import any_eager, require_kind_of_state, require_same_tokens
from stringlib.positions import grid_positions

PARTS = ("features", "weight", "encoder", "roll", "rotate")
"""Attributes of a core that determine what it computes, and to which states it belongs."""


class Given(NamedTuple):
    """What a core is given besides queries, keys and values, after its checks.

    Attributes:
        at: What ``located`` returns for the queries.
        key_at: The same for the keys; None if they are at the positions of the queries.
        tokens: The tokens of the layer, or None.
        key_mask: False for padding, or None.
        state: The state of the earlier tokens, or None.
        documents: The documents of packed sequences, or None.
    """

    at: Any
    key_at: Any
    tokens: Tensor | None
    key_mask: Tensor | None
    state: Any
    documents: Documents | None


class AttentionCore(nn.Module):
    """Base class of the two cores: positions of the tokens, and states.

    Args:
        causal: If True, a token attends only to itself and to earlier tokens.
        grid: ``(rows, columns)`` of an image, whose positions are the default.

    Attributes:
        kind: Description of the parts, by which a core recognises its states.
    """

    state_type: type[Any]
    encoder: RotaryEncoder | RelativeBias | None
    roll: Roll | None
    kind: str

    def __init__(self, causal: bool, grid: tuple[int, int] | None) -> None:
        super().__init__()
        self.causal, self.grid = causal, grid

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        positions: Tensor | Phases | None = None,
        *,
        tokens: Tensor | None = None,
        key_mask: Tensor | None = None,
        state: Any = None,
        document_ids: Tensor | None = None,
        return_state: bool = False,
        key_positions: Tensor | Phases | None = None,
    ) -> tuple[Tensor, Any]:
        """Return the outputs of the heads, and the state after the last token.

        Args:
            q: Queries, ``(..., heads, n, d)``.
            k: Keys, ``(..., kv_heads, keys, d)``; ``kv_heads`` divides ``heads``. If causal, there
                is a key for each query.
            v: Values, ``(..., kv_heads, keys, d_v)``.
            positions: ``(..., n, coord_dim)``, or phases of the encoder. Default: 0, 1, 2, …
                after the tokens of ``state``, or the positions of the grid. Integers for a roll.
                With ``document_ids`` the default restarts at 0 in each document.
            tokens: The tokens of the layer, ``(..., n, dim)``, from which a learned weight
                computes its decays. Default: ``q``.
            key_mask: False for padding, ``(..., keys)`` or ``(..., heads, keys)``.
            state: The state of the earlier tokens. Default: None, there are no earlier tokens.
            document_ids: Integers that increase from document to document, ``(..., n)``. No token
                attends to another document. The first document continues ``state``. Softmax,
                linear attention that is not causal and Toeplitz weights use an n × n mask.
                Default: None, one document.
            return_state: If True, the state is also returned with ``document_ids``. It is that of
                the last document alone, which must have the same number of tokens in each row.
                Default: False, the state is None with ``document_ids``.
            key_positions: Positions of the keys, or their phases, if the keys belong to other
                tokens than the queries (cross-attention); not if causal. Default: ``positions``.

        Returns:
            The outputs, ``(..., heads, n, d_v)``, and the state: a
            :class:`~stringlib.attention.cache.KeyValueCache` of softmax attention, a
            :class:`~stringlib.attention.weights.LinearState` of linear attention, or None if the
            core has no state.

        Raises:
            TypeError: If the state is of the other core.
            ValueError: If the core has no state, or if the state is of a core with other parts.
        """
        if state is not None:
            self.require_state(state)
        documents = None
        if document_ids is not None:
            documents = documents_of(q, document_ids, 0 if state is None else state.length)
        at = self.located(q, positions, state, documents)
        key_at = None
        if key_positions is not None:
            if self.causal or documents is not None:
                raise ValueError(
                    "key_positions must be None if causal or with document_ids, because queries "
                    f"and keys then belong to the same tokens, got {type(key_positions).__name__}"
                )
            key_at = self.located(k, key_positions, name="key_positions")
        elif at is not None and k.shape[-2] != q.shape[-2]:
            raise ValueError(
                f"key_positions must be given for {k.shape[-2]} keys and {q.shape[-2]} queries, "
                "got None"
            )
        given = Given(at, key_at, tokens, key_mask, state, documents)
        out, after = self._attend(q, k, v, given)
        if documents is not None and after is not None:
            after = self._shortened(after, documents.last_length()) if return_state else None
        return out, None if after is None else self._labelled(after, state)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, given: Given) -> tuple[Tensor, Any]:
        """Return outputs and state."""
        raise NotImplementedError

    @property
    def has_state(self) -> bool:
        """Whether the core can continue from the state that earlier tokens left."""
        return self.causal

    def require_state(self, state: Any) -> None:
        """Raise unless the core has a state, and ``state`` is None or one of its own."""
        if not self.has_state:
            raise ValueError(
                "state must be None and return_state False, because only a causal layer that does "
                f"not rotate its features has a state, got causal={self.causal} and "
                f"rotate={self.rotate!r}"
            )
        if state is not None:
            if not isinstance(state, self.state_type):
                expected = self.state_type.__name__
                raise TypeError(f"state must be a {expected}, got {type(state).__name__}")
            require_kind_of_state(state.kind, self.kind)

    def _shortened(self, state: Any, length: int) -> Any:
        """Return the state after packed documents as that of the last one, of this length."""
        return state._replace(length=length)

    def _labelled(self, after: Any, before: Any) -> Any:
        """Return the state after the tokens with what the core recognises it by."""
        return after._replace(kind=self.kind)

    def _description(self) -> str:
        """Return ``kind`` for the parts that the core has now."""
        if isinstance(self.encoder, RotaryEncoder):
            return " with a rotary encoder"  # of any class: after folding, the keys are the same
        return "" if self.encoder is None else f" with {type(self.encoder).__name__}"

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute. If it is a part, the core is of another kind from now on."""
        if name == "encoder" and not isinstance(value, RotaryEncoder | RelativeBias | None):
            raise TypeError(
                "encoder must be a RotaryEncoder, a RelativeBias or None, because a wrapper hides "
                f"what the layer calls, got {type(value).__name__}. Wrap the core, the layer or "
                "the block instead, as modules_to_save=['core'] of peft does."
            )
        super().__setattr__(name, value)
        if name in PARTS and "kind" in vars(self):
            self.kind = self._description()

    def located(
        self,
        q: Tensor,
        positions: Tensor | Phases | None,
        state: Any = None,
        documents: Documents | None = None,
        *,
        name: str = "positions",
    ) -> Any:
        """Return the positions in the form in which they are applied.

        Args:
            q: Vectors of the tokens, ``(..., heads, n, channels)``.
            positions: ``(..., n, coord_dim)``, phases of the encoder, or None for the default.
            state: The state of earlier tokens, or None.
            documents: The documents of packed sequences, or None.
            name: Name of the positions in errors.

        Returns:
            Phases for a rotary encoder, integer positions for a roll, None without either.
        """
        encoder = self.encoder if isinstance(self.encoder, RotaryEncoder) else None
        if encoder is None and self.roll is None:
            return None
        if isinstance(positions, Phases):
            return positions
        if positions is None:
            coord_dim = 1 if encoder is None else encoder.coord_dim
            positions = self._default_positions(q, coord_dim, state, documents, name)
        elif encoder is not None:
            owner = "the queries" if name == "positions" else "the keys"
            require_same_tokens(owner, q, name, positions)
        return positions if encoder is None else encoder.phases(positions).to(q.dtype)

    def _default_positions(
        self, q: Tensor, coord_dim: int, state: Any, documents: Documents | None, name: str
    ) -> Tensor:
        """Return 0, 1, 2, … after the tokens of a state, or the positions of the grid."""
        if coord_dim == 1 and documents is not None:
            return documents.positions[..., None]
        n, before = q.shape[-2], 0 if state is None else state.length
        if coord_dim == 1:
            return torch.arange(before, before + n, device=q.device)[:, None]
        if self.grid is None or coord_dim != 2 or documents is not None:
            raise ValueError(
                f"{name} must be given for an encoder with {coord_dim} coordinates, with shape "
                f"(..., {n}, {coord_dim}), got None"
            )
        positions = grid_positions(*self.grid, device=q.device)
        own = positions[before : before + n] if self.causal else positions
        if n != len(own):
            raise ValueError(
                f"{name} must be given for {before + n} tokens, because grid = {self.grid} has "
                f"{len(positions)} positions, got None"
            )
        return own


class LinearAttention(AttentionCore):
    r"""Kernelised attention with positions and a position weight, :eq:`eq-linear-attention`.

    The output of query i is :math:`\sum_j w(i,j)\,\phi(q_i)^\top\phi(k_j)\,v_j`, divided by the
    same sum without :math:`v_j`. It is not divided if features may be negative, or if the weight is
    a delta rule.

    Args:
        features: The feature map φ.
        encoder: A rotary encoder; or a relative bias, whose exponential is then the weight; or
            None.
        weight: The position weight w, or a module that makes it from the tokens. Default: 1.
        rotate: Where the rotary encoder is applied: ``"before"`` φ, to queries and keys, or
            ``"after"`` φ, to the features, in the numerator only. Default: ``features.place``.
        roll: Shifts features by their position, in place of an encoder.
        causal: If True, a token attends only to itself and to earlier tokens.
        grid: ``(rows, columns)`` of an image, whose positions are the default.

    Example:
        >>> from stringlib import CosineWeight, FavorFeatures, RoPE
        >>> core = LinearAttention(FavorFeatures(64), RoPE(64), CosineWeight(512))
        >>> out, _ = core(*torch.randn(3, 2, 6, 10, 64))
        >>> out.shape
        torch.Size([2, 6, 10, 64])
    """

    state_type = LinearState

    def __init__(
        self,
        features: FeatureMap,
        encoder: RotaryEncoder | RelativeBias | None = None,
        weight: PositionWeight | None = None,
        *,
        rotate: str | None = None,
        roll: Roll | None = None,
        causal: bool = False,
        grid: tuple[int, int] | None = None,
    ) -> None:
        if isinstance(encoder, RelativeBias):
            if weight is not None:
                raise ValueError(
                    "weight must be None with a RelativeBias as encoder, because linear attention "
                    f"uses the exponential of the bias as its weight, got {weight!r}"
                )
            from stringlib.attention.toeplitz import BiasWeight

            weight, encoder = BiasWeight(encoder), None
        super().__init__(causal, grid)
        self.features, self.roll, self.encoder = features, roll, encoder
        self.rotate = "roll" if roll is not None else side_of_rotation(encoder, features, rotate)
        self.weight = None if weight is None else self._adopted(weight)
        self.kind = self._description()

    @property
    def has_state(self) -> bool:
        """Whether the core can continue from the state that earlier tokens left."""
        recurrent = self.weight is None or self.weight.has_state
        return self.causal and self.rotate != "after" and recurrent

    def _description(self) -> str:
        """Return ``kind`` for the parts that the core has now."""
        parts = (self.features, self.weight, self.roll)
        words = " with ".join(described(p) for p in parts if p is not None)
        return words + super()._description()

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, given: Given
    ) -> tuple[Tensor, LinearState | None]:
        """Apply positions and feature map, and return the weighted sums."""
        at, key_at, tokens, key_mask, state, documents = given
        phi, encoder, weight = self.features, self.encoder, CONSTANT
        if self.weight is not None:
            tokens = q if tokens is None else tokens
            weight = self.weight(tokens) if key_mask is None else self.weight(tokens, key_mask)
        if phi.scale != 1:
            q, k = q * phi.scale, k * phi.scale
        if self.rotate == "before" and at is not None:
            # R(r)x itself: the outer basis cancels in a product, but not in a feature
            q, k = rotated(encoder, q, k, at, key_at, whole=True)
        group = q.shape[-3] // k.shape[-3]
        if group > 1:
            k, v = (y.repeat_interleave(group, -3) for y in (k, v))
        # the stabiliser of phi(k) depends on later keys and on padding; these scales do not
        phi_k, scale = phi.scaled_keys(k)
        phi_q = phi(q)
        keys: dict[str, Any] = {"key_scale": scale, "key_mask": key_mask}
        if self.rotate == "after" and isinstance(encoder, RotaryEncoder):
            keys |= {"key_positions": key_at, "numerator_only": True}
            if documents is not None:
                keys["document_ids"] = documents.numbers
            out = rotated_linear_attention(
                phi_q, phi_k, v, encoder, at, weight, self.causal, **keys
            )
            return out, None
        if self.roll is not None:
            phi_q, phi_k = (
                self.roll(phi_q, phi_k, at)
                if key_at is None
                else (self.roll.rotate(phi_q, at), self.roll.rotate(phi_k, key_at))
            )
        normalize = phi.nonnegative and weight.normalized
        keys["documents"] = documents
        return attend(
            phi_q, phi_k, v, weight, self.causal, state=state, normalize=normalize, **keys
        )

    def require_state(self, state: Any) -> None:
        """Raise unless the core has a state, and ``state`` is None or one of its kind."""
        if self.causal and self.rotate != "after" and not self.has_state:
            argument = "return_state must be False" if state is None else "state must be None"
            raise ValueError(
                f"{argument} for {type(self.weight).__name__}, which has no state, "
                f"got {True if state is None else 'one'}"
            )
        super().require_state(state)
        own = None if state is None or state.drawn is None else self.features.drawn()
        if own is not None and any_eager(own, lambda x: x != state.drawn.to(x)):
            raise ValueError(
                "state: the random features of this layer are not those that made the state. "
                "Begin with state=None after features.redraw(), and continue a state only in the "
                "layer that returned it"
            )

    def _labelled(self, after: Any, before: Any) -> LinearState:
        """Return the state after the tokens with what the core recognises it by."""
        drawn = self.features.drawn() if before is None else before.drawn
        if before is None and drawn is not None:
            drawn = drawn.clone().expand(*after.sums.shape[:-2], -1)
        state: LinearState = after._replace(kind=self.kind, drawn=drawn)
        return state

    def _adopted(self, weight: PositionWeight) -> PositionWeight:
        """Return the weight, or raise if it cannot be combined with the other parts."""
        if "_parameters" not in vars(weight):  # a class whose constructor does not call super()
            nn.Module.__init__(weight)
        for name, tensor in weight.named_buffers():
            if tensor.requires_grad:
                raise ValueError(
                    f"weight must not depend on another module's parameters, got {name} with "
                    f"requires_grad. Pass {type(weight).__name__}(nn.Parameter({name})) to train "
                    f"it, or pass a bias from which {name} is computed as encoder."
                )
        if weight.causal_only and not self.causal:
            raise ValueError(
                f"causal must be True with the weight {type(weight).__name__}, which is defined "
                "for earlier keys only, got False"
            )
        if self.rotate in ("after", "roll") and not weight.rotatable:
            raise ValueError(
                f"rotate must be 'before' with the weight {type(weight).__name__}, because its "
                f"features must not be mixed with each other, got {self.rotate!r}"
            )
        return weight


def rotated(
    encoder: Any,
    q: Tensor,
    k: Tensor,
    phases: Phases,
    key_phases: Phases | None = None,
    *,
    whole: bool,
) -> tuple[Tensor, Tensor]:
    """Return rotated queries and keys, also if several query heads share a key head.

    Args:
        encoder: A rotary encoder.
        q: ``(..., heads, n, d)``.
        k: ``(..., kv_heads, keys, d)``.
        phases: Phases of the encoder for the queries.
        key_phases: Phases for the keys. Default: ``phases``.
        whole: True for R(r)x. False leaves out the outer basis, which cancels in scores.
    """
    group = q.shape[-3] // k.shape[-3]
    grouped = group > 1 and encoder.heads > 1
    if grouped:
        # the queries of one key head as a batch, so that the phases of this head serve them all
        q, k = q.unflatten(-3, (-1, group)).transpose(-4, -3), k.unsqueeze(-4)
        phases = phases._replace(cos_sin=phases.cos_sin.unsqueeze(-5))
        if key_phases is not None:
            key_phases = key_phases._replace(cos_sin=key_phases.cos_sin.unsqueeze(-5))
    if whole and phases.basis is not None:
        q, k = encoder.rotate(q, phases), encoder.rotate(k, key_phases or phases)
    elif key_phases is not None:
        q, k = encoder(q, k, phases, key_phases)
    else:
        q, k = encoder(q, k, phases)
    return (q.transpose(-4, -3).flatten(-4, -3), k.squeeze(-4)) if grouped else (q, k)


def side_of_rotation(encoder: Any, features: FeatureMap, rotate: str | None) -> str | None:
    """Return on which side of the feature map an encoder, or its name, is applied."""
    if encoder is None:
        return None
    if rotate == "after" and not features.nonnegative:
        raise ValueError(
            f"rotate must be None or 'before' with {type(features).__name__}, because 'after' "
            "needs features that are not negative, got 'after'"
        )
    rotate = rotate or features.place
    if rotate is None:
        raise ValueError(
            f"rotate must be 'before' or 'after' with {type(features).__name__}, got None. With "
            "'before', a score depends on more than the offset of two tokens; with 'after', "
            "weights may be negative."
        )
    return rotate
