"""The contract that every part of this package keeps, for parts of one's own.

Each check takes what makes a part, holds it to all properties of its kind in every mode in which
PyTorch runs a function, and raises an ``AssertionError`` that says in words which do not hold and
by how much. They need PyTorch alone.

Example:
    >>> from stringlib import CosineWeight, ELUFeatures
    >>> check_feature_map(ELUFeatures, modes=["eager", "batched"])
    >>> check_weight(lambda: CosineWeight(200), modes=["eager"])
"""

from stringlib.testing.check import check_bias, check_encoder, check_feature_map, check_weight

__all__ = ["check_bias", "check_encoder", "check_feature_map", "check_weight"]
