"""Recorded results: what was measured, and everything needed to measure it again."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from lab.files import whole

RESULTS = Path(__file__).resolve().parents[1] / "results"


def write_record(
    path: Path,
    *,
    command: str,
    seeds: list[int],
    wall_s: float,
    data: Any,
    source: Path | None = None,
    made: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    code: str | None = None,
    then: str = "make room and run it again",
) -> None:
    """Write a result as JSON, whole or not at all.

    Commit, hardware and versions are those of the runs. Where runs differ in one of them, all that
    it was stands there, and ``made`` tells which run was made with what.

    Args:
        path: The file.
        command: How to repeat the run, from the root of the repository.
        seeds: The seeds that were used.
        wall_s: How long it took, in seconds.
        data: The result: lists, dictionaries, numbers and strings.
        source: The script that measured, whose commit is recorded; this package's if omitted.
        made: Name of each run → the :func:`stamp` of each of its parts; now if omitted.
        code: :func:`~lab.train.code.digest` of the code of all runs, if that is known.
        then: What to do if it cannot be written, the end of the message.

    Raises:
        OSError: If it cannot be written.
    """
    made = made or {"": [stamp(source)]}
    groups: dict[str, list[str]] = {}
    for name, stamps in made.items():
        for one in stamps:
            groups.setdefault(json.dumps(one), []).append(name)
    kinds = [json.loads(one) for one in groups]
    record = {
        "command": command,
        "seeds": seeds,
        "wall_s": round(wall_s, 1),
        "date": datetime.now(UTC).date().isoformat(),
        **_together(kinds),
        **({} if code is None else {"code": code}),
        "data": data,
    }
    if len(kinds) > 1:
        runs = groups.values()
        record["made"] = [{"runs": r, **kind} for r, kind in zip(runs, kinds, strict=True)]
    text = json.dumps(record, indent=1, allow_nan=False) + "\n"
    with whole(path, then) as part:
        part.write_text(text, encoding="utf8")


def write_runs(
    path: Path,
    *,
    command: str,
    cells: Mapping[str, Any],
    data: Mapping[str, Any],
    code: str,
    then: str,
) -> None:
    """Write the record of cells × seeds.

    Args:
        path: The file.
        command: How to repeat the runs.
        cells: Name → ``{"told": …, "runs": [one a seed]}``. Each run has its ``seed``, its
            ``wall_s``, and in ``made`` the :func:`stamp` of each of its parts, which is taken out.
        data: What stands before the cells.
        code: Digest of the code of all runs.
        then: What to do if it cannot be written, the end of the message.

    Raises:
        OSError: If it cannot be written.
    """
    runs = [(name, run) for name, cell in cells.items() for run in cell["runs"]]
    made = {f"{name}, seed {run['seed']}": run.pop("made") for name, run in runs}
    write_record(
        path,
        command=command,
        seeds=list(dict.fromkeys(run["seed"] for _, run in runs)),
        wall_s=sum(run["wall_s"] for _, run in runs),
        data={**data, "cells": cells},
        made=made,
        code=code,
        then=then,
    )


def stamp(source: Path | None = None, device: str | None = None) -> dict[str, Any]:
    """Return what a run is made with: commit, hardware and versions.

    Args:
        source: The script; this package if omitted.
        device: What it runs on, ``"cuda"`` for instance, if that is known.
    """
    return {"commit": _commit((source or Path(__file__)).resolve().parent), **machine(device)}


def machine(device: str | None = None) -> dict[str, Any]:
    """Return what this process computes with: hardware and versions.

    Args:
        device: What it runs on, ``"cuda"`` for instance, if that is known.
    """
    hardware = {
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }
    return {
        "hardware": hardware if device is None else {**hardware, "device": device},
        "versions": {"python": platform.python_version(), "torch": metadata.version("torch")},
    }


def read_record(record: str | Path) -> dict[str, Any]:
    """Read a record.

    Args:
        record: The name of a record of ``results/``, such as ``"rope_shift"``, found from any
            working directory; or the path of any record.

    Raises:
        FileNotFoundError: If there is none; the message says what to run, or which name is meant.
        ValueError: If a field is missing.
    """
    path = RESULTS / f"{record}.json" if isinstance(record, str) else record
    if not path.exists():
        raise FileNotFoundError(f"record: expected one that exists, got {path}. {_advice(path)}")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf8"))
    missing = {"command", "seeds", "hardware", "versions", "commit", "data"} - found.keys()
    if missing:
        raise ValueError(
            f"{path.name} must have the fields {sorted(missing)} too, got {sorted(found)}"
        )
    return found


def _advice(path: Path) -> str:
    """Return what to do about a record that does not exist."""
    if path.with_suffix(".py").exists():
        return f"Make it with python {path.with_suffix('.py')}."
    near = get_close_matches(path.stem, [p.stem for p in path.parent.glob("*.json")], n=1)
    return f"Did you mean {near[0]!r}?" if near else "Run the command that the chapter names."


def gather(data: Mapping[str, Any], what: str, *by: str) -> dict[Any, Any]:
    """Return what the runs of a study measured, by what their cells were told.

    Args:
        data: The data of the study's record.
        what: The name of the measure; cells without it are left out.
        *by: Names of one or more things that cells were told, the outermost first.

    Returns:
        ``{value: {next value: [one entry a seed]}}``, with a level for each name, and one more for
        the keys of a measure that is a dictionary.
    """
    found: dict[Any, Any] = {}
    for cell in data["cells"].values():
        rows = [run[what] for run in cell["runs"] if what in run]
        if rows:
            place = found
            for name in by[:-1]:
                place = place.setdefault(cell["told"][name], {})
            place[cell["told"][by[-1]]] = _columns(rows)
    return found


def _columns(rows: Sequence[Any]) -> Any:
    """Return dictionaries of the same keys as one, with a list of their entries for each key."""
    if not isinstance(rows[0], dict):
        return rows
    return {key: _columns([row[key] for row in rows]) for key in rows[0]}


def _together(values: Sequence[Any]) -> Any:
    """Return what all values are; where they differ, each of them, in one text."""
    if isinstance(values[0], dict):
        keys = dict.fromkeys(key for value in values for key in value)
        return {key: _together([value.get(key) for value in values]) for key in keys}
    different = dict.fromkeys(values)
    return values[0] if len(different) == 1 else "; ".join(map(str, different))


def _commit(folder: Path) -> str:
    """Return the commit of the checkout, marked when the tree differs from it but in records."""

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=folder, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    # one suite of a benchmark after another writes its record, which no measurement reads
    code = ":/", ":(exclude,top)results/*.json"
    try:
        commit = git("rev-parse", "--short=12", "HEAD")
        changed = git("status", "--porcelain", "--untracked-files=no", "--", *code)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{commit}-dirty" if changed else commit


def _processor() -> str:
    """Return the processor's name."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()
