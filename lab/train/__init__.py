"""Training: one loop for every task, model and study."""

from lab.train.evaluate import evaluate
from lab.train.fitting import fit
from lab.train.hardware import make_fabric
from lab.train.history import History
from lab.train.interrupt import Interrupted
from lab.train.settings import Settings

__all__ = ["History", "Interrupted", "Settings", "evaluate", "fit", "make_fabric"]
