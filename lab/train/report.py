"""The report of a command: a table, a plot and a record of several methods and seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.files import whole
from lab.records import read_record, write_runs
from lab.tasks import Task
from lab.theory.spread import difference, interval, mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Cells = Mapping[str, Mapping[str, Any]]

WRITTEN = ("table.md", "plot.png", "plot.svg", "record.json")
RANGES = {"accuracy": (0.0, 1.0), "bits": (0.0, math.inf)}
"""Metric → smallest and largest possible score."""


def report(
    cells: dict[str, dict[str, Any]],
    name: str,
    task: Task,
    folder: Path,
    command: str,
    baseline: str,
    code: str,
) -> None:
    """Write ``table.md``, ``plot.png``, ``plot.svg`` and ``record.json``, and print the table.

    If the folder contains files of a command with other methods or more seeds, they are moved to a
    folder next to it, and a message says so.

    Args:
        cells: The results, as :func:`table` and :func:`plot` take them; see also
            :func:`~lab.records.write_runs`.
        name: Name of the task.
        task: The task.
        folder: Folder for the files.
        command: Command that repeats the runs.
        baseline: Name of the method with which the others are compared.
        code: Digest of the code of the runs.

    Raises:
        OSError: If a file cannot be written.
    """
    metric, less, chance = task.metric, task.less_is_better, task.chance()
    shown = table(cells, metric, baseline, chance, less)
    print(f"\n{shown}\n")
    _set_aside(cells, folder)
    then = f"every run is kept in {folder}; free some disk space and run the same command again"
    with whole(folder / "table.md", then) as part:
        part.write_text(shown + "\n", encoding="utf8")
    plot(cells, metric, [folder / "plot.png", folder / "plot.svg"], name, then, chance, less)
    data = {"task": name, "metric": metric, "less_is_better": less, "baseline": baseline}
    data["chance"] = chance
    path = folder / "record.json"
    write_runs(path, command=command, cells=cells, data=data, code=code, then=then)
    print(f"table, plot, record and checkpoints are in {folder}")


def _set_aside(cells: Cells, folder: Path) -> None:
    """Move an older report away, if it tells of runs that this one does not."""
    path = folder / "record.json"
    if not path.exists():
        return
    older = read_record(path)
    seeds = {name: {run["seed"] for run in cell["runs"]} for name, cell in cells.items()}
    if all({*older["seeds"]} <= seeds.get(name, set()) for name in older["data"]["cells"]):
        return
    beside = next(b for n in count(1) if not (b := folder / f"earlier-{n}").exists())
    beside.mkdir()
    for name in WRITTEN:
        if (folder / name).exists():
            (folder / name).replace(beside / name)
    print(f"what {older['command']} reported is in {beside}")


def table(
    cells: Cells, metric: str, baseline: str, chance: float | None = None, less: bool = False
) -> str:
    """Return a Markdown table of scores, differences from the baseline, sizes and times.

    Scores are means with 95 % intervals. Differences are paired by seed, and their intervals are
    corrected for the number of differences.

    Args:
        cells: Name → ``{"parameters": …, "rate": …, "runs": [{"scores": …, "wall_s": …}]}``.
        metric: Name of the scores.
        baseline: Name of the method with which the others are compared.
        chance: Score of a random guess, if it is known.
        less: Whether a lower score is better. The head of the table then says so.
    """
    sets = list(next(iter(cells.values()))["runs"][0]["scores"])
    comparisons = (len(cells) - 1) * len(sets)
    head = ["method"]
    for test in sets:
        head += [_title(metric, test, less), *["difference"] * (comparisons > 0)]
    head += ["seeds", "parameters", "learning rate", "s per run"]
    rows = []
    for name, cell in cells.items():
        row = [name]
        for test in sets:
            scores, others = (scores_of(one, test) for one in (cell, cells[baseline]))
            row.append(spread_text(scores))
            if comparisons:
                row.append("" if name == baseline else _less(scores, others, comparisons))
        seconds = f"{mean([run['wall_s'] for run in cell['runs']]):.1f}"
        rows.append(
            [*row, str(len(cell["runs"])), f"{cell['parameters']:,}", f"{cell['rate']:g}", seconds]
        )
    if chance is not None:
        guess = [f"{chance:.3f}", *[""] * (comparisons > 0)]
        rows.append(["chance", *guess * len(sets), *[""] * 4])
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = [[*head], ["-" * width for width in widths], *rows]
    text = "\n".join(
        "| " + " | ".join(text.ljust(w) for text, w in zip(line, widths, strict=True)) + " |"
        for line in lines
    )
    if comparisons:
        text += f"\n\nDifferences are from {baseline}, paired by seed"
        if len(cells[baseline]["runs"]) > 1:
            text += ", with 95 % intervals"
            text += f" that hold all {comparisons} at once" if comparisons > 1 else ""
        text += "."
    return text


def _title(metric: str, test: str, less: bool) -> str:
    return f"{metric}, {test}" + " (less is better)" * less


def scores_of(cell: Mapping[str, Any], test: str) -> list[float]:
    """Return the score of each run of a method on a test set."""
    return [run["scores"][test] for run in cell["runs"]]


def spread_text(values: Sequence[float]) -> str:
    """Return the mean and the 95 % interval, such as ``"0.912 [0.893, 0.931]"``.

    For a single value, return only this value.
    """
    if len(values) == 1:
        return f"{values[0]:.3f}"
    low, high = interval(values)
    return f"{mean(values):.3f} [{low:.3f}, {high:.3f}]"


def _less(values: Sequence[float], others: Sequence[float], comparisons: int) -> str:
    """Return ``"+0.012 [-0.003, +0.027]"``: a difference, and its interval among so many."""
    if len(values) == 1:
        return f"{values[0] - others[0]:+.3f}"
    middle, low, high = difference(values, others, comparisons)
    return f"{middle:+.3f} [{low:+.3f}, {high:+.3f}]"


def plot(
    cells: Cells,
    metric: str,
    paths: Sequence[Path],
    title: str,
    then: str = "",
    chance: float | None = None,
    less: bool = False,
) -> None:
    """Draw loss curves with the range of the seeds, and scores with their intervals.

    Args:
        cells: Name → ``{"told": …, "runs": [{"seed": …, "losses": …, "logged": …, "scores": …}]}``.
        metric: Name of the scores.
        paths: Files to write. Their suffixes determine the formats.
        title: Title of the plot.
        then: End of the error message if a file cannot be written: what to do.
        chance: Score of a random guess, if it is known, drawn as a dotted line.
        less: Whether a lower score is better. The titles then say so.

    Raises:
        OSError: If a file cannot be written.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    from lab.explore.style import use_matplotlib_style

    colours = colours_of(cells)
    sets = list(next(iter(cells.values()))["runs"][0]["scores"])
    with mpl.rc_context():
        use_matplotlib_style()
        height = max(3.4, 1.4 + 0.3 * len(cells))
        fig = Figure(figsize=(5 + 2.8 * len(sets), height), layout="constrained")
        axes = fig.subplots(1, 1 + len(sets), width_ratios=[5, *[2.8] * len(sets)])
        _losses(axes[0], cells, colours)
        for ax, name in zip(axes[1:], sets, strict=True):
            _scores(ax, cells, name, colours, RANGES.get(metric, (-math.inf, math.inf)))
            ax.set(title=_title(metric, name, less), yticks=[])
            if chance is not None:
                ax.axvline(chance, color="0.5", linestyle=":", label="chance")
        fig.suptitle(title)
        named = [ax.get_legend_handles_labels() for ax in axes[:2]]  # methods, and chance once
        fig.legend(
            *(a + b for a, b in zip(*named, strict=True)),
            loc="outside lower center",
            ncols=min(4, len(cells) + (chance is not None)),
        )
        for path in paths:
            kind = path.suffix[1:]
            with whole(path, then) as part:
                fig.savefig(part, format=kind, metadata={"Date": None} if kind == "svg" else None)


def colours_of(cells: Cells) -> dict[str, str]:
    """Return a colour for each method.

    A method of the book has its own colour. No two neighbouring methods have the same colour.
    """
    from lab.explore.style import COLOURS, PALETTE

    told = {name: cell["told"] for name, cell in cells.items()}
    axes = [
        axis
        for axis in ("attention", "encoder", "weight")
        if len({str(one.get(axis)) for one in told.values()}) > 1
    ]
    axis = axes[0] if axes else "attention"
    colours: dict[str, str] = {}
    for name, one in told.items():
        own = COLOURS.get(str(one.get(axis) or "none"))
        spare = [c for c in PALETTE.values() if c not in colours.values()] or [*PALETTE.values()]
        colours[name] = own if own and own not in colours.values() else spare[0]
    return colours


def _losses(ax: Axes, cells: Cells, colours: Mapping[str, str]) -> None:
    for name, cell in cells.items():
        runs = [run["losses"] for run in cell["runs"]]
        steps = cell["runs"][0]["logged"]
        at_step = list(zip(*runs, strict=True))
        ax.plot(steps, [mean(each) for each in at_step], color=colours[name], label=name)
        ax.fill_between(
            steps,
            [min(each) for each in at_step],
            [max(each) for each in at_step],
            color=colours[name],
            alpha=0.2,
            linewidth=0,
        )
    ax.set(xlabel="step", ylabel="loss", title="loss: mean and range of the seeds")


def _scores(
    ax: Axes,
    cells: Cells,
    test_set: str,
    colours: Mapping[str, str],
    possible: tuple[float, float],
) -> None:
    """Draw seeds, mean and interval, as far as scores can be: a wide interval ends there."""
    least, most = possible
    for row, (name, cell) in enumerate(cells.items()):
        values = scores_of(cell, test_set)
        look: dict[str, Any] = {"color": colours[name], "clip_on": False}  # whole at the edge too
        ax.plot(values, [row] * len(values), "o", alpha=0.4, markersize=5, **look)
        ax.plot([mean(values)], [row], "|", markersize=14, markeredgewidth=2, **look)
        if len(values) > 1:
            low, high = interval(values)
            ax.plot([max(low, least), min(high, most)], [row, row], **look)
    left, right = ax.get_xlim()
    ax.set(xlim=(max(left, least), min(right, most)), ylim=(len(cells) - 0.5, -0.5))
    ax.set_xlabel("seeds, mean and 95 % interval")
