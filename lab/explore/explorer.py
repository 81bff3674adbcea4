"""One definition, two lives: a live widget in Jupyter, sliders in the book.

``Explorer(draw, base=[10, 100])`` calls ``draw`` once for every
point of a small grid.  Its one output carries the figure with all those states
(the built book moves between them without a kernel) and, while a kernel runs,
ipywidgets that call ``draw`` anew at each move.
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
"""No figure's JSON may be larger than this many bytes, whatever its ``max_bytes``."""


class Drawn(NamedTuple):
    """A figure in one state, and what it shows there in words: both from one computation."""

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

    Amounts have a slider, yes and no a box to tick, names and a handful of numbers buttons, or a
    list if they are many. An amount has 40 values or more: what moves should move smoothly.

    Args:
        draw: A function of the parameters that returns a plotly figure, or a
            :class:`Drawn`, the figure with its alternative text.  The number of
            traces must be the same in every state.
        alt: The alternative text: what the figure shows, in words.  A function
            of the parameters gives each state its own text.  Unless given it is
            the text that is drawn with the figure, or else the docstring of
            ``draw``; the checks of the book refuse a figure that has none.
        name: Identifies the figure in its page and in the page's address; the
            name of ``draw`` with dashes unless given.
        initial: The default state: a value of the grid for some or all of the
            parameters; the first values unless given.
        labels: For a parameter the words beside its control, with the unit.
        live: Widgets to use instead of the grid's own while a kernel runs,
            for instance a continuous slider.
        play: A parameter to run through with a play button.
        drag: For a parameter what a pointer in the plot sets it to: ``"x"`` or ``"y2"``, the
            value there on that axis; ``"turn"``, the direction from the origin in degrees, of
            a line, so that opposite ones are equal; ``"y at 3"``, the value on the axis if the
            pointer is nearest 3 on the other; ``"hands"``, by how far it turns one of the dials of
            that panel, whose trace has each hand's radians for one unit as ``customdata``.  The
            control stays, for keys.
        computes: The amounts that move smoothly: the page computes what follows from them, in
            place of frames.  All of it has to come from functions that are marked
            :func:`~lab.explore.computed.computed`.
        max_bytes: The largest size of the figure's JSON, at most ``HARD_LIMIT``.
        **grid: For each parameter the values of the static version: numbers,
            strings or booleans.  A single value is fixed and has no control;
            no parameter at all gives a plain figure with alternative text.

    Raises:
        TypeError: If an argument has the wrong kind, or ``draw`` does not take
            the parameters.
        ValueError: If a name or a value is not in the grid, a text is empty, or
            a limit is too high.
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
        """Return the figure of one state as plain JSON.

        Args:
            **params: Values, in the grid or between; the rest as in ``initial``.

        Returns:
            ``data`` and ``layout``; the alternative text is ``layout.meta.alt``.

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
        """Return the figure with the frames of all its states, as plain JSON.

        Returns:
            ``data``, ``layout`` and ``frames`` as plotly has them;
            ``layout.meta.explorer`` says what the sliders are.

        Raises:
            ValueError: If the number of traces changes between states, or the
                JSON is larger than ``max_bytes``.
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
        """Return the figure below its live controls; needs ipywidgets."""
        from lab.explore.controls import controls

        shown = self.state, self.grid, self.initial, self.labels, self.live, self.play
        return controls(*shown, self.forms, drawn_by(self.draw))

    def forms(self, figure: Mapping[str, Any], alt: str) -> dict[str, str]:
        """Return what stands for a figure of this explorer where plotly cannot draw.

        Args:
            figure: One of its states, as plain JSON.
            alt: What it shows, in words.
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
