"""Checks of arguments. Their errors name the argument, the expected and the given value."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensor
from torch.fx import Proxy

Layout = Literal["interleaved", "half"]
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
INTEGERS = (numbers.Integral, torch.SymInt)
"""The types of integers in Python, and of the symbolic sizes that ``torch.export`` passes."""
NO_VALUE = (RuntimeError, IndexError)
"""The errors of a tensor whose value cannot be read, because of ``vmap`` or because it is empty."""


def require_name(name: str, value: object, known: Collection[str]) -> None:
    """Raise ``ValueError`` unless ``value`` is a string in ``known``."""
    if not isinstance(value, str) or value not in known:
        raise ValueError(
            f"{name} must be one of {', '.join(known)}, got {value!r}{did_you_mean(value, known)}"
        )


def did_you_mean(value: object, known: Iterable[str]) -> str:
    """Return a question with the nearest known name, for the end of an error, or ``""``."""
    near = get_close_matches(value, known, 1, cutoff=0.65) if isinstance(value, str) else []
    return f". Did you mean {near[0]!r}?" if near else ""


def require_heads(name: str, x: Tensor, heads: int) -> None:
    """Raise ``ValueError`` unless ``x`` has ``heads`` heads; with ``heads=1`` accept any number."""
    if heads != 1 and x.shape[-3] != heads:
        raise ValueError(
            f"{name} must have {heads} heads, got shape {tuple(x.shape)}. The expected shape is "
            f"(..., {heads}, seq, head_dim)."
        )


def require_split(dim: int, heads: int, *, name: str = "dim", by: str = "heads") -> None:
    """Raise ``ValueError`` unless ``heads`` divides ``dim``.

    Args:
        dim: Number of channels.
        heads: Number of heads.
        name: Name of the number of channels in the error.
        by: Name of the number of heads in the error.
    """
    if dim % heads:
        raise ValueError(f"{by} must divide {name} {dim}, got {heads}")


def require_same_tokens(x_name: str, x: Tensor, name: str, positions: Tensor) -> None:
    """Raise ``ValueError`` unless there is one position for each token of ``x``.

    The positions must be on the device of ``x``, and the leading dimensions must broadcast.
    """
    if positions.shape[-2] != x.shape[-2]:
        raise ValueError(
            f"{name} must have one row for each of the {x.shape[-2]} tokens of {x_name}, "
            f"got shape {tuple(positions.shape)}"
        )
    require_same_device(x_name, x, name, positions)
    require_same_leading(x_name, x, name, positions, own=2)


def require_same_device(x_name: str, x: Tensor, name: str, given: Tensor) -> None:
    """Raise ``ValueError`` unless both tensors are on the same device.

    Torch itself does not always raise if one device is meta, for example in a matrix product.
    """
    if given.device != x.device:
        raise ValueError(
            f"{name} must be on {x.device}, the device of {x_name}, got {given.device}"
        )


def require_like_weight(name: str, x: Tensor, module: nn.Module) -> None:
    """Raise an error unless ``x`` has the device and the dtype of the weight of a projection.

    Under autocast any dtype is accepted. If the module has no floating-point weight, nothing is
    checked. If the weight of the module is loaded in each call, the device is not checked.

    Raises:
        TypeError: If the dtypes differ.
        ValueError: If the devices differ.
    """
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor) or not weight.is_floating_point():
        return  # a user-defined module, or a quantised one
    if x.device != weight.device and not is_offloaded(module):
        raise ValueError(
            f"{name} must be on {weight.device}, the device of the weights, got {x.device}"
        )
    cast = not x.is_meta and torch.is_autocast_enabled(x.device.type)
    if x.dtype != weight.dtype and not cast:
        raise TypeError(
            f"{name} must be {weight.dtype}, the dtype of the weights, got {x.dtype}. Convert "
            f"{name} or the module with .to(dtype), or use torch.autocast."
        )


def is_offloaded(module: nn.Module) -> bool:
    """Return whether the weight of a module is loaded in each call of the module.

    The function ``cpu_offload`` of the library accelerate prepares modules in this way. Between
    calls the weight is on the meta device.
    """
    if "forward" not in vars(module):
        return False
    weight = getattr(module, "weight", None)
    return isinstance(weight, Tensor) and weight.is_meta


def require_same_leading(x_name: str, x: Tensor, name: str, given: Tensor, own: int) -> None:
    """Raise ``ValueError`` unless the leading dimensions of ``x`` and ``given`` broadcast.

    The leading dimensions are all but the last three of ``x``, and all but the last ``own`` of
    ``given``.
    """
    if given.ndim == own:  # the usual case, returned early because the check takes time
        return
    try:
        common_shape(x.shape[:-3], given.shape[:-own])
    except RuntimeError:
        raise ValueError(
            f"{name} must have leading dimensions that broadcast with {tuple(x.shape[:-3])}, got "
            f"leading dimensions {tuple(given.shape[:-own])} in shape {tuple(given.shape)}. The "
            f"leading dimensions of {x_name} are {tuple(x.shape[:-3])}."
        ) from None


def common_shape(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape to which all given shapes broadcast.

    This function is fast if all shapes are equal or empty. In other cases it calls
    ``torch.broadcast_shapes``, which takes 30 µs even for equal shapes (torch 2.13). Two calls of
    ``torch.broadcast_shapes`` took half of the time of linear attention on a hundred tokens.

    Raises:
        RuntimeError: If the shapes do not broadcast.
    """
    longest = shapes[0]
    for other in shapes[1:]:  # a loop, because torch.compile cannot trace max with a key
        longest = other if len(other) > len(longest) else longest
    for shape in shapes:
        # lengths first: from a comparison of sizes, a compiler would keep that batch ≠ heads
        if len(shape) > 0 and (len(shape) != len(longest) or shape != longest):
            common: tuple[int, ...] = torch.broadcast_shapes(*shapes)
            return common
    return longest


def require_places(
    name: str, x: Tensor, positions: Tensor | None, own: int = 2, what: str = "positions"
) -> None:
    """Raise ``ValueError`` unless the leading dimensions of positions expand to those of ``x``.

    The leading dimensions are all but the last ``own`` of ``positions``, and all but the last two
    of ``x``. An encoder broadcasts vectors with their positions. A layer does not broadcast its
    tokens, because its output has the shape of the tokens, ``(..., seq, dim)``. None is accepted as
    ``positions``. Errors call the positions ``what``.

    Raises:
        ValueError: If ``positions`` have more leading dimensions than ``x``, or sizes that do not
            expand.
    """
    if positions is None or positions.ndim == own:  # the usual case, returned early
        return
    if not expands(positions.shape[:-own], x.shape[:-2]):
        raise ValueError(
            f"{what} must have leading dimensions that expand to {tuple(x.shape[:-2])}, got "
            f"leading dimensions {tuple(positions.shape[:-own])} in shape "
            f"{tuple(positions.shape)}. The leading dimensions of {name} are "
            f"{tuple(x.shape[:-2])}. Pass the same {what} for the whole batch, or one set for each "
            f"entry of {name}."
        )


def require_log_decay(name: str, x: Tensor) -> None:
    """Raise ``ValueError`` if a log decay is above 0, which means a decay factor above 1.

    The values are checked only where :func:`can_inspect` is True.
    """
    if any_eager(x, lambda x: x.amax() > 0):
        raise ValueError(
            f"{name} must be at most 0, got {x.max().item():g}. It is the logarithm of a decay "
            "factor between 0 and 1. If you have the factor, pass factor.log()."
        )


def require_kind_of_state(given: str, expected: str) -> None:
    """Raise ``ValueError`` if a state comes from other parts of a layer than expected.

    Args:
        given: Description of the parts that returned the state. ``""`` is accepted.
        expected: Description of the parts that receive the state.
    """
    if given not in ("", expected):
        raise ValueError(
            f"state must come from {expected}, got the state of {given}. Pass the state that the "
            "same layer or weight returned."
        )


def expands(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Return whether a tensor of shape ``shape`` can be expanded to shape ``wanted``."""
    if len(shape) == len(wanted) and shape == wanted:  # the usual case, returned early
        return True
    sizes = zip(reversed(shape), reversed(wanted), strict=False)
    # not `a in (1, b)`: when compiled, a symbolic size a is never found in the tuple
    return len(shape) <= len(wanted) and all(a == 1 or a == b for a, b in sizes)


def per_head(
    key_mask: Tensor,
    shape: tuple[int, ...],
    device: torch.device | None = None,
    name: str = "key_mask",
) -> Tensor:
    """Return a mask of the keys with a dimension for heads.

    Args:
        key_mask: True for keys that are not masked. Its shape is ``(..., heads, keys)`` if it has
            as many dimensions as ``shape``. If it has fewer, its shape is ``(..., keys)``, and all
            heads have the same mask.
        shape: Shape of the keys without channels, ``(..., heads, keys)``.
        device: Device of the keys. Default: None, which means that the device is not checked.
        name: Name of the mask in errors.

    Returns:
        The mask, ``(..., heads or 1, keys)``.

    Raises:
        TypeError: If the mask is not a boolean tensor.
        ValueError: If the shape of the mask does not fit, or if the mask is on another device.
    """
    if not isinstance(key_mask, Tensor) or key_mask.dtype != torch.bool:
        kind = getattr(key_mask, "dtype", type(key_mask).__name__)
        raise TypeError(f"{name} must be a boolean tensor, got {kind}. False marks padding.")
    mask = key_mask.unsqueeze(-2) if 1 <= key_mask.ndim < len(shape) else key_mask
    if mask.ndim < 2 or not expands(mask.shape, shape) or mask.shape[-1] != shape[-1]:
        raise ValueError(
            f"{name} must have shape {(*shape[:-2], shape[-1])}, or {tuple(shape)} with a mask for "
            f"each head, got {tuple(key_mask.shape)}"
        )
    if device is not None and mask.device != device:
        raise ValueError(f"{name} must be on {device}, the device of the keys, got {mask.device}")
    return mask


def all_eager(x: Tensor, test: Callable[[Tensor], Tensor]) -> bool:
    """Return whether all values of a tensor pass a test, or False if values cannot be inspected.

    Values are not inspected on a GPU, where this would synchronise, or in compiled code, where it
    would break the graph. Under ``vmap`` there is no single result, so False is returned.
    """
    if not can_inspect(x):
        return False
    try:
        return bool(test(x.detach()).all())
    except NO_VALUE:
        return False


def any_eager(x: Tensor, test: Callable[[Tensor], Tensor]) -> bool:
    """Return whether any value of a tensor passes a test, or False if values cannot be inspected.

    Values cannot be inspected on a GPU, in compiled code and under ``vmap``, see :func:`all_eager`.
    """
    if not can_inspect(x):
        return False
    try:
        return bool(test(x.detach()).any())
    except NO_VALUE:
        return False


def can_inspect(x: Tensor) -> bool:
    """Return whether the values of a tensor can be inspected.

    Values can be inspected if the tensor is on the CPU, outside compiled code.
    """
    if not _looks or x.device.type != "cpu":
        return False
    return not (isinstance(x, FakeTensor) or torch.compiler.is_compiling())


def in_torch_func() -> bool:
    """Return whether ``vmap`` or a derivative of ``torch.func`` is active; False if compiled."""
    return not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active()


_looks = True


@contextmanager
def without_looking() -> Iterator[None]:
    """Return a context in which no values of tensors are inspected, as on a GPU; used in tests."""
    global _looks
    before, _looks = _looks, False
    try:
        yield
    finally:
        _looks = before


def has_values(x: Tensor) -> bool:
    """Return whether a tensor has values: False on the meta device and in compiled code."""
    return not (x.is_meta or isinstance(x, FakeTensor) or torch.compiler.is_compiling())


def hint_for(value: object) -> str:
    """Return the end of an error for a value that is no tensor of a usable dtype, or ``""``."""
    if isinstance(value, Proxy):
        return ". torch.fx cannot trace this function. Use torch.compile or torch.export instead."
    if isinstance(value, Tensor) and value.is_floating_point():
        return ", which has no arithmetic. Convert it with .to(torch.bfloat16)."
    return ""


def kind_of(value: object) -> str:
    """Return the dtype of a tensor, or the class name of another value, for error messages."""
    return str(value.dtype) if isinstance(value, Tensor) else type(value).__name__
