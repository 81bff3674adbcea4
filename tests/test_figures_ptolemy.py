"""The figure of Ptolemy's theorem shows what it says."""

from __future__ import annotations

import itertools
import math
import re

import pytest

from book.figures import cosformer as figures
from stringlib import CosineWeight

PLACES = list(itertools.product((0, 3, 7, 12), repeat=2))


def sides(figure: object) -> dict[str, float]:
    """Measure the drawn segments of each trace."""
    lengths = {}
    for trace, names in zip(figure.data[:4], ("AC", "AB CD", "BC AD", "BD"), strict=True):
        for place, name in enumerate(names.split()):
            x, y = (v[3 * place : 3 * place + 2] for v in (trace.x, trace.y))
            lengths[name] = math.dist((x[0], y[0]), (x[1], y[1]))
    return lengths


@pytest.mark.parametrize(("query", "key"), PLACES)
def test_the_drawn_lengths_are_those_of_the_theorem(query: int, key: int) -> None:
    drawn = sides(figures.ptolemy_circle(query, key).figure)
    a, b = (math.pi / 24 * position for position in (query, key))
    wanted = {
        "AC": 1,
        "AB": math.cos(a),
        "BC": math.sin(a),
        "CD": math.cos(b),
        "AD": math.sin(b),
        "BD": math.cos(a - b),
    }
    for name, length in wanted.items():
        assert abs(drawn[name] - length) < 1e-12
    assert abs(drawn["AB"] * drawn["CD"] + drawn["BC"] * drawn["AD"] - drawn["BD"]) < 1e-12


@pytest.mark.parametrize(("query", "key"), PLACES)
def test_the_curve_is_the_weight_and_the_dot_is_on_it(query: int, key: int) -> None:
    figure, text = figures.ptolemy_circle(query, key)
    row = CosineWeight(12).matrix(13, 13)[query].tolist()
    assert list(figure.data[6].y)[::4] == pytest.approx(row, abs=1e-12)
    assert (figure.data[7].x[1], figure.data[7].y[1]) == (key, pytest.approx(row[key], abs=1e-12))
    parts = [float(x) for x in re.findall(r"-?\d\.\d\d", figure.layout.annotations[0].text)]
    assert parts[2] == pytest.approx(row[key], abs=0.0051)
    assert parts[0] + parts[1] == pytest.approx(parts[2], abs=0.0151)
    assert f"BD = {row[key]:.2f}" in text


def test_a_position_beyond_the_horizon_is_refused() -> None:
    with pytest.raises(ValueError, match="key must lie between 0 and the horizon 12, got 13"):
        figures.ptolemy_circle(2, 13)
