"""A number in the text of a chapter is held by a record or a cell, or it stands in a list."""

from __future__ import annotations

import json

import pytest

from tools import prose_numbers as numbers


def test_no_number_of_the_text_has_changed_unnoticed() -> None:
    listed = json.loads(numbers.RECORD.read_text(encoding="utf8"))
    for path in sorted((numbers.ROOT / "notebooks").glob("*.ipynb")):
        free, _ = numbers.read(path)
        new = [line for line in free if line not in listed[path.stem]]
        gone = [line for line in listed[path.stem] if line not in free]
        assert free == listed[path.stem], (
            f"{path.stem}: nothing holds {new} (the list has {gone}). Assert these numbers in the "
            "cells that compute them, or check them and run .venv/bin/python tools/prose_numbers.py"
        )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It is 4.4% or .05 of 1,024 tokens.", ["4.4%", ".05", "1,024"]),
        ("In [chapter 9](09_a.ipynb#x-3), lemma 4.8 and section 2.", []),
        ("As Su et al. [[2021](https://a.b/2104.09864)] wrote in 2021, it is 7.", ["7"]),
        ("A role {recorded}`0.5 <a>`, `code 3` and $$x = 5$$ (eq-a) are held; 6 is not.", ["6"]),
        ("**It takes** about 55 minutes to read, and half a minute to run.", []),
        ("```{question}\n:answer: 2 ** 5\n\nIt is 7.\n```\n8 more", ["7", "8"]),
        ("The 95% interval, a 3-D grid, float32 and `x`.", []),
        ("Between 0.2 and 0.3 in $d = 64$ channels", ["0.2", "0.3", "64"]),
    ],
)
def test_the_numbers_of_a_text(text: str, found: list[str]) -> None:
    assert [number for number, _ in numbers.numbers_in(text)] == found


def test_an_assertion_holds_a_number() -> None:
    cells = ["x = 0.5\nassert abs(x - 0.044) < 1e-9, 'at 1,024 tokens'", "%magic\ny = 3"]
    values = numbers.asserted(cells)
    assert values == {0.044, 1e-9, 1024.0}
    assert [numbers.is_held(n, values) for n in ("4.4%", "0.044", "1,024", "3", "0.5")] == [
        True, True, True, False, False,
    ]  # fmt: skip
