"""The command ``python -m stringlib.train``."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from lightning_fabric import Fabric

from stringlib.files import locked, whole
from stringlib.records import write_runs
from stringlib.train.compare import make_all, train_all
from stringlib.train.hardware import make_fabric
from stringlib.train.interrupt import Interrupted
from stringlib.train.options import Options, read_options
from stringlib.train.report import plot, table


def main(argv: Sequence[str] | None = None) -> int:
    """Train, compare and report; return the exit code."""
    words = [*(sys.argv[1:] if argv is None else argv)]
    options = read_options(words)
    command = shlex.join(["python", "-m", "stringlib.train", *words])
    try:
        return _run(options, command)
    except (ValueError, FloatingPointError, ImportError, OSError) as error:
        _complain(f"error: {error}")
        return 2
    except KeyboardInterrupt as stopped:
        where = str(stopped) if isinstance(stopped, Interrupted) else "stopped at once"
        what = "the same command" + " without --fresh" * options.fresh
        again = command.replace(" --fresh", "")  # which would begin once more
        _complain(f"{where}\n{what} goes on from the last checkpoint: {again}")
        return 130


def _run(options: Options, command: str) -> int:
    task = make_all(options)
    fabric = make_fabric(**options.hardware)
    fabric.launch()
    with _alone(options.folder, fabric):
        cells = train_all(options, task, fabric, print if fabric.is_global_zero else lambda _: None)
        if fabric.is_global_zero:
            _report(options, task.metric, cells, command)
    return 0


def _report(options: Options, metric: str, cells: dict[str, Any], command: str) -> None:
    """Write and print what came out."""
    shown = table(cells, metric)
    print(f"\n{shown}\n")
    folder = options.folder
    then = f"every run is kept in {folder}; make room, and the same command reports them"
    with whole(folder / "table.md", then) as part:
        part.write_text(shown + "\n", encoding="utf8")
    plot(cells, metric, [folder / "plot.png", folder / "plot.svg"], options.task, then)
    write_runs(
        folder / "record.json",
        command=command,
        cells=cells,
        data={"task": options.task, "metric": metric},
        then=then,
    )
    print(f"table, plot, record and checkpoints are in {folder}")


@contextmanager
def _alone(folder: Path, fabric: Fabric) -> Iterator[None]:
    """Keep a second command out of the folder; all processes of this one learn if it is taken."""
    with ExitStack() as stack:
        trouble = ""
        if fabric.is_global_zero:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                stack.enter_context(locked(folder / ".lock"))
            except BlockingIOError:
                trouble = f"another process trains in {folder}; choose another --folder, or wait"
            except OSError as error:
                trouble = str(error)
        trouble = fabric.broadcast(trouble)
        if trouble:
            raise OSError(trouble)
        try:
            yield
        finally:
            if fabric.is_global_zero:
                (folder / ".lock").unlink(missing_ok=True)


def _complain(text: str) -> None:
    """Say it once, whatever the number of processes on this machine."""
    if os.environ.get("LOCAL_RANK", "0") == "0":
        print(text, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
