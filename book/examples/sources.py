"""A task that reads the source files of Python's standard library, which need no download."""

from __future__ import annotations

from lab.tasks import TASKS
from lab.tasks.text import Text
from results.language_sources_rates import WINDOWS, sources


def read_sources(length: int = 256) -> Text:
    """Return the task, with windows of ``length`` bytes."""
    train, _, test = sources()
    return Text(train, length=length, test=test, windows=WINDOWS)


TASKS["sources"] = read_sources
