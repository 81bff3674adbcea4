"""What a wrong argument has to raise, said in one word of a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def refused(match: str) -> Any:
    """Expect a ValueError with such a message; a TypeError if it begins with ``TypeError: ``."""
    if match.startswith("TypeError: "):
        return pytest.raises(TypeError, match=match.removeprefix("TypeError: "))
    return pytest.raises(ValueError, match=match)


def refusals(*rows: tuple[Callable[[], object], str]) -> Any:
    """Return a test of calls that are refused, each with a message as for :func:`refused`."""

    @pytest.mark.parametrize(("call", "match"), rows)
    def test(call: Callable[[], object], match: str) -> None:
        with refused(match):
            call()

    return test
