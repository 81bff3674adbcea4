"""The live form of an explorer, with ipywidgets and a kernel."""

from __future__ import annotations

import html
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ipywidgets as widgets

from lab.explore.frames import PLOTLY, control_kind, value_text
from lab.explore.poster import ROOT

__all__ = ["controls"]

PLAY_SECONDS = 6.0
NO_PLOTLY = (
    "This Jupyter shows no plotly figures: install plotly where it runs, and reload the page."
)
KINDS = {
    "slider": widgets.SelectionSlider,
    "choice": widgets.ToggleButtons,
    "list": widgets.Dropdown,
}


def _control(values: Sequence[Any], label: str) -> widgets.ValueWidget:
    """Return the control that fits the values."""
    kind = control_kind(values)
    if kind == "switch":
        return widgets.Checkbox(description=label, indent=False)
    return KINDS[kind](
        options=[(value_text(v), v) for v in values],
        description=label,
        style={"description_width": "initial"},
        layout={"width": "auto"},
    )


def _play(values: Sequence[Any], first: Any, control: widgets.ValueWidget) -> widgets.Play:
    """Return a play button that runs ``control`` through the grid's values from one on."""
    button = widgets.Play(
        min=0,
        max=len(values) - 1,
        value=values.index(first),
        interval=int(1000 * PLAY_SECONDS / len(values)) + 20,
    )

    def step(change: Any) -> None:
        control.value = values[change["new"]]

    button.observe(step, "value")
    return button


def _output(data: dict[str, Any]) -> dict[str, Any]:
    return {"output_type": "display_data", "data": data, "metadata": {}}


def _source(function: str, path: str) -> dict[str, str]:
    """Return the line below a figure, with a link to the file from within the repository."""
    file = path
    if Path.cwd().is_relative_to(ROOT):
        file = f'<a href="{Path(os.path.relpath(ROOT / path)).as_posix()}">{path}</a>'
    return {"text/html": f"<small>Drawn by <code>{function}</code> in {file}.</small>"}


def controls(
    state: Callable[..., dict[str, Any]],
    grid: Mapping[str, Sequence[Any]],
    initial: Mapping[str, Any],
    labels: Mapping[str, str],
    live: Mapping[str, widgets.ValueWidget],
    play: str | None,
    forms: Callable[[Mapping[str, Any], str], dict[str, str]],
    drawn: tuple[str, str] | None,
) -> widgets.VBox:
    """Return a figure with controls. Each change of a control draws the figure again.

    Args:
        state: Function that returns the figure for given parameters as plain JSON, with its
            alternative text as ``layout.meta.alt``.
        grid: Values of each parameter.
        initial: Initial value of each parameter.
        labels: Label of the control of each parameter.
        live: Widgets that replace the controls of some parameters.
        play: Parameter with a play button, or None.
        forms: Function that returns the poster and the text of a figure, for programs that cannot
            draw plotly figures.
        drawn: The function that draws, and the path of its file in the repository.

    Returns:
        A box with one control for each parameter with several values, a play button if requested,
        the figure, the name of its function, and its alternative text in a folded part.
    """
    chosen = {
        name: live[name] if name in live else _control(values, labels[name])
        for name, values in grid.items()
    }
    for name, control in chosen.items():
        control.value = initial[name]
    out, text = widgets.Output(), widgets.HTML()
    source = [_output(_source(*drawn))] if drawn else []

    def redraw(_: Any = None) -> None:
        fig = state(**{name: control.value for name, control in chosen.items()})
        alt = fig["layout"].pop("meta")["alt"]
        text.value = f"<details><summary>Description</summary>{html.escape(alt)}</details>"
        instead = forms(fig, alt)
        instead["text/html"] = f"<p>{NO_PLOTLY}</p>{instead['text/html']}"
        # set the state rather than print into it: nothing reaches the cell's own
        # outputs, so nbval and nbclient see the same as a browser does
        out.outputs = (_output({PLOTLY: fig, **instead}), *source)

    redraw()
    for control in chosen.values():
        control.observe(redraw, "value")
    buttons = [_play(grid[play], initial[play], chosen[play])] if play else []
    shown = [c for name, c in chosen.items() if name in live or len(grid[name]) > 1]
    return widgets.VBox([*shown, *buttons, out, text])
