"""Figures as small JSON, which is the same in every run, and the frames of their states.

A figure with parameters is stored as one whole figure, its default state, and *frames*, which
contain only the differences. A value is stored once for each combination of those parameters on
which it depends. For example, a curve that depends only on ``base`` is not repeated for every
``distance``. A state is the default figure with one frame of each group laid over it. Everything
that differs between any two states is in some group, so a state never depends on the states shown
before it.
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
    """Return the text of a value of a parameter, for its slider and for the address of the page."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def control_kind(values: Sequence[Any]) -> str:
    """Return the kind of control of a parameter, for the page and for the live widget.

    Args:
        values: All values of the parameter.

    Returns:
        ``"switch"`` for booleans; ``"slider"`` for an amount, that is, for at least
        ``FEWEST_STOPS`` numbers; ``"choice"`` (buttons) for names or few numbers; and ``"list"`` if
        there are too many for buttons.
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
    """Return a figure without its template as small JSON, which is the same in every run.

    Args:
        fig: A plotly figure.

    Returns:
        A dictionary with ``data`` and ``layout``. Arrays are lists, and numbers are rounded to six
        digits. Rounding errors around 0 become 0, and numbers that are not finite become None.
    """
    return plain_figure(fig.to_dict())


def plain_figure(figure: Mapping[str, Any]) -> Json:
    """Return the result of :func:`figure_json` for a figure that is already a dictionary."""
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
    """Return the name of the frame of a group at a grid point, such as ``"base=2,dim=0"``."""
    return ",".join(f"{names[a]}={index[a]}" for a in axes)


def split_states(
    states: Sequence[Json], names: Sequence[str], sizes: Sequence[int]
) -> tuple[list[list[str]], list[Json]]:
    """Return the frames with which any state follows from any other state.

    Args:
        states: The figure at each point of the grid, with the last parameter changing fastest. All
            have the same number of traces.
        names: Names of the parameters.
        sizes: Number of values of each parameter.

    Returns:
        The groups (each a list of parameters) and the frames of all groups. A frame has the form of
        plotly, with ``name``, ``data``, ``traces`` and ``layout``. None in a frame removes a value.
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
