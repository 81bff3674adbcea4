"""Figures that a reader can move: live in Jupyter, with sliders in the built book."""

from stringlib.explore.explorer import Explorer

__all__ = ["Explorer"]
