"""Keyword-only arguments that may still be given by position, for one version, with a warning."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from typing import Any, cast

from stringlib.spec import F


def by_name(*names: str) -> Callable[[F], F]:
    """Return a decorator that also accepts keyword-only arguments by position, with a warning.

    So a call that was written for an earlier version still works.

    Args:
        *names: Names of the keyword-only arguments, in their former order after the positional
            arguments.
    """

    def decorate(function: F) -> F:
        kinds = [parameter.kind for parameter in signature(function).parameters.values()]
        count = kinds.count(Parameter.POSITIONAL_OR_KEYWORD)

        @wraps(function)
        def call(*args: Any, **named: Any) -> Any:
            late = args[count:]
            if not late or len(late) > len(names):  # too many: the function raises the error
                return function(*args, **named)
            given = dict(zip(names, late, strict=False))
            words = ", ".join(f"{name}={value!r}" for name, value in given.items())
            warnings.warn(
                f"{', '.join(given)} must be given by name from the next version on, got by "
                f"position. Write {words}.",
                DeprecationWarning,
                stacklevel=2,
            )
            return function(*args[:count], **given, **named)

        return cast(F, call)

    return decorate
