"""Measure the largest rates of the machine for copies, products, exponentials and transforms.

Run with python -m benchmarks.limits or `make bench`. No code of this package is measured here.
Results are written to tensors that exist already, so that no time is spent on new memory.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from benchmarks.harness import ROOT, command, command_line, device_name
from benchmarks.timing import interleaved
from lab.records import write_record


@dataclass(frozen=True)
class Limit:
    """A simple operation, and the amount of work of one call.

    Attributes:
        name: Name of its row in the table.
        unit: Unit of the work: bytes (read and written), multiplications (each with one addition),
            exponentials, or operations (additions and multiplications).
        work: Amount of work of one call, in this unit.
        call: Function that runs the operation.
    """

    name: str
    unit: str
    work: int
    call: Callable[[], object]


COPIES = (2**16, 2**20, 2**24, 2**28)
COLUMNS = (32, 64, 128)
ROWS = 16384
TRANSFORMS = (64, 1024)
TIMES = 2**22  # small work is repeated until a call does about as much


def limits(device: torch.device) -> Iterator[Limit]:
    """Return the operations that are measured, with fixed random numbers."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).to(device)

    def again(times: int, call: Callable[[], object]) -> Callable[[], object]:
        def calls() -> None:
            for _ in range(times):
                call()

        return calls

    for size in COPIES:
        x = normal(size // 4)
        y, times = torch.empty_like(x), max(1, TIMES * 8 // size)
        yield Limit(
            f"copy {size} bytes",
            "bytes",
            2 * size * times,
            again(times, partial(y.copy_, x)),
        )
    side = 1024
    a, b, c = normal(3, side, side)
    yield Limit(
        "square product",
        "multiplications",
        side**3,
        partial(torch.mm, a, b, out=c),
    )
    rows = normal(ROWS, 64)
    for columns in COLUMNS:
        right, out = normal(64, columns), normal(ROWS, columns)
        yield Limit(
            f"product with {columns} columns",
            "multiplications",
            ROWS * 64 * columns,
            partial(torch.mm, rows, right, out=out),
        )
    numbers = normal(TIMES)
    result = torch.empty_like(numbers)
    yield Limit("exp", "exponentials", TIMES, partial(torch.exp, numbers, out=result))
    for length in TRANSFORMS:
        batch = numbers.view(-1, length)
        spectrum = torch.fft.rfft(batch)
        yield Limit(
            f"real FFT of {length}",
            "operations",
            round(2.5 * TIMES * math.log2(length)),
            partial(torch.fft.rfft, batch, out=spectrum),
        )


def measure(device: torch.device, threads: Sequence[int], rounds: int) -> list[dict[str, Any]]:
    """Return a row for each operation and number of threads, with its work and times in ms."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    normally, rows = torch.get_num_threads(), []
    all_limits = list(limits(device))
    try:
        for count in threads:
            torch.set_num_threads(count or normally)
            times = interleaved({limit.name: limit.call for limit in all_limits}, rounds, wait)
            rows += [
                {
                    "name": limit.name,
                    "unit": limit.unit,
                    "work": limit.work,
                    "threads": count,
                    "times_ms": times[limit.name],
                }
                for limit in all_limits
            ]
    finally:
        torch.set_num_threads(normally)
    return rows


def rate(row: dict[str, Any]) -> float:
    """Return the rate of the best round of a row, in units per second.

    Other processes can only slow a round down, so the best round is the most accurate.
    """
    return float(row["work"] / min(row["times_ms"]) * 1e3)


def run(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Measure the rates with the options of the command line, and write the record."""
    options = command("Measure what the machine can do at most.").parse_args(argv)
    device, start = torch.device(options.device), time.perf_counter()
    threads = options.threads if device.type == "cpu" else (0,)
    data = {"rounds": options.rounds, "limits": measure(device, threads, options.rounds)}
    for row in data["limits"]:
        shared = f", {row['threads']} threads" if row["threads"] else ""
        print(f"{row['name']:28} {rate(row) / 1e9:10.2f} billion {row['unit']} a second{shared}")
    write_record(
        options.output or ROOT / "results" / f"bench-limits-{device_name(device)}.json",
        command=command_line("limits", options.rounds, options.threads),
        seeds=[0],
        wall_s=round(time.perf_counter() - start, 1),
        data=data,
    )
    return data


if __name__ == "__main__":
    run()
