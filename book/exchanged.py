"""What the record of released models says, as cells of a table and as numbers of a text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from book.released import RELEASED, Released
from lab.records import read_record

RECORD = Path(__file__).resolve().parents[1] / "results" / "released.json"
CLOSE = 1e-5
MISSING = "–"
HEADS = (
    "family", "lines", "difference, 10⁻⁷", "padded, 10⁻⁷", "bfloat16 theirs, %", "ours, %",
    "generates", "one graph",
)  # fmt: skip


ROTATIONS = (
    "model",
    "base, scaling",
    "rotating channels",
    "coordinates",
    "layout of pairs",
    "longest period",
)


def measured() -> dict[str, dict[str, Any]]:
    """Return family → what was measured of it; those of timm say so."""
    rows = read_record(RECORD)["data"]["rows"]
    named = [(name.removeprefix("transformers: "), row) for name, row in rows.items()]
    return dict(sorted((n.replace("timm: ", "timm, "), row) for n, row in named))


def within(row: dict[str, Any]) -> bool:
    """Return whether all parts of a family are within rounding."""
    found = row.get("difference")
    return isinstance(found, float) and found < CLOSE and not row.get("left")


def why(row: dict[str, Any]) -> str:
    """Return why a family is not."""
    left = ", ".join(row.get("left") or [])
    return row.get("reason") or row.get("error") or (f"not built small: {left}" if left else "")


def number(value: Any) -> str:
    """Return a difference in units of 10⁻⁷."""
    return f"{1e7 * value:.1f}" if isinstance(value, float) else MISSING


def share(value: Any) -> str:
    """Return an error in percent of the largest output."""
    return f"{100 * value:.1f}" if isinstance(value, float) else MISSING


def generates(row: dict[str, Any]) -> str:
    """Return with which caches a model writes the same text."""
    caches = [name for name in ("dynamic", "static") if row.get(name) is True]
    failed = [name for name in ("dynamic", "static") if row.get(name) not in (True, None)]
    return "differs: " + ", ".join(failed) if failed else " ".join(caches) or MISSING


def table() -> Iterator[tuple[str, ...]]:
    """Yield a row for each family within rounding, in the order of the alphabet."""
    for name, row in measured().items():
        if within(row):
            graph = {True: "yes", None: MISSING}.get(row.get("graph"), "no")
            yield (
                name + (" (tables)" if "tables alone" in row["model"] else ""),
                str(row["lines"]), number(row["difference"]), number(row.get("padding")),
                share(row.get("bfloat16 theirs")), share(row.get("bfloat16 ours")),
                generates(row), graph,
            )  # fmt: skip


NORMS = {
    "behind": "always: the norms come after the rotation",
    "any scales": "always: the norms have no scales",
    "equal scales": "depends on the scales of a layer: call `foldable`",
    "none": "not with these norms, which also subtract a mean",
}
"""What a record says of norms on queries and keys → whether a learned basis can be merged."""


def _listed(row: dict[str, Any]) -> list[str]:
    """Return what was found of a family's norms."""
    return (row.get("norms") or "").split(", ")


def norms() -> Iterator[tuple[str, ...]]:
    """Yield whether a basis folds through norms on queries and keys, and the families of each."""
    rows = measured()
    for word, told in NORMS.items():
        names = [name.replace(",", "") for name, row in rows.items() if word in _listed(row)]
        yield told, f"{len(names)}", ", ".join(names)


def others() -> Iterator[tuple[str, str]]:
    """Yield the families that are not, with their reasons."""
    for name, row in measured().items():
        if not within(row):
            yield name, why(row)


def rotations(model: Released) -> tuple[str, ...]:
    """Return what an encoder says of itself: a cell for each of :data:`ROTATIONS`."""
    found, slowest = model.encoder(), float(f"{model.slowest:.2g}")
    scaled = ", ".join(filter(None, (f"{model.base:,.0f}", model.scaling.replace("_", " "))))
    pairs = "neighbours" if found.layout == "interleaved" else "halves"
    turning = f"{model.turning} of {found.head_dim}"
    return model.name, scaled, turning, f"{found.coord_dim}", pairs, f"{slowest:,.0f}"


def known() -> Iterator[tuple[str, ...]]:
    """Yield the rotations of each model that has a line, and what surprises."""
    for model in RELEASED.values():
        yield *rotations(model), model.note


def facts() -> dict[str, str]:
    """Return name → number as text, of the page's sentences."""
    rows, record = [*measured().values()], read_record(RECORD)
    good = [row for row in rows if within(row)]
    whole = [row for row in good if "tables alone" not in row["model"]]
    told = [_listed(row) for row in rows]
    libraries = record["data"]["libraries"]
    return {
        "families": f"{len(rows)}",
        "close": f"{len(good)}",
        "close_share": f"{100 * len(good) / len(rows):.1f}",
        "whole": f"{len(whole)}",
        "tables_alone": f"{len(good) - len(whole)}",
        "one_line": f"{sum(row['lines'] == 1 for row in good)}",
        "most_lines": f"{max(row['lines'] for row in good)}",
        "dynamic": f"{sum(row.get('dynamic') is True for row in good)}",
        "static": f"{sum(row.get('static') is True for row in good)}",
        "padded": f"{sum(isinstance(row.get('padding'), float) for row in good)}",
        "graphs": f"{sum(row.get('graph') is True for row in good)}",
        "normed": f"{sum(any(word in row for word in NORMS if word != 'behind') for row in told)}",
        **{f"normed, {word}": f"{sum(word in row for row in told)}" for word in NORMS},
        "largest": number(max(row["difference"] for row in good)),
        "transformers": libraries["transformers"],
        "timm": libraries["timm"],
        "far": f"{1e4 * record['data']['far']['100000']:.1f}",
        "minutes": f"{record['wall_s'] / 60:.0f}",
        "command": record["command"],
    }
