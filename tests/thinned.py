"""Contract × cases × modes of execution, thinned where a function has to be traced first."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable

import pytest

from stringlib.testing.contract import Contract, Property
from stringlib.testing.modes import MODES, Mode

SHARE = 60
"""One in so many properties of a case is run compiled, another one exported."""


def products(
    contract: Contract,
    cases: Iterable[str],
    traced: Collection[str] | None = None,
    exported: Collection[str] | None = None,
    share: int = SHARE,
) -> list[object]:
    """Return what to parametrize a test of ``(name, property, mode)`` with.

    Every case has every property in every mode that costs nothing. Where a function has to be
    traced, which takes a second, a case has those properties from which the others follow, and of
    the others a share that its name decides.

    Args:
        contract: The properties.
        cases: Names of cases.
        traced: Those that have their core traced; all if omitted.
        exported: Those of them that are exported, not only compiled; all if omitted.
        share: As :data:`SHARE`.
    """
    found = []
    for name in cases:
        for property in contract.properties:
            drawn = zlib.crc32(f"{name} {property.words}".encode()) % share
            core = property.core and (traced is None or name in traced)
            for number, mode in enumerate(MODES):
                apart = mode.name == "exported" and exported is not None and name not in exported
                if mode.cheap or (core and not apart) or drawn == number:
                    label = f"{name}-{property.words.replace(' ', '_')}-{mode}"
                    found.append(pytest.param(name, property, mode, id=label))
    return found


def hold(property: Property, case: object, mode: Mode) -> None:
    """Check a property of a case in a mode; skip the test where it does not apply."""
    try:
        property.check(case, mode)
    except NotImplementedError:
        pytest.skip("it does not apply")
