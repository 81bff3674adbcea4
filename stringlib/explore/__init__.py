"""Figures that a reader can move: live in Jupyter, with sliders in the built book."""

from stringlib.explore.describe import describe
from stringlib.explore.explorer import HARD_LIMIT, Explorer
from stringlib.explore.frames import figure_json
from stringlib.explore.live import LiveLoss
from stringlib.explore.style import COLOURS, PALETTE, layout, use_matplotlib_style

__all__ = [
    "COLOURS",
    "HARD_LIMIT",
    "PALETTE",
    "Explorer",
    "LiveLoss",
    "describe",
    "figure_json",
    "layout",
    "use_matplotlib_style",
]
