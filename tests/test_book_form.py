"""What the line above a folded cell says of its code."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from _ext.book_form import FoldCode

PAGE = cast(Any, SimpleNamespace(number=lambda label: (2, 7)))
PROOF = """# proves by algebra: eq-a
%matplotlib inline
assert 1 == 1
proves("eq-a", 2, 1 + 1, wrong=3)"""


@pytest.mark.parametrize(
    ("source", "title", "note"),
    [
        ("# A title\nx = 1", "A title", "2 lines"),
        ("x = 1", "Code", "1 line"),
        ("# T\nassert x\n", "T", "2 lines, 1 check passed"),
        (PROOF, "Proof of (2.7)", "4 lines, 2 checks passed"),
    ],
)
def test_it_has_the_title_the_length_and_the_checks(source: str, title: str, note: str) -> None:
    assert FoldCode.describe(PAGE, source) == (title, note)
