"""Position encodings and linear attention, as the book derives them."""

__version__ = "0.1.0"
