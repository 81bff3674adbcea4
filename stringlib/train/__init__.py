"""Training: one loop for every task and model."""

from stringlib.train.loop import History, evaluate, fit
from stringlib.train.settings import Settings

__all__ = ["History", "Settings", "evaluate", "fit"]
