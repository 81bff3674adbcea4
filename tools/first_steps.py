"""Let the code of a record and that of now begin every run of a study: do they do the same?

    python tools/first_steps.py              # all studies whose record is of other code
    python tools/first_steps.py recall mnist # these
    python tools/first_steps.py --steps 3

A record is of the code of its commit. Later code may be faster, or say more of a wrong argument,
and train the same models; to train all of them again takes days. So both codes run each cell of a
study with its first seed for a few steps, and everything that the runs report is compared. What is
found stands in ``results/first_steps.json``, and on the pages beside the record's commit.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lab.console import allow_every_letter
from lab.files import whole
from lab.records import read_record
from lab.train.code import code_of, digest

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"
FOUND = RESULTS / "first_steps.json"
STEPS = 5
UNCOMPARED = ("seed", "wall_s", "tokens_per_s", "ms", "forward", "gradients")
"""What a run reports of itself and of the clock."""


def main(argv: Sequence[str] | None = None) -> None:
    """Compare, study by study, and keep what is found after each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("studies", nargs="*", help="names; all of other code if there is none")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"how many ({STEPS})")
    args = parser.parse_args(argv)
    for name in args.studies or of_other_code():
        commit = read_record(RESULTS / f"{name}.json")["commit"].split("; ")[0]
        try:
            told = compare(name, commit, args.steps)
        except (subprocess.CalledProcessError, ValueError) as error:
            print(f"{name}: {reason(error)}", flush=True)
            continue
        found = json.loads(FOUND.read_text(encoding="utf8")) if FOUND.exists() else {}
        found = dict(sorted({**found, name: told}.items()))
        with whole(FOUND, "free some disk space and run it again") as part:
            part.write_text(json.dumps(found, indent=1) + "\n", encoding="utf8")
        print(f"{name}: {told}", flush=True)


def code_now(name: str) -> str:
    """Return the digest of a study's code as it is now."""
    return digest(code_of(RESULTS / f"{name}.py"))


def of_other_code() -> list[str]:
    """Return the studies whose record is not known to be of the code of now."""
    names = sorted(path.stem for path in RESULTS.glob("*.py"))
    codes = {name: read_record(RESULTS / f"{name}.json").get("code") for name in names}
    return [name for name in names if codes[name] != code_now(name)]


def compare(name: str, commit: str, steps: int) -> dict[str, Any]:
    """Return how far both codes are apart after some steps, and where.

    Raises:
        CalledProcessError: If one of the two does not run.
        ValueError: If they have no cell in common, as with code that wrote none yet, or if runs
            report nothing that can be compared.
    """
    code = code_now(name)
    with tempfile.TemporaryDirectory() as folder:
        then = Path(folder) / "then"
        archive = Path(folder) / "then.tar"
        subprocess.run(["git", "archive", "-o", archive, commit], cwd=ROOT, check=True)
        with tarfile.open(archive) as tar:
            tar.extractall(then, filter="data")
        old, new = (begun(name, tree, steps, Path(folder)) for tree in (then, ROOT))
    common = [cell for cell in new if cell in old]
    if not common:
        raise ValueError("no cell of the record's code is one of today's")
    found = {cell: difference(old[cell], new[cell]) for cell in common}
    apart = {cell: told for cell, told in found.items() if told is not None}
    if not apart:
        raise ValueError("its runs report nothing but times")
    worst = max(apart, key=lambda cell: apart[cell])
    told = {"commit": commit, "code": code, "steps": steps, "cells": f"{len(apart)} of {len(new)}"}
    return {**told, "largest": float(f"{apart[worst]:.2g}"), "where": worst}


def begun(name: str, tree: Path, steps: int, folder: Path) -> dict[str, Any]:
    """Return what the first runs of a study's cells report, with the code of a tree."""
    path = folder / "begun.json"
    path.unlink(missing_ok=True)
    words = [sys.executable, f"results/{name}.py", "--seeds", "1", "--steps", str(steps)]
    words += ["--output", str(path)]
    env = {**os.environ, "PYTHONPATH": str(tree)}
    subprocess.run(words, cwd=tree, env=env, capture_output=True, text=True, check=True)
    cells = json.loads(path.read_text(encoding="utf8"))["data"].get("cells", {})
    return {cell: found["runs"][0] for cell, found in cells.items()}


def difference(old: Any, new: Any) -> float | None:
    """Return the largest difference of two reports, of numbers above 1 as a share.

    None if they have nothing in common but times.
    """
    was, now = dict(numbers(old)), dict(numbers(new))
    apart = [abs(now[at] - was[at]) / max(1.0, abs(was[at])) for at in now if at in was]
    return max(apart, default=None)


def numbers(report: Any, place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], float]]:
    """Yield the numbers of a report, but those of the clock, each with its place."""
    if isinstance(report, Mapping):
        for name, value in report.items():
            if name not in UNCOMPARED:
                yield from numbers(value, (*place, str(name)))
    elif isinstance(report, list):
        for i, value in enumerate(report):
            yield from numbers(value, (*place, str(i)))
    elif isinstance(report, int | float):
        yield place, float(report)


def reason(error: Exception) -> str:
    """Return the last line of what a run said before it failed."""
    said = getattr(error, "stderr", None) or str(error)
    return str(said).strip().splitlines()[-1]


if __name__ == "__main__":
    allow_every_letter()
    main()
