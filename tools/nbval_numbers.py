"""A plugin for nbval: the numbers of a notebook's outputs are compared as numbers.

Another processor adds in another order, so the last digit that a cell prints may be another one.
nbval runs the cells and compares. Before it does, whatever agrees with the saved output is replaced
by it, so that nbval sees, and reports, only what does not agree:

* Text between numbers exactly, but for blanks beside a number: a column may be a digit wider.
* Whole numbers exactly; percentages, and numbers with decimals or a power of ten, to one unit in
  the last printed place.
* What a plotly figure draws to a 300th of its axis, about a pixel, or a hundredth of its colour
  scale; every other number of it to a thousandth of itself.
* In a cell tagged ``compare-form``, which trains, only the form: texts, names, lengths, but no
  number. What the chapter says about its numbers is asserted in the cell.
* In a cell tagged ``nbval-ignore-output``, which measures time, only what its code alone decides:
  the titles of its tables, the names of their rows and columns, the words that it prints.

A picture is compared through the text that ``lab.explore.describe`` saves with it, and a program of
a figure in the browser, by what it computes. A figure's poster is not compared: the figure is.
"""

from __future__ import annotations

import itertools
import math
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
from nbval.plugin import IPyNbCell

from tools.notebook_form import ENVIRONMENT, PLOTLY

FORM = "compare-form"
IGNORED = "nbval-ignore-output"
POSTER = "text/html"  # beside a figure
PIXEL = 1 / 300
SHADE = 1 / 100
CLOSE = 1e-3
SHOWN = 5
UNCOMPARED = {
    "execution_count",
    "image/png",
    "metadata",
    "application/vnd.jupyter.widget-view+json",
}

NUMBER = re.compile(
    r" *(?P<sign>[-+−]?)(?<![\w.])(?P<whole>\d+)(?:\.(?P<decimals>\d+))?"
    r"(?:[eE](?P<power>[-+]?\d+))?(?!\w|\.\d)(?=(?P<percent> ?%)?) *"
)
HEADING = re.compile(r"<(caption|th)\b[^>]*>(.*?)</\1>")

Near = Callable[[float, float], bool]


def pytest_configure(config: Any) -> None:
    """Run chapters as their outputs were saved: with this Python, one thread, on the CPU."""
    os.environ |= ENVIRONMENT
    config.option.nbval_current_env = True
    config.option.nbval_sanitize_with = str(Path(__file__).with_name("nbval_sanitize.cfg"))


def pytest_itemcollected(item: Any) -> None:
    """Let every cell that nbval compares settle first."""
    if isinstance(item, IPyNbCell):
        compare, tags = item.compare_outputs, item.cell.metadata.get("tags", [])
        settler = Settler(form=FORM in tags)

        def settled(new: list[Any], saved: list[Any]) -> bool:
            new = settler.outputs(new, saved)
            same = bool(compare(new, saved))
            if not same:  # nbval shows two whole figures
                found = differences(new, saved)
                item.comparison_traceback += itertools.islice(found, SHOWN)
            return same

        def headed(new: list[Any], saved: list[Any]) -> bool:
            said, before = headings(new), headings(saved)
            item.comparison_traceback = list(differences(said, before))
            return said == before

        item.compare_outputs = headed if IGNORED in tags else settled
        item.options["check"] |= IGNORED in tags and item.config.option.nbval


def headings(outputs: list[Any]) -> list[str]:
    """Return what a cell says whatever it measures: titles and names of tables, printed words."""
    found = []
    for output in outputs:
        found += [text for _, text in HEADING.findall(output.get("data", {}).get("text/html", ""))]
        if "text" in output:
            found.append(NUMBER.sub("", output["text"]))
    return found


class Settler:
    """Replaces in new outputs what agrees with the saved ones.

    Args:
        form: Whether any number agrees with any other.
    """

    def __init__(self, form: bool = False) -> None:
        self.form = form

    def outputs(self, new: list[Any], saved: list[Any]) -> list[Any]:
        """Return the outputs of a cell, settled."""
        return [nbformat.from_dict(output) for output in self.settle(new, saved)]

    def settle(self, new: Any, saved: Any, near: Near | None = None) -> Any:
        """Return any value of an output, settled; ``near`` tells which numbers agree."""
        if new == saved:
            return saved
        if isinstance(new, str) and isinstance(saved, str):
            return self.text(new, saved)
        if isinstance(new, list) and isinstance(saved, list) and len(new) == len(saved):
            return [self.settle(n, s, near) for n, s in zip(new, saved, strict=True)]
        if isinstance(new, dict) and isinstance(saved, dict):
            if PLOTLY in new and POSTER in saved:
                new = {**new, POSTER: saved[POSTER]}
            return {
                key: self.entry(key, value, saved[key], near) if key in saved else value
                for key, value in new.items()
            }
        if is_number(new) and is_number(saved):
            return saved if self.form or (near or alike)(new, saved) else new
        return new

    def entry(self, key: str, new: Any, saved: Any, near: Near | None) -> Any:
        """Return an entry of an output, settled; a picture is what was saved, and a program too."""
        if key.startswith("image/") or key == "programs":
            return saved
        return self.figure(new, saved) if key == PLOTLY else self.settle(new, saved, near)

    def text(self, new: str, saved: str) -> str:
        """Return a text, settled line by line."""
        lines, before = new.split("\n"), saved.split("\n")
        if len(lines) != len(before):
            return new
        return "\n".join(self.line(n, s) for n, s in zip(lines, before, strict=True))

    def line(self, new: str, saved: str) -> str:
        """Return a line with each number that agrees, if the text between them is the same."""
        numbers, before = list(NUMBER.finditer(new)), list(NUMBER.finditer(saved))
        if NUMBER.sub("\0", new) != NUMBER.sub("\0", saved):
            return new
        parts, end = [], 0
        for n, s in zip(numbers, before, strict=True):
            parts += [new[end : n.start()], s[0] if self.form or printed_alike(n, s) else n[0]]
            end = n.end()
        return "".join([*parts, new[end:]])

    def figure(self, new: Any, saved: Any) -> Any:
        """Return a plotly figure, settled: its default state, and the frames laid over it."""
        state, layout = saved["data"], saved["layout"]
        before = {frame["name"]: frame for frame in saved.get("frames", [])}
        frames = [
            self.drawn(frame, before[frame["name"]], state, layout)
            if frame["name"] in before
            else frame
            for frame in new.get("frames", [])
        ]
        done = self.drawn({k: v for k, v in new.items() if k != "frames"}, saved, state, layout)
        return {**done, "frames": frames} if "frames" in new else done

    def drawn(self, new: Any, saved: Any, state: Any, layout: Any) -> Any:
        """Return a figure or a frame of it, settled: traces by the axes on which they stand."""
        done = self.settle({k: v for k, v in new.items() if k != "data"}, saved)
        data, old = new.get("data", []), saved.get("data", [])
        if len(data) == len(old):
            numbers = saved.get("traces", range(len(old)))
            state = list(state)
            for number, change in zip(numbers, old, strict=True):
                state[number] = {**state[number], **change}
            data = [
                {
                    key: self.settle(value, change.get(key), nearness(key, state[n], state, layout))
                    for key, value in trace.items()
                }
                for n, trace, change in zip(numbers, data, old, strict=True)
            ]
        return {**done, "data": data} if "data" in new else done


def printed_alike(new: re.Match[str], saved: re.Match[str]) -> bool:
    """Tell whether two printed numbers differ by one unit in the last place at most."""
    units = printed_unit(new), printed_unit(saved)
    # 9.98 and 10.0 may agree; 1e-12 and 1e-11 are two bounds
    unit = min(units) if new["power"] and saved["power"] else max(units)
    return abs(printed_value(new) - printed_value(saved)) <= unit * (1 + 1e-6)


def printed_value(match: re.Match[str]) -> float:
    """Return what a printed number says."""
    text = f"{match['whole']}.{match['decimals'] or 0}e{match['power'] or 0}"
    return -float(text) if match["sign"] in ("-", "−") else float(text)


def printed_unit(match: re.Match[str]) -> float:
    """Return one unit in the last printed place; 0 for a whole number, which is exact."""
    if match["decimals"] is None and match["power"] is None:
        return 1.0 if match["percent"] else 0.0
    return 10.0 ** (int(match["power"] or 0) - len(match["decimals"] or ""))


def is_number(value: Any) -> bool:
    """Tell whether a value of JSON is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def alike(new: float, saved: float) -> bool:
    """Tell whether two numbers differ by a thousandth at most."""
    return abs(new - saved) <= CLOSE * max(abs(new), abs(saved))


def nearness(key: str, trace: Any, state: Any, layout: Any) -> Near | None:
    """Return which numbers of a trace look alike where the entry ``key`` of it is drawn."""
    if key == "z":
        scale = layout.get(trace.get("coloraxis"), {})
        ends = [trace.get("zmin"), trace.get("zmax"), scale.get("cmin"), scale.get("cmax")]
        return within([*leaves(ends)] or [*leaves(trace["z"])], SHADE)
    if key not in ("x", "y"):
        return None
    # an error bar, a text and the like stand on the axis of their trace; "y2" is "yaxis2" there
    name = trace.get(f"{key}axis", key)
    axis = layout.get(f"{key}axis{name[1:]}", {})
    place = log10 if axis.get("type") == "log" else float
    drawn = (leaves(t.get(key)) for t in state if t.get(f"{key}axis", key) == name)
    places = [place(v) for values in drawn for v in values]
    return within([*leaves(axis.get("range"))] or places, PIXEL, place)


def within(places: list[float], share: float, place: Callable[[float], float] = float) -> Near:
    """Return the test that two numbers stand no further apart than a share of what places span."""
    finite = [p for p in places if math.isfinite(p)]
    least = share * (max(finite) - min(finite)) * (1 + 1e-6) if finite else 0.0

    def near(new: float, saved: float) -> bool:
        a, b = place(new), place(saved)
        return a == b or abs(a - b) <= least or (least == 0 and alike(new, saved))

    return near


def log10(value: float) -> float:
    """Return the place on a logarithmic axis, where what is not positive is not drawn."""
    return math.log10(value) if value > 0 else -math.inf


def differences(new: Any, saved: Any, path: str = "outputs") -> Iterator[str]:
    """Yield what differs, with its place."""
    if isinstance(new, dict) and isinstance(saved, dict):
        for key in sorted((new.keys() | saved.keys()) - UNCOMPARED):
            yield from differences(new.get(key), saved.get(key), f"{path}.{key}")
    elif isinstance(new, list) and isinstance(saved, list) and len(new) == len(saved):
        for number, pair in enumerate(zip(new, saved, strict=True)):
            yield from differences(*pair, f"{path}[{number}]")
    elif new != saved:
        yield f"  {path}: saved {str(saved)[:200]!r}, now {str(new)[:200]!r}"


def leaves(values: Any) -> Iterator[float]:
    """Yield the numbers of a list of lists."""
    if isinstance(values, list):
        for value in values:
            yield from leaves(value)
    elif is_number(values):
        yield values
