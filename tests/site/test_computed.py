"""Figures that compute: what a page makes of its sliders is what PyTorch draws."""

from __future__ import annotations

import importlib
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.explore import figure_json
from lab.explore.frames import PLOTLY
from tests.site.reader import ROOT, differences

ASSETS = ROOT / "book" / "_assets"
STATES = """([text, points]) => {
  const state = window.bookStates.states(JSON.parse(text));
  return points.map(state);
}"""
TRIED = 6


def figures() -> Iterator[dict[str, Any]]:
    """Yield every figure of the chapters."""
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        for cell in json.loads(Path(path).read_text(encoding="utf8"))["cells"]:
            for output in cell.get("outputs", []):
                if PLOTLY in output.get("data", {}):
                    yield output["data"][PLOTLY]


def about(figure: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = figure["layout"]["meta"]["explorer"]
    return found


COMPUTE = {about(figure)["name"]: figure for figure in figures() if "programs" in about(figure)}


@pytest.fixture(scope="module")
def runner(browser: Any) -> Iterator[Any]:
    """An empty page that knows states."""
    page = browser.new_page()
    for script in ("book-run.js", "book-states.js"):
        page.add_script_tag(path=str(ASSETS / script))
    yield page
    page.close()


@pytest.mark.parametrize("name", COMPUTE)
def test_a_figure_computes_what_it_draws(runner: Any, name: str) -> None:
    """At both ends of every slider, and at settings that nobody chose."""
    figure = COMPUTE[name]
    parameters = about(figure)["parameters"]
    sizes = [len(p["values"]) for p in parameters]
    draw = random.Random(name)
    points = [[0] * len(sizes), [n - 1 for n in sizes]]
    points += [[draw.randrange(n) for n in sizes] for _ in range(TRIED)]
    module, _, function = about(figure)["source"].partition(":")
    shown = runner.evaluate(STATES, [json.dumps(figure), points])
    found = []
    for point, state in zip(points, shown, strict=True):
        values = {p["name"]: p["values"][i] for p, i in zip(parameters, point, strict=True)}
        drawn = getattr(importlib.import_module(module), function)(**values)
        want = {**figure_json(drawn.figure), "alt": drawn.alt}
        got = {**state, "alt": state["layout"]["meta"]["alt"]}
        found += [f"{values}: {line}" for line in differences(want, got)]
    assert not found, "\n".join(found[:10])


@pytest.mark.parametrize(
    ("value", "spec"),
    [
        *[(x, ".2f") for x in (0.125, 0.375, -0.125, 2.675, 0.285, 1.005, 99.995, -0.001, 12.5)],
        *[(x, ".0f") for x in (0.5, 1.5, 2.5, -2.5, 1e6, 0.49999)],
        *[(x, "g") for x in (0.1, 1e-5, 123456.0, 1234567.0, 0.00012, 1e6, 0.30000000000000004)],
        *[(x, "g") for x in (13777.25, 13777.75, 0.0, 999999.5)],
        *[(x, ".3g") for x in (0.0005, 1234.0, 9.995, 100.0, 0.1)],
        *[(x, "+.2f") for x in (0.5, -0.5, 0.0)],
        *[(x, ",.0f") for x in (999.0, 1000.0, 1234567.0)],
        *[(x, ".0%") for x in (0.125, 0.5, 1.0, 0.005)],
    ],
)
def test_numbers_are_written_as_python_writes_them(runner: Any, value: float, spec: str) -> None:
    assert runner.evaluate("([v, s]) => window.bookStates.written(v, s)", [value, spec]) == format(
        value, spec
    )


def test_a_good_number_of_figures_compute() -> None:
    """A figure that goes back to frames is missed."""
    assert len(COMPUTE) >= 22
