"""Write and read recorded results, with everything that is needed to measure them again."""

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
    then: str = "free some disk space and run it again",
) -> None:
    """Write the record of a result as JSON, completely or not at all.

    The record contains the commit, the hardware and the versions of the runs. If runs differ in one
    of these, the record lists all its values, and the entry ``made`` tells which run had which.

    Args:
        path: The file.
        command: Command that repeats the run, from the root of the repository.
        seeds: Seeds of the run.
        wall_s: Duration of the run in seconds.
        data: The result, which consists of lists, dictionaries, numbers and strings.
        source: Script that measured the result. The commit of its repository is recorded. Default:
            this file. Not used if ``made`` is given.
        made: For each run, the :func:`stamp` of each part of the run. Default: one run that is
            stamped now.
        code: :func:`~lab.train.code.digest` of the code of all runs. Default: None, which means
            that it is not recorded.
        then: End of the error message if the file cannot be written.

    Raises:
        OSError: If the file cannot be written.
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
    """Write the record of a study, which has cells with one run per seed.

    Args:
        path: The file.
        command: Command that repeats the runs.
        cells: Dictionary from the name of each cell to ``{"told": …, "runs": […]}`` with one run
            per seed. Each run has the entries ``seed``, ``wall_s``, and ``made`` with the
            :func:`stamp` of each part of the run. The entry ``made`` is removed from the run.
        data: Entries that are recorded before the cells.
        code: Digest of the code of all runs.
        then: End of the error message if the file cannot be written.

    Raises:
        OSError: If the file cannot be written.
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
    """Return the commit, the hardware and the versions with which a run is made.

    Args:
        source: Script of the run. Default: this file.
        device: Device of the run, such as ``"cuda"``. Default: None, which means that no device is
            recorded.
    """
    return {"commit": _commit((source or Path(__file__)).resolve().parent), **machine(device)}


def machine(device: str | None = None) -> dict[str, Any]:
    """Return the hardware and the versions with which this process computes.

    Args:
        device: Device of the run, such as ``"cuda"``. Default: None, which means that no device is
            recorded.
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
        record: Name of a record in the folder ``results/`` of the repository, such as
            ``"rope_shift"``, or the path of any record.

    Raises:
        FileNotFoundError: If the record does not exist. The message says what to run, or suggests a
            similar name.
        ValueError: If the record lacks a required field.
    """
    path = RESULTS / f"{record}.json" if isinstance(record, str) else record
    if not path.exists():
        raise FileNotFoundError(
            f"record must be the name or the path of an existing record, got {path}. "
            f"{_advice(path)}"
        )
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf8"))
    missing = {"command", "seeds", "hardware", "versions", "commit", "data"} - found.keys()
    if missing:
        raise ValueError(
            f"record must have the fields {sorted(missing)}, got {path.name} with the fields "
            f"{sorted(found)} only. Write records with write_record()."
        )
    return found


def _advice(path: Path) -> str:
    """Return the advice of the error message for a record that does not exist."""
    if path.with_suffix(".py").exists():
        return f"Make it with python {path.with_suffix('.py')}."
    near = get_close_matches(path.stem, [p.stem for p in path.parent.glob("*.json")], n=1)
    return f"Did you mean {near[0]!r}?" if near else "Run the command that the chapter names."


def gather(data: Mapping[str, Any], what: str, *by: str) -> dict[Any, Any]:
    """Return one measure of all runs of a study, grouped by options of the cells.

    Args:
        data: The entry ``data`` of the study's record.
        what: Name of the measure. Cells without this measure are left out.
        *by: Names of one or more options in the entry ``told`` of the cells, the outermost first.

    Returns:
        Nested dictionaries with one level per name in ``by``, whose keys are the values of this
        option. The innermost entries are lists with one entry per seed. If the measure is a
        dictionary, there is one more level with its keys.
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
    """Return one dictionary with a list of the entries of all rows for each key.

    If the rows are not dictionaries, they are returned unchanged.
    """
    if not isinstance(rows[0], dict):
        return rows
    return {key: _columns([row[key] for row in rows]) for key in rows[0]}


def _together(values: Sequence[Any]) -> Any:
    """Return the value that all values have, or a text with all different values.

    Dictionaries are compared entry by entry.
    """
    if isinstance(values[0], dict):
        keys = dict.fromkeys(key for value in values for key in value)
        return {key: _together([value.get(key) for value in values]) for key in keys}
    different = dict.fromkeys(values)
    return values[0] if len(different) == 1 else "; ".join(map(str, different))


def _commit(folder: Path) -> str:
    """Return the commit of a checkout, with the suffix ``-dirty`` if tracked files have changed.

    Changes of records do not count. Without git the result is ``"unknown"``.
    """

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
    """Return the name of the processor."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()
