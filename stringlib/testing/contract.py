"""Lists of properties (contracts), and comparisons that say by how much a property fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from stringlib.testing.modes import MODES, Mode


class Property(NamedTuple):
    """One property of a contract.

    Attributes:
        words: Sentence that states the property, for error messages.
        check: Function that raises an error if the property does not hold. It is called as
            ``check(case, run)``, where ``run`` is the :class:`~stringlib.testing.modes.Mode` in
            which everything is computed.
        proves: Ids of equations of the book that the property checks in float64.
        core: Whether the property is also checked in modes that are slow to prepare. Core
            properties say that a mode gives the values and gradients of eager mode, for any size.
            If the core properties hold in a mode, and all other properties hold in eager mode, then
            all other properties are likely to hold in the mode, too.
    """

    words: str
    check: Callable[[Any, Mode], None]
    proves: tuple[str, ...]
    core: bool


class SkippedError(NotImplementedError):
    """Error that :func:`skip` raises in a property that does not apply to the case."""


class Contract:
    """Properties that parts of one kind have, in the order in which they were defined.

    The decorator ``@CONTRACT.holds("eq-relative")`` adds a function as a property. The name of the
    function is the sentence that states the property.
    """

    def __init__(self) -> None:
        self.properties: list[Property] = []

    def holds(
        self, *proves: str, core: bool = False
    ) -> Callable[[Callable[[Any, Mode], None]], Callable[..., None]]:
        """Return a decorator that adds a function to the contract as a property.

        Args:
            *proves: Ids of equations of the book that the property checks.
            core: Whether the property is also checked in modes that are slow to prepare (compiled,
                exported). Default: False.
        """

        def add(check: Callable[[Any, Mode], None]) -> Callable[..., None]:
            words = check.__name__.replace("_", " ")
            self.properties.append(Property(words, check, proves, core))
            return check

        return add

    def check(self, case: Any, what: str, modes: Sequence[Mode] | None = None) -> None:
        """Check that a part has every property in every mode.

        Args:
            case: The part to be checked, in the form that the properties of this contract expect.
            what: Name of the part, for the message.
            modes: Modes in which each property is checked. Default: all modes, but in modes that
                take seconds to prepare a function (compiled, exported) only the core properties
                are checked. If you name such a mode, all properties are checked in it.

        Raises:
            AssertionError: If a property does not hold. The message has one line for each property
                and mode that fail.
        """
        broken, count = [], 0
        for property in self.properties:
            for mode in modes or MODES:
                if modes is None and not (mode.cheap or property.core):
                    continue
                count += 1
                try:
                    property.check(case, mode)
                except SkippedError:
                    continue
                except Exception as error:
                    said = str(error).partition("\n")[0] or type(error).__name__
                    kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
                    where = "" if mode is MODES[0] else f", {mode}"
                    broken.append(f"- {property.words}{where}: {kind}{said}")
        if broken:
            head = f"{what} breaks {len(broken)} of {count} checks of its contract:"
            raise AssertionError("\n".join([head, *broken]))


def close(got: Tensor, want: Tensor, limit: float, what: str = "the result") -> None:
    """Raise an ``AssertionError`` unless two tensors are close.

    The two tensors must have the same shape and dtype, and NaN at the same entries.

    Args:
        got: The result.
        want: The expected result.
        limit: Largest absolute difference that is allowed. Equal infinities have the difference 0.
        what: Name of the result, for the message.
    """
    for attribute in ("shape", "dtype"):
        a, b = getattr(got, attribute), getattr(want, attribute)
        if a != b:
            raise AssertionError(f"{what} must have {attribute} {_plain(b)}, got {_plain(a)}")
    if not torch.equal(got.isnan(), want.isnan()):
        count = (got.isnan() != want.isnan()).sum().item()
        raise AssertionError(
            f"{what} must be NaN exactly where the expected result is NaN, got {count} entries "
            "where only one of the two is NaN"
        )
    gap = (got.detach() - want.detach()).abs().nan_to_num(posinf=torch.inf)
    same = got.detach() == want.detach()  # infinities of one sign
    small(gap.masked_fill(same, 0).max().item() if gap.numel() else 0.0, limit, what)


def each_close(got: Iterable[Tensor], want: Iterable[Tensor], limit: float, what: str) -> None:
    """Raise an ``AssertionError`` unless each tensor is close to its expected value.

    Args:
        got: The results.
        want: The expected results.
        limit: Largest absolute difference that is allowed. For each tensor it is multiplied by the
            largest absolute value of the expected result, if that value exceeds 1.
        what: Name of the results, for the message.
    """
    for a, b in zip(got, want, strict=True):
        largest = b.detach().abs().max().item() if b.numel() else 0.0
        close(a, b, limit * max(1.0, largest), what)


def small(error: float, limit: float, what: str) -> None:
    """Raise an ``AssertionError`` if an error exceeds its limit or is NaN."""
    if not error <= limit:
        raise AssertionError(f"{what} must have an error of at most {limit:.2g}, got {error:.2g}")


def derives_both_ways(function: Callable[[Tensor], Tensor], x: Tensor) -> None:
    """Raise an ``AssertionError`` unless forward and backward differentiation agree.

    Let J be the Jacobian matrix of the function. For one vector t and one vector g, the function
    compares ⟨g, J t⟩ from forward differentiation with ⟨Jᵀ g, t⟩ from backward differentiation.

    Args:
        function: Function of one tensor.
        x: Argument at which the derivatives are taken.
    """
    x = x.detach()
    tangent = torch.linspace(-1, 2, x.numel(), dtype=x.dtype).view_as(x)
    forwards: Any = torch.func.jvp(function, (x,), (tangent,))
    out, moved = forwards
    upstream = torch.linspace(2, -1, out.numel(), dtype=x.dtype).view_as(out)
    (pulled,) = torch.func.vjp(function, x)[1](upstream)
    terms = upstream * moved
    gap = (terms.sum() - (pulled * tangent).sum()).abs() / (terms.abs().sum() + 1e-300)
    small(gap.item(), 1e-10, "the forward derivative, compared with the backward derivative,")


def true(holds: object, what: str) -> None:
    """Raise an ``AssertionError`` with the message ``what``, unless ``holds`` is true."""
    if not holds:
        raise AssertionError(what)


def refused(
    call: Callable[..., Any],
    *arguments: Any,
    error: type[Exception] = ValueError,
    words: str = "",
) -> None:
    """Raise an ``AssertionError`` unless a call raises the expected error.

    Any error but a ``ValueError`` or a ``TypeError`` is raised again.

    Args:
        call: Function that has to reject its arguments.
        *arguments: Arguments of the call.
        error: Type of the expected error. Default: ``ValueError``.
        words: Text that the message of the error has to contain, such as the name of the argument.
    """
    try:
        call(*arguments)
    except (ValueError, TypeError) as raised:
        true(
            isinstance(raised, error) and words in str(raised),
            f"bad input must raise {error.__name__} with {words!r} in its message, got {raised!r}",
        )
    else:
        raise AssertionError(
            f"bad input must raise {error.__name__} with {words!r} in its message, got no error"
        )


def skip() -> None:
    """Skip a property that does not apply to the case being checked.

    Raises:
        SkippedError: Always.
    """
    raise SkippedError("property skipped: it does not apply to this case")


def _plain(value: object) -> object:
    return tuple(value) if isinstance(value, torch.Size) else value
