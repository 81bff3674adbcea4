"""The live side of an :class:`~stringlib.explore.explorer.Explorer`: ipywidgets over a kernel."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets

from stringlib.explore.frames import PLOTLY, value_text

if TYPE_CHECKING:
    from stringlib.explore.explorer import Explorer

__all__ = ["panel"]

PLAY_SECONDS = 6.0


def _slider(explorer: Explorer, name: str) -> widgets.ValueWidget:
    """Return the control of one parameter, at its initial value."""
    if name in explorer.live:
        control = explorer.live[name]
        control.value = explorer.initial[name]
        return control
    return widgets.SelectionSlider(
        options=[(value_text(v), v) for v in explorer.grid[name]],
        value=explorer.initial[name],
        description=explorer.labels[name],
        style={"description_width": "initial"},
        layout={"width": "auto"},
    )


def _play(explorer: Explorer, control: widgets.ValueWidget) -> widgets.Play:
    """Return a play button that runs through the grid's values of ``control``."""
    assert explorer.play is not None
    values = explorer.grid[explorer.play]
    button = widgets.Play(
        min=0,
        max=len(values) - 1,
        value=values.index(explorer.initial[explorer.play]),
        interval=int(1000 * PLAY_SECONDS / len(values)) + 20,
    )

    def step(change: Any) -> None:
        control.value = values[change["new"]]

    button.observe(step, "value")
    return button


def panel(explorer: Explorer) -> widgets.VBox:
    """Return controls over the figure, which is drawn anew at each move.

    Args:
        explorer: The figure and its parameters.

    Returns:
        A box with one control for each parameter, a play button where asked
        for, the figure, and its alternative text to unfold.
    """
    controls = {n: _slider(explorer, n) for n in explorer.grid}
    out, text = widgets.Output(), widgets.HTML()

    def redraw(_: Any = None) -> None:
        fig = explorer.state(**{n: c.value for n, c in controls.items()})
        alt = html.escape(fig["layout"].pop("meta")["alt"])
        text.value = f"<details><summary>Description</summary>{alt}</details>"
        # set the state rather than print into it: nothing reaches the cell's own
        # outputs, so nbval and nbclient see the same as a browser does
        out.outputs = ({"output_type": "display_data", "data": {PLOTLY: fig}, "metadata": {}},)

    for control in controls.values():
        control.observe(redraw, "value")
    redraw()
    buttons = [_play(explorer, controls[explorer.play])] if explorer.play else []
    shown = [c for n, c in controls.items() if n in explorer.live or len(explorer.grid[n]) > 1]
    return widgets.VBox([*shown, *buttons, out, text])
