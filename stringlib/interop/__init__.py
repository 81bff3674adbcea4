"""Encoders in models of other libraries: modules, weights and norms.

:class:`RotaryTables` replaces the rotary module of a language model, and :class:`Rotated` adds an
encoder to the projections of a vision transformer. :func:`to_layout` and :func:`fold_qkv` rewrite
weights. :func:`fold_norms` merges an encoder's basis into projections that are followed by a norm,
where :func:`foldable` says that this is possible. The rest of the package does not use this part.
"""

from stringlib.interop.adapters import PatchPositions, RotaryTables, Rotated, load_encoders
from stringlib.interop.convert import fold_qkv, to_layout
from stringlib.interop.fold_norms import Folded, fold_norms, foldable

__all__ = [
    "Folded",
    "PatchPositions",
    "RotaryTables",
    "Rotated",
    "fold_norms",
    "fold_qkv",
    "foldable",
    "load_encoders",
    "to_layout",
]
