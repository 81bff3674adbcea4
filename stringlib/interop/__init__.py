"""Encoders in models of other libraries: modules, weights and norms.

:class:`~stringlib.interop.adapters.RotaryTables` replaces the rotary module of a transformer.
:class:`~stringlib.interop.adapters.Rotated` adds an encoder to the projections of a vision
transformer. :func:`~stringlib.interop.adapters.load_encoders` loads the saved parameters of these
two modules.
:func:`~stringlib.interop.convert.to_layout` converts weights to another layout of the channel
pairs. :func:`~stringlib.interop.convert.fold_qkv` merges the basis of an encoder into a projection.
:func:`~stringlib.interop.fold_norms.fold_norms` merges the basis into projections that a norm
follows, if :func:`~stringlib.interop.fold_norms.foldable` returns True.
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
