"""Position encoders: each is one rotation in a basis of its own."""

from stringlib.encoders.axial import AxialRoPE
from stringlib.encoders.circulant import CirculantSTRING
from stringlib.encoders.mixed import MixedRoPE
from stringlib.encoders.reflection import ReflectionSTRING
from stringlib.encoders.rope import RoPE
from stringlib.encoders.string import STRING, RotaryEncoder

__all__ = [
    "STRING",
    "AxialRoPE",
    "CirculantSTRING",
    "MixedRoPE",
    "ReflectionSTRING",
    "RoPE",
    "RotaryEncoder",
]
