"""What an argument must be: errors that name it, what was given and what is expected."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensor

Layout = Literal["interleaved", "half"]
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
INTEGERS = (numbers.Integral, torch.SymInt)
"""A number counts tokens, or stands for it while a program for any number is exported."""


def require_name(name: str, value: object, known: Collection[str]) -> None:
    """Raise ``ValueError`` unless ``value`` is one of the known names."""
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")


def require_floats(name: str, x: object) -> None:
    """Raise ``TypeError`` unless ``x`` is a floating-point tensor."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        raise TypeError(f"{name} must be a floating-point tensor, got {kind_of(x)}")


def require_heads(name: str, x: Tensor, heads: int) -> None:
    """Raise ``ValueError`` unless ``x`` has so many heads; a module with 1 serves any number."""
    if heads != 1 and x.shape[-3] != heads:
        raise ValueError(f"{name} must have {heads} heads, got shape {tuple(x.shape)}")


def require_split(dim: int, heads: int) -> None:
    """Raise ``ValueError`` unless ``heads`` heads of one size share ``dim`` channels."""
    if dim % heads:
        raise ValueError(f"heads must divide dim {dim}, got {heads}")


def require_same_tokens(x_name: str, x: Tensor, name: str, positions: Tensor) -> None:
    """Raise ``ValueError`` unless there is one position for each token of ``x``."""
    if positions.shape[-2] != x.shape[-2]:
        raise ValueError(
            f"{name} must have one row for each of the {x.shape[-2]} tokens of {x_name}, "
            f"got shape {tuple(positions.shape)}"
        )
    require_same_device(x_name, x, name, positions)
    require_same_leading(x_name, x, name, positions, own=2)


def require_same_device(x_name: str, x: Tensor, name: str, given: Tensor) -> None:
    """Raise ``ValueError`` unless both are on one device: the meta device answers to any other."""
    if given.device != x.device:
        raise ValueError(f"{name} must be on {x.device} as {x_name} is, got {given.device}")


def require_like_weight(name: str, x: Tensor, module: nn.Module) -> None:
    """Raise unless a projection can read ``x``: as it is, or as autocast makes it.

    Raises:
        TypeError: If its dtype is not that of the weight.
        ValueError: If it is on another device.
    """
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor) or not weight.is_floating_point():
        return  # somebody's own, or quantised
    if x.device != weight.device:
        raise ValueError(f"{name} must be on {weight.device} as the module is, got {x.device}")
    cast = not x.is_meta and torch.is_autocast_enabled(x.device.type)
    if x.dtype != weight.dtype and not cast:
        raise TypeError(f"{name} must be {weight.dtype} as the module is, got {x.dtype}")


def require_same_leading(x_name: str, x: Tensor, name: str, given: Tensor, own: int) -> None:
    """Raise ``ValueError`` unless all but the last three of ``x`` and ``own`` broadcast."""
    if given.ndim == own:  # as most positions are: for one token, looking at shapes takes time
        return
    try:
        common_shape(x.shape[:-3], given.shape[:-own])
    except RuntimeError:
        raise ValueError(
            f"the leading dimensions of {name} must broadcast with {tuple(x.shape[:-3])}, "
            f"those of {x_name}; got shape {tuple(given.shape)}"
        ) from None


def common_shape(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that all of them broadcast to.

    As ``torch.broadcast_shapes`` does, which takes 30 µs (torch 2.13) for equal and for empty
    shapes too: two calls were half of the time of linear attention on a hundred tokens.

    Raises:
        RuntimeError: If there is none.
    """
    longest = shapes[0]
    for other in shapes[1:]:  # max with a key is nothing that a compiler can trace
        longest = other if len(other) > len(longest) else longest
    for shape in shapes:
        # Python compares sizes before it counts them: a compiler would keep that batch is not heads
        if len(shape) > 0 and (len(shape) != len(longest) or shape != longest):
            common: tuple[int, ...] = torch.broadcast_shapes(*shapes)
            return common
    return longest


def require_places(name: str, x: Tensor, positions: Tensor | None, own: int = 2) -> None:
    """Raise unless all but ``own`` dimensions of positions, or None, expand to those of ``x``.

    An encoder broadcasts its vectors with the positions; a layer returns what it was given tokens
    for, ``(..., seq, dim)``, and no more.

    Raises:
        ValueError: If they have more leading dimensions than ``x``, or others.
    """
    if positions is not None and not expands(positions.shape[:-own], x.shape[:-2]):
        raise ValueError(
            f"the leading dimensions of positions must expand to {tuple(x.shape[:-2])}, "
            f"those of {name}; got shape {tuple(positions.shape)}"
        )


def require_log_decay(name: str, x: Tensor) -> None:
    """Raise ``ValueError`` if, on the CPU, it is above 0, as a factor is that has a logarithm."""
    if finds(x, lambda x: x.amax() > 0):
        raise ValueError(
            f"{name} must be at most 0, the logarithm of a factor up to 1, got "
            f"{x.max().item():g}; write factor.log()"
        )


def require_kind_of_state(given: str, expected: str) -> None:
    """Raise ``ValueError`` if a state says that something else than this has made it."""
    if given not in ("", expected):
        raise ValueError(f"state must be one of {expected}, got one of {given}")


def expands(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Return whether a tensor of this shape can be expanded to another, or has it."""
    sizes = zip(reversed(shape), reversed(wanted), strict=False)
    # not `a in (1, b)`: a compiler takes a size that is any number for none of them
    return len(shape) <= len(wanted) and all(a == 1 or a == b for a, b in sizes)


def per_head(
    key_mask: Tensor, shape: tuple[int, ...], device: torch.device | None = None
) -> Tensor:
    """Return a mask of the keys that broadcasts over heads.

    Args:
        key_mask: True where a key counts: ``(..., heads, keys)`` if it has as many dimensions as
            ``shape``; with fewer it has none for heads, ``(..., keys)``.
        shape: That of all keys, ``(..., heads, keys)``.
        device: Where they are; not looked at if omitted.

    Returns:
        ``(..., heads or 1, keys)``.

    Raises:
        TypeError: If the mask is not a boolean tensor.
        ValueError: If its shape does not fit, or it is on another device.
    """
    if not isinstance(key_mask, Tensor) or key_mask.dtype != torch.bool:
        kind = getattr(key_mask, "dtype", type(key_mask).__name__)
        raise TypeError(
            f"key_mask must be a boolean tensor, True for a key that counts, got {kind}"
        )
    mask = key_mask.unsqueeze(-2) if 1 <= key_mask.ndim < len(shape) else key_mask
    if mask.ndim < 2 or not expands(mask.shape, shape) or mask.shape[-1] != shape[-1]:
        raise ValueError(
            f"key_mask must have shape {tuple(shape)}, or that without the heads, "
            f"got {tuple(key_mask.shape)}"
        )
    if device is not None and mask.device != device:
        raise ValueError(f"key_mask must be on {device} as the keys are, got {mask.device}")
    return mask


def is_known(x: Tensor, test: Callable[[Tensor], Tensor]) -> bool:
    """Return whether all numbers pass a test, or False where looking at them is not free.

    A GPU would have to be waited for, a compiled graph would break, and a batch of ``vmap`` has
    no single answer.
    """
    return may_look(x) and _answer(lambda: test(x.detach()).all())


def finds(x: Tensor, test: Callable[[Tensor], Tensor]) -> bool:
    """Return whether a number passes a test, or False where looking at them is not free."""
    return may_look(x) and _answer(lambda: test(x.detach()).any())


def _answer(ask: Callable[[], Tensor]) -> bool:
    try:
        return bool(ask())
    except (RuntimeError, IndexError):  # a batch of vmap, or no numbers at all
        return False


def may_look(x: Tensor) -> bool:
    """Return whether values are at hand: those of a GPU or of a compiled graph are not."""
    return _looks and x.device.type == "cpu" and has_values(x)


def in_torch_func() -> bool:
    """Return whether ``vmap`` or a derivative of ``torch.func`` is under way."""
    return not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active()


_looks = True


@contextmanager
def without_looking() -> Iterator[None]:
    """Look at no value, as on a GPU, until the end of the block: for tests of what is done then."""
    global _looks
    before, _looks = _looks, False
    try:
        yield
    finally:
        _looks = before


def has_values(x: Tensor) -> bool:
    """Return whether a tensor's numbers can be looked at: not while shapes alone are traced."""
    return not (x.is_meta or isinstance(x, FakeTensor) or torch.compiler.is_compiling())


def kind_of(value: object) -> str:
    """Return what an error message says of a wrong argument: its dtype or its class."""
    return str(value.dtype) if isinstance(value, Tensor) else type(value).__name__
