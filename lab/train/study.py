"""A study: runs of all cells with every seed, and the record of their results."""

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
"""Name of a cell, and a seed."""


@dataclass(frozen=True)
class Study:
    """A study, which runs each of its cells with every seed.

    Every run has a file in the folder ``<record>.runs``, with the commit and the hardware of the
    run. A study that was stopped continues with the missing runs. Runs of a cell whose arguments
    changed are repeated, and all runs are repeated if the code of the study or of a module that it
    imports changed. The folder is removed when the record is written.

    Args:
        script: File of the study. Its record has the same name with the suffix ``.json``.
        about: Description of the study. ``--help`` shows its first line.
        cells: Name → arguments of ``run`` by keyword, which must be values that JSON can represent.
        run: ``run(seed=…, steps=…, **cell)`` returns the results of one run: numbers, strings,
            lists and dictionaries. The function must be defined at the top level of a module, as
            must the parts of a :class:`~lab.train.learn.Training`. If the function has a parameter
            ``keep``, it gets the :class:`~lab.train.checkpoint.Checkpoint` of the run and can pass
            it to :func:`~lab.train.fitting.fit`. A stopped run then continues where it stopped.
        steps: Default of ``--steps``.
        seeds: Default of ``--seeds``.
        steps_are: Description of a step, for ``--help``.
        jobs: Default of ``--jobs``. Use 1 if the study measures times.
        beside: Results that belong to no run, or a function that returns them. They are recorded
            next to the runs.

    The data of the record are ``{"steps": …, "cells": {name: {"told": …, "runs": […]}}}`` and the
    results of ``beside``. A cell has one run per seed, and each run contains its ``seed`` and its
    ``wall_s``. Cells are in the order of their definition, and seeds begin with 0.
    :func:`lab.records.gather` reads these data.
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
        """Execute the missing runs, each on one CPU thread, and write the record.

        The options of the command line are ``--seeds``, ``--steps``, ``--jobs`` (number of runs at
        a time, which changes only the times), ``--scheduler`` (a Dask cluster that executes the
        runs), ``--only PATTERN`` (the cells to run now), ``--device`` (where models are trained)
        and ``--output``.

        Args:
            argv: The arguments. Default: those of the process.

        Raises:
            SystemExit: If the command line is wrong, another process runs this study into the same
                record, a file is damaged, the disk is full, or runs failed. The other runs are then
                kept, and the message names cell and seed of each failed run.
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
            help="address of a Dask scheduler whose workers execute the runs, such as tcp://host:8786",
        )
        add(
            "--device",
            default="auto",
            choices=DEVICES,
            help="device on which models are trained (the fastest one)",
        )
        add(
            "--only",
            default="*",
            metavar="PATTERN",
            help="cells to run now, by a pattern such as '8 pairs*'; the record is written "
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
    """Return a value as JSON returns it, with lists in place of tuples.

    Raises:
        TypeError: If the value contains an object that JSON cannot represent.
        ValueError: If the value contains a number that is not finite.
    """
    return json.loads(json.dumps(value, allow_nan=False))


def _told(error: Exception) -> str:
    if isinstance(error, ChildProcessError):  # nobody knows where it was
        return str(error)
    return "".join(traceback.format_exception(error)).rstrip()
