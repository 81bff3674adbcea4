"""What an argument must be, said once, in its annotation: ``q: Floats[Tensor, "... heads n d"]``.

:func:`checked` reads the annotations of a function when it is defined, and its arguments whenever
it is called. An error names the argument, what it must be and what was given.

============================  ===============================================================
``int``, ``float``, ``bool``  a number of things, at least 1; a finite number; a bool
``Literal["a", "b"]``         one of these words
a class, ``X | None``         one of its instances; X, or None
``Floats[Tensor, shape]``     a floating-point tensor
``Reals[Tensor, shape]``      a tensor of real numbers, integer or floating
``Positions[Tensor, shape]``  the same, and not beyond the numbers that half precision counts
``LogDecays[Tensor, shape]``  a floating-point tensor, nowhere above 0
============================  ===============================================================

Values are looked at where that is free, on the CPU. A shape has a word for each dimension: ``n`` is
one size in all arguments of a call, ``2`` a number, ``self.dim`` an attribute of the module.
``#heads`` is a size that broadcasts; ``heads?`` may be 1, and no other than the arguments before
have. ``...`` stands for dimensions in front, which broadcast with those of the other arguments;
``...?`` for some that expand to those of the arguments before. ``...k`` are others than ``...``.
"""

from __future__ import annotations

import inspect
import math
import numbers
import types
from collections.abc import Callable
from functools import wraps
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
)

import torch
from torch import Tensor

from stringlib.inputs import INTEGERS, common_shape, kind_of, require_exact, require_log_decay

__all__ = ["Count0", "Even", "Positive", "Scale", "Share", "Whole", "checked"]
__all__ += ["Floats", "LogDecays", "Positions", "Reals"]  # which a type checker sees imported

F = TypeVar("F", bound=Callable[..., Any])
Sizes = dict[str, Any]
Test = Callable[[Any, Sizes], None]


class Numbers(NamedTuple):
    """Which numbers an annotation admits, in words and as a test."""

    words: str
    admits: Callable[[Any], bool]

    def __repr__(self) -> str:
        return repr(self.words)  # as the reference shows it


class Array(NamedTuple):
    """Which tensors an annotation admits: floating point alone? Which shape, which values?"""

    floating: bool
    shape: str
    values: Callable[[str, Tensor], None] | None

    def __repr__(self) -> str:
        return repr(self.shape)


PLAIN = {
    int: Annotated[int, Numbers("at least 1", lambda x: x >= 1)],
    float: Annotated[float, Numbers("finite", lambda x: -math.inf < x < math.inf)],
}
# torch itself knows best what it takes for a device
UNTESTED = (object, Any, inspect.Parameter.empty, torch.device)

Count0 = Annotated[int, Numbers("at least 0", lambda x: x >= 0)]
Even = Annotated[int, Numbers("even (channels rotate in pairs)", lambda x: x > 0 and x % 2 == 0)]
Whole = Annotated[int, Numbers("whole", lambda x: True)]
Positive = Annotated[float, Numbers("positive and finite", lambda x: 0 < x < math.inf)]
Scale = Annotated[float, Numbers("finite and at least 1", lambda x: 1 <= x < math.inf)]
Share = Annotated[float, Numbers("between 0 and 1", lambda x: 0 <= x <= 1)]

if TYPE_CHECKING:  # to a type checker they are tensors
    from typing import Annotated as Floats
    from typing import Annotated as LogDecays
    from typing import Annotated as Positions
    from typing import Annotated as Reals
else:

    class _Tensors:
        def __init__(self, floating, values=None):
            self.floating, self.values = floating, values

        def __getitem__(self, item):
            return Annotated[item[0], Array(self.floating, item[1], self.values)]

    Floats, Reals = _Tensors(True), _Tensors(False)
    LogDecays, Positions = _Tensors(True, require_log_decay), _Tensors(False, require_exact)


def checked(function: F) -> F:
    """Check the arguments of a function, or of a method, by their annotations."""
    parameters = [*inspect.signature(function).parameters.values()]
    hints = {p.name: p.annotation for p in parameters}
    hints |= {n: eval(h, function.__globals__) for n, h in hints.items() if isinstance(h, str)}
    arrays = [m for hint in hints.values() for m in _metas(hint) if isinstance(m, Array)]
    keys = [_key(word) for array in arrays for word in array.shape.split()]
    numerals = {key: int(key) for key in keys if key.isdigit()}
    attributes = {key: key[5:] for key in keys if key.startswith("self.")}
    # a name that stands once says that there is a dimension, and no more
    once = {key for key in keys if keys.count(key) == 1 and key not in numerals | attributes}
    tests: list[tuple[Any, str, tuple[type, ...], Test]] = []
    for place, p in enumerate(parameters):
        admitted, test = _test(p.name, hints[p.name], once)
        if test is not None and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            reach = math.inf if p.kind is p.KEYWORD_ONLY else place  # no place will do
            tests.append((reach, p.name, admitted, test))
    own = [*attributes.items()]

    def call(*args: Any, **named: Any) -> Any:
        sizes: Sizes = numerals.copy()
        for key, attribute in own:
            sizes[key] = getattr(args[0], attribute)
        count = len(args)
        for place, name, admitted, test in tests:
            if place < count:
                value = args[place]
            elif not named:
                break
            elif name in named:
                value = named[name]
            else:
                continue
            if not isinstance(value, admitted):
                test(value, sizes)
        return function(*args, **named)

    # a compiler counts how often it has compiled one piece of code: each function gets its own
    call.__code__ = call.__code__.replace(co_name=function.__name__)
    return cast(F, wraps(function)(call))


def _parts(hint: Any) -> list[Any]:
    """Return what an annotation lets choose from."""
    parts = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    return [PLAIN.get(part, part) for part in parts]


def _metas(hint: Any) -> list[Any]:
    return [meta for part in _parts(hint) for meta in getattr(part, "__metadata__", ())]


def _key(word: str) -> str:
    return word.strip("#?")


def _test(name: str, hint: Any, once: set[str]) -> tuple[tuple[type, ...], Test | None]:
    """Return the classes that an annotation admits as they are, and the test of all others.

    Nothing is tested, and the test None, where there is no annotation, or one of another kind.
    """
    parts, metas = _parts(hint), _metas(hint)
    admitted = tuple(part for part in parts if isinstance(part, type) and part not in UNTESTED)
    others = [part for part in parts if part not in admitted]
    if not others:
        return admitted, _refuse(name, admitted)
    if len(others) > 1 or not (metas or get_origin(others[0]) is Literal):
        return (), None
    if not metas:
        return admitted, _literal(name, get_args(others[0]))
    if isinstance(metas[0], Array):
        return admitted, _tensor(name, metas[0], once)
    return admitted, _number(name, others[0].__origin__, metas[0])


def _refuse(name: str, classes: tuple[type, ...]) -> Test:
    words = " or ".join(each.__name__ for each in classes if each is not type(None))

    def test(x: Any, sizes: Sizes) -> None:
        raise TypeError(f"{name} must be a {words}, got {kind_of(x)}")

    return test


def _literal(name: str, known: tuple[str, ...]) -> Test:
    def test(x: Any, sizes: Sizes) -> None:
        if not isinstance(x, str) or x not in known:
            raise ValueError(f"{name} must be one of {', '.join(known)}, got {x!r}")

    return test


def _number(name: str, kind: type, meta: Numbers) -> Test:
    kinds, words = (INTEGERS, "an int") if kind is int else (numbers.Real, "a number")

    def test(x: Any, sizes: Sizes) -> None:
        if isinstance(x, bool) or not isinstance(x, kinds):
            raise TypeError(f"{name} must be {words}, got {x!r}")
        if not meta.admits(x):
            raise ValueError(f"{name} must be {meta.words}, got {x}")

    return test


def _tensor(name: str, meta: Array, once: set[str]) -> Test:
    words, floating, values = meta.shape.split(), meta.floating, meta.values
    kind = "a floating-point tensor" if floating else "a tensor of real numbers"
    lead = words.pop(0) if meta.shape.startswith("...") else ""
    count, last = len(words), _key(words[-1]) if words else ""
    dimensions = [(i - count, _key(w)) for i, w in enumerate(words) if _key(w) not in once]
    lead_key, expands = _key(lead), lead.endswith("?")
    lead_is_compared = bool(lead) and lead_key not in once

    def misfit(x: Tensor, sizes: Sizes, keys: list[str]) -> ValueError:
        shape = ", ".join(_key(word).removeprefix("self.") for word in meta.shape.split())
        shape += "," * (not lead and count == 1)
        known = [key for key in keys if key in sizes and not key.isdigit()]
        told = ", ".join(f"{key.removeprefix('self.')} = {sizes[key]}" for key in known)
        told = f"({shape}) with {told}" if known else f"({shape})"
        hint = f"; write {name}[:, None]" if x.ndim == 1 and sizes.get(last) == 1 else ""
        return ValueError(f"{name} must have shape {told}, got {tuple(x.shape)}{hint}")

    def test(x: Any, sizes: Sizes) -> None:
        dtype = x.dtype if isinstance(x, Tensor) else torch.bool
        if not dtype.is_floating_point and (floating or dtype.is_complex or dtype == torch.bool):
            raise TypeError(f"{name} must be {kind}, got {kind_of(x)}")
        shape = x.shape
        more = len(shape) - count
        if more and (more < 0 or not lead):
            raise misfit(x, sizes, [key for _, key in dimensions])
        for i, key in dimensions:
            size = shape[i]
            known = sizes.setdefault(key, size)
            if known != size:
                if known == 1 and words[i].startswith("#"):
                    sizes[key] = size
                elif size != 1 or words[i] == key:
                    raise misfit(x, sizes, [key])
        if more and lead_is_compared:
            front = shape[:more]
            known = sizes.get(lead_key, ()) if expands else sizes.setdefault(lead_key, front)
            if known != front:
                sizes[lead_key] = _common(name, x, front, known, expands)
        if values is not None:
            values(name, x)

    return test


def _common(name: str, x: Tensor, front: tuple[int, ...], known: Any, expands: bool) -> Any:
    """Return what dimensions in front broadcast to with those of other arguments."""
    try:
        common = common_shape(known, front)
    except RuntimeError:
        common = None
    if common is None or (expands and common != known):
        raise ValueError(
            f"the leading dimensions of {name} must broadcast with {tuple(known)}, those of the "
            f"other arguments, got shape {tuple(x.shape)}"
        )
    return common
