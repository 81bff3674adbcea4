"""The loss during the training of a model, drawn in the notebook."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import plotly.graph_objects as go

from lab.explore.explorer import Explorer
from lab.explore.frames import PLOTLY
from lab.explore.style import COLOURS, PALETTE, layout

__all__ = ["LiveLoss", "Steps"]

PAUSE = 0.5
"""Smallest number of seconds between two images."""
DASHES = (None, "dash", "dot")
"""Line styles of curves with the same colour. The first curve is solid."""


class Steps(Protocol):
    """The logged steps and losses to be drawn, such as a :class:`~lab.train.history.History`."""

    steps: list[int]
    losses: list[float]


class LiveLoss:
    """A figure that follows the loss of one run, or of several runs one after another.

    ``fit(model, task, settings, on_log=LiveLoss(total=400))`` draws one curve. For several runs,
    pass their names, ``live = LiveLoss(400, ["softmax", "relu"])``, and give each run the function
    for its own curve: ``fit(..., on_log=live.of("relu"))``.

    A saved notebook contains the last image, with an alternative text. Outside a notebook nothing
    is drawn. With ``STRINGLIB_LIVE=0`` in the environment, as ``tools/notebooks.py`` sets it, only
    the last image is drawn, when the last run is finished.

    Args:
        total: Number of steps of a run.
        names: Names of the runs. A method in :data:`~lab.explore.style.COLOURS` has its colour.
        said: Function from a name to its text in the legend. Default: the name itself.
        chance: Loss of a random guess, drawn as a dotted line.
        title: Title of the figure. In lower case and with dashes it is the name of the figure in
            its page, so it must be unique there.

    Raises:
        ValueError: If ``total`` is less than 1, or if names are missing or repeated.
    """

    def __init__(
        self,
        total: int,
        names: Sequence[str] = ("loss",),
        *,
        said: Callable[[str], str] = str,
        chance: float | None = None,
        title: str = "Training loss",
    ) -> None:
        if total < 1:
            raise ValueError(f"total must be at least 1, got {total}")
        if isinstance(names, str) or not names or len(set(names)) < len(names):
            raise ValueError(f"names must be a list of different names, got {names!r}")
        self.total, self.names, self.chance, self.title = total, list(names), chance, title
        self.said = said
        self.curves: dict[str, tuple[list[int], list[float]]] = {}
        self._handle: Any = None
        self._drawn = 0.0

    def __call__(self, history: Steps) -> None:
        """Follow the only run. If there are several runs, use :meth:`of`."""
        if len(self.names) > 1:
            raise ValueError(
                f"the figure has several runs, {self.names}. Pass of(name) as on_log of each."
            )
        self.of(self.names[0])(history)

    def of(self, name: str) -> Callable[[Steps], None]:
        """Return the function that one run gets as its ``on_log``.

        Raises:
            ValueError: If the figure has no run of this name.
        """
        if name not in self.names:
            raise ValueError(f"name must be one of {self.names}, got {name!r}")

        def follow(history: Steps) -> None:
            self.curves[name] = list(history.steps), list(history.losses)
            self._show(last=self._over())

        return follow

    def figure(self) -> go.Figure:
        """Return the figure in its present state."""
        lines: list[go.Scatter] = []
        for name, (steps, losses) in self.curves.items():
            colour = self._colour(name)
            same = sum(line.line.color == colour for line in lines)
            look = {"width": 2, "color": colour, "dash": DASHES[same % len(DASHES)]}
            lines.append(go.Scatter(x=steps, y=losses, name=self.said(name), line=look))
        fig = go.Figure(lines, layout(height=320, title_text=self.title))
        fig.update_layout(
            xaxis={"title": {"text": "step"}, "range": [0, self.total]},
            yaxis={"title": {"text": "loss"}, "rangemode": "tozero"},
            showlegend=len(self.names) > 1,
        )
        if self.chance is not None:
            # beside the axes, where no curve crosses the word
            fig.add_hline(
                self.chance,
                line_dash="dot",
                line_color=PALETTE["grey"],
                annotation_text="guessing",
                annotation_position="right",
            )
            fig.update_layout(margin_r=66)
        return fig

    def alt(self) -> str:
        """Return the alternative text of the figure."""
        words = [
            "A line chart shows the loss against the training step, from 0 to "
            f"{self.total:,}. Title: {self.title}."
        ]
        if self.chance is not None:
            words.append(f"A dotted line marks the loss of guessing, {self.chance:.2g}.")
        for name, (_, losses) in self.curves.items():
            run = f" of {self.said(name)}" if len(self.names) > 1 else ""
            goes = f"The loss{run} goes from {losses[0]:.2g} to {losses[-1]:.2g}"
            if self.chance is not None:
                side = "below" if losses[-1] < self.chance else "above"
                goes += f" and ends {side} this line"
            words.append(f"{goes}.")
        return " ".join(words)

    def __repr__(self) -> str:
        return f"<LiveLoss {', '.join(self.names)}>"

    def _colour(self, name: str) -> str:
        return COLOURS.get(name, list(PALETTE.values())[self.names.index(name) % len(PALETTE)])

    def _over(self) -> bool:
        """Return whether every run has logged its last step."""
        ends = [steps[-1:] == [self.total - 1] for steps, _ in self.curves.values()]
        return len(ends) == len(self.names) and all(ends)

    def _show(self, last: bool) -> None:
        unseen = os.environ.get("STRINGLIB_LIVE") == "0"
        soon = time.monotonic() - self._drawn < PAUSE
        if not _in_notebook() or (not last and (unseen or soon)):
            return
        from IPython.display import display

        name = re.sub("[^a-z0-9]+", "-", self.title.lower()).strip("-")
        shown = Explorer(self.figure, alt=self.alt(), name=name)
        figure = shown.to_json()
        bundle = {PLOTLY: figure, **shown.forms(figure, self.alt())}
        if self._handle is None:
            self._handle = display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)
        self._drawn = time.monotonic()


def _in_notebook() -> bool:
    """Return whether a kernel, not a terminal, runs this."""
    try:
        from IPython import get_ipython
    except ModuleNotFoundError:
        return False
    return hasattr(get_ipython(), "kernel")
