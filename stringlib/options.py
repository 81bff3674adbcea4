"""Names of the options of layers and models, which are checked before the parts are built."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import wraps
from inspect import Parameter, signature
from typing import Any, cast

from stringlib.inputs import did_you_mean
from stringlib.spec import F

FIXED = {"head_dim": "it is dim // heads", "bidirectional": "it is the opposite of causal"}
"""Arguments of parts that a layer sets itself and so refuses as options, with the reason."""


def named(make: Callable[..., Any]) -> dict[str, Parameter]:
    """Return the parameters of a constructor by name, without ``*args`` and ``**kwargs``."""
    variable = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    return {n: p for n, p in signature(make).parameters.items() if p.kind not in variable}


def require_known_options(what: str, options: Mapping[str, Any], known: Collection[str]) -> None:
    """Raise ``TypeError`` for an option that is not known, and name the nearest known option."""
    for option, given in options.items():
        if option not in known:
            names = ", ".join(sorted({*known} - {"self"}))
            raise TypeError(
                f"{option} is not an argument of {what}, got {option}={given!r}"
                f"{did_you_mean(option, known) or f'. Known arguments: {names}'}"
            )


def known_options(
    known: Callable[[], Collection[str]], fixed: Mapping[str, str]
) -> Callable[[F], F]:
    """Return a decorator that refuses unknown options before the other arguments are read.

    Without the decorator, a misspelt argument ends up in ``**options``, and Python's error names
    the argument that is then missing. Options that are None count as not given.

    Args:
        known: Function that returns the names of the accepted options. This function is called
            whenever options are given, because parts can be added to a registry.
        fixed: Options that must not be given, with the reason.
    """

    def decorate(function: F) -> F:
        own, what = named(function), function.__qualname__.removesuffix(".__init__")

        @wraps(function)
        def call(*args: Any, **given: Any) -> Any:
            options = {n: x for n, x in given.items() if n not in own and x is not None}
            for option in options.keys() & fixed.keys():
                raise TypeError(
                    f"{option} must not be given to {what}, got {options[option]!r}. "
                    f"{fixed[option].capitalize()}."
                )
            if options:
                require_known_options(what, options, {*own, *known()})
            return function(*args, **given)

        return cast(F, call)

    return decorate
