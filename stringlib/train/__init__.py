"""Training: one loop for every task and model."""

from stringlib.train.loop import History, Settings, evaluate, fit

__all__ = ["History", "Settings", "evaluate", "fit"]
