"""The old import path of :mod:`stringlib.interop.fold_norms`."""

from stringlib.moved import forward

__getattr__ = forward(__name__, "stringlib.interop.fold_norms")
