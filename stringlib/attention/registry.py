"""Attention by name: for layers, studies and comparisons that take one as an argument."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from stringlib.attention.cosine import CosineWeight
from stringlib.attention.favor import FavorFeatures
from stringlib.attention.features import (
    ELUFeatures,
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
from stringlib.attention.ramp import FallingWeight, RampWeight
from stringlib.attention.weights import PositionWeight
from stringlib.parts import part, require_none_left


def _optimal(
    head_dim: int,
    num_features: int | None = None,
    heads: int = 1,
    generator: torch.Generator | None = None,
) -> FeatureMap:
    # of independent channels of variance 1, once a layer has scaled them
    mean_square = 2 * head_dim**0.5
    return FavorFeatures(
        head_dim, num_features, heads=heads, generator=generator, mean_square=mean_square
    )


FEATURES: dict[str, Callable[..., FeatureMap]] = {
    "relu": ReLUFeatures,
    "elu": ELUFeatures,
    "favor": FavorFeatures,
    "favor-iid": partial(FavorFeatures, projection="iid"),
    "favor-simplex": partial(FavorFeatures, projection="simplex"),
    "favor-hadamard": partial(FavorFeatures, projection="hadamard"),
    "favor-simplex-hadamard": partial(FavorFeatures, projection="simplex-hadamard"),
    "favor-circulant": partial(FavorFeatures, projection="circulant"),
    "favor-unit-circulant": partial(FavorFeatures, projection="unit-circulant"),
    "favor-simplex-circulant": partial(FavorFeatures, projection="simplex-circulant"),
    "favor-learned": partial(FavorFeatures, projection="circulant", learnable=True),
    "hyperbolic": partial(FavorFeatures, hyperbolic=True),
    "favor-optimal": _optimal,
    "identity": IdentityFeatures,
}
"""Name → constructor of a feature map.

It is told what it names of ``head_dim``, ``heads`` and the options of the layer.
"""

WEIGHTS: dict[str, Callable[..., PositionWeight]] = {
    "cosine": CosineWeight,
    "cosine-positive": partial(CosineWeight, positive=True),
    "ramp": RampWeight,
    "ramp-squared": partial(RampWeight, power=2),
    "falling": FallingWeight,
    "toeplitz": LearnedToeplitz,
    "retnet": RetNetDecay,
    "gla": GLADecay,
    "ssd": SSDDecay,
    "delta": LearnedDelta,
    "gated-delta": partial(LearnedDelta, gated=True),
}
"""Name → constructor of a layer's weight.

It is told what it names of ``dim``, ``heads``, ``features`` (of a head), ``grid`` and the options
of the layer.
"""


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
    """
    options = {} if num_features is None else {"num_features": num_features}
    offered = {"head_dim": head_dim, "heads": heads, "generator": generator}
    made: FeatureMap = part("name", name, FEATURES, offered, options)
    require_none_left(options, {"name": FEATURES})
    return made
