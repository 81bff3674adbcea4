"""Position encodings and linear attention, as the book derives them."""

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

__all__ = [
    "ENCODERS",
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
    "make_encoder",
]
__version__ = "0.1.0"
