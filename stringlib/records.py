"""Recorded results: what was measured, and everything needed to measure it again."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from stringlib.files import whole


def write_record(
    path: Path,
    *,
    command: str,
    seeds: list[int],
    wall_s: float,
    data: Any,
    source: Path | None = None,
    made: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
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
        "data": data,
    }
    if len(kinds) > 1:
        runs = groups.values()
        record["made"] = [{"runs": r, **kind} for r, kind in zip(runs, kinds, strict=True)]
    text = json.dumps(record, indent=1, allow_nan=False) + "\n"
    with whole(path, then) as part:
        part.write_text(text, encoding="utf8")


def stamp(source: Path | None = None, device: str | None = None) -> dict[str, Any]:
    """Return what a run is made with: commit, hardware and versions.

    Args:
        source: The script; this package if omitted.
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
        "commit": _commit((source or Path(__file__)).resolve().parent),
        "hardware": hardware if device is None else {**hardware, "device": device},
        "versions": {"python": platform.python_version(), "torch": metadata.version("torch")},
    }


def record_study(
    script: Path,
    about: str,
    study: Callable[[list[int], int], dict[str, Any]],
    *,
    seeds: int,
    steps: int,
    steps_are: str = "training steps of each model",
    argv: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Read a study's command line, run it on one thread, and write its record beside the script.

    Args:
        script: The study's file; its record has the same name and ends in ``.json``.
        about: What the study does, for ``--help``; the first line is shown.
        study: A function of the seeds and the number of steps that returns the data.
        seeds: How many seeds unless ``--seeds`` says otherwise.
        steps: How many steps unless ``--steps`` says otherwise.
        steps_are: What a step is, for ``--help``.
        argv: The arguments; those of the process if omitted.

    Returns:
        What ``study`` returned.

    Raises:
        SystemExit: If the command line is wrong, or the record cannot be written.
    """
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=seeds, help="how many seeds, from 0")
    parser.add_argument("--steps", type=int, default=steps, help=steps_are)
    parser.add_argument("--output", type=Path, default=script.with_suffix(".json"))
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    made = {"all": [stamp(script)]}  # of the code that runs, whatever is committed meanwhile
    chosen, start = list(range(args.seeds)), time.perf_counter()
    data = study(chosen, args.steps)
    try:
        write_record(
            args.output,
            command=f"python results/{script.name} --seeds {args.seeds} --steps {args.steps}",
            seeds=chosen,
            wall_s=time.perf_counter() - start,
            data=data,
            made=made,
        )
    except OSError as error:
        raise SystemExit(str(error)) from None
    return data


def read_record(path: Path) -> dict[str, Any]:
    """Read a record.

    Raises:
        FileNotFoundError: If there is none; the message says that it must be made first.
        ValueError: If a field is missing.
    """
    if not path.exists():
        raise FileNotFoundError(f"no record at {path}; run the command that the chapter names")
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf8"))
    missing = {"command", "seeds", "hardware", "versions", "commit", "data"} - record.keys()
    if missing:
        raise ValueError(
            f"{path.name} must have the fields {sorted(missing)} too, got {sorted(record)}"
        )
    return record


def _together(values: Sequence[Any]) -> Any:
    """Return what all values are; where they differ, each of them, in one text."""
    if isinstance(values[0], dict):
        keys = dict.fromkeys(key for value in values for key in value)
        return {key: _together([value.get(key) for value in values]) for key in keys}
    different = dict.fromkeys(values)
    return values[0] if len(different) == 1 else "; ".join(map(str, different))


def _commit(folder: Path) -> str:
    """Return the commit of the checkout, marked when the tree differs from it."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


def _processor() -> str:
    """Return the processor's name."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()
