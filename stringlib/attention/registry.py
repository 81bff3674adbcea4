"""Attention by name: for layers, studies and comparisons that take one as an argument."""

from __future__ import annotations

from collections.abc import Callable

import torch

from stringlib.attention.cosine import CosineWeight
from stringlib.attention.features import ELUFeatures, FavorFeatures, FeatureMap, ReLUFeatures
from stringlib.attention.layer_decay import GLADecay, RetNetDecay, SSDDecay
from stringlib.attention.layer_weight import (
    GivenWeight,
    LayerShape,
    LayerWeight,
    LearnedToeplitz,
)
from stringlib.inputs import require_count


def _favor(
    projection: str, learnable: bool = False, hyperbolic: bool = False
) -> Callable[[int, int | None, int, torch.Generator | None], FeatureMap]:
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
        )

    return build


def _fixed(
    kind: Callable[[], FeatureMap],
) -> Callable[[int, int | None, int, torch.Generator | None], FeatureMap]:
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


FEATURES: dict[str, Callable[[int, int | None, int, torch.Generator | None], FeatureMap]] = {
    "relu": _fixed(ReLUFeatures),
    "elu": _fixed(ELUFeatures),
    "favor": _favor("orthogonal"),
    "favor-iid": _favor("iid"),
    "favor-hadamard": _favor("hadamard"),
    "favor-circulant": _favor("circulant"),
    "favor-unit-circulant": _favor("unit-circulant"),
    "favor-learned": _favor("circulant", learnable=True),
    "hyperbolic": _favor("orthogonal", hyperbolic=True),
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
            twice as many. None for ``"relu"`` and ``"elu"``, which have ``head_dim``.
        heads: Heads with a random matrix of their own; 1 serves any number of heads.
        generator: Draws the random matrix; the global generator if omitted.

    Raises:
        TypeError: If a number is not an integer.
        ValueError: If the name is unknown, or a number does not fit.
    """
    if not isinstance(name, str) or name not in FEATURES:
        raise ValueError(f"name must be one of {', '.join(FEATURES)}, got {name!r}")
    return FEATURES[name](head_dim, num_features, heads, generator)


def _cosine(shape: LayerShape, positive: bool = False) -> LayerWeight:
    if shape.horizon is None:
        raise ValueError(
            "horizon must be given for the cosine weight, at least the longest distance of two "
            "tokens, got None"
        )
    return GivenWeight(CosineWeight(shape.horizon, positive))


def _toeplitz(shape: LayerShape) -> LayerWeight:
    if (shape.length is None) == (shape.grid is None):
        raise ValueError(
            "length, the longest sequence, or grid, (rows, columns), must be given for the weight "
            f"toeplitz, one of the two, got length={shape.length!r} and grid={shape.grid!r}"
        )
    if shape.grid is not None:
        return LearnedToeplitz(shape.heads, tuple(int(n) for n in shape.grid))
    require_count("length", shape.length)
    assert shape.length is not None
    return LearnedToeplitz(shape.heads, (int(shape.length),))


WEIGHTS: dict[str, Callable[[LayerShape], LayerWeight]] = {
    "cosine": _cosine,
    "cosine-positive": lambda shape: _cosine(shape, positive=True),
    "toeplitz": _toeplitz,
    "retnet": lambda shape: RetNetDecay(shape.heads),
    "gla": lambda shape: GLADecay(shape.dim, shape.heads, shape.features),
    "ssd": lambda shape: SSDDecay(shape.dim, shape.heads),
}
"""Name → constructor of the weight of a layer."""
