"""Tasks by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stringlib.tasks.images import Digits
from stringlib.tasks.recall import Recall
from stringlib.tasks.task import Task
from stringlib.tasks.text import Text

TASKS: dict[str, Callable[..., Task]] = {
    "recall": Recall,
    "digits": Digits,
    "moved-digits": lambda canvas=16: Digits(canvas),
    "text": Text,
}
"""Name → constructor."""


def make_task(name: str, **options: Any) -> Task:
    """Return a new task by its name."""
    if name not in TASKS:
        raise ValueError(f"name must be one of {', '.join(TASKS)}, got {name!r}")
    return TASKS[name](**options)
