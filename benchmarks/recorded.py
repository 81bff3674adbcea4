"""Read the records of `make bench`: times by length, memory, rates, and ratios to libraries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.goals import MODES
from benchmarks.harness import ROOT
from benchmarks.limits import rate
from benchmarks.timing import ratios, summary, unsteady
from book.names import display
from lab.records import read_record

Record = dict[str, Any]
Quartiles = tuple[float, float, float]
Compared = tuple[str, str, int, Quartiles]
"""Shape, mode, threads, and quartiles of the ratio of times."""

# ours and what somebody would use in its place; a peer's tables of angles are made once
PEERS = (
    ("RoPE", "transformers"),
    ("RoPE, phases given", "transformers"),
    ("RoPE", "torch.compile RoPE"),
    ("RoPE half", "transformers"),
    ("RoPE half, phases given", "transformers"),
    ("RoPE half", "torch.compile RoPE half"),
    ("AxialRoPE", "rope-vit axial"),
    ("AxialRoPE, phases given", "rope-vit axial"),
    ("MixedRoPE", "rope-vit mixed"),
    ("MixedRoPE", "torch.compile MixedRoPE"),
    ("FAVOR+", "performer-pytorch map"),
    ("FAVOR+ attention", "performer-pytorch"),
    ("ELU", "fast-transformers"),
    ("ELU", "torch.compile ELU"),
    ("linear causal", "fast-transformers causal"),
    ("linear causal", "torch.compile linear causal"),
    ("cosine", "cosFormer"),
    ("cosine causal", "cosFormer causal"),
    ("Toeplitz", "FlexAttention"),
    ("layer", "performer-pytorch layer"),
)


def records(part: str, folder: Path = ROOT / "results") -> dict[str, Record]:
    """Return the records of a part of the benchmark by device, that of the CPU first."""
    paths = folder.glob(f"bench-{part}-*.json")
    found = {p.stem.removeprefix(f"bench-{part}-"): read_record(p) for p in paths}
    return dict(sorted(found.items(), key=lambda item: (item[0] != "cpu", item[0])))


def blocks(record: Record, mode: str = MODES[0], threads: int = 1) -> dict[str, Record]:
    """Return the tables of a record by name of the shape.

    A record of a GPU has tables for a single number of threads, which are returned for any
    ``threads``.
    """
    return {
        b["shape"]["name"]: b
        for b in record["data"]["blocks"]
        if b["mode"] == mode and b["threads"] in (threads, 0)
    }


def ladder(
    record: Record, name: str, mode: str = MODES[0]
) -> tuple[list[int], list[list[float]], list[float]]:
    """Return the times and the memory of a contestant at the shapes that differ only in length.

    Returns:
        Three lists: the lengths; for each length the milliseconds per head of each round; and for
        each length the largest amount of memory during a call beyond its inputs, in numbers of 4
        bytes per token and head.
    """
    lengths, times, held = [], [], []
    for place, block in blocks(record, mode).items():
        if place.startswith("N") and name in block["times_ms"]:
            shape = block["shape"]
            heads = shape["batch"] * shape["heads"]
            lengths.append(shape["seq"])
            times.append([t / heads for t in block["times_ms"][name]])
            held.append(block["peak_mb"][name] * 1e6 / 4 / heads / shape["seq"])
    return lengths, times, held


def against(record: Record, one: str, other: str) -> list[Compared]:
    """Return the ratios of the times of two contestants in all tables that contain them both."""
    return [
        (b["shape"]["name"], b["mode"], b["threads"], summary(ratios(b["times_ms"], one, other)))
        for b in record["data"]["blocks"]
        if {one, other} <= set(b["times_ms"])
    ]


def over_bound(block: Record, name: str) -> float:
    """Return the median time of a contestant, divided by the least time that the machine allows."""
    return float(median(block["times_ms"][name]) / block["least_ms"][name])


def peer_ratios(parts: Sequence[Record]) -> dict[str, list[Compared]]:
    """Return the ratio of our time to that of another library, by pair of contestants.

    There is one ratio for each table that contains the pair.
    """
    return {
        f"{one} / {other}": [x for part in parts for x in against(part, one, other)]
        for one, other in PEERS
    }


def peer_table(parts: Sequence[Record]) -> dict[str, list[str]]:
    """Return the columns of a table of our times divided by those of other libraries.

    The largest ratios come first. A row is a pair of contestants at a shape. There is a column for
    each mode and number of threads. The last column has our time divided by its bound, with one
    thread and, if they were measured, with gradients. Ratios whose quartiles are far apart have a
    star.
    """
    rows: dict[str, dict[str, Quartiles]] = {}
    bound: dict[str, str] = {}
    for one, other in PEERS:
        for block in (b for part in parts for b in part["data"]["blocks"]):
            if not {one, other} <= set(block["times_ms"]):
                continue
            place = f"{one} / {other}, {block['shape']['name']}"
            head = f"{block['mode'].replace(MODES[1], 'gradients')}, {block['threads']}"
            ratio = summary(ratios(block["times_ms"], one, other))
            rows.setdefault(place, {})[head] = ratio
            if block["threads"] == 1:  # the last is that with gradients, if there are some
                bound[place] = f"{over_bound(block, one):.1f}"
    rows = dict(sorted(rows.items(), key=lambda item: -max(x[1] for x in item[1].values())))
    columns = {"ours / peer, shape": list(rows)}
    for head in dict.fromkeys(head for row in rows.values() for head in row):
        columns[head] = [
            f"{row[head][1]:.2f}{'*' * unsteady(row[head])}" if head in row else ""
            for row in rows.values()
        ]
    return columns | {"gradients, 1, ÷ bound": [bound.get(place, "") for place in rows]}


def throughput(record: Record) -> dict[str, list[Any]]:
    """Return the columns of a table of what whole models read per second, and of their times.

    Models of texts read tokens, and models of images read images. The times, with gradients, are
    divided by the bound.
    """
    heads = ("model", "forward", "with gradients", "÷ bound")
    columns: dict[str, list[Any]] = {head: [] for head in heads}
    forward, training = (blocks(record, mode) for mode in MODES)
    for place, block in forward.items():
        shape = block["shape"]
        if place not in ("text", "images"):  # a layer
            continue
        items = shape["batch"] * (shape["seq"] if place == "text" else 1)
        unit = "tokens" if place == "text" else "images"
        for name, times in block["times_ms"].items():
            both = (median(times), median(training[place]["times_ms"][name]))
            read = (f"{1e3 * items / time:,.1f}" for time in both)
            said = display(name.removeprefix("ViT "))
            cells = (f"{said}, {unit}", *read, f"{over_bound(training[place], name):.1f}")
            for column, cell in zip(columns.values(), cells, strict=True):
                column.append(cell)
    return columns


def rates(record: Record) -> dict[str, float]:
    """Return the best rate per second of each kind of work with one thread.

    The rate of bytes is that of memory, not that of a cache.
    """
    rows = [r for r in record["data"]["limits"] if r["threads"] in (1, 0)]
    largest = max(r["work"] for r in rows if r["unit"] == "bytes")
    best: dict[str, float] = {}
    for row in rows:
        if row["unit"] != "bytes" or row["work"] == largest:
            best[row["unit"]] = max(best.get(row["unit"], 0.0), rate(row))
    return best
