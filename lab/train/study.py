"""Runs the cells of a study with every seed, and records them: what each file of results/ is."""

from __future__ import annotations

import argparse
import inspect
import json
import os
import shutil
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

import torch

from lab.console import allow_every_letter
from lab.files import locked
from lab.records import machine, stamp, write_runs
from lab.train.checkpoint import Checkpoint, OtherRunError, folder_of
from lab.train.code import code_of, digest
from lab.train.hardware import DEVICES, find_device
from lab.train.runner import count, make_runs_parser, workers

Run = Callable[..., Mapping[str, Any]]
Wanted = tuple[str, int]
"""A cell's name and a seed."""


@dataclass(frozen=True)
class Study:
    """What is run: every cell with every seed.

    Every run has a file in the folder ``<record>.runs``, with the commit and the hardware that made
    it. Stopped and started again, the study goes on with the runs that are missing, among them
    those of a cell whose arguments changed, and all if the code of the study did, or of what it
    imports; the folder goes when the record is written.

    Args:
        script: The study's file; its record has the same name and ends in ``.json``.
        about: What the study does, for ``--help``; the first line is shown.
        cells: Name → what ``run`` is told, by keyword: what JSON can hold.
        run: ``run(seed=…, steps=…, **cell)`` returns what is recorded of one run: numbers, strings,
            lists and dictionaries. It must stand at the top of a module, as must the parts of a
            :class:`~lab.train.learn.Training`. If it has a parameter ``keep``, it is handed its
            file, a :class:`~lab.train.checkpoint.Checkpoint`, which
            :func:`~lab.train.fitting.fit` takes: then a run that was stopped on its way goes on.
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
    cells: Mapping[str, Mapping[str, Any]]
    run: Run
    steps: int
    seeds: int = 5
    steps_are: str = "training steps of each model"
    jobs: int = 2
    beside: Mapping[str, Any] = field(default_factory=dict)

    def main(self, argv: Sequence[str] | None = None) -> None:
        """Run what is missing, each run on one thread, and write the record.

        The command line: ``--seeds`` and ``--steps``; ``--jobs``, how many runs at a time, which
        changes no result but the times; ``--scheduler``, a Dask cluster that runs them instead;
        ``--only PATTERN``, the cells to run now; ``--device``, where models train; ``--output``.

        Args:
            argv: The arguments; those of the process if omitted.

        Raises:
            SystemExit: If the command line is wrong, another process runs this study into the same
                record, a file is broken, the disk is full, or runs failed: the others are kept, and
                each failure is told with cell and seed.
        """
        allow_every_letter()
        args = self._arguments(argv)
        torch.set_num_threads(1)  # here too, for the record's word about the hardware
        folder = args.output.with_suffix(".runs")
        try:
            with locked(folder / ".lock", f"another process runs this study and writes {folder}"):
                self._main(args, folder)
        except (ImportError, OSError, ValueError) as error:
            raise SystemExit(str(error)) from None
        finally:
            with suppress(OSError):  # it holds runs
                folder.rmdir()

    def _main(self, args: argparse.Namespace, folder: Path) -> None:
        code = code_of(Path(self.script))  # before the runs, during which somebody may edit it
        files = self._files(folder, args, code)
        done = _read(files, folder)
        # seed by seed: whoever stops early has every cell
        todo = sorted(
            (one for one in files if fnmatch(one[0], args.only) and one not in done),
            key=lambda one: one[1],
        )
        print(f"{len(todo)} runs to do, {len(done)} done", flush=True)
        failures = self._run_all(todo, args, files, done) if todo else []
        if failures:
            raise SystemExit(
                "\n".join(failures) + f"\n{len(failures)} of {len(todo)} runs failed. The others "
                f"are kept in {folder}. Run the same command to try the failed runs again."
            )
        if len(done) == len(files):
            self._record(args, done, folder, digest(code))
            shutil.rmtree(_folder(folder, args.steps))
            print(f"written: {args.output}", flush=True)

    def _files(
        self, folder: Path, args: argparse.Namespace, code: Mapping[str, str]
    ) -> dict[Wanted, Checkpoint]:
        """Return the file of every run that is wanted."""
        return {
            (name, seed): Checkpoint(
                _folder(folder, args.steps) / folder_of(name) / f"seed-{seed}.pt",
                {"cell": plain(told), "code": code},
            )
            for name, told in self.cells.items()
            for seed in range(args.seeds)
        }

    def _record(
        self, args: argparse.Namespace, done: Mapping[Wanted, Any], folder: Path, code: str
    ) -> None:
        """Write the record of all runs."""
        cells = {
            name: {
                "told": dict(told),
                "runs": [{"seed": n, **done[name, n]} for n in range(args.seeds)],
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
            then=f"every run is kept in {folder}; free some disk space and run the command again",
        )

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
        self,
        todo: Sequence[Wanted],
        args: argparse.Namespace,
        files: Mapping[Wanted, Checkpoint],
        done: dict[Wanted, Any],
    ) -> list[str]:
        """Do the runs, keep each, and return a text about each that failed."""
        # a worker of a cluster may have neither this disk nor a checkout
        saves = args.scheduler is None and "keep" in inspect.signature(self.run).parameters
        commit = stamp(Path(self.script))["commit"]
        function = partial(_do, self.run, args.steps, args.device, commit)
        runs = [(one, dict(self.cells[one[0]]), files[one] if saves else None) for one in todo]
        failures = []
        try:
            with workers(args.jobs, args.scheduler, saves=saves) as each:
                for number, ((one, *_), came) in enumerate(each(function, runs), 1):
                    name, seed = one
                    if isinstance(came, Exception):
                        failures.append(f"{_told(came)}\n^ in {name!r} with seed {seed}")
                        how = "FAILED"
                    else:
                        files[one].write({"found": came}, THEN)
                        done[one] = came
                        how = f"{came['wall_s']} s"
                    print(f"{number}/{len(todo)} {name} seed {seed} {how}", flush=True)
        except KeyboardInterrupt:
            print(f"stopped; what is done is kept beside {args.output}", flush=True)
            raise SystemExit(130) from None
        return failures


THEN = "the earlier runs are kept; free some disk space and run the same command to continue"


def _folder(folder: Path, steps: int) -> Path:
    """Return where runs of so many steps are kept: a first try spoils none of the long ones."""
    return folder / f"{steps}-steps"


def _read(files: Mapping[Wanted, Checkpoint], folder: Path) -> dict[Wanted, Any]:
    """Return what came of the runs that are over; those of other arguments or code do not count."""
    done, changed = {}, []
    for one, file in files.items():
        try:
            state = file.read()
        except OtherRunError as error:
            changed += [error] if error.what != "cell" else []
            continue
        if "found" in state:
            done[one] = state["found"]
    if changed:
        print(f"{len(changed)} runs in {folder} are of other code and do not count: {changed[0]}")
    return done


def _do(
    run: Run,
    steps: int,
    device: str,
    commit: str,
    one: tuple[Wanted, dict[str, Any], Checkpoint | None],
) -> dict[str, Any]:
    """Return what a run found, with its time and what it was made with, as JSON gives it back."""
    (_, seed), told, keep = one
    os.environ["STRINGLIB_DEVICE"] = device
    before: dict[str, Any] = {}
    if keep is not None:
        told["keep"] = keep
        try:
            before = keep.read()
        except OtherRunError:
            keep.clear()
    start = time.perf_counter()
    found = run(seed=seed, steps=steps, **told)
    wall_s = before.get("wall_s", 0.0) + time.perf_counter() - start
    made = {"commit": commit, **machine(find_device(device))}
    earlier = [part for part in before.get("made", []) if part != made]
    try:
        return plain({**found, "wall_s": round(wall_s, 1), "made": [*earlier, made]})
    except (TypeError, ValueError) as error:
        raise ValueError(f"a run must return values that JSON can represent: {error}") from None


def plain(value: Any) -> Any:
    """Return a value as JSON gives it back: tuples are lists.

    Raises:
        TypeError: If it holds what JSON cannot hold.
        ValueError: If it holds a number that is not finite.
    """
    return json.loads(json.dumps(value, allow_nan=False))


def _told(error: Exception) -> str:
    if isinstance(error, ChildProcessError):  # nobody knows where it was
        return str(error)
    return "".join(traceback.format_exception(error)).rstrip()
