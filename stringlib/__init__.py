"""Position encodings and linear attention, as the book derives them."""

from stringlib.encoders import (
    STRING,
    AxialRoPE,
    CirculantSTRING,
    MixedRoPE,
    ReflectionSTRING,
    RoPE,
    RotaryEncoder,
)

__all__ = [
    "STRING",
    "AxialRoPE",
    "CirculantSTRING",
    "MixedRoPE",
    "ReflectionSTRING",
    "RoPE",
    "RotaryEncoder",
]
__version__ = "0.1.0"
