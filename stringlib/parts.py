"""Construction of the parts of a layer by name, from the options that the layer received.

A part is a feature map, a position weight or an encoder. Its constructor gets only the arguments
for which it has parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any

from stringlib.inputs import require_name
from stringlib.options import named

Registry = Mapping[str, Callable[..., Any]]
"""A registry, with a constructor for each name (a class, a partial of a class, a function)."""


def build(what: str, make: Callable[..., Any], given: Mapping[str, Any]) -> Any:
    """Return the object that a constructor makes from the arguments for which it has parameters.

    Args:
        what: Description of the part for error messages.
        make: Constructor of the part.
        given: Arguments by name. Arguments for which the constructor has no parameter are ignored.
            An argument that is None counts as not given, so that the default applies.

    Raises:
        ValueError: If a parameter without a default has no argument.
    """
    takes = named(make)
    for name, parameter in takes.items():
        if parameter.default is Parameter.empty and given.get(name) is None:
            raise ValueError(f"{name} must be given for {what}, got None")
    return make(**{name: given[name] for name in takes if given.get(name) is not None})


def make_part(
    role: str, name: str, known: Registry, context: Mapping[str, Any], options: dict[str, Any]
) -> Any:
    """Return a part of a layer, given its name, and remove its options from ``options``.

    Args:
        role: The argument of the layer that contains the name, for example ``"weight"``.
        name: A name in ``known``.
        known: Registry of the parts for this role.
        context: Arguments that the layer itself passes to its parts, for example ``heads``.
        options: Options that the user of the layer has given. Options for which the constructor of
            the part has parameters are removed.

    Raises:
        TypeError: If an option has the name of an argument in ``context``.
        ValueError: If ``known`` does not contain the name, or if the part needs an argument that
            is not given.
    """
    require_name(role, name, known)
    for option in options.keys() & context.keys():
        raise TypeError(
            f"{option} must not be given for {role} {name!r}, got {options[option]!r}. It follows "
            "from the other arguments."
        )
    own = pop_options(options, known[name])
    return build(f"{role} {name!r}", known[name], {**context, **own})


def pop_options(options: dict[str, Any], make: Callable[..., Any]) -> dict[str, Any]:
    """Remove the options for which a constructor has parameters, and return them."""
    return {name: options.pop(name) for name in [*options] if name in named(make)}


def reject_unused(options: Mapping[str, Any], registries: Mapping[str, Registry]) -> None:
    """Raise ``ValueError`` if an option is left over, which no part of the layer has taken.

    Args:
        options: Options that no part of the layer has taken.
        registries: Registry of each role. The error names the parts that would accept the option.
    """
    for option, given in options.items():
        takers = [
            f"{role} is {'one of ' * (len(names) > 1)}{', '.join(names)}"
            for role, known in registries.items()
            if (names := [name for name, make in known.items() if option in named(make)])
        ]
        raise ValueError(f"{option} must be None unless {', or '.join(takers)}, got {given!r}")
