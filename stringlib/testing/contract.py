"""A contract: properties that say in an ``AssertionError`` what fails, and by how much."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from stringlib.testing.modes import MODES, Mode


class Property(NamedTuple):
    """One property of a contract.

    Attributes:
        words: What holds, a sentence.
        check: ``check(case, run)`` raises if it does not: ``run`` is the
            :class:`~stringlib.testing.modes.Mode` in which everything is computed.
        proves: Ids of the book's equations that it proves in float64.
        core: Whether it says that a mode gives what eager mode gives, for any size and with
            gradients: from which the others follow, where they are too dear to be run.
    """

    words: str
    check: Callable[[Any, Mode], None]
    proves: tuple[str, ...]
    core: bool


class Contract:
    """Properties in the order in which they were written.

    Used as a decorator, ``@CONTRACT.holds("eq-relative")``, it takes the name of the function as
    the sentence.
    """

    def __init__(self) -> None:
        self.properties: list[Property] = []

    def holds(
        self, *proves: str, core: bool = False
    ) -> Callable[[Callable[[Any, Mode], None]], Callable[..., None]]:
        """Return a decorator that adds a property.

        Args:
            *proves: Ids of equations of the book.
            core: As in :class:`Property`.
        """

        def add(check: Callable[[Any, Mode], None]) -> Callable[..., None]:
            words = check.__name__.replace("_", " ")
            self.properties.append(Property(words, check, proves, core))
            return check

        return add

    def check(self, case: Any, what: str, modes: Sequence[Mode] | None = None) -> None:
        """Check every property in every mode.

        Args:
            case: What the properties are of.
            what: Its name, for the message.
            modes: The modes; if omitted all, but of those that take seconds to prepare a function
                only with the properties at the core.

        Raises:
            AssertionError: If one does not hold: each that fails in a line of its own.
        """
        broken, count = [], 0
        for property in self.properties:
            for mode in modes or MODES:
                if modes is None and not (mode.cheap or property.core):
                    continue
                count += 1
                try:
                    property.check(case, mode)
                except NotImplementedError:
                    continue  # it does not apply
                except Exception as error:
                    said = str(error).partition("\n")[0] or type(error).__name__
                    kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
                    where = "" if mode is MODES[0] else f", {mode}"
                    broken.append(f"- {property.words}{where}: {kind}{said}")
        if broken:
            head = f"{what} breaks {len(broken)} of {count} checks of its contract:"
            raise AssertionError("\n".join([head, *broken]))


def close(got: Tensor, want: Tensor, limit: float, what: str = "the result") -> None:
    """Raise unless two tensors are close, of one shape and dtype, with NaN at the same places."""
    for attribute in ("shape", "dtype"):
        a, b = getattr(got, attribute), getattr(want, attribute)
        if a != b:
            raise AssertionError(f"{what} must have {attribute} {_plain(b)}, got {_plain(a)}")
    if not torch.equal(got.isnan(), want.isnan()):
        raise AssertionError(f"{what} is NaN at other places than it must be")
    gap = (got.detach() - want.detach()).abs().nan_to_num(posinf=torch.inf)
    same = got.detach() == want.detach()  # infinities of one sign
    small(gap.masked_fill(same, 0).max().item() if gap.numel() else 0.0, limit, what)


def each_close(got: Iterable[Tensor], want: Iterable[Tensor], limit: float, what: str) -> None:
    """Raise unless each tensor is close to its own; the limit grows with numbers above 1."""
    for a, b in zip(got, want, strict=True):
        largest = b.detach().abs().max().item() if b.numel() else 0.0
        close(a, b, limit * max(1.0, largest), what)


def small(error: float, limit: float, what: str) -> None:
    """Raise unless an error is at most its limit; NaN is not."""
    if not error <= limit:
        raise AssertionError(f"{what} is off by {error:.1e}, at most {limit:.0e} is allowed")


def derives_both_ways(function: Callable[[Tensor], Tensor], x: Tensor) -> None:
    """Raise unless the derivative forwards is that backwards: ⟨g, J t⟩ is ⟨Jᵀ g, t⟩."""
    x = x.detach()
    tangent = torch.linspace(-1, 2, x.numel(), dtype=x.dtype).view_as(x)
    forwards: Any = torch.func.jvp(function, (x,), (tangent,))
    out, moved = forwards
    upstream = torch.linspace(2, -1, out.numel(), dtype=x.dtype).view_as(out)
    (pulled,) = torch.func.vjp(function, x)[1](upstream)
    terms = upstream * moved
    gap = (terms.sum() - (pulled * tangent).sum()).abs() / (terms.abs().sum() + 1e-300)
    small(gap.item(), 1e-10, "a derivative forwards, beside the one backwards,")


def true(holds: object, what: str) -> None:
    """Raise unless something holds."""
    if not holds:
        raise AssertionError(what)


def refused(
    call: Callable[..., Any],
    *arguments: Any,
    error: type[Exception] = ValueError,
    words: str = "",
) -> None:
    """Raise unless a call raises a named error.

    Args:
        call: What has to refuse.
        *arguments: What it is given.
        error: What it has to raise.
        words: What has to stand in the message, such as the name of the argument.
    """
    try:
        call(*arguments)
    except (ValueError, TypeError) as raised:
        true(
            isinstance(raised, error) and words in str(raised),
            f"bad input must raise {error.__name__} with {words!r}, got {raised!r}",
        )
    else:
        raise AssertionError(f"bad input must raise {error.__name__} with {words!r}, got no error")


def skip() -> None:
    """Say that a property does not apply to this case.

    Raises:
        NotImplementedError: Always.
    """
    raise NotImplementedError("it does not apply")


def _plain(value: object) -> object:
    return tuple(value) if isinstance(value, torch.Size) else value
