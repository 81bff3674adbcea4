"""The runs of a command: the choice of learning rates, and the training with every seed."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from tqdm import tqdm

from lab.tasks import Task, make_task
from lab.train.checkpoint import folder_of
from lab.train.fitting import fit
from lab.train.hardware import first_writes, make_fabric
from lab.train.history import History
from lab.train.options import Options, import_modules
from lab.train.runner import Each, tell, workers
from lab.train.settings import Settings

if TYPE_CHECKING:  # importing Lightning takes seconds
    from lightning_fabric import Fabric

Found = dict[str, Any]


class RunsError(Exception):
    """Some runs failed. The message names them. The other runs are kept."""


class Run(NamedTuple):
    """One run: a model to be trained.

    Attributes:
        name: Name of the cell.
        settings: Settings of the training, with the seed.
        folder: Folder of the run.
        tries: Whether the run tries a learning rate on the ``validation()`` of the task.
    """

    name: str
    settings: Settings
    folder: Path
    tries: bool

    def __str__(self) -> str:
        """Return the cell together with the seed, or with the learning rate that is tried."""
        if self.tries:
            return f"{self.name}, rate {self.settings.rate:g} on validation"
        return f"{self.name}, seed {self.settings.seed}"


def train_all(
    options: Options, task: Task, fabric: Fabric, say: Callable[[str], Any]
) -> dict[str, dict[str, Any]]:
    """Execute all runs that are not finished: first those that try learning rates, then all seeds.

    Returns:
        For each cell the options of the model (``told``), its number of ``parameters``, its
        ``rate``, the scores of all learning rates that were ``tried``, and its ``runs``. Each run
        has ``seed``, ``scores``, ``logged`` steps, ``losses`` at these steps, ``wall_s``, and the
        commit and hardware with which its parts were ``made``.

    Raises:
        RunsError: If runs failed, because their loss was not finite or their process was killed.
        FloatingPointError: If the loss of a method is not finite for any learning rate.
        KeyboardInterrupt: If the runs were asked to stop. Unfinished runs are saved.
    """
    several = {name: c.settings for name, c in options.cells.items() if len(c.settings) > 1}
    trials = [_run(options, name, one, True) for name, many in several.items() for one in many]
    count = sum(run.settings.steps for run in trials)
    count += len(options.seeds) * sum(c.settings[0].steps for c in options.cells.values())
    if options.fresh:  # all at once: whoever stops early can go on
        first_writes(fabric, partial(_clear, options))
    wanted = sys.stderr.isatty() if options.progress is None else options.progress
    progress = Progress(count, wanted and fabric.is_global_zero)
    cells: dict[str, dict[str, Any]] = {}
    seeds = []
    function = partial(_train, options, task, fabric, progress.see)
    if options.jobs > 1:
        function = partial(_do, options)
    spared = FloatingPointError, ChildProcessError
    processes = workers(options.jobs, spared=spared, hear=progress.see, saves=True)
    with progress.bar, processes as each:
        do = partial(_do_all, each, function, progress)
        judged = {(run.name, run.settings.rate): found["score"] for run, found in do(trials)}
        for name, cell in options.cells.items():
            best = cell.settings[0]
            cells[name] = {"told": cell.told, "runs": []}
            if name in several:
                tried = {f"{s.rate:g}": judged[name, s.rate] for s in cell.settings}
                best = cell.settings[_best(name, [*tried.values()], task.less_is_better)]
                cells[name]["tried"] = tried
                scores = ", ".join(f"{rate} {_score(score)}" for rate, score in tried.items())
                say(f"{name}: rate {best.rate:g}; on validation {scores}")
            cells[name]["rate"] = best.rate
            some = (dataclasses.replace(best, seed=seed) for seed in options.seeds)
            seeds += [_run(options, name, one, False) for one in some]
        seeds.sort(key=lambda run: run.settings.seed)  # whoever stops early has every method
        for run, found in do(seeds):
            cells[run.name]["parameters"] = found.pop("parameters")
            cells[run.name]["runs"].append(found)
            shown = ", ".join(f"{test} {_score(score)}" for test, score in found["scores"].items())
            say(f"{run}: {task.metric} {shown}, {found['wall_s']:.1f} s")
    for told in cells.values():
        told["runs"].sort(key=lambda found: found["seed"])
    return cells


def _run(options: Options, name: str, settings: Settings, tries: bool) -> Run:
    folder = options.folder / folder_of(name)
    if len(options.cells[name].settings) > 1:
        folder /= f"rate-{settings.rate}"
    return Run(name, settings, folder / ("validation" if tries else f"seed-{settings.seed}"), tries)


def _clear(options: Options) -> None:
    for name in options.cells:
        for path in (options.folder / folder_of(name)).rglob("checkpoint.pt"):
            path.unlink()


def _best(name: str, scores: Sequence[float | None], less: bool) -> int:
    """Return the place of the best score, of equals the first; None is that of a loss gone bad."""
    finite = [score for score in scores if score is not None]
    if not finite:
        raise FloatingPointError(
            f"{name}: the loss must be finite for at least one --rate, but it is for none"
        )
    return scores.index(min(finite) if less else max(finite))


def _score(score: float | None) -> str:
    return "gone bad" if score is None else f"{score:.4g}"


def _train(
    options: Options, task: Task, fabric: Fabric, see: Callable[..., Any], run: Run
) -> Found:
    """Return what is recorded of a run; of one that tries a rate its score, None if it went bad."""
    task = task.validation() if run.tries else task
    torch.manual_seed(run.settings.seed)
    model = task.model(**options.cells[run.name].told)
    on_log = partial(_tell, see, run)
    told: dict[str, Any] = {"folder": run.folder, "on_log": on_log, "progress": False}
    try:
        history = fit(model, task, run.settings, fabric=fabric, **told)
    except FloatingPointError:
        if run.tries:
            return {"score": None}
        raise
    if run.tries:
        score = next(iter(history.scores.values()))
        return {"score": score if math.isfinite(score) else None}
    return {
        "parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "seed": run.settings.seed,
        "scores": history.scores,
        "logged": history.steps,
        "losses": history.losses,
        "wall_s": round(history.wall_s, 1),
        "made": history.made,
    }


class Progress:
    """One progress bar for the steps of all runs. It names the run that was last updated.

    Args:
        steps: Number of steps of all runs together.
        shown: Whether to show the bar.
    """

    def __init__(self, steps: int, shown: bool) -> None:
        # methods differ in speed: the mean of all says best how long the rest takes
        self.bar = tqdm(total=steps, unit="step", disable=not shown, leave=False, smoothing=0)
        self.done: dict[str, int] = {}

    def see(self, run: str, steps: Sequence[int], loss: float) -> None:
        """Update the bar with the last logged step of a run."""
        if self.bar.disable:
            return
        before = self.done.get(run)
        if before is None:  # what a checkpoint held takes no time
            before = steps[-2] + 1 if len(steps) > 1 else 0
            self.bar.initial += before
            self.bar.n += before
        self.done[run] = steps[-1] + 1
        self.bar.set_description(run, refresh=False)
        self.bar.set_postfix_str(f"loss {loss:.4g}", refresh=False)
        self.bar.update(steps[-1] + 1 - before)

    def end(self, run: Run) -> None:
        """Count a run as finished, also if it failed before its last step."""
        if not self.bar.disable:
            self.bar.total -= run.settings.steps - self.done.get(str(run), 0)


def _do_all(
    each: Each[Run], function: Callable[[Run], Found], progress: Progress, runs: Iterable[Run]
) -> Iterator[tuple[Run, Found]]:
    """Yield each run with what is recorded of it; then raise, if there are some that failed."""
    failed = []
    for run, came in each(function, runs):
        progress.end(run)
        if isinstance(came, Exception):
            failed.append(f"{run}: {came}")
        else:
            yield run, came
    if failed:
        raise RunsError(
            "; ".join(failed) + ". The other runs are kept. Run the same command to continue."
        )


def _tell(see: Callable[..., Any], run: Run, history: History) -> None:
    see(str(run), history.steps[-2:], history.losses[-1])


_MADE: dict[str, Any] = {}  # what this one of several processes works with


def _do(options: Options, run: Run) -> Found:
    """Do a run in a process of its own, and tell the one that waits how far it is."""
    if not _MADE:
        import_modules(options.imports)
        _MADE["task"] = make_task(options.task, **options.task_options)
        _MADE["fabric"] = make_fabric(**options.hardware)
    return _train(options, _MADE["task"], _MADE["fabric"], tell, run)
