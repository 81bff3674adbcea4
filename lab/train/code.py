"""What code a run is: a digest of each function and class that it may call, and their constants."""

from __future__ import annotations

import dis
import functools
import hashlib
import inspect
import os
import sys
import sysconfig
import zlib
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import nn

Parts = Iterator[tuple[str, Any]]

PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), range, Enum)
COLLECTIONS = (list, tuple, set, frozenset)
WRAPPERS = {
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    MethodType: ("__func__", "__self__"),
    functools.partial: ("func", "args", "keywords"),
    property: ("fget", "fset"),
    functools.cached_property: ("func",),
    type(functools.cache(len)): ("__wrapped__",),
}
"""What wraps functions → the attributes in which they are."""
CHANGES_NOTHING = ("explore", "files", "records", "train")
"""Parts of the laboratory that keep, show and report; all of ``train`` but what computes."""
COMPUTES = ("loop", "fitting", "learn", "evaluate", "optimizer", "settings")
INNER = vars(nn.Module()).keys() - {"_modules"}
UNSEEN = {"__doc__", "__firstlineno__", "__static_attributes__", "__module__", "__qualname__"}


def code_of(*left_out: Any, **things: Any) -> dict[str, str]:
    """Return what some models, tasks and functions do, as far as Python's own code says it.

    Followed are methods, base classes, attributes of objects, and whatever a function names: other
    functions, classes and constants, in its own module or another. It is what the interpreter runs,
    so it makes no difference whether a class stands in a file, in a notebook or was changed since;
    docstrings, comments and annotations are not in it. It ends at installed packages, whose
    versions a record tells, and does not follow an ``import`` inside a function.

    Args:
        *left_out: What not to look into.
        **things: What to look into, each by a name for it.

    Returns:
        Name → digest of a function, or a value in words.
    """
    found: dict[str, str] = {}
    seen: dict[int, Any] = {}  # keeps alive what it knows by number
    todo = list(things.items())
    while todo:
        name, thing = todo.pop()
        if any(thing is one for one in left_out):
            continue
        told, parts = _look(name, thing)
        if found.get(name, told) != told:  # of two modules with one name
            told = _digest(found[name] + told)
        found[name] = told
        if id(thing) not in seen:
            seen[id(thing)] = thing
            todo += parts
    return dict(sorted(found.items()))


def digest(code: Mapping[str, str]) -> str:
    """Return one digest of what :func:`code_of` gives, behind the Python whose code it is."""
    return "{}.{} {}".format(*sys.version_info[:2], _digest(f"{sorted(code.items())}"))


def is_same(told: str | None, now: str) -> bool | None:
    """Return whether a record is of the code of now.

    Args:
        told: The record's :func:`digest`; None of a record without.
        now: That of the same study now.

    Returns:
        None if the record does not tell, or tells what another Python made of its code.
    """
    if told is None or told.split()[0] != now.split()[0]:
        return None
    return told == now


def brief(value: Any) -> str:
    """Return a value in words; of data their shape and a checksum."""
    if isinstance(value, tuple):
        return f"({', '.join(brief(part) for part in value)})"
    if not isinstance(value, torch.Tensor):
        return repr(value)
    if value.is_meta or value.layout != torch.strided:
        return f"data of shape {tuple(value.shape)}"
    values = value.detach().cpu().flatten().contiguous().view(torch.uint8).numpy().data
    return f"data of shape {tuple(value.shape)} with checksum {zlib.crc32(values):08x}"


def _look(name: str, thing: Any) -> tuple[str, Parts]:
    """Return one thing in words, and what else has to be looked into, each by a name."""
    if _is_plain(thing):
        text = _text(thing)
        return text if len(text) < 80 else f"{type(thing).__name__} {_digest(text)}", iter(())
    if isinstance(thing, torch.Tensor):
        return brief(thing), iter(())
    if type(thing).__name__ == "ndarray":
        return f"data with checksum {zlib.crc32(thing.tobytes()):08x}", iter(())
    if isinstance(thing, FunctionType):
        said = _said(thing.__code__) if _is_own(thing) else _digest("")
        return f"{_name(thing)}, code {said}", _function(thing)
    if isinstance(thing, type):
        return _name(thing), _class(thing)
    if isinstance(thing, (*COLLECTIONS, dict)):  # one entry, however many things are in it
        return f"{type(thing).__name__} of {len(thing)}", _inside(name, thing)
    if type(thing) in WRAPPERS:
        inside = WRAPPERS[type(thing)]
        return f"a {type(thing).__name__}", ((f"{name}.{x}", getattr(thing, x)) for x in inside)
    return f"a {_name(type(thing))}", _object(name, thing)


def _inside(name: str, thing: Any) -> Parts:
    """Yield what is in a collection, sets in an order that does not change with the process."""
    if isinstance(thing, dict):
        thing = [x for pair in thing.items() for x in pair]
    elif isinstance(thing, set | frozenset):
        thing = sorted(thing, key=lambda x: _look(name, x)[0])
    yield from ((f"what is in {name}", x) for x in thing)


def _is_plain(thing: Any) -> bool:
    """Return whether something is numbers and words, alone or together."""
    if isinstance(thing, dict):
        return all(_is_plain(part) for pair in thing.items() for part in pair)
    return isinstance(thing, PLAIN) or (
        isinstance(thing, COLLECTIONS) and all(map(_is_plain, thing))
    )


def _text(thing: Any) -> str:
    """Return plain things in words, sets in an order that does not change with the process."""
    if isinstance(thing, dict):
        return f"{{{', '.join(f'{_text(k)}: {_text(v)}' for k, v in thing.items())}}}"
    if isinstance(thing, set | frozenset):
        return f"{{{', '.join(sorted(map(_text, thing)))}}}"
    if isinstance(thing, list | tuple):
        return f"{type(thing).__name__}({', '.join(map(_text, thing))})"
    return repr(thing)


def _class(thing: type) -> Parts:
    """Yield the bases of a class, its methods and what else stands in it."""
    if _is_own(thing):
        yield from ((_name(base), base) for base in thing.__mro__[1:] if _is_own(base))
        for key, value in vars(thing).items():
            method = isinstance(value, FunctionType | staticmethod | classmethod)
            if method or not key.startswith("__"):
                yield f"{_name(thing)}.{key}", value


def _object(name: str, thing: Any) -> Parts:
    """Yield class and attributes of an object; numbers of its own concern are state, not code."""
    if _is_own(type(thing)) or isinstance(thing, nn.Module):
        yield _name(type(thing)), type(thing)
        for key, value in getattr(thing, "__dict__", {}).items():
            private = key.startswith("_") and isinstance(value, (*PLAIN, torch.Tensor))
            if not private and not (isinstance(thing, nn.Module) and key in INNER):
                yield f"{name}.{key}", value


def _function(function: FunctionType) -> Parts:
    """Yield what a function wraps, closes over, has for defaults, and names."""
    if hasattr(function, "__wrapped__"):
        yield _name(function), function.__wrapped__
    if not _is_own(function):
        return
    name, code, space = _name(function), function.__code__, function.__globals__
    for one in inspect.signature(function, follow_wrapped=False).parameters.values():
        if one.default is not one.empty:
            yield f"{name}({one.name})", one.default
    for key, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        if cell != CellType():  # something is in it
            yield f"{name}, its {key}", cell.cell_contents
    names = dict.fromkeys(_names(code))
    for key in names:
        if key in space and not key.startswith("__"):
            yield from _named(f"{_stem(space['__name__'])}.{key}", space[key], names, 0)


def _named(name: str, thing: Any, names: Mapping[str, None], depth: int) -> Parts:
    """Yield a global thing; of a module what the function may mean by ``module.name``."""
    if not isinstance(thing, ModuleType):
        yield name, thing
    elif _is_own_module(thing.__name__) and depth < 4:  # a package, and what is in it
        for key in names:
            if key in vars(thing):
                told = f"{_stem(thing.__name__)}.{key}"
                yield from _named(told, vars(thing)[key], names, depth + 1)


def _names(code: CodeType) -> Iterator[str]:
    """Yield every name that code may look up outside of itself, that of inner functions too."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


@functools.cache  # many runs share most of their functions
def _said(code: CodeType) -> str:
    """Return a digest of what code says."""
    return _digest("\n".join(_lines(code)))


def _lines(code: CodeType) -> list[str]:
    """Return the instructions of code, in words that say nothing of lines and docstrings."""
    lines = []
    steps = list(dis.get_instructions(code))
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        value = step.argval
        if following is not None and following.argval in UNSEEN:
            continue  # a class inside: its docstring, its line
        if isinstance(value, CodeType):
            lines += [step.opname, *_lines(value)]
        else:
            lines.append(f"{step.opname} {_text(value)}")
    return lines


def _is_own(thing: Any) -> bool:
    """Return whether a function or class is the reader's or this package's."""
    space = getattr(thing, "__globals__", {"__name__": getattr(thing, "__module__", "")})
    return _is_own_module(str(space.get("__name__")))


def _is_own_module(module: str) -> bool:
    package, _, rest = module.partition(".")
    if package == "stringlib":
        return True
    if package == "lab":
        part = rest.split(".")
        return part[0] not in CHANGES_NOTHING or part[-1] in COMPUTES
    if package in sys.stdlib_module_names and package != "__main__":
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is None or not _is_installed(file)


@functools.cache
def _is_installed(file: str) -> bool:
    path = Path(os.path.realpath(file))
    library = os.path.realpath(sysconfig.get_path("stdlib"))
    return bool({"site-packages", "dist-packages"} & {*path.parts}) or path.is_relative_to(library)


def _name(thing: Any) -> str:
    """Return the name of a function or class; a script has one name, imported or run."""
    return f"{_stem(thing.__module__ or '')}.{thing.__qualname__}"


def _stem(module: str) -> str:
    if module in ("__main__", "__mp_main__"):
        return Path(getattr(sys.modules[module], "__file__", None) or "notebook").stem
    return module.rpartition(".")[2]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
