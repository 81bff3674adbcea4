"""The two studies behind the chapter on Toeplitz weights: tasks and ways."""

from __future__ import annotations

import pytest
import torch

from results import toeplitz_crossover as crossover
from results import toeplitz_rpe as study
from stringlib.algebra import toeplitz
from stringlib.checks import largest_difference


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


def test_the_ways_that_are_timed_agree() -> None:
    args = crossover.inputs(200, 16, seed=0)
    exact = crossover.ways(None)["algorithm 1"](*(x.double() for x in args))
    ways = crossover.ways(toeplitz(args[3]))
    for name in ("algorithm 1", "matrix", "fft"):
        assert largest_difference(ways[name](*args), exact) < 1e-4
    assert ways["softmax"](*args).shape == exact.shape
