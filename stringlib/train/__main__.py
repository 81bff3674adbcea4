"""The command ``python -m stringlib.train``."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence

from stringlib.records import write_record
from stringlib.train.compare import make_all, train_all
from stringlib.train.hardware import make_fabric
from stringlib.train.interrupt import Interrupted
from stringlib.train.options import Options, read_options
from stringlib.train.report import plot, table


def main(argv: Sequence[str] | None = None) -> int:
    """Train, compare and report; return the exit code."""
    options = read_options(argv)
    command = shlex.join(["python", "-m", "stringlib.train", *(argv or sys.argv[1:])])
    try:
        return _run(options, command)
    except (ValueError, FloatingPointError, ImportError, OSError) as error:
        _complain(f"error: {error}")
        return 2
    except KeyboardInterrupt as stopped:
        where = str(stopped) if isinstance(stopped, Interrupted) else "stopped at once"
        _complain(f"{where}\nthe same command goes on from the last checkpoint: {command}")
        return 130


def _run(options: Options, command: str) -> int:
    task = make_all(options)
    fabric = make_fabric(**options.hardware)
    fabric.launch()
    first = fabric.is_global_zero
    cells = train_all(options, task, fabric, print if first else lambda _: None)
    if not first:
        return 0
    shown = table(cells, task.metric)
    print(f"\n{shown}\n")
    folder = options.folder
    (folder / "table.md").write_text(shown + "\n", encoding="utf8")
    plot(cells, task.metric, [folder / "plot.png", folder / "plot.svg"], options.task)
    write_record(
        folder / "record.json",
        command=command,
        seeds=list(range(options.seeds)),
        wall_s=sum(run["wall_s"] for cell in cells.values() for run in cell["runs"]),
        data={"task": options.task, "metric": task.metric, "cells": cells},
    )
    print(f"table, plot, record and checkpoints are in {folder}")
    return 0


def _complain(text: str) -> None:
    """Say it once, whatever the number of processes on this machine."""
    if os.environ.get("LOCAL_RANK", "0") == "0":
        print(text, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
