"""The two studies behind the chapter on Toeplitz weights: tasks, ways and records."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from results import toeplitz_crossover as crossover
from results import toeplitz_rpe as study
from stringlib.algebra import toeplitz
from stringlib.checks import largest_difference
from stringlib.records import read_record


def test_the_tasks_ask_what_they_say() -> None:
    tokens = study.batch(3, torch.Generator().manual_seed(0))
    offset, kind = (study.answers(task, tokens).tolist() for task in study.TASKS)
    for row, line in enumerate(tokens.tolist()):
        for i, token in enumerate(line):
            assert offset[row][i] == (line[i - 5] % 8 if i >= 5 else -100)
            alike = [t for t in line[:i] if t // 8 == token // 8]
            assert kind[row][i] == (alike[-1] % 8 if alike else -100)


@pytest.mark.parametrize("method", study.METHODS)
def test_only_a_weight_or_bias_knows_the_order(method: str) -> None:
    torch.manual_seed(0)
    model = study.Layer(method).double()
    torch.nn.init.normal_(model.bias)
    tokens = study.batch(1, torch.Generator().manual_seed(0))
    there = model(tokens.flip(1)).flip(1)
    blind = method in ("favor", "favor cosine", "favor kerple", "softmax temperature")
    assert (largest_difference(model(tokens), there) < 1e-9) is blind


def test_softmax_and_favor_attend_to_the_same_products() -> None:
    torch.manual_seed(0)
    exact, model = study.Layer("softmax toeplitz"), study.Layer("favor toeplitz")
    exact.phi = model.phi = study.FavorFeatures(study.HEAD_DIM, 60_000)
    exact.load_state_dict(model.state_dict())
    tokens = study.batch(1, torch.Generator().manual_seed(0))
    assert largest_difference(exact(tokens), model(tokens)) < 0.02


def test_training_learns_and_a_seed_repeats_it() -> None:
    first, second = (study.train("offset", "favor toeplitz", 1, steps=5) for _ in range(2))
    assert torch.equal(first.bias, second.bias)
    trained = study.train("offset", "favor toeplitz", 1, steps=40)
    assert study.accuracy(trained, "offset", 16) > 0.4


def test_the_committed_record_is_of_this_study() -> None:
    record = read_record(Path(study.__file__).with_suffix(".json"))
    runs = record["data"]["accuracy"]
    assert len(record["seeds"]) >= 5
    assert list(runs) == list(study.TASKS)
    for methods in runs.values():
        assert list(methods) == list(study.METHODS)
        assert all(len(row) == len(record["seeds"]) for row in methods.values())


def test_the_ways_that_are_timed_agree() -> None:
    args = crossover.inputs(200, 16, seed=0)
    exact = crossover.ways(None)["algorithm 1"](*(x.double() for x in args))
    ways = crossover.ways(toeplitz(args[3]))
    for name in ("algorithm 1", "matrix", "fft"):
        assert largest_difference(ways[name](*args), exact) < 1e-4
    assert ways["softmax"](*args).shape == exact.shape


def test_the_committed_times_are_of_these_ways() -> None:
    record = read_record(Path(crossover.__file__).with_suffix(".json"))
    times = record["data"]["milliseconds"]["forward"]
    assert len(record["seeds"]) >= 3
    assert {int(m): tuple(map(int, lengths)) for m, lengths in times.items()} == crossover.LENGTHS
    for n, row in times["64"].items():
        wanted = [a for a in crossover.ways(None) if int(n) <= crossover.LARGEST.get(a, int(n))]
        assert list(row) == wanted
        assert all(len(ts) == len(record["seeds"]) for ts in row.values())
