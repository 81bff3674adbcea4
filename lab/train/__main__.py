"""The command ``python -m lab.train``: train methods with several seeds and compare them."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import ExitStack

from tqdm import tqdm

from lab.console import allow_every_letter
from lab.files import locked
from lab.tasks import Task, make_task
from lab.train.code import code_of, digest
from lab.train.fitting import fit
from lab.train.hardware import first_writes, make_fabric
from lab.train.options import Options, read_options
from lab.train.report import report
from lab.train.runs import RunsError, train_all


def main(argv: Sequence[str] | None = None) -> int:
    """Train, compare and report, and return the exit code."""
    words = [*(sys.argv[1:] if argv is None else argv)]
    options = read_options(words)
    command = shlex.join(["python", "-m", "lab.train", *words])
    try:
        _run(options, command)
    except (RunsError, ValueError, FloatingPointError, ImportError, OSError) as error:
        _complain(f"error: {error}")
        return 2
    except KeyboardInterrupt as stopped:
        where = str(stopped) or f"stopped. The finished runs are in {options.folder}"
        what = "Run the same command" + " without --fresh" * options.fresh
        again = command.replace(" --fresh", "")  # which would begin once more
        _complain(f"{where}\n{what} to continue from the last checkpoint: {again}")
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
        say = tqdm.write if fabric.is_global_zero else lambda _: None  # above the bar
        cells = train_all(options, task, fabric, say)
        if fabric.is_global_zero:
            models = [task.model(**cell.told) for cell in options.cells.values()]
            code = digest(code_of(fit, task, *models))
            report(cells, options.task, task, folder, command, options.baseline, code)


def make_all(options: Options) -> Task:
    """Return the task, after making a model of each method once, so that errors occur at once.

    Raises:
        ValueError: If a method cannot be made; the message names the method. Also if several
            learning rates are given for a task without ``validation()``, or if the metric of the
            task is not defined in its class.
    """
    name = options.task
    try:
        task = make_task(name, **options.task_options)
    except TypeError as error:
        raise ValueError(f"{name}: {error}") from None
    if task.metric != type(task).metric:  # whose direction nobody has stated
        raise ValueError(
            f"metric must be defined in the class {type(task).__name__}, with less_is_better, got "
            f"{task.metric!r} as an attribute of an instance"
        )
    for name, cell in options.cells.items():
        try:
            task.model(**cell.told)
            if len(cell.settings) > 1:
                task.validation()
        except (TypeError, ValueError, NotImplementedError) as error:
            raise ValueError(f"{name}: {error}") from None
    return task


def _complain(text: str) -> None:
    """Say it once, whatever the number of processes on this machine."""
    if os.environ.get("LOCAL_RANK", "0") == "0":
        print(text, file=sys.stderr)


if __name__ == "__main__":
    allow_every_letter()
    sys.exit(main())
