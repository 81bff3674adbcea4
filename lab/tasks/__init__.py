"""Tasks for training. A task defines batches, a loss, test sets and a suitable model."""

from lab.tasks.registry import TASKS, make_task
from lab.tasks.task import Task

__all__ = ["TASKS", "Task", "make_task"]
