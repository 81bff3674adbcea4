"""Time several functions in interleaved rounds, so that other processes slow all of them alike.

This file knows nothing about what is measured.
"""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch.profiler import ProfilerActivity, profile

Call = Callable[[], object]

SPREAD = 0.25
"""Rows whose quartiles are farther apart than this share of their median are marked."""


def interleaved(
    calls: Mapping[str, Call],
    rounds: int,
    wait: Call = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Call every function once per round, in a new random order in each round.

    Args:
        calls: Functions without arguments, by name.
        rounds: Number of rounds that count. One more round comes first and does not count.
        wait: Function that returns when the device has finished all work.
        clock: Function that returns the time in seconds.

    Returns:
        Milliseconds of each round by name, in the order of the rounds.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    order, shuffle = list(calls), random.Random(0).shuffle
    for round_number in range(rounds + 1):
        shuffle(order)
        for name in order:
            wait()
            start = clock()
            result = calls[name]()
            wait()
            elapsed = clock() - start
            del result  # outside the measured time
            if round_number:
                times[name].append(round(1e3 * elapsed, 4))
    return times


def summary(values: list[float]) -> tuple[float, float, float]:
    """Return the lower quartile, the median and the upper quartile."""
    if len(values) < 2:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def unsteady(quartiles: tuple[float, float, float]) -> bool:
    """Return whether the quartiles are so far apart that a row has to be read with care."""
    low, middle, high = quartiles
    return high - low > SPREAD * middle


def ratios(times: Mapping[str, list[float]], one: str, other: str) -> list[float]:
    """Return the time of ``one`` divided by that of ``other``, round by round.

    Slowdowns that affect both functions in a round cancel in the ratio.
    """
    return [a / b for a, b in zip(times[one], times[other], strict=True)]


def peak_megabytes(call: Call, device: torch.device) -> float:
    """Return the largest memory in use during a call, minus that before the call, in MB."""
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        torch.cuda.synchronize()
        return (torch.cuda.max_memory_allocated() - before) / 1e6
    cpu = [ProfilerActivity.CPU]
    with _quiet(), profile(activities=cpu, profile_memory=True) as record:
        call()
    events = [e for e in record.profiler.kineto_results.events() if e.name() == "[memory]"]
    used = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        used += event.nbytes()
        peak = max(peak, used)
    return peak / 1e6


def saved_megabytes(call: Call, known: Sequence[torch.Tensor] = ()) -> float:
    """Return the memory that a forward pass keeps for the backward pass, in MB.

    Tensors that share their memory count once. Tensors in ``known`` do not count, because they
    exist anyway.
    """
    held: dict[int, int] = {}

    def keep(x: torch.Tensor) -> torch.Tensor:
        held[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        result = call()
    for x in known:
        held.pop(x.untyped_storage().data_ptr(), None)
    del result  # until here nothing could take the place of what is kept
    return sum(held.values()) / 1e6


@contextmanager
def _quiet() -> Iterator[None]:
    """Return a context manager that suppresses the lines of PyTorch's profiler on stderr."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
