"""Explorer: frames, texts, limits and the live panel."""

from __future__ import annotations

import base64
import html
import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import ipywidgets
import numpy as np
import plotly.graph_objects as go
import pytest
import torch
from torch import Tensor

from book.figures.rope import phase_clocks
from lab.explore import HARD_LIMIT, Drawn, Explorer, amounts, computed, figure_json, pick, poster
from lab.explore.frames import PLOTLY
from lab.explore.style import PALETTE
from tests.figure_states import state_of
from tests.refusals import refused

FORMS = ("text/html", "text/plain")


def wave(speed: float, size: int, kind: str) -> go.Figure:
    """A figure in which much differs: data, title, range, type of trace, colour bar."""
    x = np.linspace(0, 1, 5)
    line = go.Scatter(x=x, y=np.sin(speed * x), name="line")
    if kind == "map":
        other = go.Heatmap(z=size * np.outer(x, x), colorbar_title_text="z")
    else:
        other = go.Scatter(x=x, y=size * x, line_color="red")
    fig = go.Figure([line, other])
    if size > 1:
        fig.add_annotation(text="large", x=0, y=0)
        fig.update_layout(xaxis={"range": [0, size]})
    return fig.update_layout(title_text=f"speed {speed}")


def explorer(**options: Any) -> Explorer:
    grid = {"speed": [0.5, 1.0, 2.0], "size": [1, 2], "kind": ["line", "map"]}
    return Explorer(wave, **{"alt": "A wave.", **grid, **options})


def test_every_state_is_rebuilt_from_the_frames() -> None:
    shown = explorer(initial={"size": 2})
    figure = json.loads(json.dumps(shown.to_json()))
    for index in itertools.product(*(range(len(values)) for values in shown.grid.values())):
        point = dict(zip(shown.grid, index, strict=True))
        values = {name: shown.grid[name][i] for name, i in point.items()}
        state = state_of(figure, point)
        state["layout"].pop("meta")
        assert state == figure_json(wave(**values))


def test_a_value_stands_once_for_each_combination_of_what_it_depends_on() -> None:
    figure = explorer().to_json()
    about = figure["layout"]["meta"]["explorer"]
    assert about["groups"] == [["speed"], ["size"], ["size", "kind"], ["kind"]]
    frames = {frame["name"]: frame for frame in figure["frames"]}
    assert len(frames) == len(figure["frames"]) == 3 + 2 + 4 + 2
    # the first trace depends on speed alone, and its x and name on nothing
    assert frames["speed=0"]["traces"] == [0]
    assert frames["speed=0"]["data"][0].keys() == {"type", "y"}
    assert frames["speed=0"]["layout"] == {"title": {"text": "speed 0.5"}}
    # what one state lacks is taken away, not left over from another
    assert frames["size=0"]["layout"] == {"annotations": None, "xaxis": None}


def test_numbers_are_short_and_noise_is_zero() -> None:
    y = np.array([1 / 3, -0.0, 1e-17, 2e-5, np.nan, np.inf, 1e20, 123456789.0, 2.0])
    figure = figure_json(go.Figure(go.Scatter(y=y, x=y.astype("float32"))))
    shown = figure["data"][0]["y"]
    assert shown == [0.333333, 0, 0, 2e-5, None, None, 1e20, 123457000, 2]
    assert json.dumps(shown[1]) == "0"
    assert "template" not in figure["layout"]


def test_a_text_can_follow_the_state() -> None:
    shown = explorer(alt=lambda speed, size, kind: f"{kind} {speed} {size}")
    assert shown.state(size=2)["layout"]["meta"]["alt"] == "line 0.5 2"
    moved = state_of(shown.to_json(), {"speed": 2, "size": 0, "kind": 1})
    assert moved["layout"]["meta"]["alt"] == "map 2.0 1"


def test_what_the_page_is_told() -> None:
    def told(shown: Explorer) -> dict[str, Any]:
        return shown.to_json()["layout"]["meta"]["explorer"]

    words = {"name": "my-wave", "play": "speed", "labels": {"speed": "speed (1/s)"}}
    about = told(explorer(initial={"speed": 1.0}, **words))
    assert (about["name"], about["play"], "drag" in about) == ("my-wave", "speed", False)
    for held in ({"speed": "turn2", "size": "y at -1.5"}, {"speed": "hands", "size": "x2"}):
        assert told(explorer(drag=held))["drag"] == held
    assert about["parameters"][0] == {
        "name": "speed",
        "label": "speed (1/s)",
        "values": [0.5, 1.0, 2.0],
        "texts": ["0.5", "1", "2"],
        "initial": 1,
    }
    # only functions of the book and of the package can be imported by a test
    assert "source" not in about
    known = Explorer(phase_clocks, position=range(3), distance=[8], base=[100])
    assert told(known)["source"] == "book.figures.rope:phase_clocks"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alt": " "}, r"alt: expected a text that says what figure 'wave'"),
        ({"alt": 3}, r"TypeError: alt: expected a string .* got 3"),
        ({"initial": {"sped": 1}}, r"initial: expected parameters from .*'speed'.* got 'sped'"),
        ({"initial": {"speed": 7}}, r"initial: expected speed from \[0.5.*got 7"),
        ({"labels": {"sped": "x"}}, r"labels: expected .* got 'sped'"),
        ({"live": {"sped": None}}, r"live: expected .* got 'sped'"),
        ({"play": "sped"}, r"play: expected .* got 'sped'"),
        ({"drag": {"sped": "x"}}, r"drag: expected .* got 'sped'"),
        ({"drag": {"speed": "z"}}, r"drag: .* got speed='z'"),
        ({"drag": {"kind": "x"}}, r"drag: expected a parameter with numbers.* got kind='x'"),
        ({"speed": []}, r"speed: expected at least one value"),
        ({"speed": "fast"}, r"TypeError: speed: expected a list of values, got 'fast'"),
        ({"speed": 3}, r"TypeError: speed: expected a list of values, got 3"),
        ({"speed": [None]}, r"TypeError: speed: expected finite numbers.*None"),
        ({"speed": [float("nan")]}, r"TypeError: speed: expected finite numbers.*nan"),
        ({"speed": [1, 1.0]}, r"speed: expected different values"),
        ({"fig": [1, 2]}, r"no parameter with the name 'fig'"),
        (
            {"colour": [1, 2]},
            r"TypeError: draw: expected a function with the parameters \['speed'.*colour",
        ),
        ({"name": "My Wave"}, r"name: expected lower-case words.*'My Wave'"),
        (
            {"max_bytes": HARD_LIMIT + 1},
            r"max_bytes: expected a number from 1 to 200000, got 200001",
        ),
        ({"max_bytes": 0}, r"max_bytes"),
    ],
)
def test_bad_input_is_named(options: dict, message: str) -> None:
    with refused(message):
        explorer(**options)


def test_a_figure_may_be_drawn_with_its_words() -> None:
    def dots(n: int) -> Drawn:
        """Not this."""
        return Drawn(go.Figure(go.Scatter(y=list(range(n)))), f"{n} dots." if n < 3 else " ")

    shown = Explorer(dots, n=[1, 2])
    figure = shown.to_json()
    assert state_of(figure, {"n": 1})["layout"]["meta"]["alt"] == "2 dots."
    assert state_of(figure, {"n": 1})["data"][0]["y"] == [0, 1]
    own = Explorer(dots, alt=lambda n: f"{n} points", n=[1, 2])
    assert own.state(n=2)["layout"]["meta"]["alt"] == "2 points"
    with pytest.raises(ValueError, match="alt: expected a text that says what figure 'dots'"):
        shown.state(n=3)


def noise(seed: int) -> go.Figure:
    return go.Figure(go.Scatter(y=np.random.default_rng(seed).normal(size=1000)))


@pytest.mark.parametrize(
    ("draw", "options", "message"),
    [
        (go.Figure(), {}, "TypeError: draw: expected a function"),
        (lambda a: [a], {"a": [1]}, r"TypeError: draw: .* plotly Figure at \{'a': 1\}, got list"),
        (lambda: go.Figure(layout_meta={"mine": 1}), {}, r"layout.meta .* got \{'mine': 1\}"),
        (
            lambda count: go.Figure([go.Scatter(y=[1])] * count),
            {"count": [1, 2]},
            r"number of traces.*got 1 .* and 2 at \{'count': 2\}",
        ),
        (
            noise,
            {"seed": range(20), "max_bytes": 50_000},
            r"'a' must take at most max_bytes = 50,000 bytes, got [\d,]+",
        ),
    ],
)
def test_what_cannot_be_drawn_is_named(draw: Any, options: dict, message: str) -> None:
    with refused(message):
        Explorer(draw, alt="Nothing.", name="a", **options).to_json()


@computed
def halves(level: Tensor, size: int) -> dict[str, Tensor]:
    return {"y": level * torch.arange(size) / 2, "half": level / 2, "high": (level > 2).double()}


def stairs(level: float, size: int) -> Drawn:
    found = halves(level, size)
    fig = go.Figure(go.Scatter(y=found["y"]), {"title": {"text": f"half {found['half']:.2f}"}})
    return Drawn(fig, f"Stairs {pick(found['high'], 'low', 'high')}, {level:g}, of {size} steps.")


def test_what_the_page_computes_is_in_no_frame() -> None:
    """A frame has only what a stored parameter changes and no program gives."""
    shown = Explorer(stairs, computes=["level"], level=amounts(1, 5, 0.5), size=[3, 4])
    figure = shown.to_json()
    about, meta = figure["layout"]["meta"]["explorer"], figure["layout"]["meta"]
    assert about["groups"] == [["size"]]
    assert len(about["programs"]["programs"]) == 2
    assert meta["fill"] == {
        "data/0/y": {"of": ["0.y", 0, 3]},
        "layout/title/text": "half ⟦0.half|0|.2f⟧",
        "layout/meta/alt": "Stairs ⟦0.high|0|?low|high⟧, ⟦level|0|g⟧, of 3 steps.",
    }
    assert meta["alt"] == "Stairs low, 1, of 3 steps."
    assert figure["data"][0]["y"] == [0, 0.5, 1]
    [_, four] = figure["frames"]
    assert four["layout"]["meta"]["fill"]["data/0/y"] == {"of": ["1.y", 0, 4]}
    assert "title" not in four["layout"]
    assert "data" not in four


def test_who_calculates_outside_of_the_computed_function_is_told() -> None:
    def doubled(level: float) -> Drawn:
        return Drawn(go.Figure(go.Scatter(y=[2 * level])), "A dot.")

    with pytest.raises(TypeError, match="level must not be used in a calculation"):
        Explorer(doubled, computes=["level"], level=[1.0, 2.0]).to_json()


# ---- the live panel ----


def drawn(panel: Any, form: str = PLOTLY, number: int = 0) -> Any:
    """Return the figure that a live panel shows, or what else its output has."""
    out = next(w for w in panel.children if isinstance(w, ipywidgets.Output))
    return out.outputs[number]["data"][form]


def test_the_panel_draws_at_each_move() -> None:
    shown = explorer(initial={"speed": 2.0}, labels={"speed": "speed (1/s)"})
    panel = shown.widget()
    speed, size, kind = panel.children[:3]
    assert (speed.description, size.description) == ("speed (1/s)", "size")
    assert drawn(panel) == figure_json(wave(2.0, 1, "line"))
    size.value, kind.value = 2, "map"
    assert drawn(panel) == figure_json(wave(2.0, 2, "map"))


def test_a_live_widget_replaces_a_slider_and_starts_at_the_initial_value() -> None:
    slider = ipywidgets.FloatSlider(value=0, min=0, max=3)
    panel = explorer(initial={"speed": 1.0}, live={"speed": slider}).widget()
    assert panel.children[0] is slider
    assert slider.value == 1.0
    slider.value = 1.25  # between the grid's values
    assert drawn(panel) == figure_json(wave(1.25, 1, "line"))


def test_the_kind_of_values_decides_the_live_control_and_a_single_value_has_none() -> None:
    def draw(**values: Any) -> go.Figure:
        return go.Figure()

    kinds: dict[str, tuple[Any, type | None]] = {
        "amount": (range(40), ipywidgets.SelectionSlider),
        "kind": (["a", "b"], ipywidgets.ToggleButtons),
        "yes": ([False, True], ipywidgets.Checkbox),
        "one": ([2], None),
        "many": ([*"abcdefg"], ipywidgets.Dropdown),
        "few": (range(8), ipywidgets.ToggleButtons),
        "points": (range(9), ipywidgets.Dropdown),
    }
    grid = {name: values for name, (values, _) in kinds.items()}
    panel = Explorer(draw, alt="Nothing.", **grid).widget()
    found = {w.description: type(w) for w in panel.children if hasattr(w, "description")}
    assert {name: found.get(name) for name in kinds} == {n: kind for n, (_, kind) in kinds.items()}


def test_the_output_has_words_and_a_poster_for_where_plotly_does_not_draw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poster, "POSTERS", tmp_path)
    monkeypatch.chdir(poster.ROOT / "book")
    shown = Explorer(phase_clocks, position=range(3), distance=[8], base=[100])
    bundle = shown._repr_mimebundle_()
    assert set(bundle) == {PLOTLY, "application/vnd.jupyter.widget-view+json", *FORMS}
    figure, alt = shown.to_json(), bundle[PLOTLY]["layout"]["meta"]["alt"]
    assert bundle[PLOTLY] == figure
    source = "Drawn by phase_clocks in book/figures/rope.py."
    assert bundle["text/plain"] == f"{alt}\n{source}"
    assert bundle["text/html"] == f"<p>{html.escape(alt)}</p>"
    assert bundle["text/html"] in drawn(shown.widget(), "text/html")
    assert '<a href="figures/rope.py">book/figures/' in drawn(shown.widget(), "text/html", 1)
    (tmp_path / "phase-clocks.svg").write_text(
        f"<svg><path/></svg><!-- {poster.digest(figure)} -->"
    )
    head, _, coded = shown._repr_mimebundle_()["text/html"].partition(";base64,")
    assert head == f'<img alt="{html.escape(alt)}" src="data:image/svg+xml'
    picture = base64.b64decode(coded[:-2])
    assert b'<rect width="100%" height="100%" fill="#fff"/><path/>' in picture
    figure["data"][0]["x"] = [1]  # a poster of another figure misleads
    assert "<img" not in poster.poster_html(figure, "phase-clocks", alt)


def test_without_ipywidgets_the_figure_is_static() -> None:
    code = (
        "import sys; sys.modules['ipywidgets'] = None\n"
        "import plotly.graph_objects as go\n"
        "from lab.explore import Explorer\n"
        "def line(a): return go.Figure(go.Scatter(y=[a]))\n"
        "print(*sorted(Explorer(line, alt='A line.', a=[1, 2])._repr_mimebundle_()))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == sorted([PLOTLY, *FORMS])


# ---- the style ----


def luminance(colour: str) -> float:
    parts = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize("name", PALETTE)
@pytest.mark.parametrize("page", ["#ffffff", "#14181e", "#121212"])
def test_colours_stand_out_from_the_page(name: str, page: str) -> None:
    light, dark = sorted((luminance(PALETTE[name]), luminance(page)), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 3
