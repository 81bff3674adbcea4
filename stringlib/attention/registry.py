"""Attention by name: for layers, studies and comparisons that take one as an argument."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any, NamedTuple

import torch
from torch import nn

from stringlib.attention.cosine import CosineWeight
from stringlib.attention.features import (
    ELUFeatures,
    FavorFeatures,
    FeatureMap,
    IdentityFeatures,
    ReLUFeatures,
)
from stringlib.attention.learned import (
    GLADecay,
    LearnedDelta,
    LearnedToeplitz,
    RetNetDecay,
    SSDDecay,
)
from stringlib.attention.ramp import RampWeight
from stringlib.attention.roll import Roll
from stringlib.attention.weights import PositionWeight
from stringlib.inputs import require_count, require_name, require_positive

PLACES = ("before", "after")

MakeFeatures = Callable[[int, int | None, int, torch.Generator | None], FeatureMap]


def _favor(
    projection: str, learnable: bool = False, hyperbolic: bool = False, optimal: bool = False
) -> MakeFeatures:
    def build(
        head_dim: int, num_features: int | None, heads: int, generator: torch.Generator | None
    ) -> FeatureMap:
        return FavorFeatures(
            head_dim,
            head_dim if num_features is None else num_features,
            projection,
            heads=heads,
            learnable=learnable,
            hyperbolic=hyperbolic,
            generator=generator,
            # of independent channels of variance 1, once a layer has scaled them
            mean_square=2 * head_dim**0.5 if optimal else 0.0,
        )

    return build


def _fixed(kind: Callable[[], FeatureMap]) -> MakeFeatures:
    def build(
        head_dim: int, num_features: int | None, heads: int, generator: torch.Generator | None
    ) -> FeatureMap:
        if num_features is not None:
            raise ValueError(
                f"num_features must be None for {kind.__name__}, which has as many features as a "
                f"head has channels, got {num_features}"
            )
        return kind()

    return build


FEATURES: dict[str, MakeFeatures] = {
    "relu": _fixed(ReLUFeatures),
    "elu": _fixed(ELUFeatures),
    "favor": _favor("orthogonal"),
    "favor-iid": _favor("iid"),
    "favor-hadamard": _favor("hadamard"),
    "favor-circulant": _favor("circulant"),
    "favor-unit-circulant": _favor("unit-circulant"),
    "favor-learned": _favor("circulant", learnable=True),
    "hyperbolic": _favor("orthogonal", hyperbolic=True),
    "favor-optimal": _favor("orthogonal", optimal=True),
    "identity": _fixed(IdentityFeatures),
}
"""Name → constructor of ``(head_dim, num_features, heads, generator)``."""


def make_features(
    name: str,
    head_dim: int,
    num_features: int | None = None,
    heads: int = 1,
    generator: torch.Generator | None = None,
) -> FeatureMap:
    """Return a new feature map by its name.

    Args:
        name: One of :data:`FEATURES`.
        head_dim: Number of channels of a head.
        num_features: Number of random features, ``head_dim`` if omitted; ``"hyperbolic"`` has
            twice as many. None for ``"identity"``, ``"relu"`` and ``"elu"``, which have
            ``head_dim``.
        heads: Heads with a random matrix of their own; 1 serves any number of heads.
        generator: Draws the random matrix; the global generator if omitted.

    Raises:
        TypeError: If a number is not an integer.
        ValueError: If the name is unknown, or a number does not fit.
    """
    require_name("name", name, FEATURES)
    return FEATURES[name](head_dim, num_features, heads, generator)


def layer_features(
    attention: Any,
    head_dim: int,
    num_features: int | None,
    heads: int,
    generator: torch.Generator | None,
) -> FeatureMap | None:
    """Return the feature map of a layer, asked for by name or given; None for softmax.

    Raises:
        ValueError: If it is neither, or ``num_features`` does not apply.
    """
    if isinstance(attention, str) and attention in FEATURES:
        return make_features(attention, head_dim, num_features, heads, generator)
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


@torch.no_grad()
def count_features(features: FeatureMap, head_dim: int, heads: int) -> int:
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


def place_of_rotation(rotary: bool, features: FeatureMap | None, rotate: str | None) -> str | None:
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


def layer_roll(rotate: str | None, cycles: Sequence[int] | None, features: int) -> Roll | None:
    """Return what rolls a head's features, in one cycle unless told otherwise, or None.

    Raises:
        TypeError: If ``cycles`` is not a tuple or list of integers.
        ValueError: If it does not apply or fit.
    """
    if rotate != "roll":
        if cycles is not None:
            raise ValueError(f"cycles must be None unless rotate is roll, got {cycles!r}")
        return None
    roll = Roll((features,) if cycles is None else cycles)
    if sum(roll.cycles) != features:
        raise ValueError(
            f"cycles must have the sum {features}, the features of a head, got {roll.cycles}"
        )
    return roll


class LayerShape(NamedTuple):
    """What a layer tells the constructor of its weight.

    Attributes:
        dim: Number of channels of a token.
        heads: Number of heads.
        features: Number of features of a head.
    """

    dim: int
    heads: int
    features: int


def _within(name: str, make: Callable[[float], PositionWeight]) -> Callable[..., PositionWeight]:
    """Return the constructor of a weight that falls to 0 at a horizon."""

    def build(shape: LayerShape, horizon: float | None = None) -> PositionWeight:
        if horizon is None:
            raise ValueError(
                f"horizon must be given for the {name} weight, at least the longest distance of "
                "two tokens, got None"
            )
        return make(horizon)

    return build


def _toeplitz(
    shape: LayerShape, length: int | None = None, grid: tuple[int, int] | None = None
) -> PositionWeight:
    if (length is None) == (grid is None):
        raise ValueError(
            "length, the longest sequence, or grid, (rows, columns), must be given for the weight "
            f"toeplitz, one of the two, got length={length!r} and grid={grid!r}"
        )
    if grid is not None:
        return LearnedToeplitz(shape.heads, tuple(int(n) for n in grid))
    require_count("length", length)
    assert length is not None
    return LearnedToeplitz(shape.heads, (int(length),))


WEIGHTS: dict[str, Callable[..., PositionWeight]] = {
    "cosine": _within("cosine", CosineWeight),
    "cosine-positive": _within("cosine", lambda horizon: CosineWeight(horizon, positive=True)),
    "ramp": _within("ramp", RampWeight),
    "ramp-squared": _within("ramp", lambda horizon: RampWeight(horizon, power=2)),
    "toeplitz": _toeplitz,
    "retnet": lambda shape: RetNetDecay(shape.heads),
    "gla": lambda shape: GLADecay(shape.dim, shape.heads, shape.features),
    "ssd": lambda shape: SSDDecay(shape.dim, shape.heads),
    "delta": lambda shape: LearnedDelta(shape.dim, shape.heads),
    "gated-delta": lambda shape: LearnedDelta(shape.dim, shape.heads, gated=True),
}
"""Name → constructor of a layer's weight, of a :class:`LayerShape` and the options it names."""


def layer_weight(weight: Any, shape: LayerShape, **options: Any) -> PositionWeight | None:
    """Return the weight of a layer, asked for by name or given; None for weight 1.

    Args:
        weight: A name in :data:`WEIGHTS`, a weight, or None.
        shape: What the constructor is told.
        **options: Options of the layer that are for a weight; None if not given.

    Raises:
        ValueError: If it is none of these, or an option is not one of the weight's.
    """
    made = WEIGHTS.get(weight) if isinstance(weight, str) else None
    taken = {} if made is None else signature(made).parameters
    for option, given in options.items():
        if given is not None and option not in taken:
            users = [name for name, make in WEIGHTS.items() if option in signature(make).parameters]
            raise ValueError(
                f"{option} must be None unless weight is {' or '.join(users)}, got {given!r}"
            )
    if made is not None:
        return made(shape, **{name: given for name, given in options.items() if given is not None})
    if weight is not None and not isinstance(weight, PositionWeight):
        raise ValueError(
            f"weight must be None, one of {', '.join(WEIGHTS)}, or a PositionWeight, got {weight!r}"
        )
    return None if weight is None else _adopted(weight)


def require_grid(grid: object, coord_dim: object) -> None:
    """Raise unless the grid, if there is one, is rows and columns, and coordinates are counted."""
    if coord_dim is not None:
        require_count("coord_dim", coord_dim)
    if grid is None:
        return
    if not isinstance(grid, Sequence) or len(grid) != 2:
        raise ValueError(f"grid must be (rows, columns), got {grid!r}")
    for number in grid:
        require_count("grid", number)


def _adopted(weight: PositionWeight) -> PositionWeight:
    """Return a weight that somebody made, ready to be part of a layer."""
    if "_parameters" not in vars(weight):  # one's own, whose constructor calls no other
        nn.Module.__init__(weight)
    for name, tensor in weight.named_buffers():
        if tensor.requires_grad:
            raise ValueError(
                "weight must hold parameters, or tensors without gradient: give "
                f"{type(weight).__name__}(nn.Parameter({name})), or what {name} comes from "
                f"as encoder; got {name} with requires_grad"
            )
    return weight
