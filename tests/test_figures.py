"""What every figure of the book holds; what is one figure's own stands in its chapter's test."""

from __future__ import annotations

import importlib
import inspect
import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from stringlib.explore import HARD_LIMIT, Drawn, Explorer, figure_json
from stringlib.explore.frames import state_of

FOLDER = Path(__file__).parents[1] / "book" / "figures"
RATES = {"multiplications": 3e10, "exponentials": 8e8, "operations": 4e9, "bytes": 1e10}

# figure -> a few values of each of its sliders, the first ones its page's default state
CASES: dict[str, dict[str, list[Any]]] = {
    "why_positions.permuted_words": {
        "order": ["man bites dog", "dog bites man", "bites dog man"],
        "positions": ["none", "causal mask", "sinusoid added", "ALiBi", "RoPE"],
    },
    "why_positions.bias_curves": {
        "slope": [4, 1], "r1": [1, 0.5, 2], "r2": [0.25, 1], "power": [0.5, 1.5],
    },
    "rope.phase_clocks": {
        "distance": [6, 1, 17], "base": [10_000, 10], "dim": [16, 2, 32], "position": [8, 0],
    },
    "rope.shifted_scores": {"shift": [100, 0, 10_000]},
    "rope_decay.decay_curves": {"dim": [128, 8], "base": [10_000, 100, 500_000]},
    "rope_2d_3d.grid_kernel": {
        "encoder": [
            "axial", "raster index", "equal frequencies", "mixed, one head",
            "mixed, many directions",
        ],
        "row": [6, 0], "column": [6, 13],
    },
    "rope_2d_3d.resolution_scores": {
        "convention": ["count patches", "scale", "pin the corners"], "side": [28, 7, 56],
    },
    "rope_2d_3d.volume_kernel": {"time": [2, 0, -6]},
    "string.sphere_walks": {"between": [15, 0, 90], "distance": [1, 0.25]},
    "circulant_string.circulant_spectrum": {
        "r": [1, 0, 0.5], "c0": [0.5], "c1": [0.5, -1], "c2": [-0.25, 0], "c3": [0.25],
    },
    "cayley_string.cayley_circle": {"t": [1.5, -3, 0]},
    "cayley_string.sparse_basis": {"density": [0.05, 0.02, 1]},
    "reflections.two_mirrors": {"between": [45, 0], "first": [45, 90], "point": [20, 120]},
    "string_at_inference.encoding_cost": {
        "dim": [64, 1024], "tokens": [197, 4096], "batch": [1, 32],
    },
    "linear_attention.three_forms": {"token": [5, 0, 7], "chunk": [4, 1, 8]},
    "favor_plus.favor_error": {
        "length": [1.0, 2.5], "size": [64, 16, 256],
        "kind": ["iid", "orthogonal", "circulant", "hyperbolic"],
    },
    "circulant_favor.row_correlation": {
        "vector": ["constant", "smooth", "random", "one channel"],
        "signs": ["no signs", "signs 1", "signs 3"], "square": [1.0, 2.0],
    },
    "cosformer.ptolemy_circle": {"query": [8, 0, 12], "key": [3, 0, 12]},
    "toeplitz_rpe.toeplitz_circulant": {
        "tokens": [4, 2], "length": [196, 8192], "features": [64, 256],
    },
    "rotations_meet_linear_attention.shifted_kernels": {
        "shift": [16, 0], "features": ["ReLU, 16", "random, 16", "random, 1024"],
    },
    "gating.gated_query": {
        "match": [0, 8], "first": [-3, 6], "second": [-3, 0], "start": [False, True],
    },
    "decay_and_state.decay_memory": {
        "gamma": [0.9, 0.5], "reset": [8, 24], "kept": [0.0, 1.0],
    },
    "associative_recall.recalled_value": {"share": [1, 0, 0.5], "sharpness": [6, 2, 0]},
    "language_model.nearest_tokens": {"length": [256, 64, 1024], "half_life": [4, 16]},
    "length_extrapolation.beyond_training": {
        "method": ["rope", "pi", "ntk", "yarn"], "scale": [16, 2],
    },
    "speed.attention_times": {
        "tokens": [1024, 256, 65536], "channels": [64, 32], "features": [64, 256],
        "rates": [RATES], "recorded": [{"softmax": [(256, 0.5)], "toeplitz-fft": [(512, 20.0)]}],
    },
}  # fmt: skip

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
}  # fmt: skip
NUMBER = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?%?")


def find(name: str) -> Callable[..., Drawn]:
    module, _, function = name.partition(".")
    return getattr(importlib.import_module(f"book.figures.{module}"), function)


@cache
def states(name: str) -> list[tuple[dict[str, Any], Drawn]]:
    """Return every combination of a case's values, and what is drawn."""
    torch.manual_seed(0)
    before = torch.get_rng_state()
    grid = CASES[name]
    points = [dict(zip(grid, v, strict=True)) for v in itertools.product(*grid.values())]
    drawn = [(point, find(name)(**point)) for point in points]
    # a cell after the figure draws the same numbers, however many states the figure has
    assert torch.equal(torch.get_rng_state(), before), "a figure moves the reader's random numbers"
    return drawn


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
    drawing = set()
    for path in FOLDER.glob("*.py"):
        module = importlib.import_module(f"book.figures.{path.stem}")
        for name, function in inspect.getmembers(module, inspect.isfunction):
            returns = function.__annotations__.get("return")
            if function.__module__ == module.__name__ and returns in ("Drawn", Drawn):
                drawing.add(f"{path.stem}.{name}")
    assert drawing == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_what_is_drawn_are_finite_numbers_or_gaps(name: str) -> None:
    for _, (figure, _) in states(name):
        numbers = [v for v in values(figure) if isinstance(v, (int, float))]
        assert len(numbers) > 4
        assert all(math.isfinite(v) for v in numbers)


@pytest.mark.parametrize("name", CASES)
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


@pytest.mark.parametrize("name", CASES)
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


@pytest.mark.parametrize("name", CASES)
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
    draw, grid = find(name), CASES[name]
    given = {k: v[0] for k, v in grid.items() if k in ("rates", "recorded")}
    grid = {k: v for k, v in grid.items() if k not in given}
    shown = Explorer(
        lambda **at: draw(**at, **given), name="figure", max_bytes=HARD_LIMIT, **grid
    ).to_json()
    for point, (figure, alt) in states(name):
        state = state_of(shown, {k: grid[k].index(point[k]) for k in grid})
        assert state["layout"].pop("meta")["alt"] == alt
        assert len(alt) > 80
        assert state == figure_json(figure)
