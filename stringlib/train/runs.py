"""The runs of a command: learning rates tried, every seed trained, one at a time or several."""

from __future__ import annotations

import dataclasses
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, wait
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple

import torch
from lightning_fabric import Fabric
from tqdm import tqdm

from stringlib.tasks import Task, make_task
from stringlib.train.cells import folder_of
from stringlib.train.hardware import first_writes, make_fabric
from stringlib.train.history import History
from stringlib.train.interrupt import Interrupted, handled
from stringlib.train.loop import fit
from stringlib.train.options import Options, import_modules
from stringlib.train.settings import Settings
from stringlib.train.study import processes

Found = dict[str, Any]
Do = Callable[[Iterable["Run"]], Iterator[tuple["Run", Found]]]


class Run(NamedTuple):
    """One model to train.

    Attributes:
        name: Of its cell.
        settings: How to train it, its seed among them.
        folder: Where it is kept.
        tries: Whether it tries a learning rate, on the task's ``validation()``.
    """

    name: str
    settings: Settings
    folder: Path
    tries: bool

    def __str__(self) -> str:
        """Return its cell and its seed, or the rate that it tries."""
        if self.tries:
            return f"{self.name}, rate {self.settings.rate:g} on validation"
        return f"{self.name}, seed {self.settings.seed}"


def train_all(
    options: Options, task: Task, fabric: Fabric, say: Callable[[str], Any]
) -> dict[str, dict[str, Any]]:
    """Train what is not trained yet: first the rates that are to be tried, then seed by seed.

    Returns:
        For each name what the model was told, its number of ``parameters``, its ``rate``, the
        scores of all rates that were ``tried``, and its ``runs``, each with ``seed``, ``scores``,
        ``logged`` steps, ``losses`` there, ``wall_s``, and what its parts were ``made`` with.

    Raises:
        FloatingPointError: If a run went wrong; the message names its method and seed.
        Interrupted: If several runs at a time were asked to stop; those under way are saved.
    """
    lists = {name: cell.settings for name, cell in options.cells.items()}
    tries = {name: [_run(options, name, s, True) for s in many] for name, many in lists.items()}
    trials = [run for many in tries.values() if len(many) > 1 for run in many]
    count = len(options.seeds) * sum(many[0].steps for many in lists.values())
    count += sum(run.settings.steps for run in trials)
    if options.fresh:  # all at once: whoever stops early can go on
        first_writes(fabric, partial(_clear, options))
    wanted = sys.stderr.isatty() if options.progress is None else options.progress
    bar = Progress(count, wanted and fabric.is_global_zero)
    with bar.bar, _workers(options, task, fabric, bar) as do:
        judged = {run: found["score"] for run, found in do(trials)}
        tried = {
            name: {run.settings.rate: judged[run] for run in many if run in judged}
            for name, many in tries.items()
        }
        best = {name: many[0] for name, many in lists.items()}
        for name, scores in tried.items():
            if scores:
                best[name] = lists[name][_best(name, [*scores.values()], task.metric)]
                each = ", ".join(f"{r:g} {_score(s)}" for r, s in scores.items())
                bar.say(say, f"{name}: rate {best[name].rate:g}; on validation {each}")
        cells: dict[str, dict[str, Any]] = {
            name: {"told": cell.told, "rate": best[name].rate}
            for name, cell in options.cells.items()
        }
        results: dict[tuple[str, int], Found] = {}
        seeds = [
            _run(options, name, dataclasses.replace(best[name], seed=seed), False)
            for seed in options.seeds
            for name in cells
        ]
        for run, found in do(seeds):
            cells[run.name]["parameters"] = found.pop("parameters")
            results[run.name, run.settings.seed] = found
            shown = ", ".join(f"{test} {score:.4g}" for test, score in found["scores"].items())
            bar.say(say, f"{run}: {task.metric} {shown}, {found['wall_s']:.1f} s")
    for name, cell in cells.items():
        if tried[name]:
            cell["tried"] = {f"{rate:g}": score for rate, score in tried[name].items()}
        cell["runs"] = [results[name, seed] for seed in options.seeds]
    return cells


def _run(options: Options, name: str, settings: Settings, tries: bool) -> Run:
    folder = options.folder / folder_of(name)
    if len(options.cells[name].settings) > 1:
        folder /= f"rate-{settings.rate}"
    return Run(name, settings, folder / ("validation" if tries else f"seed-{settings.seed}"), tries)


def _clear(options: Options) -> None:
    """Remove the checkpoints of all runs that may be asked for."""
    for name, cell in options.cells.items():
        for one in cell.settings:
            some = [dataclasses.replace(one, seed=seed) for seed in options.seeds]
            runs = [_run(options, name, settings, False) for settings in some]
            for run in [_run(options, name, one, True), *runs]:
                (run.folder / "checkpoint.pt").unlink(missing_ok=True)


def _best(name: str, scores: Sequence[float | None], metric: str) -> int:
    """Return the place of the best score, of equals the first; None is that of a loss gone bad."""
    finite = [score for score in scores if score is not None]
    if not finite:
        raise FloatingPointError(f"{name}: the loss must be finite at some --rate, but is at none")
    return scores.index(min(finite) if metric == "bits" else max(finite))


def _score(score: float | None) -> str:
    return "gone bad" if score is None else f"{score:.4g}"


class Trainer:
    """Trains one run after another.

    Args:
        options: What the command line asked for.
        task: The task.
        fabric: Where to train.
    """

    def __init__(self, options: Options, task: Task, fabric: Fabric) -> None:
        self.options, self.task, self.fabric = options, task, fabric

    def __call__(self, run: Run, on_log: Callable[[History], Any]) -> Found:
        """Return what is recorded of a run; of one that tries a rate its score, or None.

        Raises:
            FloatingPointError: If the loss is no longer finite, where no rate is tried.
        """
        task = self.task.validation() if run.tries else self.task
        torch.manual_seed(run.settings.seed)
        model = task.model(**self.options.cells[run.name].told)
        try:
            history = fit(
                model,
                task,
                run.settings,
                fabric=self.fabric,
                folder=run.folder,
                on_log=on_log,
                progress=False,
            )
        except FloatingPointError as error:
            if run.tries:
                return {"score": None}
            raise FloatingPointError(f"{run}: {error}") from None
        if run.tries:
            return {"score": next(iter(history.scores.values()))}
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
    """One bar over the steps of all runs, with the run that was heard of last.

    Args:
        steps: Of all runs.
        shown: Whether there is a bar.
    """

    def __init__(self, steps: int, shown: bool) -> None:
        # methods differ in speed: the mean of all says best how long the rest takes
        self.bar = tqdm(total=steps, unit="step", disable=not shown, leave=False, smoothing=0)
        self.done: dict[str, int] = {}

    def see(self, run: Run, steps: Sequence[int], loss: float) -> None:
        """Take note of a run's last logged steps."""
        if self.bar.disable:
            return
        before = self.done.get(str(run))
        if before is None:  # what a checkpoint held takes no time
            before = steps[-2] + 1 if len(steps) > 1 else 0
            self.bar.initial += before
            self.bar.n += before
        self.done[str(run)] = steps[-1] + 1
        self.bar.set_description(str(run), refresh=False)
        self.bar.set_postfix_str(f"loss {loss:.4g}", refresh=False)
        self.bar.update(steps[-1] + 1 - before)

    def end(self, run: Run) -> None:
        """Expect no more of a run: it was over, or its loss has gone bad."""
        if not self.bar.disable:
            self.bar.total -= run.settings.steps - self.done.get(str(run), 0)

    def say(self, say: Callable[[str], Any], text: str) -> None:
        """Say something beside the bar."""
        self.bar.clear()
        say(text)
        self.bar.refresh()


@contextmanager
def _workers(options: Options, task: Task, fabric: Fabric, bar: Progress) -> Iterator[Do]:
    """Give what does runs, here or in processes, and yields each with what came of it."""
    if options.jobs == 1:
        yield partial(_here, Trainer(options, task, fabric), bar)
        return
    heard = get_context("spawn").SimpleQueue()
    try:
        with (
            handled(signal.default_int_handler, signal.SIGTERM),  # as Ctrl-C
            processes(options.jobs, _prepare, options, heard) as pool,
        ):
            yield partial(_elsewhere, pool, heard, bar)
    except KeyboardInterrupt:
        raise Interrupted(f"stopped; what was done and under way is in {options.folder}") from None


def _here(trainer: Trainer, bar: Progress, runs: Iterable[Run]) -> Iterator[tuple[Run, Found]]:
    for run in runs:
        found = trainer(run, partial(_tell, bar.see, run))
        bar.end(run)
        yield run, found


def _elsewhere(
    pool: Executor, heard: Any, bar: Progress, runs: Iterable[Run]
) -> Iterator[tuple[Run, Found]]:
    waiting = {pool.submit(_do, run): run for run in runs}
    while waiting:
        done, _ = wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED)
        while not heard.empty():
            bar.see(*heard.get())
        for future in done:
            run = waiting.pop(future)
            bar.end(run)
            yield run, future.result()


def _tell(see: Callable[[Run, Sequence[int], float], Any], run: Run, history: History) -> None:
    see(run, history.steps[-2:], history.losses[-1])


_PROCESS: dict[str, Any] = {}  # what this one of several works with


def _prepare(options: Options, heard: Any) -> None:
    torch.set_num_threads(1)
    tqdm.set_lock(RLock())  # one for all processes would be left behind when this one is ended
    import_modules(options.imports)
    task = make_task(options.task, **options.task_options)
    trainer = Trainer(options, task, make_fabric(**options.hardware))
    _PROCESS.update(trainer=trainer, heard=heard)


def _do(run: Run) -> Found:
    """Do a run in a process of its own, and tell the parent how far it is."""
    heard = _PROCESS["heard"]
    try:
        return _PROCESS["trainer"](run, partial(_tell, lambda *told: heard.put(told), run))
    except Interrupted:
        signal.raise_signal(signal.SIGTERM)  # it is saved: end, instead of taking another run
        raise
