"""Which cases run.

Of a contract every pair of property, case and mode is tested, not every three: :func:`products`.
The quick tier (``pytest --quick``, part of ``make test``) runs :data:`CASES` cases of each test
and leaves out the files in :data:`LONG`. ``make test-all`` runs everything.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence

import pytest
import torch._dynamo.config

from stringlib.testing.contract import Contract, Property
from stringlib.testing.modes import MODES, Mode

EVERY = 4
"""Of so many properties of a case one is run blind and another one batched."""

TRACED = 3
"""One of so many properties beside the core is compiled or exported, with one case."""

CASES = 8
"""So many cases of a test run in the quick tier, spread evenly over all."""

LONG: dict[str, str] = {}
"""Files that the quick tier leaves out: why each can wait."""


def quick(items: Sequence[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Split the cases of all tests into those of the quick tier and the rest.

    A property of a contract counts as a test of its own, and so does each choice of modes for it.
    Which cases run depends on the name of the test alone: it stays the same from run to run.
    """
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.path.name in LONG:
            continue
        name, call = item.nodeid.partition("[")[0], getattr(item, "callspec", None)
        if call is not None and "property" in call.params:
            modes = ",".join(mode.name for mode in call.params["modes"])
            name += f" {call.params['property'].words} {modes}"
        groups.setdefault(name, []).append(item)
    kept = set()
    for name, group in groups.items():
        count = min(CASES, len(group))
        first = zlib.crc32(name.encode()) % -(-len(group) // count)
        kept |= {group[(first + i * len(group) // count) % len(group)] for i in range(count)}
    return [i for i in items if i in kept], [i for i in items if i not in kept]


def products(contract: Contract, cases: Iterable[str], traced: Sequence[str] = ()) -> list[object]:
    """Return what to parametrize a test of ``(name, property, modes)`` with.

    Every case has every property at once, and those from which the others follow in every mode
    that costs nothing. The others meet each mode with some cases, and each case meets each mode
    with some of them. A function that has to be traced takes seconds: some cases stand for all.

    Args:
        contract: The properties.
        cases: Names of cases.
        traced: Those that have their core compiled, and every second exported.
    """
    names = list(cases)
    assert set(traced) <= set(names), "a case that is to be traced must be one"
    found = []
    for i, name in enumerate(names):
        for j, property in enumerate(contract.properties):
            core, own = property.core, i == j % len(names) and j % TRACED == 0
            runs = {
                "eager": True,
                "blind": core or (i + j) % EVERY == 0,
                "batched": core or (i + j) % EVERY == EVERY // 2,
                "compiled": name in traced if core else own and j % 2 == 0,
                "exported": name in traced[::2] if core else own and j % 2 == 1,
            }
            label = f"{name}-{property.words.replace(' ', '_')}"
            modes = [mode for mode in MODES if runs[mode.name]]
            found.append(pytest.param(name, property, modes, id=label))
    return found


# what a traced operation does to sizes that are letters is found sooner than it is remembered
@torch._dynamo.config.patch(fake_tensor_cache_enabled=False)
def hold(property: Property, case: object, modes: Iterable[Mode]) -> None:
    """Check a property of a case in some modes; skip the test where it applies in none."""
    applies = False
    for mode in modes:
        try:
            property.check(case, mode)
            applies = True
        except NotImplementedError:
            continue
        except Exception as error:
            error.add_note(f"in the mode {mode}")
            raise
    if not applies:
        pytest.skip("it does not apply")
