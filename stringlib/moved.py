"""Old import paths: a name that has moved still works for one version, with a warning."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any


def forward(old: str, new: str, *names: str) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a module whose names have moved.

    Args:
        old: The module that had the names.
        new: The module that has the names now.
        *names: The names that have moved. Default: all names of ``new``.
    """

    def get(name: str) -> Any:
        if name.startswith("__") or (names and name not in names):
            raise AttributeError(f"module {old!r} has no attribute {name!r}")
        warnings.warn(
            f"import {name} from {new}; {old} will not have it in the next version",
            DeprecationWarning,
            stacklevel=2,
        )
        return getattr(import_module(new), name)

    return get
