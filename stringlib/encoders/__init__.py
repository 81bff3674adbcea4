"""Position encodings: rotary encoders, relative biases and absolute encodings."""

from stringlib.encoders.absolute import LearnedAbsolute, Sinusoidal
from stringlib.encoders.bias import ALiBi, KerpleLog, KerplePower, T5Bias
from stringlib.encoders.cayley import CayleySTRING
from stringlib.encoders.circulant import CirculantSTRING
from stringlib.encoders.dense import DenseSTRING
from stringlib.encoders.mixed import MixedRoPE
from stringlib.encoders.reflection import ReflectionSTRING
from stringlib.encoders.registry import BIASES, ENCODERS, make_encoder
from stringlib.encoders.rope import AxialRoPE, RoPE
from stringlib.encoders.rotary import RotaryEncoder
from stringlib.encoders.string import STRING

__all__ = [
    "BIASES",
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
