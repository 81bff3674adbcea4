"""Position encodings and linear attention, as the book derives them."""

from stringlib.encoders import STRING, CirculantSTRING, ReflectionSTRING, RoPE, RotaryEncoder

__all__ = ["STRING", "CirculantSTRING", "ReflectionSTRING", "RoPE", "RotaryEncoder"]
__version__ = "0.1.0"
