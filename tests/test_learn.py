"""The loop of the studies: rates, schedule, clipping, and what its functions are told."""

import math

import pytest
import torch
from torch import nn

from lab.train.learn import Training, adam, learn


class Two(nn.Module):
    """Two numbers, one of them in a part of its own."""

    def __init__(self, start=1.0):
        super().__init__()
        self.plain = nn.Parameter(torch.tensor(start))
        self.encoder = nn.ParameterDict({"omega": nn.Parameter(torch.tensor(start))})
        self.frozen = nn.Parameter(torch.tensor(start), requires_grad=False)

    def sum(self):
        return self.plain + self.encoder["omega"] + self.frozen


def moved(model):
    """Return how far each number went from 1."""
    return [1 - x.item() for x in (model.plain, model.encoder["omega"], model.frozen)]


def test_every_part_has_its_rate_and_what_is_frozen_has_none():
    model = Two()
    learn(model, model.sum, 1, adam(model, {"": 0.1, "encoder": 0.3}))  # Adam's first step: rate
    assert moved(model) == pytest.approx([0.1, 0.3, 0], abs=1e-6)
    model = Two()
    learn(model, model.sum, 1, adam(model, 0.2))
    assert moved(model) == pytest.approx([0.2, 0.2, 0], abs=1e-6)
    with pytest.raises(ValueError, match="rates must name parts of the model, got 'encodr'"):
        adam(model, {"": 0.1, "encodr": 0.3})


@pytest.mark.parametrize(("cosine", "way"), [(False, 8.0), (True, 4.5)])
def test_a_cosine_falls_from_the_rate_to_zero(cosine, way):
    """With a constant gradient each step of Adam is as long as its rate."""
    model = Two()
    learn(model, model.sum, 8, adam(model, 0.1), cosine=cosine)
    steps = [(1 + math.cos(math.pi * n / 8)) / 2 if cosine else 1.0 for n in range(8)]
    assert sum(steps) == pytest.approx(way)
    assert moved(model)[0] == pytest.approx(0.1 * way, abs=1e-5)


def test_gradients_are_clipped_together_and_losses_are_told():
    model, seen = Two(), []
    optimizer = torch.optim.SGD([{"params": [model.plain, model.encoder["omega"]]}], lr=1.0)
    learn(model, model.sum, 2, optimizer, clip=0.5, after=lambda loss: seen.append(loss.item()))
    assert moved(model)[:2] == pytest.approx([2 * 0.5 / 2**0.5] * 2, abs=1e-5)
    assert seen == pytest.approx([3, 3 - 2 * 0.5 / 2**0.5], abs=1e-5)


def test_functions_are_told_what_they_name_and_numbers_follow_the_seed():
    def loss(model, generator, task):
        assert (task, model.plain.dtype) == ("a task", torch.float64)
        return model.sum() * torch.rand((), generator=generator)

    def measure(model, start):
        assert not torch.is_grad_enabled()
        return {"way": start - model.plain.item()}

    run = Training(Two, loss, measure, rates=lambda model: {"": 0.1, "encoder": 0.2})
    first, again, other = (
        run(seed=s, steps=4, task="a task", start=2.0, method="nobody asks") for s in (0, 0, 1)
    )
    assert first == again != other
    trained = run.train(seed=0, steps=4, task="a task", start=2.0)
    assert 2.0 - trained.plain.item() == first["way"]
