"""The old import path of :mod:`stringlib.interop.convert`."""

from stringlib.moved import forward

__getattr__ = forward(__name__, "stringlib.interop.convert")
