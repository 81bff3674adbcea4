"""Encoders in models of other libraries: modules, weights and norms.

:class:`~stringlib.interop.adapters.RotaryTables` replaces the rotary module of a language model,
and :class:`~stringlib.interop.adapters.Rotated` adds an encoder to the projections of a vision
transformer. :func:`~stringlib.interop.convert.to_layout` and
:func:`~stringlib.interop.convert.fold_qkv` rewrite weights.
:func:`~stringlib.interop.fold_norms.fold_norms` merges the basis of an encoder into projections
that are followed by a norm, if :func:`~stringlib.interop.fold_norms.foldable` says that this is
possible. The rest of the package does not use this part.
"""

from stringlib.interop.adapters import (
    KeptPatches,
    PatchPositions,
    RotaryTables,
    Rotated,
    load_encoders,
)
from stringlib.interop.convert import fold_qkv, to_layout
from stringlib.interop.fold_norms import Folded, fold_norms, foldable

__all__ = [
    "Folded",
    "KeptPatches",
    "PatchPositions",
    "RotaryTables",
    "Rotated",
    "fold_norms",
    "fold_qkv",
    "foldable",
    "load_encoders",
    "to_layout",
]
