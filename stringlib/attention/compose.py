"""Which parts of an attention layer can go together, and what is said of those that cannot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from stringlib.attention.features import FeatureMap
from stringlib.attention.layer_decay import GLADecay
from stringlib.attention.layer_weight import BiasWeight, GivenWeight, LayerShape, LayerWeight
from stringlib.attention.registry import FEATURES, WEIGHTS, make_features
from stringlib.attention.weights import PositionWeight
from stringlib.encoders.bias import RelativeBias
from stringlib.encoders.registry import make_encoder
from stringlib.encoders.string import RotaryEncoder
from stringlib.inputs import require_count, require_positive

PLACES = ("before", "after")


class Parts(NamedTuple):
    """What a layer consists of beside its projections.

    Attributes:
        features: The feature map; None for softmax.
        encoder: A rotary encoder, a bias for softmax, or None.
        rotate: Where a rotary encoder acts, ``"before"`` or ``"after"`` the feature map.
        weight: Makes the position weight; None for weight 1.
    """

    features: FeatureMap | None
    encoder: RotaryEncoder | RelativeBias | None
    rotate: str | None
    weight: LayerWeight | None


def compose(
    shape: LayerShape,
    encoder: RotaryEncoder | RelativeBias | str | None,
    attention: str | FeatureMap,
    weight: PositionWeight | str | None,
    num_features: int | None,
    rotate: str | None,
    generator: torch.Generator | None,
) -> Parts:
    """Make the parts of a layer, or say why they do not fit.

    Raises:
        TypeError: If an argument has the wrong kind.
        ValueError: If a name is unknown, a number does not fit, or two parts contradict.
    """
    _require_places(shape)
    features = _features(attention, shape, num_features, generator)
    width = shape.head_dim if features is None else count_features(features, shape)
    rotary = isinstance(encoder, (RotaryEncoder, str))
    place = _place(rotary, features, rotate)
    encoder = _encoder(encoder, shape, width if place == "after" else shape.head_dim)
    _require_grid(shape, encoder, weight)
    made = _weight(weight, features, shape._replace(features=width))
    if place == "after" and isinstance(made, GLADecay):
        raise ValueError(
            "rotate must be before with the weight gla: two features that are forgotten at "
            "different rates cannot be rotated into each other, got after"
        )
    if isinstance(encoder, RelativeBias) and features is not None:
        if made is not None:
            raise ValueError(
                "weight must be None with a RelativeBias as encoder, which is itself the weight of "
                f"kernelised attention, got {weight!r}"
            )
        return Parts(features, None, None, BiasWeight(encoder))
    return Parts(features, encoder, place, made)


def count_features(features: FeatureMap, shape: LayerShape) -> int:
    """Return how many features the map gives for a head's channels."""
    with torch.no_grad():
        tensors = (*features.parameters(), *features.buffers())
        like = next((t for t in tensors if t.is_floating_point()), torch.zeros(()))
        try:
            return features(like.new_zeros(shape.heads, 1, shape.head_dim)).shape[-1]
        except ValueError as error:
            raise ValueError(
                f"attention must be a map for {shape.heads} heads of {shape.head_dim} channels, "
                f"got {type(features).__name__}: {error}"
            ) from error


def _features(
    attention: Any,
    shape: LayerShape,
    num_features: int | None,
    generator: torch.Generator | None,
) -> FeatureMap | None:
    if isinstance(attention, str) and attention in FEATURES:
        return make_features(attention, shape.head_dim, num_features, shape.heads, generator)
    if num_features is not None:
        raise ValueError(
            f"num_features must be None unless attention names random features, got {num_features}"
        )
    if isinstance(attention, FeatureMap):
        require_positive("scale of the feature map", attention.scale)
        return attention
    if attention != "softmax":
        raise ValueError(
            f"attention must be softmax, one of {', '.join(FEATURES)}, or a FeatureMap, "
            f"got {attention!r}"
        )
    return None


def _place(rotary: bool, features: FeatureMap | None, rotate: str | None) -> str | None:
    if rotate is not None and (rotate not in PLACES or not rotary):
        expected = f"None or one of {', '.join(PLACES)}" if rotary else "None without an encoder"
        raise ValueError(f"rotate must be {expected}, got {rotate!r}")
    if not rotary:
        return None
    if features is None and rotate == "after":
        raise ValueError(
            "rotate must be None or before for softmax: it has no features to rotate, got after"
        )
    if rotate is None and features is not None:
        rotate = features.place
    if rotate is None and features is not None:
        raise ValueError(
            f"rotate must be before or after for {type(features).__name__}, got None: before it, "
            "scores depend on more than the offset; after it, weights may be negative"
        )
    return rotate or "before"


def _encoder(encoder: Any, shape: LayerShape, width: int) -> RotaryEncoder | RelativeBias | None:
    if shape.coord_dim is not None and not isinstance(encoder, str):
        raise ValueError(f"coord_dim must be None unless encoder is a name, got {shape.coord_dim}")
    if isinstance(encoder, str):
        coord_dim = shape.coord_dim
        if coord_dim is None:
            coord_dim = 1 if shape.grid is None else 2
        return make_encoder(encoder, width, coord_dim, heads=shape.heads)
    if encoder is None:
        return None
    if not isinstance(encoder, (RotaryEncoder, RelativeBias)):
        raise TypeError(
            "encoder must be a RotaryEncoder or its name, a RelativeBias or None, "
            f"got {type(encoder).__name__}"
        )
    rotary = isinstance(encoder, RotaryEncoder)
    if encoder.heads not in ((1, shape.heads) if rotary else (shape.heads,)):
        raise ValueError(f"encoder must have {shape.heads} heads, got {encoder.heads}")
    if rotary and encoder.head_dim != width:
        raise ValueError(
            f"encoder must have head_dim {width}, the number of channels or features that it "
            f"rotates, got {encoder.head_dim}"
        )
    return encoder


def _require_places(shape: LayerShape) -> None:
    """Raise unless the grid, if there is one, is rows and columns, and coordinates are counted."""
    if shape.coord_dim is not None:
        require_count("coord_dim", shape.coord_dim)
    if shape.grid is None:
        return
    if not isinstance(shape.grid, Sequence) or len(shape.grid) != 2:
        raise ValueError(f"grid must be (rows, columns), got {shape.grid!r}")
    for number in shape.grid:
        require_count("grid", number)


def _require_grid(
    shape: LayerShape, encoder: RotaryEncoder | RelativeBias | None, weight: Any
) -> None:
    """Raise unless something reads the grid."""
    if shape.grid is None:
        return
    if weight != "toeplitz" and not (isinstance(encoder, RotaryEncoder) and encoder.coord_dim == 2):
        raise ValueError(
            "grid must be None unless weight is toeplitz or an encoder reads two coordinates, "
            f"got {shape.grid!r}"
        )


def _weight(weight: Any, features: FeatureMap | None, shape: LayerShape) -> LayerWeight | None:
    for option, users in (("horizon", ("cosine", "cosine-positive")), ("length", ("toeplitz",))):
        given = getattr(shape, option)
        if given is not None and weight not in users:
            raise ValueError(
                f"{option} must be None unless weight is {' or '.join(users)}, got {given!r}"
            )
    if weight is None:
        return None
    if features is None:
        raise ValueError(
            "weight must be None for softmax attention, whose logits take a bias instead "
            f"(encoder=ALiBi(heads), for instance), got {weight!r}"
        )
    if isinstance(weight, str) and weight in WEIGHTS:
        made = WEIGHTS[weight](shape)
    elif isinstance(weight, PositionWeight):
        made = GivenWeight(weight)
    else:
        raise ValueError(
            f"weight must be None, one of {', '.join(WEIGHTS)}, or a PositionWeight, got {weight!r}"
        )
    if made.causal_only and not shape.causal:
        raise ValueError(
            f"causal must be True for weight {weight!r}: a decay forgets the past only, "
            f"got {shape.causal}"
        )
    return made
