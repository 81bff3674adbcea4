"""Feature maps and position weights by name, as ``MultiHeadAttention`` accepts them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

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
    LearnedToeplitz,
    RetNetDecay,
    SSDDecay,
)
from stringlib.attention.learned_delta import LearnedDelta, LearnedKDA
from stringlib.attention.path import STEPPED_ENCODERS
from stringlib.attention.ramp import FallingWeight, RampWeight
from stringlib.attention.softmax_features import HedgehogFeatures, TaylorFeatures
from stringlib.attention.token_bias import TOKEN_BIASES
from stringlib.attention.weights import PositionWeight
from stringlib.encoders.registry import BIASES, ENCODERS
from stringlib.options import FIXED, named
from stringlib.parts import make_part, reject_unused


def _optimal(
    head_dim: int,
    num_features: int | None = None,
    heads: int = 1,
    generator: torch.Generator | None = None,
) -> FeatureMap:
    """Return the random features of least variance for independent channels of unit variance."""
    # mean of ‖x + y‖² if channels of queries and keys are independent with variance 1, and a layer
    # has multiplied them by head_dim**-0.25
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
    "hedgehog": HedgehogFeatures,
    "taylor": TaylorFeatures,
    "identity": IdentityFeatures,
}
"""Feature maps by name. Each value is a constructor.

A layer passes ``head_dim``, ``heads``, ``generator`` and the options of the layer to the
constructor, as far as the constructor has parameters of these names.
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
    "kda": LearnedKDA,
}
"""Position weights by name. Each value is a constructor.

A layer passes ``dim``, ``heads``, ``features`` (the number of features of a head), ``grid`` and the
options of the layer to the constructor, as far as the constructor has parameters of these names.
"""


def layer_options() -> set[str]:
    """Return the names of the options of a layer, which are arguments of its parts."""
    registries: Any = (FEATURES, WEIGHTS, ENCODERS, STEPPED_ENCODERS, BIASES, TOKEN_BIASES)
    makes = [make for known in registries for make in known.values()]
    return {"cycles", "temperature", "key_heads"}.union(*(named(make) for make in makes)) - {*FIXED}


def make_features(
    name: str,
    head_dim: int,
    num_features: int | None = None,
    heads: int = 1,
    generator: torch.Generator | None = None,
) -> FeatureMap:
    """Return a new feature map, given its name.

    Args:
        name: A name in :data:`FEATURES`.
        head_dim: Number of channels of a head.
        num_features: Number of rows of the random matrix of FAVOR+. This is also the number of
            features, except for ``"hyperbolic"``, which has twice as many features as rows. Must be
            None for ``"identity"``, ``"relu"`` and ``"elu"``, which have ``head_dim`` features.
            Default: None, which means ``head_dim``.
        heads: Number of heads, each with a random matrix of its own. With 1 (default) any number
            of heads share one matrix.
        generator: Random generator for the matrix. Default: the global generator.

    Raises:
        ValueError: If no feature map has this name, or if the feature map does not accept
            ``num_features``.
    """
    options = {} if num_features is None else {"num_features": num_features}
    context = {"head_dim": head_dim, "heads": heads, "generator": generator}
    made: FeatureMap = make_part("name", name, FEATURES, context, options)
    reject_unused(options, {"name": FEATURES})
    return made
