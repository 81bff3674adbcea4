"""A study of many runs: each is kept as soon as it is done, and none is done twice."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from fnmatch import fnmatch
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from stringlib.records import write_record


def record_sweep(
    script: Path,
    about: str,
    cells: Mapping[str, Mapping[str, Any]],
    run: Callable[..., dict[str, Any]],
    *,
    seeds: int = 5,
    steps: int,
    steps_are: str = "training steps of each model",
    argv: Sequence[str] | None = None,
) -> None:
    """Run every cell with every seed, in processes of one thread, and write one record.

    Every finished run is a line of ``<record>.runs.jsonl``. Stopped and started again, the study
    goes on with the runs that are missing; the file goes when the record is written.

    Args:
        script: The study's file; its record has the same name and ends in ``.json``.
        about: What the study does, for ``--help``; the first line is shown.
        cells: Name → what ``run`` is told, by keyword.
        run: ``run(seed=…, steps=…, **cell)`` returns what is recorded of one run: numbers, strings,
            lists and dictionaries. It must stand at the top of a module.
        seeds: How many seeds unless ``--seeds`` says otherwise.
        steps: How many steps unless ``--steps`` says otherwise.
        steps_are: What a step is, for ``--help``.
        argv: The arguments; those of the process if omitted.

    The data of the record: ``{"steps": …, "cells": {name: {"told": …, "runs": [one a seed]}}}``;
    each run has its ``seed`` and its ``wall_s``.
    """
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=seeds, help="how many seeds, from 0")
    parser.add_argument("--steps", type=int, default=steps, help=steps_are)
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, each on one thread")
    parser.add_argument("--only", default="*", help="cells to run, such as '8 pairs*'; no record")
    parser.add_argument("--output", type=Path, default=script.with_suffix(".json"))
    args = parser.parse_args(argv)
    chosen = list(range(args.seeds))
    kept = args.output.with_suffix(".runs.jsonl")
    done = _read(kept, args.steps)
    todo = [
        (name, seed)
        for seed in chosen
        for name in cells
        if fnmatch(name, args.only) and (name, seed) not in done
    ]
    print(f"{len(todo)} runs to do, {len(done)} done", flush=True)
    with ProcessPoolExecutor(args.jobs, mp_context=get_context("spawn")) as pool:
        waiting = {
            pool.submit(_timed, run, seed, args.steps, dict(cells[name])): (name, seed)
            for name, seed in todo
        }
        for future in as_completed(waiting):
            name, seed = waiting[future]
            found = done[name, seed] = future.result()
            with kept.open("a", encoding="utf8") as file:
                line = {"cell": name, "seed": seed, "steps": args.steps, "found": found}
                file.write(json.dumps(line, allow_nan=False) + "\n")
            print(f"{len(done)} {name} seed {seed} {found['wall_s']} s", flush=True)
    if any((name, seed) not in done for name in cells for seed in chosen):
        return
    write_record(
        args.output,
        command=f"python results/{script.name} --seeds {args.seeds} --steps {args.steps}",
        seeds=chosen,
        wall_s=sum(done[name, seed]["wall_s"] for name in cells for seed in chosen),
        data={
            "steps": args.steps,
            "cells": {
                name: {
                    "told": dict(cells[name]),
                    "runs": [{"seed": seed, **done[name, seed]} for seed in chosen],
                }
                for name in cells
            },
        },
    )
    kept.unlink(missing_ok=True)


def _timed(
    run: Callable[..., dict[str, Any]], seed: int, steps: int, told: dict[str, Any]
) -> dict[str, Any]:
    torch.set_num_threads(1)
    start = time.perf_counter()
    found = run(seed=seed, steps=steps, **told)
    return {**found, "wall_s": round(time.perf_counter() - start, 1)}


def _read(path: Path, steps: int) -> dict[tuple[str, int], dict[str, Any]]:
    """Return the finished runs of that many steps; a line that was cut off is left out."""
    done: dict[tuple[str, int], dict[str, Any]] = {}
    if not path.exists():
        return done
    for line in path.read_text(encoding="utf8").splitlines():
        try:
            run = json.loads(line)
        except json.JSONDecodeError:
            continue
        if run["steps"] == steps:
            done[run["cell"], run["seed"]] = run["found"]
    return done
