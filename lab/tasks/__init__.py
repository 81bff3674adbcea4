"""Tasks to train on: each gives batches, a loss, a score and the models that suit it."""

from lab.tasks.registry import TASKS, make_task
from lab.tasks.task import Task

__all__ = ["TASKS", "Task", "make_task"]
