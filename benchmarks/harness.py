"""Measure the contestants of a suite, check that their results agree, and write a record.

A suite defines contestants, shapes and goals. An example is `encoders.py`. This file contains
everything else.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks import peers
from benchmarks.bounds import Work, least_ms
from benchmarks.goals import MODES, UNSTEADY, Goal, outcomes, print_goals
from benchmarks.scaling import Ladder, print_scaling, scaling
from benchmarks.timing import (
    interleaved,
    peak_megabytes,
    ratios,
    saved_megabytes,
    summary,
    unsteady,
)
from lab.console import allow_every_letter
from lab.records import write_record

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Shape:
    """Sizes of q and k, the families that are measured at them, and the most rounds."""

    name: str
    batch: int
    heads: int
    seq: int
    head_dim: int
    families: tuple[str, ...]
    rounds: int = 1000

    def __str__(self) -> str:
        """Return the name and the sizes as the tables show them."""
        sizes = f"B{self.batch} H{self.heads} N{self.seq} D{self.head_dim}"
        return f"{self.name}: {sizes}"


@dataclass
class Entry:
    """A contestant, prepared for one shape.

    Attributes:
        call: Function that is measured.
        inputs: Arguments of the function, in the form that the contestant expects.
        parameters: Learned parameters. The backward pass computes their gradients, too.
        restore: Function that converts a result to the form in which all contestants of the family
            agree. Default: the result is not changed.
    """

    call: Callable[..., tuple[Tensor, ...]]
    inputs: Sequence[Tensor]
    parameters: Sequence[Tensor] = ()
    restore: Callable[[Tensor], Tensor] = lambda y: y


@dataclass(frozen=True)
class Contestant:
    """One way to compute the result of a family.

    Attributes:
        name: Name of its row in the tables.
        family: Name of the family. All contestants of a family give the same result, and are
            compared with its first contestant.
        build: Function that returns an entry for a shape and its data. It raises
            ``ModuleNotFoundError`` if a library is not installed.
        most: Largest batch × heads × seq at which the contestant is measured. Larger shapes take
            too long.
        longest: Largest seq at which the contestant is measured.
        tolerance: Additional difference from the family's result that is allowed, for kernels that
            multiply in TF32.
        only: Names of the shapes at which the contestant is measured. If empty, all shapes.
        modes: Modes in which the contestant is measured. FlexAttention, for example, has no
            gradient on a CPU.
        layout: Which channels form a pair, if contestants differ in it.
    """

    name: str
    family: str
    build: Callable[[Shape, Any], Entry]
    most: float = float("inf")
    longest: float = float("inf")
    tolerance: float = 0.0
    only: tuple[str, ...] = ()
    modes: tuple[str, ...] = MODES
    layout: str = ""

    def runs_at(self, shape: Shape) -> bool:
        """Return whether the contestant is measured at a shape."""
        tokens = shape.batch * shape.heads * shape.seq
        small = tokens <= self.most and shape.seq <= self.longest
        small = small and (not self.only or shape.name in self.only)
        return self.family in shape.families and small


@dataclass(frozen=True)
class Suite:
    """Contestants and shapes that are measured together.

    Attributes:
        name: Name of the suite, which is a part of the record's name.
        contestants: Contestants in the order of the tables.
        shapes: Shapes at which the contestants are measured.
        goals: Goals of the project for this suite.
        data: Function that returns the data for a shape and a device, as ``Contestant.build``
            expects them.
        work: For each family, the function that returns the least work for a shape.
        peers: Distributions whose versions are recorded.
        ladders: Groups of shapes that differ only in length, with the contestants that are compared
            along them.
        modes: Modes of the measurement: without gradients, with gradients, or both.
    """

    name: str
    contestants: Sequence[Contestant]
    shapes: Sequence[Shape]
    goals: Sequence[Goal]
    data: Callable[[Shape, torch.device], Any]
    work: Mapping[str, Callable[[Shape], Work]]
    peers: Sequence[str]
    ladders: Sequence[Ladder] = ()
    modes: tuple[str, ...] = MODES

    def said(self) -> list[str]:
        """Return the goals in words."""
        layouts = {c.name: c.layout for c in self.contestants}
        shapes = {shape.name: str(shape) for shape in self.shapes}
        return [goal.said(layouts, shapes) for goal in self.goals]


@dataclass
class Options:
    """Options of the command line."""

    rounds: int = 15
    threads: Sequence[int] = (1, 2)
    batch: int = 1
    shapes: Sequence[str] = ()
    fresh: bool = False
    output: Path | None = None
    device: str = field(default_factory=lambda: "cuda" if torch.cuda.is_available() else "cpu")


def build(suite: Suite, shape: Shape, device: torch.device) -> dict[str, Entry]:
    """Build the contestants of a shape that are installed, and check that their results agree.

    Raises:
        AssertionError: If the result of a contestant differs from that of its family. The message
            says by how much.
    """
    data = suite.data(shape, device)
    entries: dict[str, Entry] = {}
    first: dict[str, list[Tensor]] = {}
    for contestant in suite.contestants:
        if not contestant.runs_at(shape):
            continue
        try:
            entry = contestant.build(shape, data)
        except ModuleNotFoundError:
            continue
        with torch.no_grad():
            results = [entry.restore(y) for y in entry.call(*entry.inputs)]
        wanted = first.setdefault(contestant.family, results)
        # an angle of n radians in float32 errs by n 2⁻²⁴ and more, and some make it so
        allowed = 1e-4 + 1e-6 * shape.seq + contestant.tolerance
        gap = max(
            ((a - b).abs().max() / b.abs().max()).item()
            for a, b in zip(results, wanted, strict=True)
        )
        if not gap <= allowed:
            raise AssertionError(
                f"{contestant.name} must agree with its family to {allowed:.1e}, got a difference "
                f"of {gap:.1e} at {shape}"
            )
        entries[contestant.name] = entry
    return entries


def compiled(build: Callable[[Shape, Any], Entry]) -> Callable[[Shape, Any], Entry]:
    """Return a ``build`` function whose call is compiled by ``torch.compile``."""

    def built(shape: Shape, data: Any) -> Entry:
        entry = build(shape, data)
        return replace(entry, call=peers.compiled(entry.call))

    return built


def calls(entries: dict[str, Entry], mode: str) -> dict[str, Callable[[], object]]:
    """Return the function that is timed for each entry.

    The function runs the call alone, or the call and the computation of all gradients.
    """
    return {name: _call(entry, mode) for name, entry in entries.items()}


def _call(entry: Entry, mode: str) -> Callable[[], object]:
    if mode == MODES[0]:
        return torch.no_grad()(lambda: entry.call(*entry.inputs))
    leaves = _leaves(entry)
    with torch.no_grad():
        upstream = [torch.randn_like(y) for y in entry.call(*entry.inputs)]

    def both() -> object:
        results = entry.call(*leaves)
        return results, torch.autograd.grad(results, [*leaves, *entry.parameters], upstream)

    return both


def _leaves(entry: Entry) -> list[Tensor]:
    return [x.detach().requires_grad_() for x in entry.inputs]


def _saved(suite: Suite, shape: Shape, mode: str, entries: dict[str, Entry]) -> dict[str, float]:
    """Return the memory that contestants keep for the backward pass, in MB.

    Only contestants for which a goal limits this memory are measured.
    """
    asked = [g for g in suite.goals if (g.of, g.shape, g.mode) == ("saved_mb", shape.name, mode)]
    names = dict.fromkeys(n for g in asked for n in (g.one, g.other) if n in entries)
    found = {}
    for name in names:
        entry, leaves = entries[name], _leaves(entries[name])
        found[name] = saved_megabytes(lambda e=entry, x=leaves: e.call(*x), entry.parameters)
    return found


def run(suite: Suite, options: Options) -> dict[str, Any]:
    """Measure all tables of a suite, print tables and goals, and write the record.

    After each table, all tables so far are written to a file beside the record. If a run is cut
    off, the next run starts from this file, unless code or settings have changed since.

    Returns:
        The data of the record.
    """
    device = torch.device(options.device)
    wider = [replace(shape, batch=options.batch * shape.batch) for shape in suite.shapes]
    suite = replace(suite, shapes=wider)
    output = options.output or ROOT / "results" / f"bench-{suite.name}-{device_name(device)}.json"
    # not ".part": the finished record is written under that name first
    unfinished = output.with_name(f"{output.name}.unfinished")
    settings = {
        "rounds": options.rounds,
        "batch": options.batch,
        "device": device_name(device),
        "torch": torch.__version__,
        "peers": peers.versions(suite.peers),
        "code": _fingerprint(),
    }
    data: dict[str, Any] = {"settings": settings, "blocks": []}
    if unfinished.exists() and not options.fresh:
        before = json.loads(unfinished.read_text(encoding="utf8"))["data"]
        if before["settings"] == settings:
            data = before
            print(f"Going on with {unfinished.name}: {len(data['blocks'])} tables are there.")
    start = time.perf_counter() - data.get("wall_s", 0.0)
    chosen = [s for s in suite.shapes if s.name in options.shapes or not options.shapes]
    threads = options.threads if device.type == "cpu" else (0,)
    for block in _missing(suite, chosen, threads, options.rounds, device, data["blocks"]):
        data["blocks"].append(block)
        data["wall_s"] = round(time.perf_counter() - start, 1)
        _write(unfinished, suite, options, data)
        print_block(suite, block)
    data["goals"] = outcomes(suite.goals, suite.said(), data["blocks"])
    data["scaling"] = [scaling(ladder, data["blocks"]) for ladder in suite.ladders]
    for found in data["scaling"]:
        print_scaling(found)
    print_goals(data["goals"])
    _write(output, suite, options, data)
    unfinished.unlink(missing_ok=True)
    print(f"\nWritten: {output}")
    return data


def _missing(
    suite: Suite,
    shapes: Sequence[Shape],
    threads: Sequence[int],
    rounds: int,
    device: torch.device,
    done: list[dict[str, Any]],
) -> Iterator[dict[str, Any]]:
    """Measure the tables that do not exist yet, and yield them one by one."""
    there = {(b["shape"]["name"], b["threads"], b["mode"]) for b in done}
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    normally = torch.get_num_threads()
    best: dict[int, dict[str, float]] = {}  # threads → what the machine took for simple things
    for shape in shapes:
        todo = [
            (count, mode)
            for count, mode in itertools.product(threads, suite.modes)
            if (shape.name, count, mode) not in there
        ]
        if not todo:
            continue
        torch.manual_seed(0)
        entries = build(suite, shape, device)
        try:
            for count, mode in todo:
                torch.set_num_threads(count or normally)
                able = {c.name for c in suite.contestants if mode in c.modes}
                functions = calls({n: e for n, e in entries.items() if n in able}, mode)
                load = [os.getloadavg()[0]]
                memory = {n: peak_megabytes(f, device) for n, f in functions.items()}
                saved = _saved(suite, shape, mode, entries)
                works = {
                    c.name: suite.work[c.family](shape).of(mode == MODES[1])
                    for c in suite.contestants
                    if c.name in functions
                }
                least = least_ms(works, device, wait, best.setdefault(count, {}))
                times = interleaved(functions, min(rounds, shape.rounds), wait)
                yield {
                    "shape": asdict(shape),
                    "threads": count,
                    "mode": mode,
                    "load": [round(x, 2) for x in (*load, os.getloadavg()[0])],
                    "peak_mb": {n: round(m, 2) for n, m in memory.items()},
                    "saved_mb": {n: round(m, 4) for n, m in saved.items()},
                    "least_ms": {n: float(f"{ms:.4g}") for n, ms in least.items()},
                    "times_ms": times,
                }
        finally:
            torch.set_num_threads(normally)


def print_block(suite: Suite, block: dict[str, Any]) -> None:
    """Print one table, with ratios to the times of its first row."""
    shape, times = Shape(**block["shape"]), block["times_ms"]
    baseline = next(c.name for c in suite.contestants if c.name in times)
    threads = f", {block['threads']} threads" if block["threads"] else ""
    load = " to ".join(f"{x:.1f}" for x in block["load"])
    print(f"\n{shape}, {block['mode']}{threads} (load {load})")
    head = f"quartiles         × {baseline:8} peak MB  × its bound"
    print(f"  {'':26}  median ms   {head}")
    for contestant in suite.contestants:
        if not contestant.runs_at(shape):
            continue
        name = contestant.name
        if name not in times:
            able = block["mode"] in contestant.modes
            print(f"  {name:26}  {'not installed' if able else 'has no gradients here'}")
            continue
        low, middle, high = summary(times[name])
        ratio = summary(ratios(times, name, baseline))
        spread = f"{low:.2f} to {high:.2f}"
        peak, mark = block["peak_mb"][name], UNSTEADY if unsteady(ratio) else ""
        rest = f"{peak:10.1f} {middle / block['least_ms'][name]:9.1f}{mark}"
        print(f"  {name:26} {middle:10.2f}   {spread:20} {ratio[1]:7.2f} {rest}")


def _write(path: Path, suite: Suite, options: Options, data: dict[str, Any]) -> None:
    typed = command_line(suite.name, options.rounds, options.threads, options.batch)
    write_record(path, command=typed, seeds=[0], wall_s=data.get("wall_s", 0.0), data=data)


def command_line(name: str, rounds: int, threads: Sequence[int], batch: int = 1) -> str:
    """Return the command that measures a suite again."""
    counts = [*threads]
    chosen = "" if counts == [*Options().threads] else f" --threads {' '.join(map(str, counts))}"
    chosen += "" if batch == 1 else f" --batch {batch}"
    return f"python -m benchmarks.{name} --rounds {rounds}{chosen}"


def device_name(device: torch.device) -> str:
    """Return the name of a device in the names of records."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return "-".join(name.lower().split())


def _fingerprint() -> str:
    """Return a hash of the code of the package and of the benchmark."""
    files = sorted(
        p for folder in ("stringlib", "benchmarks") for p in (ROOT / folder).rglob("*.py")
    )
    return hashlib.sha256(b"".join(p.read_bytes() for p in files)).hexdigest()[:16]


def command(description: str) -> argparse.ArgumentParser:
    """Return an argument parser with the options that all parts of the benchmark have."""
    defaults = Options()
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=defaults.rounds, help="rounds that count")
    parser.add_argument("--threads", type=int, nargs="+", default=defaults.threads)
    parser.add_argument("--device", default=defaults.device)
    parser.add_argument("--output", type=Path, help="the record; results/bench-... if omitted")
    return parser


def main(suite: Suite, argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Read the options of the command line, and run the suite."""
    allow_every_letter()
    parser = command(f"Measure the suite {suite.name!r}.")
    names = [shape.name for shape in suite.shapes]
    parser.add_argument("--shapes", nargs="+", choices=names, default=[], help="all if omitted")
    wider = "times the batch of each shape: shapes of a processor do not fill a GPU"
    parser.add_argument("--batch", type=int, default=1, help=wider)
    parser.add_argument("--fresh", action="store_true", help="do not go on with an unfinished run")
    return run(suite, Options(**vars(parser.parse_args(argv))))
