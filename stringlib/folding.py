"""Checks of the modules into which a basis is to be merged (folded).

A basis may be merged only into the weight of a projection that just multiplies by its weight and
adds a bias. In other projections, the basis would be lost, or would not be applied to the output of
an adapter, a hook or a parametrisation.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized


def additions(module: nn.Module) -> str:
    """Return a description of what a call of a module runs besides the ``forward`` of its class.

    The description is for an error message. It is ``""`` if the call runs nothing else.
    """
    every = torch.nn.modules.module
    own = (
        module._forward_hooks,
        module._forward_pre_hooks,
        module._backward_hooks,
        module._backward_pre_hooks,
    )
    shared = (
        every._global_forward_hooks,
        every._global_forward_pre_hooks,
        every._global_backward_hooks,
        every._global_backward_pre_hooks,
    )
    if any(own):
        return "hooks"
    if any(shared):
        return "global hooks of torch.nn.modules.module"
    if {"forward", "_call_impl"} & vars(module).keys():
        return "a forward of its own"
    if not _is_from(type(module).__call__, every):
        return "a __call__ of its own"
    return ""


def additions_to_weight(linear: nn.Module) -> str:
    """Return why a projection is not just a product with its weight plus a bias.

    The result is a description for an error message, or ``""`` if the projection is just this.
    """
    if not (isinstance(linear, nn.Linear) and _is_from(type(linear).forward, nn.modules.linear)):
        return "a forward of its own"
    for name in ("weight", "bias"):
        parameter = getattr(linear, name)
        if parameter is not linear._parameters.get(name):
            return f"a {name} that is computed at each call"
        if found := _unlike_numbers(parameter):
            return f"a {name} {found}"
    return additions(linear)


def additions_to_norm(norm: nn.Module) -> str:
    """Return why the scales of a norm cannot be replaced by other scales.

    The result is a description for an error message, or ``""`` if the scales can be replaced.
    """
    for part in norm.modules():
        if is_parametrized(part):
            return "a weight that is computed at each call"
        for name, parameter in part.named_parameters(recurse=False):
            if found := _unlike_numbers(parameter):
                return f"a {name} {found}"
        if found := additions(part):
            return found
    return ""


def _unlike_numbers(parameter: Tensor | None) -> str:
    """Return why a parameter is not a dense array of numbers.

    The result is a description for an error message, or ``""`` for a dense array.
    """
    if parameter is None:
        return ""
    if type(parameter) not in (Tensor, nn.Parameter):
        return f"of type {type(parameter).__name__}"
    if parameter.is_meta:
        return "on the meta device"
    return "" if parameter.layout == torch.strided else f"with the layout {parameter.layout}"


def require_foldable(
    name: str, module: nn.Module, test: Callable[[nn.Module], str] = additions
) -> None:
    """Raise ``ValueError`` if a test finds that a module is not foldable, and say what to do.

    Args:
        name: Name of the module, for the error message.
        module: The module.
        test: :func:`additions` (default), :func:`additions_to_weight` or
            :func:`additions_to_norm`.
    """
    if found := test(module):
        kind = "a plain nn.Linear without" if test is additions_to_weight else "free of"
        raise ValueError(
            f"{name} must be {kind} hooks and adapters to be folded, got {type(module).__name__} "
            f"with {found}. Remove hooks and parametrisations, merge adapters, and use dense "
            "weights (dequantised, and not on the meta device), or fold before you wrap the model."
        )


def _is_from(function: Any, module: ModuleType) -> bool:
    """Return whether a function was defined in a given Python module, so that it is no patch."""
    return getattr(function, "__globals__", None) is vars(module)
