"""Runs, one after another in this process, or several at a time in processes of Dask."""

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
"""What a process of this machine does first, for Ctrl-C is for the one that waits for it."""

KEEPS = {"MALLOC_TRIM_THRESHOLD_": 1 << 33, "MALLOC_TOP_PAD_": 1 << 28}
"""How a process of this machine holds memory. Dask's own gives back all above 64 kB, and each step
of training asks for it again: half as long again where tensors are large."""

_ONE_AT_A_TIME = threading.Lock()  # PyTorch's random numbers belong to the process


def count(text: str) -> int:
    """Return a number of things that a command line asks for.

    Raises:
        argparse.ArgumentTypeError: If it is less than 1.
    """
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def make_runs_parser(seeds: int, jobs: int) -> argparse.ArgumentParser:
    """Return what each command line of many runs has, a parent of its parser.

    Args:
        seeds: How many seeds unless ``--seeds`` says otherwise.
        jobs: How many runs at a time unless ``--jobs`` says otherwise.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    add = partial(parser.add_argument_group("runs").add_argument, type=count, metavar="N")
    add("--seeds", default=seeds, help=f"how many seeds ({seeds})")
    add("--jobs", default=jobs, help=f"runs at a time, each on one thread of the CPU ({jobs})")
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
    """Give ``each(function, items)``, which does a run for each item: ``function(item)``.

    It yields each item, as soon as its run is over, with what the function returned; or with what
    it raised, if that is spared, and the others go on. A run whose process was killed is done once
    more, by another one; killed again it has raised ``ChildProcessError``. Ctrl-C and SIGTERM end
    all runs by ``KeyboardInterrupt``, after those that are over were given.

    Args:
        jobs: How many runs at a time, in processes of this machine, each on one thread of the CPU;
            1 for this process.
        scheduler: Address of a Dask scheduler, whose workers do the runs instead.
        spared: Kinds of errors that cost their own run alone; another one ends all.
        hear: Called with what a run in another process says by :func:`tell`.
        saves: Whether runs note that they are asked to stop, so that it is worth to wait for them.

    Raises:
        ImportError: If Dask is needed and is not there.
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
    """Say something, in a run, to the process that waits for it: numbers, words and lists."""
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
