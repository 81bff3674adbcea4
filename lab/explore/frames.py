"""Figures as small, repeatable JSON, and the frames that move them.

A figure that depends on parameters is kept as one whole figure, its default
state, and *frames* that hold only what changes.  A value stands once for each
combination of the parameters that it depends on: a curve that follows ``base``
alone is not repeated for every ``distance``.  A state is the default figure
with one frame of each group laid over it.  Everything that differs between any
two states is in some group, so a state never depends on the states before it.
"""

from __future__ import annotations

import base64
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

__all__ = ["PLOTLY", "figure_json", "frame_name", "plain_figure", "split_states", "value_text"]

PLOTLY = "application/vnd.plotly.v1+json"
DIGITS = 6
TINY = 1e-12
MOST_BUTTONS = {"names": 6, "numbers": 8}
FEWEST_STOPS = 40
MISSING: Any = object()

Json = dict[str, Any]
Path = tuple[Any, ...]
Index = tuple[int, ...]


def value_text(value: float | str) -> str:
    """Return how a parameter's value is shown beside its slider and written in the address."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def control_kind(values: Sequence[Any]) -> str:
    """Return which control fits a parameter: one decision for the page and the live widget.

    Args:
        values: All that it can have.

    Returns:
        ``"switch"`` for yes and no, ``"slider"`` for an amount, which moves smoothly: numbers with
        ``FEWEST_STOPS`` or more. What is named, and a handful of numbers, is ``"choice"``
        (buttons), or ``"list"`` if it is many.
    """
    if len(values) == 2 and all(isinstance(value, bool) for value in values):
        return "switch"
    named = isinstance(values[0], str)
    if not named and len(values) >= FEWEST_STOPS:
        return "slider"
    return "choice" if len(values) <= MOST_BUTTONS["names" if named else "numbers"] else "list"


def _number(value: float) -> float | int | None:
    """Round to ``DIGITS`` digits, so that a re-run gives the same text everywhere."""
    if not math.isfinite(value):
        return None
    # rounding noise about zero differs from one processor to the next
    rounded = 0.0 if abs(value) < TINY else float(f"{value:.{DIGITS}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def _plain(value: Any) -> Any:
    """Turn arrays into lists, round numbers, and drop the empty entries of mappings."""
    if isinstance(value, Mapping) and "bdata" in value:  # an array as plotly packs it
        array = np.frombuffer(base64.b64decode(value["bdata"]), dtype=value["dtype"])
        shape = str(value.get("shape", array.size)).split(",")
        return _plain(array.reshape([int(n) for n in shape]).tolist())
    if isinstance(value, Mapping):
        plain = {str(k): _plain(v) for k, v in value.items()}
        return {k: v for k, v in plain.items() if v is not None}
    if isinstance(value, (str, bool, int)) or value is None:
        return value
    if isinstance(value, float):
        return _number(value)
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, Sequence):
        return [_plain(v) for v in value]
    return value


def figure_json(fig: go.Figure) -> Json:
    """Return a figure as small, plain and repeatable JSON, without its template.

    Args:
        fig: A plotly figure.

    Returns:
        A dictionary with ``data`` and ``layout``: arrays are lists, numbers are
        rounded to six digits, rounding noise about zero is zero, a number that
        is not finite is None.
    """
    return plain_figure(fig.to_dict())


def plain_figure(figure: Mapping[str, Any]) -> Json:
    """Return a figure that is a dictionary already as :func:`figure_json` does."""
    plain: Json = _plain(figure)
    plain.pop("frames", None)
    plain["layout"].pop("template", None)
    return plain


def _varying(values: Sequence[Any], path: Path = ()) -> Iterator[tuple[Path, Sequence[Any]]]:
    """Yield the path and the values of everything that is not the same in all ``values``."""
    if all(isinstance(v, dict) for v in values):
        for key in dict.fromkeys(k for v in values for k in v):
            yield from _varying([v.get(key, MISSING) for v in values], (*path, key))
    elif any(v != values[0] for v in values):
        yield path, values


def _depends_on(values: Sequence[Any], sizes: Sequence[int]) -> Index:
    """Return the axes of the grid along which a value ever changes."""
    seen: dict[str, int] = {}
    texts = ["" if v is MISSING else json.dumps(v, sort_keys=True) for v in values]
    ids = np.array([seen.setdefault(t, len(seen)) for t in texts]).reshape(sizes)
    return tuple(a for a in range(ids.ndim) if (ids != ids.take([0], axis=a)).any())


def _put(target: Json, path: Path, value: Any) -> None:
    for key in path[:-1]:
        target = target.setdefault(key, {})
    target[path[-1]] = value


def frame_name(axes: Sequence[int], index: Sequence[int], names: Sequence[str]) -> str:
    """Name the frame of a group at a point of the grid: ``"base=2,dim=0"``."""
    return ",".join(f"{names[a]}={index[a]}" for a in axes)


def split_states(
    states: Sequence[Json], names: Sequence[str], sizes: Sequence[int]
) -> tuple[list[list[str]], list[Json]]:
    """Find the frames that lead from any state to any other.

    Args:
        states: The figure at each point of the grid, the last parameter fastest;
            all have the same number of traces.
        names: The parameters.
        sizes: How many values each parameter has.

    Returns:
        The groups (each a list of parameters) and the frames of all groups, as
        plotly has them: ``name``, ``data`` with ``traces``, ``layout``.  None in
        a frame takes a value away.
    """
    traces = range(len(states[0]["data"]))
    parts = [
        *(((i,), [s["data"][i] for s in states]) for i in traces),
        (("layout",), [s["layout"] for s in states]),
    ]
    groups: dict[Index, list[tuple[Path, Sequence[Any]]]] = {}
    for root, values in parts:
        for path, series in _varying(values):
            groups.setdefault(_depends_on(series, sizes), []).append(((*root, *path), series))

    frames = []
    for axes in sorted(groups):
        for index in itertools.product(
            *(range(n if a in axes else 1) for a, n in enumerate(sizes))
        ):
            flat = int(np.ravel_multi_index(index, tuple(sizes)))
            changes: Json = {}
            for path, series in groups[axes]:
                _put(changes, path, None if series[flat] is MISSING else series[flat])
            frame: Json = {"name": frame_name(axes, index, names)}
            if "layout" in changes:
                frame["layout"] = changes.pop("layout")
            if changes:
                frame["traces"] = list(changes)
                # plotly takes a trace without a type for a scatter
                types = [states[flat]["data"][i].get("type", "scatter") for i in changes]
                frame["data"] = [
                    {"type": t, **c} for t, c in zip(types, changes.values(), strict=True)
                ]
            frames.append(frame)
    return [[names[a] for a in axes] for axes in sorted(groups)], frames
