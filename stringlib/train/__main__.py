"""The command ``python -m stringlib.train``: every method with every seed, and what came out."""

from __future__ import annotations

import dataclasses
import itertools
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from lightning_fabric import Fabric

from stringlib.files import locked
from stringlib.tasks import Task, make_task
from stringlib.train.hardware import first_writes, make_fabric
from stringlib.train.interrupt import Interrupted
from stringlib.train.loop import fit
from stringlib.train.options import Options, read_options
from stringlib.train.report import report


def main(argv: Sequence[str] | None = None) -> int:
    """Train, compare and report; return the exit code."""
    words = [*(sys.argv[1:] if argv is None else argv)]
    options = read_options(words)
    command = shlex.join(["python", "-m", "stringlib.train", *words])
    try:
        _run(options, command)
    except (ValueError, FloatingPointError, ImportError, OSError) as error:
        _complain(f"error: {error}")
        return 2
    except KeyboardInterrupt as stopped:
        where = str(stopped) if isinstance(stopped, Interrupted) else "stopped at once"
        what = "the same command" + " without --fresh" * options.fresh
        again = command.replace(" --fresh", "")  # which would begin once more
        _complain(f"{where}\n{what} goes on from the last checkpoint: {again}")
        return 130
    return 0


def _run(options: Options, command: str) -> None:
    task = make_all(options)
    fabric = make_fabric(**options.hardware)
    fabric.launch()
    folder = options.folder
    taken = f"another process trains in {folder}; choose another --folder, or wait"
    with ExitStack() as held:
        first_writes(fabric, lambda: held.enter_context(locked(folder / ".lock", taken)))
        cells = train_all(options, task, fabric, print if fabric.is_global_zero else lambda _: None)
        if fabric.is_global_zero:
            report(cells, options.task, task.metric, folder, command)


def make_all(options: Options) -> Task:
    """Return the task, and make a model of each method once, so that a misfit shows at once.

    Raises:
        ValueError: If a method cannot be made; the message names it.
    """
    name = options.task
    try:
        task = make_task(name, **options.task_options)
    except TypeError as error:
        raise ValueError(f"{name}: {error}") from None
    for name, told in options.cells.items():
        try:
            task.model(**told)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name}: {error}") from None
    return task


def train_all(
    options: Options, task: Task, fabric: Fabric, say: Callable[[str], Any]
) -> dict[str, dict[str, Any]]:
    """Train what is not trained yet, seed by seed.

    Returns:
        For each name what the model was told, its number of ``parameters``, and its ``runs``, each
        with ``seed``, ``scores``, ``logged`` steps, ``losses`` there, ``wall_s``, and what its
        parts were ``made`` with.

    Raises:
        FloatingPointError: If a run went wrong; the message names its method and seed.
    """
    cells: dict[str, dict[str, Any]] = {
        name: {"told": told, "runs": []} for name, told in options.cells.items()
    }
    runs = [
        (seed, name, options.folder / name.replace(" ", "+") / f"seed-{seed}")
        for seed, name in itertools.product(range(options.seeds), cells)
    ]
    if options.fresh and fabric.is_global_zero:  # all at once: whoever stops early can go on
        for _, _, folder in runs:
            (folder / "checkpoint.pt").unlink(missing_ok=True)
    for number, (seed, name, folder) in enumerate(runs, 1):
        cell = cells[name]
        torch.manual_seed(seed)
        model = task.model(**cell["told"])
        cell["parameters"] = sum(p.numel() for p in model.parameters() if p.requires_grad)
        try:
            history = fit(
                model,
                task,
                dataclasses.replace(options.settings, seed=seed),
                fabric=fabric,
                folder=folder,
                resume=not options.fresh,
                progress=options.progress,
                label=f"{number}/{len(runs)} {name}, seed {seed}",
            )
        except FloatingPointError as error:
            raise FloatingPointError(f"{name}, seed {seed}: {error}") from None
        scores = ", ".join(f"{test} {score:.4g}" for test, score in history.scores.items())
        say(f"{name}, seed {seed}: {task.metric} {scores}, {history.wall_s:.1f} s")
        cell["runs"].append(
            {
                "seed": seed,
                "scores": history.scores,
                "logged": history.steps,
                "losses": history.losses,
                "wall_s": round(history.wall_s, 1),
                "made": history.made,
            }
        )
    return cells


def _complain(text: str) -> None:
    """Say it once, whatever the number of processes on this machine."""
    if os.environ.get("LOCAL_RANK", "0") == "0":
        print(text, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
