"""A study of many runs: each is kept as soon as it is done, and none is done twice."""

from __future__ import annotations

import argparse
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from fnmatch import fnmatch
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

import torch

from stringlib.inputs import require_count
from stringlib.records import stamp, write_record
from stringlib.train.code import code_of, digest
from stringlib.train.hardware import DEVICES, find_device
from stringlib.train.kept import Kept

Run = Callable[..., dict[str, Any]]
Cells = Mapping[str, Mapping[str, Any]]


def record_sweep(
    script: Path,
    about: str,
    cells: Cells,
    run: Run,
    *,
    seeds: int = 5,
    steps: int,
    steps_are: str = "training steps of each model",
    argv: Sequence[str] | None = None,
) -> None:
    """Run every cell with every seed, in processes of one thread, and write one record.

    The command line: ``--seeds`` and ``--steps``; ``--jobs``, how many runs at a time, which
    changes no result but the times; ``--only PATTERN``, the cells to run now; ``--device``, where
    models train; ``--output``.

    Every finished run is a line of ``<record>.runs.jsonl``, with the commit and the hardware that
    made it. Stopped and started again, the study goes on with the runs that are missing, among them
    those of a cell whose arguments changed, and all if the code of ``run`` did, or of what it
    calls; the file goes when the record is written.

    Args:
        script: The study's file; its record has the same name and ends in ``.json``.
        about: What the study does, for ``--help``; the first line is shown.
        cells: Name → what ``run`` is told, by keyword: what JSON can hold.
        run: ``run(seed=…, steps=…, **cell)`` returns what is recorded of one run: numbers, strings,
            lists and dictionaries. It must stand at the top of a module.
        seeds: How many seeds unless ``--seeds`` says otherwise.
        steps: How many steps unless ``--steps`` says otherwise.
        steps_are: What a step is, for ``--help``.
        argv: The arguments; those of the process if omitted.

    The data of the record: ``{"steps": …, "cells": {name: {"told": …, "runs": [one a seed]}}}``;
    each run has its ``seed`` and its ``wall_s``. Cells stand as defined, seeds from 0.

    Raises:
        SystemExit: If the command line is wrong, another process runs this study into the same
            record, the disk is full, or runs failed: the others are kept, and each failure is told
            with cell and seed.
    """
    args = _arguments(about, cells, seeds, steps, steps_are, script, argv)
    torch.set_num_threads(1)  # here too, for the record's word about the hardware
    try:
        _sweep(script, cells, run, args)
    except OSError as error:
        raise SystemExit(str(error)) from None


def _sweep(script: Path, cells: Cells, run: Run, args: argparse.Namespace) -> None:
    wanted = [(name, seed) for name in cells for seed in range(args.seeds)]
    code, made = digest(code_of(run=run)), stamp(script, args.device)
    with Kept.open(args.output, cells, args.steps, code, made) as kept:
        # seed by seed: whoever stops early has every cell
        todo = sorted(
            (pair for pair in wanted if fnmatch(pair[0], args.only) and pair not in kept.found),
            key=lambda pair: pair[1],
        )
        if kept.changed:
            print(f"{kept.changed} runs in {kept.path} are of other code and do not count")
        print(f"{len(todo)} runs to do, {sum(p in kept.found for p in wanted)} done", flush=True)
        failures = _run_all(run, todo, cells, args, kept)
        if failures:
            raise SystemExit(
                "\n".join(failures) + f"\n{len(failures)} of {len(todo)} runs failed; the others "
                f"are kept in {kept.path}, and the same command tries the missing ones again"
            )
        if any(pair not in kept.found for pair in wanted):
            return
        write_record(
            args.output,
            command=f"python results/{script.name} --seeds {args.seeds} --steps {args.steps}",
            seeds=list(range(args.seeds)),
            wall_s=sum(kept.found[pair]["wall_s"] for pair in wanted),
            data={
                "steps": args.steps,
                "cells": {
                    name: {
                        "told": dict(told),
                        "runs": [
                            {"seed": seed, **kept.found[name, seed]} for seed in range(args.seeds)
                        ],
                    }
                    for name, told in cells.items()
                },
            },
            made={f"{name}, seed {seed}": [kept.made[name, seed]] for name, seed in wanted},
            then=f"every run is kept in {kept.path}; make room, and say it again",
        )
        kept.remove()


def _arguments(
    about: str,
    cells: Cells,
    seeds: int,
    steps: int,
    steps_are: str,
    script: Path,
    argv: Sequence[str] | None,
) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=seeds, help="how many seeds, from 0")
    parser.add_argument("--steps", type=int, default=steps, help=steps_are)
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, each on one thread")
    parser.add_argument(
        "--device", default="auto", choices=DEVICES, help="where models train (the best there is)"
    )
    parser.add_argument(
        "--only",
        default="*",
        metavar="PATTERN",
        help="run the cells of such names now, '8 pairs*' for instance; the record is written "
        "when no cell is missing",
    )
    parser.add_argument("--output", type=Path, default=script.with_suffix(".json"))
    args = parser.parse_args(argv)
    try:
        for name in ("seeds", "steps", "jobs"):
            require_count(f"--{name}", getattr(args, name))
        args.device = find_device(args.device)
    except ValueError as error:
        parser.error(str(error))
    if not any(fnmatch(name, args.only) for name in cells):
        parser.error(f"--only must fit one of {', '.join(cells)}; got {args.only!r}")
    return args


def _run_all(
    run: Run,
    todo: Sequence[tuple[str, int]],
    cells: Cells,
    args: argparse.Namespace,
    kept: Kept,
) -> list[str]:
    """Do the runs, keep each, and return a text about each that failed."""
    failures = []
    with _processes(args.jobs, args.device) as pool:
        waiting = {
            pool.submit(_timed, run, seed, args.steps, dict(cells[name])): (name, seed)
            for name, seed in todo
        }
        try:
            for number, future in enumerate(as_completed(waiting), 1):
                failures += _take(future, *waiting.pop(future), kept, f"{number}/{len(todo)}")
        except KeyboardInterrupt:
            for future in [f for f in waiting if f.done() and not f.cancelled()]:
                _take(future, *waiting[future], kept, "last")
            print(f"stopped; what is done is kept in {kept.path}", flush=True)
            raise SystemExit(130) from None
    return failures


def _take(
    future: Future[dict[str, Any]], name: str, seed: int, kept: Kept, count: str
) -> list[str]:
    """Keep the result of a run, or return what went wrong.

    Raises:
        OSError: If it cannot be written: then no other one can.
    """
    try:
        found = future.result()
    except Exception as error:  # whatever a study's function may raise
        return [_failure(error, name, seed, count)]
    try:
        kept.add(name, seed, found)
    except ValueError as error:
        return [_failure(error, name, seed, count)]
    print(f"{count} {name} seed {seed} {found['wall_s']} s", flush=True)
    return []


def _failure(error: Exception, name: str, seed: int, count: str) -> str:
    told = "".join(traceback.format_exception(error)).rstrip()
    print(f"{count} {name} seed {seed} FAILED", flush=True)
    return f"{told}\n^ in {name!r} with seed {seed}"


@contextmanager
def _processes(jobs: int, device: str) -> Iterator[ProcessPoolExecutor]:
    """Give processes for the runs; an exception, Ctrl-C and SIGTERM end those that still run."""
    others = set(active_children())
    before = None
    if threading.current_thread() is threading.main_thread():
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    pool = ProcessPoolExecutor(
        jobs, mp_context=get_context("spawn"), initializer=_begin, initargs=(device,)
    )
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(active_children()) - others:
            process.terminate()
        raise
    finally:
        pool.shutdown()
        if before is not None:
            signal.signal(signal.SIGTERM, before)


def _begin(device: str) -> None:
    """Leave Ctrl-C to the process that keeps the results, and say where models train."""
    os.environ["STRINGLIB_DEVICE"] = device
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _timed(run: Run, seed: int, steps: int, told: dict[str, Any]) -> dict[str, Any]:
    torch.set_num_threads(1)
    start = time.perf_counter()
    found = run(seed=seed, steps=steps, **told)
    return {**found, "wall_s": round(time.perf_counter() - start, 1)}
