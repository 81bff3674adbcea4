"""Softmax attention, and kernelised attention, whose cost is linear in the number of tokens."""

from stringlib.attention.cosine import CosineWeight
from stringlib.attention.decay import DecayWeight, decay_mask, decayed_sums
from stringlib.attention.delta import DeltaWeight, KDAWeight, delta_rule
from stringlib.attention.favor import FavorFeatures
from stringlib.attention.features import (
    ELUFeatures,
    FeatureMap,
    IdentityFeatures,
    ReLUFeatures,
)
from stringlib.attention.gate import Gate
from stringlib.attention.kernelised import LinearAttention
from stringlib.attention.linear import linear_attention
from stringlib.attention.logit_bias import TokenBias
from stringlib.attention.multihead import MultiHeadAttention
from stringlib.attention.path import POSITION_STEPS, STEPPED_ENCODERS, PositionSteps
from stringlib.attention.published import LAYERS, make_layer
from stringlib.attention.ramp import FallingWeight, RampWeight
from stringlib.attention.recurrent import RecurrentAttention
from stringlib.attention.registry import FEATURES, WEIGHTS, make_features
from stringlib.attention.roll import Roll
from stringlib.attention.rotated_linear import rotated_linear_attention
from stringlib.attention.softmax import SoftmaxAttention, softmax_attention
from stringlib.attention.softmax_features import HedgehogFeatures, TaylorFeatures
from stringlib.attention.state import (
    gated_linear_attention,
    retention,
    retnet_log_decay,
    rwkv6,
    ssd,
)
from stringlib.attention.states import LinearState
from stringlib.attention.toeplitz import ToeplitzWeight
from stringlib.attention.token_bias import (
    TOKEN_BIASES,
    ContextualBias,
    ForgettingBias,
    PathBias,
)
from stringlib.attention.turn import random_turn
from stringlib.attention.weights import PositionWeight
from stringlib.encoders.rope import SelectiveRoPE

__all__ = [
    "FEATURES",
    "LAYERS",
    "POSITION_STEPS",
    "STEPPED_ENCODERS",
    "TOKEN_BIASES",
    "WEIGHTS",
    "ContextualBias",
    "CosineWeight",
    "DecayWeight",
    "DeltaWeight",
    "ELUFeatures",
    "FallingWeight",
    "FavorFeatures",
    "FeatureMap",
    "ForgettingBias",
    "Gate",
    "HedgehogFeatures",
    "IdentityFeatures",
    "KDAWeight",
    "LinearAttention",
    "LinearState",
    "MultiHeadAttention",
    "PathBias",
    "PositionSteps",
    "PositionWeight",
    "RampWeight",
    "ReLUFeatures",
    "RecurrentAttention",
    "Roll",
    "SelectiveRoPE",
    "SoftmaxAttention",
    "TaylorFeatures",
    "ToeplitzWeight",
    "TokenBias",
    "decay_mask",
    "decayed_sums",
    "delta_rule",
    "gated_linear_attention",
    "linear_attention",
    "make_features",
    "make_layer",
    "random_turn",
    "retention",
    "retnet_log_decay",
    "rotated_linear_attention",
    "rwkv6",
    "softmax_attention",
    "ssd",
]
