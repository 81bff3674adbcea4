"""A study: cells × seeds. Each run is kept as soon as it is done, and none is done twice."""

from __future__ import annotations

import argparse
import os
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

import torch

from lab.files import locked
from lab.records import machine, stamp, write_runs
from lab.train.code import code_of, digest
from lab.train.hardware import DEVICES, find_device
from lab.train.kept import Cells, Kept, plain
from lab.train.runner import count, make_runs_parser, workers

Run = Callable[..., Mapping[str, Any]]


@dataclass(frozen=True)
class Study:
    """What is run: every cell with every seed.

    Every finished run is a line of ``<record>.runs.jsonl``, with the commit and the hardware that
    made it. Stopped and started again, the study goes on with the runs that are missing, among them
    those of a cell whose arguments changed, and all if the code of ``run`` did, or of what it
    calls; the file goes when the record is written.

    Args:
        script: The study's file; its record has the same name and ends in ``.json``.
        about: What the study does, for ``--help``; the first line is shown.
        cells: Name → what ``run`` is told, by keyword: what JSON can hold.
        run: ``run(seed=…, steps=…, **cell)`` returns what is recorded of one run: numbers, strings,
            lists and dictionaries. It must stand at the top of a module, as must the parts of a
            :class:`~lab.train.learn.Training`.
        steps: How many steps unless ``--steps`` says otherwise.
        seeds: How many seeds unless ``--seeds`` says otherwise.
        steps_are: What a step is, for ``--help``.
        jobs: How many runs at a time unless ``--jobs`` says otherwise; 1 for times.
        beside: What is recorded beside the runs, and belongs to none; a function is called.

    The data of the record: ``{"steps": …, "cells": {name: {"told": …, "runs": [one a seed]}}}`` and
    what stands ``beside``; each run has its ``seed`` and its ``wall_s``. Cells stand as defined,
    seeds from 0. :func:`lab.records.gather` reads them.
    """

    script: str | Path
    about: str | None
    cells: Cells
    run: Run
    steps: int
    seeds: int = 5
    steps_are: str = "training steps of each model"
    jobs: int = 2
    beside: Mapping[str, Any] = field(default_factory=dict)

    @property
    def code(self) -> str:
        """Digest of the code of the runs, as it is now."""
        return digest(code_of(run=self.run))

    def main(self, argv: Sequence[str] | None = None) -> None:
        """Run what is missing, each run on one thread, and write the record.

        The command line: ``--seeds`` and ``--steps``; ``--jobs``, how many runs at a time, which
        changes no result but the times; ``--scheduler``, a Dask cluster that runs them instead;
        ``--only PATTERN``, the cells to run now; ``--device``, where models train; ``--output``.

        Args:
            argv: The arguments; those of the process if omitted.

        Raises:
            SystemExit: If the command line is wrong, another process runs this study into the same
                record, the disk is full, or runs failed: the others are kept, and each failure is
                told with cell and seed.
        """
        args = self._arguments(argv)
        torch.set_num_threads(1)  # here too, for the record's word about the hardware
        try:
            self._main(args)
        except (ImportError, OSError) as error:
            raise SystemExit(str(error)) from None

    def _main(self, args: argparse.Namespace) -> None:
        wanted = [(name, seed) for name in self.cells for seed in range(args.seeds)]
        code = self.code
        path = args.output.with_suffix(".runs.jsonl")
        with locked(path, f"another process runs this study and writes {path}"):
            kept = Kept(path, self.cells, args.steps, code)
            # seed by seed: whoever stops early has every cell
            todo = sorted(
                (pair for pair in wanted if fnmatch(pair[0], args.only) and pair not in kept.found),
                key=lambda pair: pair[1],
            )
            if kept.changed:
                print(f"{kept.changed} runs in {kept.path} are of other code and do not count")
            done = sum(pair in kept.found for pair in wanted)
            print(f"{len(todo)} runs to do, {done} done", flush=True)
            failures = self._run_all(todo, args, kept) if todo else []
            if failures:
                raise SystemExit(
                    "\n".join(failures) + f"\n{len(failures)} of {len(todo)} runs failed; the "
                    f"others are kept in {kept.path}, and the same command tries the missing ones "
                    "again"
                )
            if all(pair in kept.found for pair in wanted):
                self._record(args, kept, code)

    def _record(self, args: argparse.Namespace, kept: Kept, code: str) -> None:
        """Write the record of all runs, and remove the file that kept them."""
        cells = {
            name: {
                "told": dict(told),
                "runs": [{"seed": n, **kept.found[name, n]} for n in range(args.seeds)],
            }
            for name, told in self.cells.items()
        }
        beside = {name: x() if callable(x) else x for name, x in self.beside.items()}
        script = Path(self.script).name
        write_runs(
            args.output,
            command=f"python results/{script} --seeds {args.seeds} --steps {args.steps}",
            cells=cells,
            data={"steps": args.steps, **beside},
            code=code,
            then=f"every run is kept in {kept.path}; make room, and say it again",
        )
        kept.path.unlink()
        print(f"written: {args.output}", flush=True)

    def _arguments(self, argv: Sequence[str] | None) -> argparse.Namespace:
        parser = argparse.ArgumentParser(
            description=(self.about or "").partition("\n")[0],
            parents=[make_runs_parser(self.seeds, self.jobs)],
        )
        add = parser.add_argument
        add("--steps", type=count, default=self.steps, help=self.steps_are)
        add(
            "--scheduler",
            metavar="ADDRESS",
            help="a Dask scheduler, tcp://host:8786 for instance, whose workers do the runs",
        )
        add(
            "--device",
            default="auto",
            choices=DEVICES,
            help="where models train (the best there is)",
        )
        add(
            "--only",
            default="*",
            metavar="PATTERN",
            help="run the cells of such names now, '8 pairs*' for instance; the record is written "
            "when no cell is missing",
        )
        add("--output", type=Path, default=Path(self.script).with_suffix(".json"))
        args = parser.parse_args(argv)
        try:
            if args.scheduler is None:  # a worker of a cluster looks at its own machine
                args.device = find_device(args.device)
        except ValueError as error:
            parser.error(str(error))
        if not any(fnmatch(name, args.only) for name in self.cells):
            parser.error(f"--only must fit one of {', '.join(self.cells)}; got {args.only!r}")
        return args

    def _run_all(
        self, todo: Sequence[tuple[str, int]], args: argparse.Namespace, kept: Kept
    ) -> list[str]:
        """Do the runs, keep each, and return a text about each that failed."""
        function = partial(_do, self.run, args.steps, args.device)
        runs = [(name, seed, dict(self.cells[name])) for name, seed in todo]
        commit = stamp(Path(self.script))["commit"]  # a worker of a cluster may have no checkout
        failures = []
        try:
            with workers(args.jobs, args.scheduler) as each:
                for number, ((name, seed, _), came) in enumerate(each(function, runs), 1):
                    if isinstance(came, Exception):
                        failures.append(f"{_told(came)}\n^ in {name!r} with seed {seed}")
                        how = "FAILED"
                    else:
                        found, where = came
                        kept.add(name, seed, found, {"commit": commit, **where})
                        how = f"{found['wall_s']} s"
                    print(f"{number}/{len(todo)} {name} seed {seed} {how}", flush=True)
        except KeyboardInterrupt:
            print(f"stopped; what is done is kept in {kept.path}", flush=True)
            raise SystemExit(130) from None
        return failures


def _do(run: Run, steps: int, device: str, one: tuple[str, int, dict[str, Any]]) -> tuple[Any, Any]:
    """Return what a run found, with its time, as JSON gives it back; and the machine it ran on."""
    _, seed, told = one
    os.environ["STRINGLIB_DEVICE"] = device
    start = time.perf_counter()
    found = run(seed=seed, steps=steps, **told)
    wall_s = round(time.perf_counter() - start, 1)
    try:
        return plain({**found, "wall_s": wall_s}), machine(find_device(device))
    except (TypeError, ValueError) as error:
        raise ValueError(f"a run must return JSON: {error}") from None


def _told(error: Exception) -> str:
    if isinstance(error, ChildProcessError):  # nobody knows where it was
        return str(error)
    return "".join(traceback.format_exception(error)).rstrip()
