"""The study behind the chapter on reflections: equal starts, exact factors."""

from __future__ import annotations

import pytest
import torch

from results import reflections as study
from stringlib.checks import largest_difference


def test_every_method_starts_as_the_same_model() -> None:
    tokens = torch.randint(study.TOKENS, (2, 9))
    outputs, frequencies = [], []
    for method in study.METHODS:
        torch.manual_seed(0)
        model = study.OneLayer(method)
        outputs.append(model(tokens))
        frequencies.append(model.encoder.frequencies())
    assert all(torch.equal(f, frequencies[0]) for f in frequencies)
    assert largest_difference(torch.stack(outputs), outputs[0]) == 0


def test_an_answer_needs_no_token_but_the_one_five_places_back() -> None:
    with pytest.raises(ValueError, match=r"method must be one of .*got 'rope'"):
        study.OneLayer("rope")
    torch.manual_seed(0)
    model = study.OneLayer("mirrors")
    tokens = torch.randint(study.TOKENS, (1, study.LENGTH))
    changed = tokens.clone()
    changed[:, 10] = (tokens[:, 10] + 1) % study.TOKENS
    assert torch.equal(model(tokens)[:, :10], model(changed)[:, :10])  # causal


@pytest.mark.parametrize(("optimizer", "same"), [("SGD", "omega-8"), ("Adam", "omega-4")])
def test_mirrors_follow_the_frequencies_at_the_right_multiple_of_the_rate(
    optimizer: str, same: str
) -> None:
    runs = {m: study.train(m, optimizer, seed=1, steps=40) for m in study.METHODS}
    mirrors = runs.pop("mirrors")
    moved = largest_difference(mirrors.frequencies[-1], study.START)
    for method, run in runs.items():
        apart = largest_difference(run.frequencies, mirrors.frequencies)
        assert (apart < 1e-12) == (method == same)
        assert method == same or apart > 0.1 * moved
    assert torch.equal(runs["fixed"].frequencies[-1], study.START)


def test_training_learns() -> None:
    trained = study.train("mirrors", "Adam", seed=3, steps=60)
    assert trained.losses[-10:].mean() < trained.losses[:10].mean()


def test_powers_of_ten_are_not_below() -> None:
    given = [0.0, 1e-15, 1e-12, 2e-12, 0.3, 1.0]
    assert [study.power_of_ten(e) for e in given] == [1e-12, 1e-12, 1e-12, 1e-11, 1.0, 1.0]
