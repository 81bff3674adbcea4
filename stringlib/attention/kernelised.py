r"""Linear (kernelised) attention as the core of a layer: features, positions and a weight."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor, nn

from stringlib.attention.core import AttentionCore, Given
from stringlib.attention.features import FeatureMap
from stringlib.attention.linear import CONSTANT, attend
from stringlib.attention.roll import Roll
from stringlib.attention.rotated_linear import rotated_linear_attention
from stringlib.attention.states import LinearState
from stringlib.attention.weights import PositionWeight, described
from stringlib.encoders.relative_bias import RelativeBias
from stringlib.encoders.rotary import RotaryEncoder, rotated
from stringlib.inputs import any_eager


class LinearAttention(AttentionCore):
    r"""Kernelised attention with positions and a position weight, :eq:`eq-linear-attention`.

    The output of query i is :math:`\sum_j w(i,j)\,\phi(q_i)^\top\phi(k_j)\,v_j`, divided by the
    same sum without :math:`v_j`. The sum is not divided if similarities may be negative, or if
    the weight is a delta rule.

    Args:
        features: The feature map φ.
        encoder: A rotary encoder, a relative bias, or None (default). The exponential of a relative
            bias is used as the weight.
        weight: The position weight w, or a module that makes w from the tokens. Default: None, the
            constant weight 1.
        rotate: Where the rotary encoder is applied: ``"before"`` φ, to queries and keys, or
            ``"after"`` φ, to the features, in the numerator only. Default: the attribute ``place``
            of ``features``.
        roll: Shifts features by their position, in place of an encoder. Default: None.
        causal: If True, a token attends only to itself and to earlier tokens. Default: False.
        grid: ``(rows, columns)`` of an image. The positions of the grid are then the default for an
            encoder with two coordinates. Default: None, a sequence.

    Example:
        >>> import torch
        >>> from stringlib import CosineWeight, FavorFeatures, RoPE
        >>> core = LinearAttention(FavorFeatures(64), RoPE(64), CosineWeight(512))
        >>> out, _ = core(*torch.randn(3, 2, 6, 10, 64))
        >>> out.shape
        torch.Size([2, 6, 10, 64])
    """

    part_types: ClassVar = {
        **AttentionCore.part_types,
        "features": (FeatureMap,),
        "roll": (Roll,),
        "weight": (PositionWeight,),
    }
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
                    f"weight must be None with a RelativeBias as encoder, got {weight!r}. Linear "
                    "attention uses the exponential of the bias as its weight. Leave out weight or "
                    "encoder."
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
        """Whether the core returns a state, from which later tokens continue."""
        recurrent = self.weight is None or self.weight.has_state
        return self.causal and self.rotate != "after" and recurrent

    def _unfit(self) -> str | None:
        """Return the kind of layer, apart from a causal one, that refuses a context, or None."""
        if self.weight is not None and type(self.weight).forward is not PositionWeight.forward:
            return f"a layer of linear attention with {self._named_weight()}"
        return None

    def _named_weight(self) -> str:
        """Return the weight in the words of the caller, who passes a relative bias as encoder."""
        bias = getattr(self.weight, "bias", None)
        if isinstance(bias, RelativeBias):
            return f"the relative bias {type(bias).__name__}"
        return f"the weight {type(self.weight).__name__}"

    def _description(self) -> str:
        """Return the value of ``kind`` for the parts that the core has now."""
        parts = (self.features, self.weight, self.roll)
        words = " with ".join(described(p) for p in parts if p is not None)
        return words + super()._description()

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, given: Given
    ) -> tuple[Tensor, LinearState | None]:
        """Return the outputs of the heads and the state, after positions and the feature map."""
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
                keys["document_ids"] = documents
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
        normalize = phi.normalized and weight.normalized
        keys["documents"] = documents
        return attend(
            phi_q, phi_k, v, weight, self.causal, state=state, normalize=normalize, **keys
        )

    def require_state(self, state: Any) -> None:
        """Raise an error if the core has no state, or if ``state`` belongs to another kind of core.

        None is accepted as ``state``.

        Raises:
            TypeError: If ``state`` is not of the class that this core returns.
            ValueError: If the core has no state, if ``state`` comes from a core with other parts,
                or, on the CPU, if ``state`` belongs to other random features.
        """
        super().require_state(state)
        own = None if state is None or state.drawn is None else self.features.drawn()
        if own is not None and any_eager(own, lambda x: x != state.drawn.to(x)):
            raise ValueError(
                "state must come from a layer with the same random features, got a state of other "
                "random features. Begin with state=None after features.redraw(), and pass a state "
                "only to the layer that returned it."
            )

    def _why_no_state(self) -> str:
        """Return the error for a state that a core without states receives or has to return."""
        if not self.causal or self.rotate == "after":
            return super()._why_no_state()
        return (
            "state and return_state need a weight with a recurrent form, got "
            f"{self._named_weight()}. Use a decay instead, for example weight='retnet', or "
            "pass all tokens at once without state and return_state."
        )

    def _labelled(self, after: Any, before: Any) -> LinearState:
        """Return ``after`` with the ``kind`` and the random numbers by which it is recognised.

        Args:
            after: The state after the tokens.
            before: The state before the tokens, or None.
        """
        drawn = self.features.drawn() if before is None else before.drawn
        if before is None and drawn is not None:
            drawn = drawn.clone().expand(*after.sums.shape[:-2], -1)
        return LinearState(after.sums, after.log_scale, after.length, self.kind, drawn)

    def _adopted(self, weight: PositionWeight) -> PositionWeight:
        """Return ``weight``, or raise ``ValueError`` if the weight does not fit the other parts."""
        if "_parameters" not in vars(weight):  # a class whose constructor does not call super()
            nn.Module.__init__(weight)
        for name, tensor in weight.named_buffers():
            if tensor.requires_grad:
                raise ValueError(
                    "weight must not hold a tensor that requires a gradient and is not a "
                    f"parameter, got a {type(weight).__name__} whose {name} requires a gradient. "
                    f"To train {name}, give it to the weight as an nn.Parameter. If {name} is "
                    "computed from a RelativeBias, pass this bias as encoder instead."
                )
        if weight.causal_only and not self.causal:
            raise ValueError(
                f"causal must be True with the weight {type(weight).__name__}, got False. This "
                "weight is defined for earlier keys only. Pass causal=True, or another weight."
            )
        if self.rotate in ("after", "roll") and not weight.rotatable:
            raise ValueError(
                f"rotate must not be 'after' or 'roll' with the weight {type(weight).__name__}, "
                f"got {self.rotate!r}. This weight does not allow features that are rotated or "
                "rolled. For positions use a rotary encoder with rotate='before'."
            )
        return weight


def side_of_rotation(encoder: Any, features: FeatureMap, rotate: str | None) -> str | None:
    """Return whether an encoder is applied ``"before"`` or ``"after"`` the feature map.

    Args:
        encoder: A rotary encoder, its name, or None, for which the result is None.
        features: The feature map.
        rotate: ``"before"``, ``"after"``, or None for the default of the feature map.

    Raises:
        ValueError: If ``rotate`` is ``"after"`` and features may be negative, or if ``rotate`` is
            None and the feature map has no default.
    """
    if encoder is None:
        return None
    if rotate == "after" and not features.nonnegative:
        raise ValueError(
            f"rotate must be 'before' with {type(features).__name__}, got 'after'. With 'after' "
            "the features must never be negative. Pass rotate='before'."
        )
    rotate = rotate or features.place
    if rotate is None:
        sides = "'before' or 'after'" if features.nonnegative else "'before'"
        raise ValueError(
            f"rotate must be {sides} with {type(features).__name__}, got None. With 'before', the "
            "weight of a key depends on more than the offset of query and key. With 'after', "
            "weights may be negative."
        )
    return rotate
