"""Attention: softmax, and the kernelised forms whose cost is linear in the sequence."""

from stringlib.attention.cosine import CosineWeight
from stringlib.attention.decay import DecayWeight
from stringlib.attention.features import ELUFeatures, FavorFeatures, FeatureMap, ReLUFeatures
from stringlib.attention.gate import Gate
from stringlib.attention.linear import LinearState, linear_attention
from stringlib.attention.multihead import MultiHeadAttention
from stringlib.attention.registry import FEATURES, WEIGHTS, make_features
from stringlib.attention.rotated import rotated_linear_attention
from stringlib.attention.softmax import softmax_attention
from stringlib.attention.toeplitz import ToeplitzWeight
from stringlib.attention.torus import random_turn
from stringlib.attention.weights import PositionWeight

__all__ = [
    "FEATURES",
    "WEIGHTS",
    "CosineWeight",
    "DecayWeight",
    "ELUFeatures",
    "FavorFeatures",
    "FeatureMap",
    "Gate",
    "LinearState",
    "MultiHeadAttention",
    "PositionWeight",
    "ReLUFeatures",
    "ToeplitzWeight",
    "linear_attention",
    "make_features",
    "random_turn",
    "rotated_linear_attention",
    "softmax_attention",
]
