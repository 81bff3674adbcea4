"""The quick tier has some cases of every test, the same each time, and no file of the long one."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from stringlib.testing.modes import Compiled, Mode
from tests import thinned


@dataclass(eq=False)
class Call:
    """The parameters of a case."""

    params: dict[str, object]


class Item(NamedTuple):
    """What is asked of a case."""

    nodeid: str
    callspec: Call | None = None

    @property
    def path(self) -> Path:
        """Where it is written."""
        return Path(self.nodeid.partition("::")[0])


def test_eight_cases_of_a_slow_test_are_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        thinned, "LONG", {"test_b.py": "it can wait", "test_a.py::test_last": "too"}
    )
    monkeypatch.setattr(thinned, "FEW", {"test_a.py": ("test_slow",)})
    many = [Item(f"tests/test_a.py::test_slow[{n}]") for n in range(50)]
    few = [Item(f"tests/test_a.py::test_table[{n}]") for n in range(20)]
    long = [Item("tests/test_b.py::test_one"), Item("tests/test_a.py::test_last")]
    kept, left = thinned.quick([*many, *few, *long])
    assert kept[8:] == few
    places = [many.index(item) for item in kept[:8]]
    assert all(5 <= after - before <= 8 for before, after in itertools.pairwise(places))
    assert {*kept, *left} == {*many, *few, *long}
    assert thinned.quick([*many, *few, *long]) == (kept, left)


def test_of_a_contract_the_core_is_traced_with_few_cases() -> None:
    def cases(words: str, core: bool, mode: Mode) -> list[Item]:
        params = {"property": SimpleNamespace(words=words, core=core), "modes": [Mode(), mode]}
        call = Call(params)
        return [Item(f"tests/test_a.py::test_contract[{words}-{mode}-{n}]", call) for n in range(9)]

    core, beside = cases("core", True, Compiled()), cases("beside", False, Compiled())
    plain = cases("core", True, Mode())
    kept, _ = thinned.quick([*core, *beside, *plain])
    assert [sum(item in group for item in kept) for group in (core, beside, plain)] == [2, 0, 5]


def test_what_is_named_is_there() -> None:
    named = [name.partition("::")[::2] for name in thinned.LONG]
    named += [(file, test) for file, tests in thinned.FEW.items() for test in tests]
    for file, test in named:
        (path,) = Path(__file__).parent.rglob(file)
        text = path.read_text(encoding="utf8")
        assert f"def {test}" in text, f"{file}::{test} is in tests/thinned.py, but not there"
