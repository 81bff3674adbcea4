"""Position encodings and linear attention, as the book derives them."""

from typing import Any

import torch

from stringlib.attention import (
    FEATURES,
    LAYERS,
    TOKEN_BIASES,
    WEIGHTS,
    CosineWeight,
    DecayWeight,
    DeltaWeight,
    ELUFeatures,
    FallingWeight,
    FavorFeatures,
    FeatureMap,
    Gate,
    HedgehogFeatures,
    IdentityFeatures,
    KDAWeight,
    LinearAttention,
    LinearState,
    MultiHeadAttention,
    PositionWeight,
    RampWeight,
    RecurrentAttention,
    ReLUFeatures,
    Roll,
    SelectiveRoPE,
    SoftmaxAttention,
    TaylorFeatures,
    ToeplitzWeight,
    TokenBias,
    delta_rule,
    linear_attention,
    make_features,
    make_layer,
    random_turn,
    rotated_linear_attention,
    softmax_attention,
)
from stringlib.attention.cache import KeyValueCache
from stringlib.attention.states import ConvolvedState, PathState, ShiftedState
from stringlib.documents import document_ids_of
from stringlib.encoders import (
    BIASES,
    ENCODERS,
    STRING,
    ALiBi,
    AxialRoPE,
    CayleySTRING,
    CirculantSTRING,
    DenseSTRING,
    KerpleLog,
    KerplePower,
    LearnedAbsolute,
    MixedRoPE,
    ReflectionSTRING,
    RoPE,
    RotaryEncoder,
    Sinusoidal,
    T5Bias,
    make_encoder,
)
from stringlib.encoders.rotary import Phases
from stringlib.models import LanguageModel, ViT

# so that torch.load with its defaults loads states, also those that version 0.1 has saved
torch.serialization.add_safe_globals(
    [LinearState, KeyValueCache, ShiftedState, ConvolvedState, PathState, Phases]
)
torch.serialization.add_safe_globals([(LinearState, "stringlib.attention.weights.LinearState")])
torch.serialization.add_safe_globals([(KeyValueCache, "stringlib.attention.softmax.KeyValueCache")])
torch.serialization.add_safe_globals([(Phases, "stringlib.encoders.string.Phases")])

__all__ = [
    "BIASES",
    "ENCODERS",
    "FEATURES",
    "LAYERS",
    "STRING",
    "TOKEN_BIASES",
    "WEIGHTS",
    "ALiBi",
    "AxialRoPE",
    "CayleySTRING",
    "CirculantSTRING",
    "CosineWeight",
    "DecayWeight",
    "DeltaWeight",
    "DenseSTRING",
    "ELUFeatures",
    "FallingWeight",
    "FavorFeatures",
    "FeatureMap",
    "Gate",
    "HedgehogFeatures",
    "IdentityFeatures",
    "KDAWeight",
    "KerpleLog",
    "KerplePower",
    "LanguageModel",
    "LearnedAbsolute",
    "LinearAttention",
    "LinearState",
    "MixedRoPE",
    "MultiHeadAttention",
    "PositionWeight",
    "RampWeight",
    "ReLUFeatures",
    "RecurrentAttention",
    "ReflectionSTRING",
    "RoPE",
    "Roll",
    "RotaryEncoder",
    "SelectiveRoPE",
    "Sinusoidal",
    "SoftmaxAttention",
    "T5Bias",
    "TaylorFeatures",
    "ToeplitzWeight",
    "TokenBias",
    "ViT",
    "delta_rule",
    "document_ids_of",
    "foldable",
    "linear_attention",
    "make_encoder",
    "make_features",
    "make_layer",
    "random_turn",
    "rotated_linear_attention",
    "softmax_attention",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Return ``foldable``, and import :mod:`stringlib.interop` only when ``foldable`` is used."""
    if name != "foldable":
        raise AttributeError(f"module 'stringlib' has no attribute {name!r}")
    from stringlib.interop import foldable

    return foldable
