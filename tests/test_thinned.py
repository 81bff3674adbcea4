"""The quick tier has some cases of every test, the same each time, and no file of the long one."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import thinned


class Item(NamedTuple):
    """What is asked of a case."""

    nodeid: str

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


def test_what_is_named_is_there() -> None:
    named = [name.partition("::")[::2] for name in thinned.LONG]
    named += [(file, test) for file, tests in thinned.FEW.items() for test in tests]
    for file, test in named:
        (path,) = Path(__file__).parent.rglob(file)
        text = path.read_text(encoding="utf8")
        assert f"def {test}" in text, f"{file}::{test} is in tests/thinned.py, but not there"
