"""Figures that a reader can move: live in Jupyter, with sliders in the built book."""

from stringlib.explore.describe import describe
from stringlib.explore.explorer import HARD_LIMIT, Drawn, Explorer
from stringlib.explore.frames import figure_json
from stringlib.explore.live import LiveLoss
from stringlib.explore.panels import Panel, panels
from stringlib.explore.source import Source
from stringlib.explore.style import COLOURS, PALETTE, layout, use_matplotlib_style
from stringlib.explore.table import Table

__all__ = [
    "COLOURS",
    "HARD_LIMIT",
    "PALETTE",
    "Drawn",
    "Explorer",
    "LiveLoss",
    "Panel",
    "Source",
    "Table",
    "describe",
    "figure_json",
    "layout",
    "panels",
    "use_matplotlib_style",
]
