"""Figures with controls, defined once for Jupyter and for the built book.

``Explorer(draw, base=[10, 100])`` calls ``draw`` once for every point of a small grid. Its output
contains the figure with all these states, so that the built book can show them without a kernel.
While a kernel runs, ipywidgets call ``draw`` again at each change of a control.
"""

from __future__ import annotations

import inspect
import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import plotly.graph_objects as go

from lab.explore.computed import Programs, filled, share_filled
from lab.explore.frames import PLOTLY, plain_figure, split_states, value_text
from lab.explore.poster import drawn_by, poster_html
from lab.program import bundle

if TYPE_CHECKING:
    import ipywidgets

__all__ = ["HARD_LIMIT", "Drawn", "Explorer"]

HANDLE = re.compile(r"(x|y|turn)\d*( at -?\d+(\.\d+)?)?|hands\d*")
WIDGET = "application/vnd.jupyter.widget-view+json"
HARD_LIMIT = 200_000
"""Largest number of bytes of the JSON of a figure, whatever its ``max_bytes``."""


class Drawn(NamedTuple):
    """A figure in one state and its description in words, both from the same computation."""

    figure: go.Figure
    alt: str


def _grid_values(name: str, values: Any) -> list[float | str]:
    """Check the values of one parameter and return them as plain Python values."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise TypeError(f"{name}: expected a list of values, got {values!r}")
    plain = [v.item() if hasattr(v, "item") else v for v in values]
    if not plain:
        raise ValueError(f"{name}: expected at least one value, got none")
    for v in plain:
        if not isinstance(v, (int, float, str)) or (isinstance(v, float) and not math.isfinite(v)):
            raise TypeError(f"{name}: expected finite numbers, strings or booleans, got {v!r}")
    if len({value_text(v) for v in plain}) < len(plain):
        raise ValueError(f"{name}: expected different values, got {plain!r}")
    return plain


class Explorer:
    """A figure with one control for each parameter.

    A number with 40 values or more is an amount and has a slider, which moves smoothly. A boolean
    has a checkbox. Names, and numbers with few values, have buttons, or a list if there are many.

    Args:
        draw: Function of the parameters that returns a plotly figure, or a :class:`Drawn`, which is
            a figure with its alternative text. The number of traces must be the same in every
            state.
        alt: Alternative text, which says what the figure shows. A function of the parameters
            returns a text for each state. Default: the text of a :class:`Drawn`, or else the
            docstring of ``draw``. The checks of the book reject a figure without a text.
        name: Name of the figure in the page and in the address of the page. Default: the name of
            ``draw`` with dashes.
        initial: Values of some or all parameters in the default state. Default: the first values.
        labels: Label of the control of a parameter, with the unit.
        live: Widgets to use while a kernel runs, instead of those of the grid.
        play: Parameter with a play button.
        drag: How a pointer in the plot sets a parameter. ``"x"`` or ``"y2"``: the value on this
            axis. ``"turn"``: the direction of a line from the origin in degrees, so that opposite
            directions are equal. ``"y at 3"``: the value on the vertical axis if 3 is the nearest
            such position on the horizontal axis. ``"hands"``: the angle by which the pointer
            rotates a dial of the panel; the ``customdata`` of its trace contain the radians per
            unit of each hand. The control remains, for use with a keyboard.
        computes: Amounts whose numbers the page computes instead of storing them. All numbers that
            depend on them must come from functions with the decorator
            :func:`~lab.explore.computed.computed`.
        max_bytes: Largest number of bytes of the JSON of the figure, at most ``HARD_LIMIT``.
        **grid: Values of each parameter in the built book: numbers, strings or booleans. A
            parameter with a single value has no control. Without parameters, the result is a plain
            figure with an alternative text.

    Raises:
        TypeError: If an argument has the wrong type, or if ``draw`` does not accept the parameters.
        ValueError: If a name or a value is not in the grid, a text is empty, or a limit is too
            high.
    """

    def __init__(
        self,
        draw: Callable[..., go.Figure | Drawn],
        *,
        alt: str | Callable[..., str] | None = None,
        name: str | None = None,
        initial: Mapping[str, float | str] | None = None,
        labels: Mapping[str, str] | None = None,
        live: Mapping[str, ipywidgets.ValueWidget] | None = None,
        play: str | None = None,
        drag: Mapping[str, str] | None = None,
        computes: Iterable[str] = (),
        max_bytes: int = 150_000,
        **grid: Iterable[float | str],
    ) -> None:
        if not callable(draw):
            raise TypeError(f"draw: expected a function that returns a figure, got {draw!r}")
        self.draw = draw
        self.name = self._checked_name(name)
        self.grid = {n: _grid_values(n, values) for n, values in grid.items()}
        if "fig" in self.grid:
            raise ValueError(
                f"grid: expected no parameter with the name 'fig', got {list(self.grid)}. The "
                "address of the figure uses this name. Rename the parameter."
            )
        self.alt = alt
        if alt is not None and not callable(alt):
            self._checked_alt(alt)
        self.initial = {n: values[0] for n, values in self.grid.items()}
        for n, value in self._known("initial", initial).items():
            if value not in self.grid[n]:
                raise ValueError(f"initial: expected {n} from {self.grid[n]!r}, got {value!r}")
            self.initial[n] = self.grid[n][self.grid[n].index(value)]
        self.labels = {n: n for n in self.grid} | self._known("labels", labels)
        self.live = self._known("live", live)
        if play is not None:
            self._known("play", {play: None})
        self.play = play
        self.drag = self._known("drag", drag)
        for n, handle in self.drag.items():
            amount = not any(isinstance(v, (str, bool)) for v in self.grid[n])
            if not (amount and HANDLE.fullmatch(handle)):
                raise ValueError(
                    "drag: expected a parameter with numbers, and a handle such as 'x', 'y2', "
                    "'turn', 'y at 3' or 'hands', "
                    f"got {n}={handle!r} with the values {self.grid[n]!r}"
                )
        self.computes = [*self._known("computes", dict.fromkeys(computes))]
        for n in self.computes:
            if any(isinstance(v, (str, bool)) for v in self.grid[n]):
                raise ValueError(
                    f"computes: expected parameters with numbers, got {n} in {self.grid[n]!r}"
                )
        if not 0 < max_bytes <= HARD_LIMIT:
            raise ValueError(
                f"max_bytes: expected a number from 1 to {HARD_LIMIT}, got {max_bytes}"
            )
        self.max_bytes = max_bytes
        try:
            inspect.signature(draw).bind(**self.initial)
        except TypeError as error:
            raise TypeError(
                f"draw: expected a function with the parameters {list(self.grid)}, got {draw!r}: "
                f"{error}"
            ) from None

    def _checked_name(self, name: str | None) -> str:
        if name is None:
            own = str(getattr(self.draw, "__name__", "")).strip("_").replace("_", "-").lower()
            name = own if own.isidentifier() or "-" in own else "figure"  # a lambda has no name
        if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
            raise ValueError(f"name: expected lower-case words joined by dashes, got {name!r}")
        return name

    def _checked_alt(self, text: Any) -> str:
        if not isinstance(text, str):
            raise TypeError(f"alt: expected a string or a function that returns one, got {text!r}")
        if not text.strip():
            raise ValueError(
                f"alt: expected a text that says what figure {self.name!r} shows, got an empty one"
            )
        return text

    def _known(self, argument: str, given: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return ``given`` as a dict if all its keys are parameters."""
        for n in given or {}:
            if n not in self.grid:
                raise ValueError(
                    f"{argument}: expected parameters from {list(self.grid)}, got {n!r}"
                )
        return dict(given or {})

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}: {len(values)}" for name, values in self.grid.items())
        return f"<Explorer {self.name}({sizes})>"

    def state(self, **params: float | str) -> dict[str, Any]:
        """Return the figure in one state as plain JSON.

        Args:
            **params: Values of parameters, from the grid or between its values. All other
                parameters have their initial values.

        Returns:
            ``data`` and ``layout``. The alternative text is ``layout.meta.alt``.

        Raises:
            TypeError: If ``draw`` does not return a figure.
            ValueError: If a name is not a parameter.
        """
        return self._drawn({**self.initial, **self._known("state", params)})

    def _drawn(self, point: Mapping[str, Any], programs: Programs | None = None) -> dict[str, Any]:
        """Return the figure of one state; where a page computes it, also where its numbers are."""
        drawn = self.draw(**point)
        fig, said = drawn if isinstance(drawn, Drawn) else (drawn, None)
        if not isinstance(fig, go.Figure):
            raise TypeError(f"draw: expected a plotly Figure at {point}, got {type(fig).__name__}")
        if fig.layout.meta is not None:
            raise ValueError(
                f"draw: layout.meta holds the alternative text, got {fig.layout.meta!r}"
            )
        alt = self.alt(**point) if callable(self.alt) else self.alt
        if alt is None:
            alt = said
        text = inspect.getdoc(self.draw) or "" if alt is None else self._checked_alt(alt)
        shown = {**fig.to_dict()}
        shown["layout"] = {**shown["layout"], "meta": {"alt": text}}
        if programs is None:
            return plain_figure(shown)
        shown, fill = filled(shown, programs)
        plain = plain_figure(shown)
        plain["layout"]["meta"]["fill"] = fill
        return plain

    def to_json(self) -> dict[str, Any]:
        """Return the figure with the frames of all its states as plain JSON.

        Returns:
            ``data``, ``layout`` and ``frames`` in the form of plotly. ``layout.meta.explorer``
            describes the controls.

        Raises:
            ValueError: If the number of traces changes between states, or if the JSON is larger
                than ``max_bytes``.
        """
        programs = Programs() if self.computes else None
        whole = self._drawn(self._point({}, programs), programs)
        groups, frames = self._frames(whole, programs)
        module, name = self.draw.__module__, getattr(self.draw, "__qualname__", "")
        # what another process can import: no method, and nothing of a notebook
        importable = module.startswith(("book.", "stringlib.")) and name.isidentifier()
        about = {
            "name": self.name,
            "parameters": [
                {
                    "name": n,
                    "label": self.labels[n],
                    "values": values,
                    "texts": [value_text(v) for v in values],
                    "initial": values.index(self.initial[n]),
                }
                for n, values in self.grid.items()
            ],
            "groups": groups,
            "play": self.play,
            "drag": self.drag or None,
            "programs": bundle(programs.made, half=False) if programs else None,
            # lets a test compare what a page draws with what Python computes
            "source": f"{module}:{name}" if importable else None,
        }
        whole["layout"]["meta"]["explorer"] = {k: v for k, v in about.items() if v is not None}
        whole["frames"] = frames
        size = len(json.dumps(whole, separators=(",", ":")).encode())
        if size > self.max_bytes:
            raise ValueError(
                f"figure {self.name!r} must take at most max_bytes = {self.max_bytes:,} bytes, got "
                f"{size:,}. Give the grid fewer values, draw fewer points, or round their "
                "coordinates."
            )
        return whole

    def _point(self, given: Mapping[str, Any], programs: Programs | None) -> dict[str, Any]:
        """Return the parameters' values, amounts that the page computes from as slots."""
        point = {**self.initial, **given}
        if programs:
            point |= {n: programs.amount(n, float(self.initial[n])) for n in self.computes}
        return point

    def _frames(
        self, whole: dict[str, Any], programs: Programs | None
    ) -> tuple[list[list[str]], list[dict[str, Any]]]:
        """Draw every point of the grid and keep what differs."""
        stored = {n: values for n, values in self.grid.items() if n not in self.computes}
        traces, states = len(whole["data"]), []
        for values in itertools.product(*stored.values()):
            point = dict(zip(stored, values, strict=True))
            states.append(self._drawn(self._point(point, programs), programs))
            if len(states[-1]["data"]) != traces:
                raise ValueError(
                    f"draw: expected the same number of traces in every state, got {traces} in the "
                    f"default state and {len(states[-1]['data'])} at {point}. Draw an empty trace "
                    "instead of leaving it out."
                )
            share_filled(whole, states[-1])
        return split_states(states, list(stored), [len(v) for v in stored.values()])

    def figure(self) -> go.Figure:
        """Return the default state with all frames as a plotly figure."""
        # a frame may take away what another type of trace had, which go.Figure does not know
        return go.Figure(self.to_json(), skip_invalid=True)

    def widget(self) -> ipywidgets.VBox:
        """Return the figure with live controls above it, for which ipywidgets is needed."""
        from lab.explore.controls import controls

        shown = self.state, self.grid, self.initial, self.labels, self.live, self.play
        return controls(*shown, self.forms, drawn_by(self.draw))

    def forms(self, figure: Mapping[str, Any], alt: str) -> dict[str, str]:
        """Return the poster and the text of a figure, for programs that cannot draw plotly figures.

        Args:
            figure: One state of the figure, as plain JSON.
            alt: The alternative text of this state.
        """
        drawn = drawn_by(self.draw)
        source = f"Drawn by {drawn[0]} in {drawn[1]}." if drawn else ""
        return {
            "text/html": poster_html(figure, self.name, alt),
            "text/plain": f"{alt}\n{source}".strip(),
        }

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        figure = self.to_json()
        bundle = {PLOTLY: figure, **self.forms(figure, figure["layout"]["meta"]["alt"])}
        try:
            view = self.widget()._repr_mimebundle_() or {}
        except ModuleNotFoundError:  # without the extra `live` the figure is static
            return bundle
        data = view[0] if isinstance(view, tuple) else view
        return {WIDGET: data[WIDGET], **bundle} if WIDGET in data else bundle
