"""Tasks by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from lab.tasks.images import Digits, cifar10, mnist, mnist5k
from lab.tasks.listops import ListOps
from lab.tasks.mqar import MQAR
from lab.tasks.recall import Recall
from lab.tasks.task import Task
from lab.tasks.text import Text, wikitext
from lab.tasks.volumes import Volumes
from stringlib.inputs import require_name

TASKS: dict[str, Callable[..., Task]] = {
    "recall": Recall,
    "mqar": MQAR,
    "listops": ListOps,
    "digits": Digits,
    "moved-digits": partial(Digits, canvas=16),
    "mnist": mnist,
    "mnist5k": mnist5k,
    "cifar10": cifar10,
    "volumes": Volumes,
    "text": Text,
    "wikitext": wikitext,
}
"""Constructors of tasks by name. ``moved-digits`` is ``digits`` on a canvas of 16 pixels."""


def make_task(name: str, **options: Any) -> Task:
    """Return a new task, given its name.

    Args:
        name: A name in ``TASKS``.
        **options: Options of the task.
    """
    require_name("name", name, TASKS)
    return TASKS[name](**options)
