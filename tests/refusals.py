"""What a wrong argument has to raise, said in one word of a table."""

from __future__ import annotations

from typing import Any

import pytest


def refused(match: str) -> Any:
    """Expect a ValueError with such a message; a TypeError if it begins with ``TypeError: ``."""
    if match.startswith("TypeError: "):
        return pytest.raises(TypeError, match=match.removeprefix("TypeError: "))
    return pytest.raises(ValueError, match=match)
