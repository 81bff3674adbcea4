"""Position encodings and linear attention, as the book derives them."""

import torch

from stringlib.attention import (
    FEATURES,
    CosineWeight,
    DecayWeight,
    DeltaWeight,
    ELUFeatures,
    FallingWeight,
    FavorFeatures,
    FeatureMap,
    Gate,
    IdentityFeatures,
    LinearState,
    MultiHeadAttention,
    PositionWeight,
    RampWeight,
    ReLUFeatures,
    Roll,
    ToeplitzWeight,
    delta_rule,
    linear_attention,
    make_features,
    random_turn,
    rotated_linear_attention,
    softmax_attention,
)
from stringlib.attention.shift import ShiftedState
from stringlib.attention.softmax import KeyValueCache
from stringlib.encoders import (
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
from stringlib.encoders.string import Phases
from stringlib.fold_norms import foldable
from stringlib.models import LanguageModel, ViT

# so that torch.load gives them back with its defaults
torch.serialization.add_safe_globals([LinearState, KeyValueCache, ShiftedState, Phases])

__all__ = [
    "ENCODERS",
    "FEATURES",
    "STRING",
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
    "IdentityFeatures",
    "KerpleLog",
    "KerplePower",
    "LanguageModel",
    "LearnedAbsolute",
    "LinearState",
    "MixedRoPE",
    "MultiHeadAttention",
    "PositionWeight",
    "RampWeight",
    "ReLUFeatures",
    "ReflectionSTRING",
    "RoPE",
    "Roll",
    "RotaryEncoder",
    "Sinusoidal",
    "T5Bias",
    "ToeplitzWeight",
    "ViT",
    "delta_rule",
    "foldable",
    "linear_attention",
    "make_encoder",
    "make_features",
    "random_turn",
    "rotated_linear_attention",
    "softmax_attention",
]
__version__ = "0.1.0"
