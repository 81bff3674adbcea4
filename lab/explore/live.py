"""The loss while a model trains, drawn in the notebook."""

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
"""Seconds between two pictures, at least."""
DASHES = (None, "dash", "dot")
"""Of the curves of one colour: the first is solid."""


class Steps(Protocol):
    """What is drawn: a :class:`~lab.train.history.History` is one."""

    steps: list[int]
    losses: list[float]


class LiveLoss:
    """A figure that follows the loss of one run, or of several after each other.

    ``fit(model, task, settings, on_log=LiveLoss(total=400))`` draws one curve; with names,
    ``live = LiveLoss(400, ["softmax", "relu"])``, each run is told which one is its own:
    ``fit(..., on_log=live.of("relu"))``.

    The saved notebook keeps the last picture, with a text that says what it shows. Outside a
    notebook nothing is drawn. Where nobody looks on (``STRINGLIB_LIVE=0`` in the environment, as
    ``tools/notebooks.py`` sets it) only the last picture is drawn, when the last run is over.

    Args:
        total: Steps of a run.
        names: One per run; a method in :data:`~lab.explore.style.COLOURS` has its colour.
        said: Name → the words that the legend shows for it, if not the name itself.
        chance: The loss of guessing, a dotted line.
        title: Above the figure; in lower case and with dashes its name in the page, where no two
            figures may have the same.

    Raises:
        ValueError: If ``total`` is less than 1, or names are missing or double.
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
        """Follow the only run; of several, see :meth:`of`."""
        if len(self.names) > 1:
            raise ValueError(
                f"the figure has several runs, {self.names}. Pass of(name) as on_log of each."
            )
        self.of(self.names[0])(history)

    def of(self, name: str) -> Callable[[Steps], None]:
        """Return what to give one run as its ``on_log``.

        Raises:
            ValueError: If the name is not one of the figure.
        """
        if name not in self.names:
            raise ValueError(f"name must be one of {self.names}, got {name!r}")

        def follow(history: Steps) -> None:
            self.curves[name] = list(history.steps), list(history.losses)
            self._show(last=self._over())

        return follow

    def figure(self) -> go.Figure:
        """Return the figure as it stands."""
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
        """Return what the figure shows, in words."""
        shown = [
            f"{self.said(name)}: from {losses[0]:.2g} to {losses[-1]:.2g}."
            for name, (_, losses) in self.curves.items()
        ]
        head = f"{self.title}, over {self.total} training steps."
        if self.chance is not None:
            head += f" A dotted line marks the loss of guessing, {self.chance:.2g}."
        return " ".join([head, *shown])

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
