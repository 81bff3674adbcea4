"""The list of planted faults: each can be planted where it says, and the record names no other."""

from __future__ import annotations

import ast
import json
import re

import pytest

from tools.faults import RECORD, ROOT, TIERS, Record, faults

FAULTS = {fault.id: fault for fault in faults()}


def test_every_fault_can_be_planted_and_leaves_a_file_of_its_kind() -> None:
    assert len(FAULTS) == len(faults())
    for fault in FAULTS.values():
        planted = fault.planted((ROOT / fault.file).read_text(encoding="utf8"))
        assert fault.set in ("tuned", "held-out")
        if fault.file.endswith(".py"):
            ast.parse(planted)
        elif fault.file.endswith(".ipynb"):
            json.loads(planted)


def test_a_text_that_is_gone_is_named() -> None:
    fault = next(iter(FAULTS.values()))
    with pytest.raises(ValueError, match=f"before of {fault.id}: expected once .* got 0 times"):
        fault.planted("")


def test_the_record_is_of_these_faults() -> None:
    caught = Record(RECORD).caught
    assert caught.keys() <= TIERS.keys()
    assert {name for tier in caught.values() for name in tier} <= FAULTS.keys()
    for found in (found for tier in caught.values() for found in tier.values()):
        file, _, case = (found["by"] or "").partition("::")
        if file.startswith("tests/"):
            name = case.partition("[")[0]
            assert re.search(rf"\b{name}( = |\()", (ROOT / file).read_text("utf8")), found["by"]
