"""Checks of arguments by annotations such as ``q: Floats[Tensor, "... heads n d"]``.

The decorator :func:`checked` reads the annotations of a function when the function is defined, and
checks the arguments in every call. An error names the argument, the expected and the given value.
The annotations accept:

============================  ===============================================================
``int``, ``float``, ``bool``  an integer of at least 1; a finite number; a bool
``Literal["a", "b"]``         one of these strings
a class, ``X | None``         an instance of the class; X or None
``Sequence[int]``             a tuple or list of integers ≥ 1; ``tuple[int, int]``: of two
``Floats[Tensor, shape]``     a floating-point tensor
``Indices[Tensor, shape]``    a tensor of integers, int64 or int32
``Reals[Tensor, shape]``      a tensor of integers or floating-point numbers
``Positions[Tensor, shape]``  as ``Reals``, finite, in the range that the dtype represents
``LogDecays[Tensor, shape]``  a floating-point tensor without values above 0
============================  ===============================================================

Values of tensors are checked only on the CPU, where reading them needs no synchronisation.

A shape has a word for each dimension:

- ``n`` has the same size in all arguments of a call.
- ``2`` is this number.
- ``self.dim`` is the value of an attribute of the module, ``encoder.dim`` of an attribute of an
  argument.
- ``#heads`` broadcasts: it has the size of ``heads`` in the other arguments, or 1.
- ``heads?`` expands: it is 1, or the size of ``heads`` in the earlier arguments.
- ``...`` stands for any number of leading dimensions, which broadcast with those of the other
  arguments. ``...?`` stands for leading dimensions that expand to those of the earlier arguments.
- ``...k`` stands for leading dimensions that are not compared with those of ``...``.

Tensors with a size or leading dimensions in common must be on one device.

This module exists because a model must remain one graph under :func:`torch.compile`. The checks of
jaxtyping (0.3.11) cannot be traced with ``fullgraph=True``.
"""

from __future__ import annotations

import inspect
import math
import numbers
import types
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin

import torch
from torch import Tensor

from stringlib.annotations import (
    PLAIN,
    Array,
    Count0,
    Even,
    Floats,
    Indices,
    LogDecays,
    NotNegative,
    Numbers,
    Positions,
    Positive,
    Reals,
    Scale,
    Share,
    Whole,
    at_least,
)
from stringlib.inputs import INTEGERS, common_shape, hint_for, kind_of, require_name

__all__ = ["Count0", "Even", "NotNegative", "Numbers", "Positive", "Scale", "Share", "Whole"]
__all__ += ["Floats", "Indices", "LogDecays", "Positions", "Reals"]
__all__ += ["at_least", "checked", "require"]

DEVICE = "the device"
"""Key in the sizes of a call under which the device and name of the first tensor are stored."""

F = TypeVar("F", bound=Callable[..., Any])
Sizes = dict[str, Any]
Test = Callable[[Any, Sizes], None]

# not checked; torch itself checks devices
UNTESTED = (object, Any, inspect.Parameter.empty, torch.device)


def checked(function: F) -> F:
    """Return a function or method that checks its arguments by its annotations."""
    parameters = [*inspect.signature(function).parameters.values()]
    hints = {p.name: p.annotation for p in parameters}
    names = function.__globals__
    hints |= {n: _evaluated(h, names) for n, h in hints.items() if isinstance(h, str)}
    arrays = [m for hint in hints.values() for m in _metas(hint) if isinstance(m, Array)]
    keys = [_key(word) for array in arrays for word in array.shape.split()]
    numerals = {key: int(key) for key in keys if key.isdigit()}
    attributes = {key: key.split(".") for key in keys if "." in key.strip(".")}
    # a name that occurs only once requires a dimension, but its size is not compared
    once = {key for key in keys if keys.count(key) == 1 and key not in numerals | attributes}
    tests: list[tuple[Any, str, tuple[type, ...], Test]] = []
    rest: list[tuple[int, Test]] = []  # tests of ``*arguments``
    for index, p in enumerate(parameters):
        admitted, test = _test(p.name, _parts(hints[p.name]), once)
        if test is not None and p.kind is p.VAR_POSITIONAL:
            rest.append((index, test))
        elif test is not None and p.kind is not p.VAR_KEYWORD:
            reach = math.inf if p.kind is p.KEYWORD_ONLY else index  # never given by position
            tests.append((reach, p.name, admitted, test))
    indices = {p.name: index for index, p in enumerate(parameters)}
    own = [(key, name) for key, (owner, name) in attributes.items() if owner == "self"]
    lent = [
        (key, indices[owner], owner, name)
        for key, (owner, name) in attributes.items()
        if owner != "self"
    ]

    def call(*args: Any, **named: Any) -> Any:
        sizes: Sizes = numerals.copy()
        try:
            count = len(args)
        except TypeError:  # torch.fx has rewritten this function, so that args is the module
            raise TypeError(
                "torch.fx cannot trace this function. Use torch.compile or torch.export instead."
            ) from None
        for key, attribute in own:
            sizes[key] = getattr(args[0], attribute)
        for key, index, lender, attribute in lent:
            value = args[index] if index < count else named.get(lender)
            # the check of an argument without this attribute raises an error
            sizes[key] = getattr(value, attribute, None)
        for index, name, admitted, test in tests:
            if index < count:
                value = args[index]
            elif not named:
                break
            elif name in named:
                value = named[name]
            else:
                continue
            if not isinstance(value, admitted):
                test(value, sizes)
        for index, test in rest:
            for value in args[index:]:
                test(value, sizes)
        return function(*args, **named)

    # torch.compile limits how often it compiles one code object: each function gets its own
    call.__code__ = call.__code__.replace(co_name=function.__name__)
    return cast(F, wraps(function)(call))


def require(name: str, value: object, hint: Any) -> None:
    """Check one value as :func:`checked` checks an argument with the annotation ``hint``.

    Args:
        name: Name of the argument in errors.
        value: The value.
        hint: The annotation.

    Raises:
        TypeError: If the value has a wrong type or dtype.
        ValueError: If the type of the value is accepted, but not the value itself or its shape.
    """
    admitted, test = _test(name, _parts(hint), set())
    if test is not None and not isinstance(value, admitted):
        test(value, {})


def _evaluated(annotation: str, names: dict[str, Any]) -> Any:
    """Return the value of an annotation.

    An annotation with a class that is imported only for type checkers, under ``TYPE_CHECKING``, is
    not checked.
    """
    try:
        return eval(annotation, names)
    except NameError:
        return Any


def _parts(hint: Any) -> list[Any]:
    """Return the alternatives of an annotation, with tests in place of ``int`` and ``float``."""
    parts = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    return [PLAIN.get(part, part) for part in parts]


def _metas(hint: Any) -> list[Any]:
    return [meta for part in _parts(hint) for meta in getattr(part, "__metadata__", ())]


def _key(word: str) -> str:
    return word.strip("#?")


def _name(key: str) -> str:
    """Return a size as errors show it: for an attribute, only the name of the attribute."""
    return key if key.startswith("...") else key.rpartition(".")[2]


def _test(name: str, parts: list[Any], once: set[str]) -> tuple[tuple[type, ...], Test | None]:
    """Return the classes whose instances an annotation accepts, and the test of other values.

    If there is no annotation, or if annotations of its kind are not checked, the test is None.
    """
    rows = [part for part in parts if get_origin(part) in (tuple, Sequence)]
    if rows:
        return _several(name, get_args(rows[0]), [p for p in parts if p not in rows], once)
    metas = [meta for part in parts for meta in _metas(part)]
    admitted = tuple(part for part in parts if isinstance(part, type) and part not in UNTESTED)
    others = [part for part in parts if part not in admitted]
    if not others:
        return admitted, _refuse(name, admitted)
    if len(others) > 1 or not (metas or get_origin(others[0]) is Literal):
        return (), None
    if not metas:
        return admitted, _literal(name, get_args(others[0]))
    none = " or None" if types.NoneType in parts else ""
    if isinstance(metas[0], Array):
        return admitted, _tensor(name, metas[0], once, none)
    return admitted, _number(name, others[0].__origin__, metas[0], none)


def _refuse(name: str, classes: tuple[type, ...]) -> Test:
    named = [f"a {each.__name__}" for each in classes if each is not types.NoneType]
    named += ["None"] * (types.NoneType in classes)
    words = " or ".join([", ".join(named[:-1]), named[-1]] if named[1:] else named)

    def test(x: Any, sizes: Sizes) -> None:
        raise TypeError(f"{name} must be {words}, got {kind_of(x)}")

    return test


def _several(
    name: str, row: tuple[Any, ...], others: list[Any], once: set[str]
) -> tuple[tuple[type, ...], Test | None]:
    """Return the result of :func:`_test` for an annotation that accepts a tuple or list."""
    each, each_test = _test(f"every item of {name}", _parts(row[0]), once)
    length = 0 if len(row) == 1 or row[1] is ... else len(row)
    admitted, other_test = _test(name, others, once)

    def test(x: Any, sizes: Sizes) -> None:
        if isinstance(x, (tuple, list)):
            if length and len(x) != length:
                raise ValueError(f"{name} must contain {length} numbers, got {x!r}")
            for part in x:
                if each_test is not None and not isinstance(part, each):
                    each_test(part, sizes)
        elif other_test is None or others in ([], [types.NoneType]):
            words = "a tuple, a list or None" if others else "a tuple or a list"
            raise TypeError(f"{name} must be {words}, got {kind_of(x)}")
        elif not isinstance(x, numbers.Number):
            words = "a number, or several numbers in a tuple or list"
            raise TypeError(f"{name} must be {words}, got {kind_of(x)}")
        else:
            other_test(x, sizes)

    return admitted, test


def _literal(name: str, known: tuple[str, ...]) -> Test:
    return lambda x, sizes: require_name(name, x, known)


def _number(name: str, kind: type, meta: Numbers, none: str) -> Test:
    kinds, words = (INTEGERS, "an int") if kind is int else (numbers.Real, "a number")

    def test(x: Any, sizes: Sizes) -> None:
        if isinstance(x, bool) or not isinstance(x, kinds):
            if isinstance(x, Tensor) and torch._C._is_tracing():
                return  # torch.jit.trace passes sizes as tensors
            raise TypeError(f"{name} must be {words}{none}, got {x!r}")
        if not meta.admits(x):
            raise ValueError(f"{name} must be {meta.words}, got {x}")

    return test


def _tensor(name: str, meta: Array, once: set[str], none: str) -> Test:
    words, values = meta.shape.split(), meta.values
    kind, floats, others = meta.kind, meta.floats, meta.others
    lead = words.pop(0) if meta.shape.startswith("...") else ""
    count, last = len(words), _key(words[-1]) if words else ""
    dimensions = [(i - count, _key(w)) for i, w in enumerate(words) if _key(w) not in once]
    lead_key, expands = _key(lead), lead.endswith("?")
    lead_is_compared = bool(lead) and lead_key not in once
    shares = lead_is_compared or any(key.isidentifier() for _, key in dimensions)

    def misfit(x: Tensor, sizes: Sizes, keys: list[str]) -> ValueError:
        shape = ", ".join(_name(_key(word)) for word in meta.shape.split())
        shape += "," * (not lead and count == 1)
        known = [key for key in keys if key in sizes and not key.isdigit()]
        sizes_text = ", ".join(f"{_name(key)} = {sizes[key]}" for key in known)
        sizes_text = f"({shape}) with {sizes_text}" if known else f"({shape})"
        line = x.ndim == 1 and (sizes.get(last) == 1 or last == "coord_dim")
        hint = f". Write {name}[:, None]." if line else ""
        return ValueError(f"{name} must have shape {sizes_text}, got {tuple(x.shape)}{hint}")

    def test(x: Any, sizes: Sizes) -> None:
        dtype = x.dtype if isinstance(x, Tensor) else torch.bool
        real = dtype.is_floating_point
        if (real and dtype.itemsize < 2) or (not (floats and real) and not others(dtype)):
            hint = hint_for(x) if floats else ""
            raise TypeError(f"{name} must be {kind}{none}, got {kind_of(x)}{hint}")
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
        if shares:
            device, first = sizes.setdefault(DEVICE, (x.device, name))
            if x.device != device:  # torch does not always raise if one is meta
                raise ValueError(
                    f"{name} must be on {device}, the device of {first}, got {x.device}"
                )
        if values is not None:
            values(name, x)

    return test


def _common(name: str, x: Tensor, front: tuple[int, ...], known: Any, expands: bool) -> Any:
    """Return the shape to which the leading dimensions of two arguments broadcast, or raise."""
    try:
        common = common_shape(known, front)
    except RuntimeError:
        common = None
    if common is None or (expands and common != known):
        verb = "expand to" if expands else "broadcast with"
        raise ValueError(
            f"{name} must have leading dimensions that {verb} {tuple(known)}, got leading "
            f"dimensions {tuple(front)} in shape {tuple(x.shape)}. The arguments before "
            f"{name} have the leading dimensions {tuple(known)}."
        )
    return common
