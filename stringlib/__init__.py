"""Position encodings and linear attention, as the book derives them."""

from stringlib.encoders import STRING, CirculantSTRING, RoPE, RotaryEncoder

__all__ = ["STRING", "CirculantSTRING", "RoPE", "RotaryEncoder"]
__version__ = "0.1.0"
