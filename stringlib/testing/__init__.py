"""Checks for your own encoders, biases, position steps, feature maps and position weights.

Each check takes a function (or class) that makes a part, and tests the contract of this kind of
part. The contract is the list of properties that all parts of this kind in the package have.
Properties are tested in several modes in which PyTorch runs a function, such as compiled or under
``vmap``. If some properties do not hold, an ``AssertionError`` lists them, with the size of each
error. The checks need no library besides PyTorch.

Example:
    >>> from stringlib import CosineWeight, ELUFeatures
    >>> check_feature_map(ELUFeatures, modes=["eager", "batched"])
    >>> check_weight(lambda: CosineWeight(200), modes=["eager"])
"""

from stringlib.testing.check import (
    check_bias,
    check_encoder,
    check_feature_map,
    check_position_steps,
    check_token_bias,
    check_weight,
)

__all__ = [
    "check_bias",
    "check_encoder",
    "check_feature_map",
    "check_position_steps",
    "check_token_bias",
    "check_weight",
]
