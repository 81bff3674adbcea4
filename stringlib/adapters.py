"""The old import path of :mod:`stringlib.interop.adapters`."""

from stringlib.moved import forward

__getattr__ = forward(__name__, "stringlib.interop.adapters")
