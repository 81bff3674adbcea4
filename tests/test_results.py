"""Every study: its record is of its declaration, a seed repeats, training learns."""

from __future__ import annotations

import importlib
import itertools
import json
import runpy
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from lab.records import read_record
from lab.train.learn import Training
from stringlib.attention.registry import FEATURES, WEIGHTS
from stringlib.encoders.registry import BIASES, ENCODERS

ROOT = Path(__file__).resolve().parents[1]
STUDIES = sorted(path.stem for path in (ROOT / "results").glob("*.py"))
SEEDS = {
    "class_token": 15,
    "favor_plus": 10,
    "recall_redraw": 10,
    "recall_success": 30,
    "copy_rates": 1,
    "extrapolation_published_rates": 1,
    "language_published_rates": 1,
    "language_sources_rates": 2,
    "page_digits": 3,
    "page_recall": 3,
    "page_recall_sizes": 3,
    "page_text": 3,
}
"""Study → least number of seeds, if it is not five."""
CHEAP = {
    "circulant_training": ["base", "clip None", "start uniform", "shared True"],
    "class_token": ["mean: none", "cls: axial"],
    "circulant_favor": ["learned fourier, descent 3.0", "learned nearest, adam 0.02"],
    "extrapolation": ["needle none"],
    "inference_ladder": ["sizes"],
    "language_rates": [
        "C-CosGate, RoPE, ramp, rate 0.02",
        "half softmax, half circulant, RoPE, rate 0.01",
    ],
    "recall": [
        "8 pairs, no shift: favor",
        "8 pairs, no shift: softmax",
        "32 pairs, shift, unit, 5,000 sequences: favor",
        "32 pairs, shift, unit, 5,000 sequences: favor-learned",
        "8 pairs, t5, two layers, mlp: softmax",
    ],
    "copy_distance": ["GLA and a head of softmax, alone"],
    "lookup": ["ELU, eight heads, rate 0.01"],
    "recall_many": ["free, delta, rate 0.001", "unit, favor-learned, rate 0.01"],
    "recall_redraw": ["8 pairs, unit, m = 32, learned", "8 pairs, free, m = 64, every 10"],
    "recall_success": ["free, favor-optimal, rate 0.01", "unit, favor-circulant, rate 0.001"],
    "mnist": ["softmax: none", "favor: unit, toeplitz"],
    "performer_vision": [
        "digits favor: circulant turned",
        "digits relu: axial after",
        "digits favor-unit-circulant: toeplitz, circulant",
        "moved relu: none",
    ],
    "sparse_sweep": ["f = 0.1", "times"],
    "toeplitz_crossover": ["forward, m = 64, n = 64"],
    "transfer_3d": ["mixed scratch", "circulant zero"],
    "vision": ["volumes none", "digits learned", "volumes cayley-sparse"],
}
"""Study → cells that are run here, if not the first one, or all of a study of small models."""
TIMES = ("circulant_speed", "inference_ladder", "toeplitz_crossover")
SLOW = ("memory", "milliseconds")  # what stands beside runs, and takes long to measure again


def study_of(name: str) -> ModuleType:
    return importlib.import_module(f"results.{name}")


def record_of(name: str) -> dict[str, Any]:
    return read_record(ROOT / "results" / f"{name}.json")


def data_of(name: str) -> dict[str, Any]:
    found: dict[str, Any] = record_of(name)["data"]
    return found


def plain(value: Any) -> Any:
    """Return a value as JSON gives it back: lists, no tuples."""
    return json.loads(json.dumps(value))


def leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every number with its place."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, part in pairs:
        if isinstance(part, (dict, list)):
            yield from leaves(part, f"{place}/{key}")
        else:
            yield f"{place}/{key}", part


def timeless(run: Any) -> Any:
    """Return a run as JSON gives it back, without its speed."""
    return {key: value for key, value in plain(run).items() if key != "tokens_per_s"}


def places(run: dict[str, Any]) -> set[tuple[str, bool]]:
    """Return where a run has a number, and where none, but for what grows with the steps.

    Weights are kept of one seed alone.
    """
    own = ("losses", "seed", "wall_s", "weights")
    run = {key: value for key, value in run.items() if key not in own}
    return {
        (place, value is None) for place, value in leaves(plain(run)) if "/losses/" not in place
    }


def first_of_all(batches: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    """In the place of ``enumerate``: yield the first batch alone."""
    return itertools.islice(enumerate(batches), 1)


@pytest.mark.parametrize("name", STUDIES)
def test_the_record_is_of_the_declared_cells_seeds_and_steps(name: str) -> None:
    study, record = study_of(name).STUDY, record_of(name)
    words = f"--seeds {study.seeds} --steps {study.steps}"
    assert record["command"] == f"python results/{name}.py {words}"
    assert record["seeds"] == list(range(study.seeds))
    assert "dirty" not in record["commit"], "record it from a clean checkout"
    assert study.seeds >= SEEDS.get(name, 5)
    assert Path(study.script).stem == name
    data = record["data"]
    assert data["steps"] == study.steps
    assert {cell: found["told"] for cell, found in data["cells"].items()} == plain(study.cells)
    assert list(data["cells"]) == list(study.cells)
    for cell, found in data["cells"].items():
        assert [run["seed"] for run in found["runs"]] == record["seeds"], cell
        assert all(places(run) == places(found["runs"][0]) for run in found["runs"]), cell
        if any("wall_s" in run for run in found["runs"]):  # older records have no times
            assert all(run["wall_s"] >= 0 for run in found["runs"]), cell


@pytest.mark.parametrize("name", STUDIES)
def test_what_stands_beside_the_runs_is_what_the_study_says(name: str) -> None:
    beside, data = study_of(name).STUDY.beside, data_of(name)
    assert set(data) == {"steps", "cells", *beside}
    said = {k: v() if callable(v) else v for k, v in beside.items() if k not in SLOW}
    recorded = dict(leaves({k: data[k] for k in said}))
    assert recorded == pytest.approx(dict(leaves(plain(said))), abs=1e-5)


@pytest.mark.parametrize("name", STUDIES)
def test_runs_have_the_recorded_shape_and_a_seed_repeats_one(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a few to test on show where numbers stand, and that they repeat
    monkeypatch.setattr(sys.modules["lab.train.evaluate"], "enumerate", first_of_all, raising=False)
    study, recorded = study_of(name).STUDY, data_of(name)["cells"]
    small = isinstance(study.run, Training) or name in ("gating", "rotations_linear")
    cell, *others = [*study.cells] if small else CHEAP.get(name, [*study.cells][:1])
    steps = 16 if name == "favor_plus" else 1 if name in TIMES else 3
    first = timeless(study.run(seed=1, steps=steps, **study.cells[cell]))
    assert places(first) == places(timeless(recorded[cell]["runs"][0]))
    for other in others:
        found = study.run(seed=1, steps=1, **study.cells[other])
        assert places(found) == places(recorded[other]["runs"][0]), other
    if name in TIMES:
        assert all(value > 0 for _, value in leaves(first))
        return
    if getattr(study.run, "__module__", "") not in (f"results.{name}", Training.__module__):
        return  # another study's, and repeated there
    if isinstance(study.run, Training):
        one, two, other = (
            list(study.run.train(seed=seed, steps=3, **study.cells[cell]).state_dict().values())
            for seed in (1, 1, 2)
        )
        assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
        assert any(not torch.equal(a, b) for a, b in zip(one, other, strict=True))
    else:
        assert timeless(study.run(seed=1, steps=steps, **study.cells[cell])) == first
        runs = [timeless(run) for run in recorded[cell]["runs"][:2]]
        if len(runs) == 1:  # of one seed: another does something else here
            runs = [first, timeless(study.run(seed=2, steps=steps, **study.cells[cell]))]
        assert any(runs[0][measure] != runs[1][measure] for measure in first)


@pytest.mark.parametrize(
    ("name", "cell", "seed"),
    [
        ("favor_plus", "matched, t = 1", 2),
        ("linear_attention", "elu", 3),
        ("circulant_favor", "attention uniform", 4),
        ("circulant_favor", "attention circulant", 0),
        ("circulant_favor", "learned column, adam 0.02", 0),
    ],
)
def test_what_is_computed_fast_is_computed_again(name: str, cell: str, seed: int) -> None:
    study, recorded = study_of(name).STUDY, data_of(name)["cells"][cell]["runs"][seed]
    again = plain(study.run(seed=seed, steps=study.steps, **study.cells[cell]))
    wanted = {k: v for k, v in recorded.items() if k in again}
    assert dict(leaves(again)) == pytest.approx(dict(leaves(wanted)), rel=1e-3, abs=1e-5)


def test_a_new_name_in_a_registry_changes_no_study(monkeypatch: pytest.MonkeyPatch) -> None:
    for registry in (FEATURES, WEIGHTS, ENCODERS, BIASES):
        monkeypatch.setitem(registry, "new", next(iter(registry.values())))
    for name in STUDIES:
        anew = runpy.run_path(str(ROOT / "results" / f"{name}.py"))["STUDY"]
        assert anew.cells == study_of(name).STUDY.cells, name


LEARNS: list[tuple[str, dict[str, Any], int, list[Any], float]] = [
    ("cosformer", {"method": "retnet"}, 60, [64], 0.6),
    ("delta_rule", {"state": "delta", "task": "parity"}, 300, ["parity", 16], 0.95),
    ("rope_2d", {"method": "mixed", "task": "one"}, 100, ["trained", 16], 0.32),
    ("rope_shift", {"method": "rope"}, 40, [0], 0.3),
    ("rotations_linear", {"method": "softmax before even"}, 60, [], 0.5),
    ("string_commuting", {"method": "liere"}, 60, [0], 0.3),
    ("toeplitz_rpe", {"task": "offset", "method": "favor toeplitz"}, 40, ["offset", 16], 0.4),
]
"""Study, what a model is told, steps, what is asked of its accuracy, and what that is at least."""


@pytest.mark.parametrize(("name", "told", "steps", "asked", "least"), LEARNS)
def test_training_learns(
    name: str, told: dict[str, Any], steps: int, asked: list[Any], least: float
) -> None:
    study = study_of(name)
    assert study.accuracy(study.train(**told, seed=1, steps=steps), *asked) > least
