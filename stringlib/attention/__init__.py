"""Attention: softmax, and the kernelised forms whose cost is linear in the sequence."""

from stringlib.attention.cosine import CosineWeight
from stringlib.attention.decay import DecayWeight
from stringlib.attention.features import ELUFeatures, FavorFeatures, FeatureMap, ReLUFeatures
from stringlib.attention.linear import LinearState, linear_attention
from stringlib.attention.softmax import softmax_attention
from stringlib.attention.toeplitz import ToeplitzWeight
from stringlib.attention.weights import PositionWeight

__all__ = [
    "CosineWeight",
    "DecayWeight",
    "ELUFeatures",
    "FavorFeatures",
    "FeatureMap",
    "LinearState",
    "PositionWeight",
    "ReLUFeatures",
    "ToeplitzWeight",
    "linear_attention",
    "softmax_attention",
]
