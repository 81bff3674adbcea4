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


def test_eight_cases_of_a_test_are_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thinned, "LONG", {"test_b.py": "it can wait"})
    many = [Item(f"tests/test_a.py::test_many[{n}]") for n in range(50)]
    few = [Item(f"tests/test_a.py::test_few[{n}]") for n in range(8)]
    long = [Item("tests/test_b.py::test_one")]
    kept, left = thinned.quick([*many, *few, *long])
    assert kept[8:] == few
    places = [many.index(item) for item in kept[:8]]
    assert all(5 <= after - before <= 8 for before, after in itertools.pairwise(places))
    assert {*kept, *left} == {*many, *few, *long}
    assert thinned.quick([*many, *few, *long]) == (kept, left)


def test_what_is_long_is_there() -> None:
    for name in thinned.LONG:
        file, _, test = name.partition("::")
        assert f"def {test}" in (Path(__file__).parent / file).read_text(encoding="utf8"), name
