"""The state that a page draws of a figure with frames, as ``book/_assets/book-plotly.js`` does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lab.explore.frames import Json, frame_name


def _lay_over(base: Any, change: Any) -> Any:
    """Lay a change over a value: mappings merge, None removes, the rest replaces."""
    if not isinstance(base, dict) or not isinstance(change, dict):
        return change
    merged = {**base, **{k: _lay_over(base.get(k), v) for k, v in change.items()}}
    return {k: v for k, v in merged.items() if v is not None}


def state_of(figure: Json, index: Mapping[str, int]) -> Json:
    """Return data and layout for the number of each parameter's value."""
    about = figure["layout"]["meta"]["explorer"]
    names = [p["name"] for p in about["parameters"]]
    frames = {frame["name"]: frame for frame in figure["frames"]}
    data, layout = list(figure["data"]), figure["layout"]
    for group in about["groups"]:
        axes = [names.index(name) for name in group]
        frame = frames[frame_name(axes, [index[name] for name in names], names)]
        layout = _lay_over(layout, frame.get("layout", {}))
        for number, change in zip(frame.get("traces", []), frame.get("data", []), strict=True):
            data[number] = _lay_over(data[number], change)
    return {"data": data, "layout": layout}
