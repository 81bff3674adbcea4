"""What both codes of a record report after a few steps is compared number by number."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tools import first_steps

STUDY = """
import argparse, json
parser = argparse.ArgumentParser()
for name in ("--seeds", "--steps", "--output"):
    parser.add_argument(name)
args = parser.parse_args()
runs = {"free": {"loss": %s, "wall_s": 3.0}, "unit": {"loss": [1.0, 2.0], "seed": 0},
        "clock": {"ms": [3.0]}}
data = {"cells": {name: {"runs": [run]} for name, run in runs.items()}}
open(args.output, "w").write(json.dumps({"data": data}))
"""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a repository whose study reported another loss at its first commit."""

    def git(*words: str) -> str:
        told = ["git", "-c", "user.name=n", "-c", "user.email=e", *words]
        return subprocess.run(told, cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    results = tmp_path / "results"
    results.mkdir()
    git("init", "-q")
    (results / "it.py").write_text(STUDY % "200.0", encoding="utf8")
    git("add", ".")
    git("commit", "-qm", "then")
    record = dict.fromkeys(("command", "seeds", "hardware", "versions", "data"), "")
    record |= {"commit": git("rev-parse", "HEAD").strip() + "; 000", "code": "old"}
    (results / "it.json").write_text(json.dumps(record), encoding="utf8")
    (results / "it.py").write_text(STUDY % "202.0", encoding="utf8")
    monkeypatch.setattr(first_steps, "ROOT", tmp_path)
    monkeypatch.setattr(first_steps, "RESULTS", results)
    monkeypatch.setattr(first_steps, "FOUND", results / "first_steps.json")
    return results


def test_both_codes_run_and_the_largest_difference_is_kept(tree: Path) -> None:
    first_steps.main(["--steps", "3"])
    (found,) = json.loads((tree / "first_steps.json").read_text(encoding="utf8")).values()
    assert (found["largest"], found["where"], found["cells"]) == (0.01, "free", "2 of 3")
    assert (found["code"], found["steps"]) == (first_steps.code_now("it"), 3)


@pytest.mark.parametrize(
    ("study", "told"),
    [
        ("raise SystemExit('no data')", "it: no data\n"),
        (STUDY.replace('"loss"', '"ms"') % "202.0", "nothing but times"),
    ],
)
def test_a_study_with_nothing_to_compare_is_told_and_keeps_nothing(
    tree: Path, capsys, study: str, told: str
) -> None:
    (tree / "it.py").write_text(study, encoding="utf8")
    first_steps.main(["it"])
    assert told in capsys.readouterr().out
    assert not (tree / "first_steps.json").exists()


def test_the_clock_is_not_compared() -> None:
    told = {"ms": {"a": [1.0]}, "wall_s": 2.0, "scores": {"test": 0.5}}
    assert first_steps.difference(told, {**told, "wall_s": 3.0, "ms": {"a": [9.0]}}) == 0
    assert first_steps.difference({"ms": [1.0]}, {"ms": [1.0]}) is None
