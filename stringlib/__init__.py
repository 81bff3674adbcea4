"""Position encodings and linear attention, as the book derives them."""

from stringlib.encoders import (
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
)

__all__ = [
    "STRING",
    "ALiBi",
    "AxialRoPE",
    "CayleySTRING",
    "CirculantSTRING",
    "DenseSTRING",
    "KerpleLog",
    "KerplePower",
    "LearnedAbsolute",
    "MixedRoPE",
    "ReflectionSTRING",
    "RoPE",
    "RotaryEncoder",
    "Sinusoidal",
    "T5Bias",
]
__version__ = "0.1.0"
