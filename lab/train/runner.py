"""Execution of runs, one after another in this process or several at a time with Dask."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from functools import partial
from itertools import islice
from queue import SimpleQueue
from typing import Any, TypeVar

import torch
from tqdm import tqdm

from lab.train.interrupt import SIGNALS, Interrupted, StopRequest, handled

Item = TypeVar("Item")
Each = Callable[[Callable[[Any], Any], Iterable[Item]], Iterator[tuple[Item, Any]]]
Errors = tuple[type[Exception], ...]

TOPIC = "stringlib"
DEAF = ["import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"]
"""First command of a worker process, which makes it ignore Ctrl-C.

The process that waits for the workers handles Ctrl-C.
"""

KEEPS = {"MALLOC_TRIM_THRESHOLD_": 1 << 33, "MALLOC_TOP_PAD_": 1 << 28}
"""Environment variables by which a worker process keeps the memory that it has freed.

By default Dask returns all freed blocks above 64 kB to the system, and each training step allocates
them again. Training with large tensors then takes 1.5 times as long.
"""

_ONE_AT_A_TIME = threading.Lock()  # PyTorch's random numbers belong to the process


def count(text: str) -> int:
    """Return a number that a command line contains, which must be at least 1.

    Raises:
        argparse.ArgumentTypeError: If the number is less than 1.
    """
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def make_runs_parser(seeds: int, jobs: int) -> argparse.ArgumentParser:
    """Return the parser of the options that all commands with several runs share.

    Args:
        seeds: Default of ``--seeds``.
        jobs: Default of ``--jobs``.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    add = partial(parser.add_argument_group("runs").add_argument, type=count, metavar="N")
    add("--seeds", default=seeds, help=f"number of seeds ({seeds})")
    add("--jobs", default=jobs, help=f"number of runs at a time, each on one CPU thread ({jobs})")
    return parser


@contextmanager
def workers(
    jobs: int,
    scheduler: str | None = None,
    *,
    spared: Errors = (Exception,),
    hear: Callable[..., Any] = print,
    saves: bool = False,
) -> Iterator[Each[Any]]:
    """Return a context with ``each(function, items)``, which calls the function for each item.

    ``each`` yields each item with the result of its run as soon as the run ends. If a run raises an
    error of a kind in ``spared``, the error takes the place of the result, and the other runs
    continue. If the process of a run is killed, the run is started once more in another process. If
    that process is killed too, the result is a ``ChildProcessError``. Ctrl-C and SIGTERM end all
    runs by a ``KeyboardInterrupt``, after the finished runs have been yielded.

    Args:
        jobs: Number of runs at a time, in processes of this machine with one CPU thread each. With
            1, runs are executed in this process.
        scheduler: Address of a Dask scheduler whose workers execute the runs instead.
        spared: Kinds of errors that end only their own run. Any other error ends all runs.
        hear: Function that is called with what a run in another process sends by :func:`tell`.
        saves: Whether the runs save their state if they are asked to stop. Then stopping waits for
            them.

    Raises:
        ImportError: If Dask is needed and not installed.
    """
    if jobs == 1 and scheduler is None:
        with handled(signal.default_int_handler, signal.SIGTERM):  # as Ctrl-C
            yield partial(_each_here, spared)
        return
    stop = StopRequest()
    with handled(stop.note, *SIGNALS), _client(jobs, scheduler) as client:
        pool = _Pool(client, None if scheduler else jobs, spared, hear, stop)
        try:
            yield pool.each
        except BaseException:
            if saves:
                client.run(StopRequest.ask_all, on_error="ignore")
                wait(pool.waiting)
            raise


def tell(*what: Any) -> None:
    """Send numbers, strings and lists from a run to the process that waits for the run."""
    from distributed import get_worker

    get_worker().log_event(TOPIC, what)


def _each_here(
    spared: Errors, function: Callable[[Item], Any], items: Iterable[Item]
) -> Iterator[tuple[Item, Any]]:
    for item in items:
        yield item, _came(partial(function, item), spared)


def _came(get: Callable[[], Any], spared: Errors) -> Any:
    """Return what came of a run: what it returned, or an error that is spared."""
    try:
        return get()
    except spared as error:
        return error


class _Pool:
    """Runs that are under way in processes.

    Args:
        client: Of a cluster.
        most: How many runs it is given at a time: none must wait behind one that kills its
            process. None for all, where Dask knows how many workers there are.
        spared: See :func:`workers`.
        hear: See :func:`workers`.
        stop: Says when to stop.
    """

    def __init__(
        self,
        client: Any,
        most: int | None,
        spared: Errors,
        hear: Callable[..., Any],
        stop: StopRequest,
    ) -> None:
        self.executor = client.get_executor(pure=False)
        self.most, self.spared, self.hear, self.stop = most, spared, hear, stop
        self.waiting: dict[Future[Any], Any] = {}
        self.said: SimpleQueue[Any] = SimpleQueue()
        client.subscribe_topic(TOPIC, lambda event: self.said.put(event[1]))  # in another thread

    def each(
        self, function: Callable[[Item], Any], items: Iterable[Item]
    ) -> Iterator[tuple[Item, Any]]:
        left = iter(items)
        while True:
            if self.stop.asked:
                raise KeyboardInterrupt
            room = None if self.most is None else self.most - len(self.waiting)
            for item in islice(left, room):
                self.waiting[self.executor.submit(_alone, function, item)] = item
            if not self.waiting:
                return
            over, _ = wait(self.waiting, timeout=0.2, return_when=FIRST_COMPLETED)
            while not self.said.empty():
                self.hear(*self.said.get())
            for future in over:
                yield self.waiting.pop(future), _came(partial(_result, future), self.spared)


def _alone(function: Callable[[Item], Any], item: Item) -> Any:
    """Do a run in a process of its own, on one thread."""
    with _ONE_AT_A_TIME:
        torch.set_num_threads(1)
        tqdm.set_lock(threading.RLock())  # one for all processes is left behind by a killed one
        try:
            return function(item)
        except Interrupted:  # saved; nobody waits for it
            return None


def _result(future: Future[Any]) -> Any:
    error = future.exception()
    if type(error).__name__ == "KilledWorker":
        raise ChildProcessError(
            "the process of the run was killed several times, perhaps by the system because memory "
            "ran out. Use fewer --jobs or a smaller --batch-size."
        )
    return future.result()


@contextmanager
def _client(jobs: int, scheduler: str | None) -> Iterator[Any]:
    """Give the workers of a scheduler, or processes that nothing beyond this machine reaches."""
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise ImportError(
            "--jobs and --scheduler need Dask. Run pip install -e '.[lab]'."
        ) from None
    if scheduler is not None:
        with Client(scheduler) as client:  # when it leaves, the cluster forgets what it waits for
            yield client
        return
    silent = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
    for name, size in KEEPS.items():
        os.environ.setdefault(name, str(size))  # for the processes: they read it when they begin
    with (
        LocalCluster(
            n_workers=jobs,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address=None,
            memory_limit=None,
            scheduler_kwargs={"allowed_failures": 1, **silent},
            silence_logs=logging.CRITICAL,
            preload=DEAF,
        ) as cluster,
        Client(cluster) as client,
    ):
        try:
            yield client
        finally:
            cluster.sync(_end, cluster.workers.values())


async def _end(nannies: Collection[Any]) -> None:
    """End processes, in the midst of a run too."""
    await asyncio.gather(*(one.close(timeout=0.5) for one in nannies), return_exceptions=True)
