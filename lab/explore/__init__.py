"""Figures with controls: live in Jupyter, and with stored states in the built book."""

from lab.explore.computed import amounts, computed, pick
from lab.explore.describe import describe
from lab.explore.explorer import HARD_LIMIT, Drawn, Explorer
from lab.explore.frames import figure_json
from lab.explore.live import LiveLoss
from lab.explore.panels import Panel, panels
from lab.explore.source import Source
from lab.explore.style import COLOURS, PALETTE, layout, use_matplotlib_style
from lab.explore.table import Noted, Table

__all__ = [
    "COLOURS",
    "HARD_LIMIT",
    "PALETTE",
    "Drawn",
    "Explorer",
    "LiveLoss",
    "Noted",
    "Panel",
    "Source",
    "Table",
    "amounts",
    "computed",
    "describe",
    "figure_json",
    "layout",
    "panels",
    "pick",
    "use_matplotlib_style",
]
