"""Training: one loop for every task and model."""

from stringlib.train.evaluate import evaluate
from stringlib.train.hardware import make_fabric
from stringlib.train.history import History
from stringlib.train.interrupt import Interrupted
from stringlib.train.loop import fit
from stringlib.train.settings import Settings

__all__ = ["History", "Interrupted", "Settings", "evaluate", "fit", "make_fabric"]
