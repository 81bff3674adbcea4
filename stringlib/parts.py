"""Parts by name: a constructor is given those arguments that it names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter, signature
from typing import Any

from stringlib.inputs import require_name

Known = Mapping[str, Callable[..., Any]]
"""A constructor for each name, which is a class, a ``functools.partial`` of one, or a function."""


def named(make: Callable[..., Any]) -> dict[str, Parameter]:
    """Return the parameters of a constructor that have a name, by it."""
    variable = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    return {n: p for n, p in signature(make).parameters.items() if p.kind not in variable}


def build(what: str, make: Callable[..., Any], given: Mapping[str, Any]) -> Any:
    """Return what a constructor makes of those arguments that it names.

    Args:
        what: The part, as an error is to call it.
        make: Its constructor.
        given: Name → argument; more than it takes.

    Raises:
        ValueError: If it asks for more.
    """
    takes = named(make)
    for name, parameter in takes.items():
        if parameter.default is Parameter.empty and given.get(name) is None:
            raise ValueError(f"{name} must be given for {what}, got None")
    return make(**{name: given[name] for name in takes if given.get(name) is not None})


def part(
    role: str, name: str, known: Known, offered: Mapping[str, Any], options: dict[str, Any]
) -> Any:
    """Return a part of a layer by its name, and take out of the options those that are for it.

    Args:
        role: The argument that names it.
        name: One of ``known``.
        known: The parts for this role.
        offered: What the layer tells any of its parts.
        options: What its user has told.

    Raises:
        TypeError: If the user tells what is the layer's to say.
        ValueError: If no part has such a name, or it asks for more.
    """
    require_name(role, name, known)
    for option in options.keys() & offered.keys():
        raise TypeError(
            f"{option} of {role} {name!r} is for the layer to say, got {options[option]!r}"
        )
    own = taken_out(options, known[name])
    return build(f"{role} {name!r}", known[name], {**offered, **own})


def taken_out(options: dict[str, Any], make: Callable[..., Any]) -> dict[str, Any]:
    """Return the options that a constructor names, which are taken out of the others."""
    return {name: options.pop(name) for name in [*options] if name in named(make)}


def require_none_left(options: Mapping[str, Any], registries: Mapping[str, Known]) -> None:
    """Raise if a part that was asked for takes no such option.

    Args:
        options: Those that no part has taken out.
        registries: Role → its parts, to say which would have taken them.

    Raises:
        TypeError: If none of them would.
        ValueError: If another one would.
    """
    for option, given in options.items():
        takers = [
            f"{role} is {' or '.join(names)}"
            for role, known in registries.items()
            if (names := [name for name, make in known.items() if option in named(make)])
        ]
        if not takers:
            raise TypeError(f"{option} is no option of any part of a layer, got {given!r}")
        raise ValueError(f"{option} must be None unless {', or '.join(takers)}, got {given!r}")
