"""What every figure of the book holds; the files beside this one hold what each computes."""

from __future__ import annotations

import importlib
import inspect
import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from lab.explore import HARD_LIMIT, Drawn, Explorer, figure_json
from lab.explore.frames import FEWEST_STOPS, MOST_BUTTONS
from tests.figure_cases import CASES, NOTEBOOKS, SAVED, about, find, in_chapter, states
from tests.figure_states import state_of

FOLDER = Path(__file__).parents[1] / "book" / "figures"
FIGURES = [*CASES, *SAVED]

# figure -> numbers of its words that its picture implies, at the values of its sliders
IMPLIED: dict[str, Callable[..., Sequence[float]]] = {
    "rope_2d_3d.grid_kernel": lambda encoder, **_: [30.0],  # degrees of the mixed head
    "cayley_string.cayley_circle": lambda t: [math.degrees(2 * t)],
    "cayley_string.sparse_basis": lambda density: [1.0],  # "1 part" is "one connected part"
    "reflections.two_mirrors": lambda between, first, point: [
        first + between, 2 * first - point, point + 2 * between,
    ],
    "toeplitz_rpe.toeplitz_circulant": lambda tokens, **_: [2 * tokens],
    "cosformer.ptolemy_circle": lambda query, key: [
        part(math.pi / 24 * query) * part(math.pi / 24 * key) for part in (math.cos, math.sin)
    ],
    # how many of the methods, which no mark says
    "read-on": lambda **_: range(14),
    "lost-and-found": lambda **_: range(12),
    "recorded-times": lambda **_: range(9),
    "card-times": lambda **_: range(6),
}  # fmt: skip
NUMBER = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?%?")


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from leaves(item)
    elif hasattr(value, "tolist"):
        yield from leaves(value.tolist())
    else:
        yield value


def values(figure: Any) -> Iterator[Any]:
    """Yield every number and text that the traces show."""
    for trace in figure.data:
        for key in ("x", "y", "z", "text"):
            yield from leaves(trace[key] if key in trace and trace[key] is not None else [])


def above(figure: Any) -> str:
    """Return the words above the figure and its panels."""
    heads = [note.text for note in figure.layout.annotations]
    return " | ".join([figure.layout.title.text or "", *heads])


def test_every_figure_has_a_case() -> None:
    """But for those that are given a record: their chapters save every state."""
    drawing = set()
    for path in FOLDER.glob("*.py"):
        module = importlib.import_module(f"book.figures.{path.stem}")
        for name, function in inspect.getmembers(module, inspect.isfunction):
            returns = function.__annotations__.get("return")
            given = "recorded" in function.__annotations__
            if function.__module__ == module.__name__ and returns in ("Drawn", Drawn) and not given:
                drawing.add(f"{path.stem}.{name}")
    assert drawing == set(CASES)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_numbers_are_an_amount_that_moves_smoothly_or_a_handful_of_cases(path: Path) -> None:
    """Between the two lies a slider that jumps, or a list of numbers that could be a slider."""
    counts = {
        (told["name"], parameter["name"]): len(parameter["values"])
        for told in map(about, in_chapter(path))
        for parameter in told["parameters"]
        if not isinstance(parameter["values"][0], (str, bool))
    }
    between = range(MOST_BUTTONS["numbers"] + 1, FEWEST_STOPS)
    assert {parameter: count for parameter, count in counts.items() if count in between} == {}


@pytest.mark.parametrize("name", FIGURES)
def test_what_is_drawn_are_finite_numbers_or_gaps(name: str) -> None:
    for _, (figure, _) in states(name):
        numbers = [v for v in values(figure) if isinstance(v, (int, float))]
        assert len(numbers) > 4
        assert all(math.isfinite(v) for v in numbers)


@pytest.mark.parametrize("name", FIGURES)
def test_states_have_the_same_traces_on_panels_that_exist(name: str) -> None:
    kinds = set()
    for _, (figure, _) in states(name):
        kinds.add(tuple((t.type, t.name is None or t.showlegend) for t in figure.data))
        axes = {(t.xaxis or "x", t.yaxis or "y") for t in figure.data}
        assert all(x[1:] == y[1:] for x, y in axes)
        spots = {note.xref.split()[0] for note in figure.layout.annotations}
        assert spots <= {x for x, _ in axes}
        assert len(spots) == len(figure.layout.annotations)  # one head a panel
        named = [t.name for t in figure.data if t.name]
        assert len(named) == len(set(named))
    assert len(kinds) == 1


@pytest.mark.parametrize("name", FIGURES)
def test_the_words_change_with_the_picture(name: str) -> None:
    seen = [(p, json.dumps(figure_json(f), sort_keys=True), alt) for p, (f, alt) in states(name)]
    for (p, one, told), (q, other, again) in itertools.combinations(seen, 2):
        moved = {key for key in p if p[key] != q[key]}
        if len(moved) == 1 and one != other:
            assert told != again, (p, q)


def read(number: str) -> tuple[float, float]:
    """Return a number of a text, and a little more than half of its last digit."""
    plain = number.replace(",", "").rstrip("%")
    scale = 0.01 if number.endswith("%") else 1
    decimals = len(plain.partition(".")[2])
    return scale * float(plain), scale * 0.6 * 10**-decimals


def unfounded(numbers: Iterable[str], shown: Iterable[Any]) -> list[str]:
    """Return those of some numbers that are not shown, to within their last digit."""
    plain = []
    for value in shown:
        if isinstance(value, str):
            plain += [read(n)[0] for n in NUMBER.findall(value)]
        elif isinstance(value, (int, float)):
            plain.append(value)
    return [
        n for n in numbers if not any(abs(abs(v) - abs(read(n)[0])) <= read(n)[1] for v in plain)
    ]


@pytest.mark.parametrize("name", FIGURES)
def test_words_and_heads_give_the_numbers_of_the_picture(name: str) -> None:
    told = [NUMBER.findall(drawn.alt) for _, drawn in states(name)]
    same = set.intersection(*map(set, told))  # in all states: of the figure as such
    for (point, (figure, alt)), numbers in zip(states(name), told, strict=True):
        implied = IMPLIED[name](**point) if name in IMPLIED else []
        shown = [*values(figure), *point.values(), *implied]
        heads = above(figure)
        assert unfounded({*numbers} - same, [*shown, heads]) == [], point
        assert unfounded(NUMBER.findall(heads), [*shown, alt]) == [], point


@pytest.mark.parametrize("name", CASES)
def test_a_page_moves_between_the_states(name: str) -> None:
    grid = CASES[name]
    shown = Explorer(find(name), name="figure", max_bytes=HARD_LIMIT, **grid).to_json()
    for point, (figure, alt) in states(name):
        state = state_of(shown, {k: grid[k].index(point[k]) for k in grid})
        assert state["layout"].pop("meta")["alt"] == alt
        assert len(alt) > 80
        assert state == figure_json(figure)


BAD = {
    "circulant_favor.row_correlation": [
        (("x", "no signs", 1.0), r"vector must be one of .*, got 'x'"),
        (("constant", "x", 1.0), r"signs must be one of .*, got 'x'"),
    ],
    "cosformer.ptolemy_circle": [
        ((2, 13), "key must lie between 0 and the horizon 12, got 13"),
        ((-1, 3), "query must lie between 0 and the horizon 12, got -1"),
    ],
    "cosformer.phase_weights": [
        ((-0.1,), "phase must lie between 0 and 1, got -0.1"),
        ((1.5,), "phase must lie between 0 and 1, got 1.5"),
    ],
    "rotations_meet_linear_attention.shifted_kernels": [
        ((0, "elu"), r"features must be one of .*, got 'elu'"),
    ],
    "rotations_meet_linear_attention.rolled_features": [
        ((0, "7"), r"cycles must be one of .*, got '7'"),
        ((61, "12"), "offset must be an integer from 0 to 60, got 61"),
        ((0.5, "12"), "offset must be an integer from 0 to 60, got 0.5"),
    ],
}


@pytest.mark.parametrize(
    ("name", "given", "message"), [(name, *case) for name in BAD for case in BAD[name]]
)
def test_what_cannot_be_drawn_is_named(name: str, given: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find(name)(*given)


def test_a_circulant_names_its_coefficients() -> None:
    with pytest.raises(ValueError, match="expected c0 to c1, got"):
        find("circulant_string.circulant_spectrum")(1.0, c0=1.0, c2=1.0)
