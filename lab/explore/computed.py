"""Numbers of a figure that the page computes, and the programs that compute them.

A figure with an amount (a control that moves smoothly) has its mathematics in a function of tensors
with the decorator :func:`computed`. The rest of its code only plots and prints the numbers that
this function returns. The figure is drawn once with a :class:`Slot` for each of these numbers. The
slots show where each number occurs in the figure. The function itself is exported
(:mod:`lab.program`), and ``book/_assets/book-states.js`` runs it.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from lab.program import Traced, traced

__all__ = ["Programs", "Slot", "amounts", "computed", "filled", "pick", "share_filled"]

MARK = re.compile("⟦([^⟧]*)⟧")
"""A mark of a number in a text, with the output, the index of the number, and its format."""


class Programs:
    """The exported programs of a figure, and the values that they return for one state."""

    def __init__(self) -> None:
        self.made: dict[str, Traced] = {}
        self.values: dict[str, list[float]] = {}
        self._known: dict[str, str] = {}

    def amount(self, name: str, value: float) -> Slot:
        """Return a parameter in the form in which ``draw`` receives it."""
        self.values[name] = [value]
        return Slot(value, name, 0, self)

    def run(
        self, function: Callable[..., dict[str, Tensor]], given: dict[str, Any]
    ) -> dict[str, Any]:
        """Export a function of tensors, and return its outputs as slots."""
        slots = {n: v if isinstance(v, list) else [v] for n, v in given.items() if _slotted(v)}
        amounts = {n: v[0].of if v is not given[n] else [x.of for x in v] for n, v in slots.items()}
        fixed = {n: v for n, v in given.items() if n not in amounts}
        key = repr((function.__qualname__, amounts, fixed))
        inputs = {
            slot.of: torch.tensor(slot, dtype=torch.float64)
            for some in slots.values()
            for slot in some
        }
        module = _Module(function, fixed, amounts)
        if key not in self._known:
            self._known[key] = str(len(self.made))
            self.made[self._known[key]] = traced(module, **inputs)
        found = {}
        with torch.no_grad():
            for name, value in module(**inputs).items():
                of = f"{self._known[key]}.{name}"
                self.values[of] = value.flatten().tolist()
                found[name] = self._slots(of, [*value.shape], 0)
        return found

    def _slots(self, of: str, shape: list[int], at: int) -> Any:
        if not shape:
            return Slot(self.values[of][at], of, at, self)
        step = 1
        for size in shape[1:]:
            step *= size
        return [self._slots(of, shape[1:], at + i * step) for i in range(shape[0])]

    def written(self, text: str) -> str:
        """Return a text in which marks are replaced by numbers."""

        def number(match: re.Match[str]) -> str:
            of, at, spec = match[1].split("|", 2)
            value = self.values[of][int(at)]
            if spec[:1] == "?":
                return spec[1:].split("|")[int(value)]
            return format(int(value) if not spec and value == int(value) else value, spec)

        return MARK.sub(number, text)


class _Module(nn.Module):
    """A function of tensors as a module of the figure's parameters."""

    def __init__(self, function: Any, fixed: dict[str, Any], amounts: dict[str, Any]) -> None:
        super().__init__()
        self.function, self.fixed, self.amounts = function, fixed, amounts

    def forward(self, **given: Tensor) -> dict[str, Tensor]:
        fixed = {n: _tensor(self.function, n, v) for n, v in self.fixed.items()}
        moved = {
            n: given[of] if isinstance(of, str) else torch.stack([given[name] for name in of])
            for n, of in self.amounts.items()
        }
        out: dict[str, Tensor] = self.function(**fixed, **moved)
        return out


def _slotted(value: Any) -> bool:
    """Return whether an argument is an amount, or a list of amounts alone."""
    one = value[0] if isinstance(value, list) and value else value
    return isinstance(one, Slot)


def _tensor(function: Callable[..., Any], name: str, value: Any) -> Any:
    """Return an argument as a tensor where the function wants one."""
    wants = inspect.signature(function).parameters[name].annotation in ("Tensor", Tensor)
    return torch.tensor(value, dtype=torch.float64) if wants else value


def computed(function: Callable[..., dict[str, Tensor]]) -> Callable[..., dict[str, Any]]:
    """Mark a function of tensors that the page computes. It must work with ``torch.export``.

    Arguments that are annotated as ``Tensor`` are passed as numbers or lists of numbers, and are
    converted to float64 tensors. All other arguments are constants of a program, and may determine
    shapes.

    Returns:
        The function, which returns lists of numbers in place of tensors.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> dict[str, Any]:
        bound = inspect.signature(function).bind(*args, **kwargs)
        bound.apply_defaults()
        for value in bound.arguments.values():
            if _slotted(value):
                home = (value[0] if isinstance(value, list) else value).home
                return home.run(function, bound.arguments)
        plain = {n: _tensor(function, n, v) for n, v in bound.arguments.items()}
        with torch.no_grad():
            return {name: _gapped(value.tolist()) for name, value in function(**plain).items()}

    return call


def _gapped(value: Any) -> Any:
    """Return numbers with None for what is none: a gap."""
    if isinstance(value, list):
        return [_gapped(v) for v in value]
    return None if value != value else value


class Slot(float):
    """A number that the page computes, with its value in one state.

    A slot can be plotted and printed. Calculations with a slot raise an error, because they belong
    into the computed function.
    """

    def __new__(cls, value: float, of: str, at: int, home: Programs) -> Slot:
        """Return a slot."""
        made = super().__new__(cls, value)
        made.of, made.at, made.home = of, at, home
        return made

    of: str
    at: int
    home: Programs

    def __format__(self, spec: str) -> str:
        """Return a mark that the page replaces by the number."""
        return f"⟦{self.of}|{self.at}|{spec}⟧"

    def __round__(self, digits: Any = None) -> Slot:  # type: ignore[override]
        """Return the slot itself, because a number that is not stored need not be short."""
        return self

    def __deepcopy__(self, memo: Any) -> Slot:
        """Return the slot itself, like any number."""
        return self

    def _refuse(self, *_: Any) -> NoReturn:
        raise TypeError(
            f"{self.of} must not be used in a calculation, because the page computes its value. "
            "Move the calculation into the function marked with @computed."
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _refuse
    __pow__ = __rpow__ = __neg__ = __abs__ = __int__ = __trunc__ = _refuse
    __str__ = _refuse


def amounts(low: float, high: float, step: float) -> list[float]:
    """Return the values of a slider that moves smoothly, with both ends included."""
    return [round(low + i * step, 6) for i in range(round((high - low) / step) + 1)]


def pick(number: float, *words: str) -> str:
    """Return the word with this index, counted from 0."""
    if isinstance(number, Slot):
        return format(number, "?" + "|".join(words))
    return words[int(number)]


def filled(figure: Mapping[str, Any], programs: Programs) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a figure with numbers in place of slots, and for each path what the page fills in.

    A path is for example ``"data/0/y"``. What the page fills in there is a text with marks,
    ``{"of": [name, at, *shape]}`` for the numbers of an output from the index ``at`` on, or
    ``{"each": [...]}`` for a list of these and of constants.
    """
    fill: dict[str, Any] = {}

    def walk(value: Any, path: str) -> Any:
        if isinstance(value, dict):
            return {k: walk(v, f"{path}/{k}" if path else k) for k, v in value.items()}
        if isinstance(value, (list, tuple)) and any(isinstance(v, dict) for v in value):
            return [walk(v, f"{path}/{i}") for i, v in enumerate(value)]
        what = _source(value)
        if what is None:
            return value
        fill[path] = what
        return _plain(value, programs)

    return walk(dict(figure), ""), fill


def share_filled(whole: Mapping[str, Any], state: dict[str, Any]) -> None:
    """Replace what the page computes by the default state, so that no state stores it."""
    places = whole["layout"]["meta"].get("fill", {})
    for place in state["layout"]["meta"].get("fill", {}).keys() & places.keys():
        *path, last = [int(k) if k.isdecimal() else k for k in place.split("/")]
        there: Any = state
        here: Any = whole
        for key in path:
            there, here = there[key], here[key]
        there[last] = here[last]


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for v in value:
            yield from _leaves(v)
    else:
        yield value


def _shape(value: Any) -> list[int]:
    return [len(value), *_shape(value[0])] if isinstance(value, (list, tuple)) else []


def _source(value: Any) -> Any:
    """Return what the page fills in for a value; None if it stays."""
    if isinstance(value, str):
        return value if MARK.search(value) else None
    leaves = [*_leaves(value)]
    slots = [v for v in leaves if isinstance(v, Slot)]
    if not slots:
        return _each(value) if any(_source(v) for v in leaves if isinstance(v, str)) else None
    first = slots[0]
    in_order = len(slots) == len(leaves) and all(
        v.of == first.of and v.at == first.at + i for i, v in enumerate(slots)
    )
    return {"of": [first.of, first.at, *_shape(value)]} if in_order else _each(value)


def _each(value: Any) -> dict[str, Any]:
    return {"each": [v if (source := _source(v)) is None else source for v in value]}


def _plain(value: Any, programs: Programs) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(v, programs) for v in value]
    if isinstance(value, str):
        return programs.written(value)
    return programs.values[value.of][value.at] if isinstance(value, Slot) else value
