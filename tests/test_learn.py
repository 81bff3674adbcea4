"""The loop by itself, and how a study uses it: rates, clipping, and going on where it was."""

import os
import signal

import pytest
import torch
from torch import nn

from lab.train.checkpoint import Checkpoint
from lab.train.interrupt import Interrupted
from lab.train.learn import Training, adam
from lab.train.loop import minimise


class Two(nn.Module):
    """Two numbers, one of them in a part of its own."""

    def __init__(self, start=1.0):
        super().__init__()
        self.plain = nn.Parameter(torch.tensor(start))
        self.encoder = nn.ParameterDict({"omega": nn.Parameter(torch.tensor(start))})
        self.frozen = nn.Parameter(torch.tensor(start), requires_grad=False)

    def sum(self, step=None):
        return self.plain + self.encoder["omega"] + self.frozen


def moved(model):
    """Return how far each number went from 1."""
    return [1 - x.item() for x in (model.plain, model.encoder["omega"], model.frozen)]


def test_every_part_has_its_rate_and_what_is_frozen_has_none():
    model = Two()
    minimise(model, model.sum, adam(model, {"": 0.1, "encoder": 0.3}), 1)  # Adam's first: rate
    assert moved(model) == pytest.approx([0.1, 0.3, 0], abs=1e-6)
    model = Two()
    minimise(model, model.sum, adam(model, 0.2), 1)
    assert moved(model) == pytest.approx([0.2, 0.2, 0], abs=1e-6)
    with pytest.raises(
        ValueError, match="rates must have parts of the model as keys, got 'encodr'"
    ):
        adam(model, {"": 0.1, "encodr": 0.3})


def test_gradients_are_clipped_together_and_losses_are_told_without_the_penalty():
    model, seen = Two(), []
    optimizer = torch.optim.SGD([{"params": [model.plain, model.encoder["omega"]]}], lr=1.0)

    def after(step, loss, norm):
        seen.append((step, loss.item(), norm.item()))

    penalty = {"penalty": lambda: 2 * model.sum()}
    minimise(model, model.sum, optimizer, 2, clip=0.5, after=after, **penalty)
    assert moved(model)[:2] == pytest.approx([2 * 0.5 / 2**0.5] * 2, abs=1e-5)
    norm = 3 * 2**0.5
    assert seen == [
        (0, 3, pytest.approx(norm)),
        (1, pytest.approx(3 - 0.5**0.5), pytest.approx(norm)),
    ]


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


class Noisy(nn.Module):
    """A layer that draws from PyTorch's own generator."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 1))


def noisy_loss(model, generator):
    x = torch.randn(5, 3, generator=generator, dtype=torch.float64)
    return (model.layer(x)[:, 0] - x.sum(-1)).square().mean()


def weights(model):
    return {"weights": torch.cat([p.flatten() for p in model.parameters()]).tolist()}


def test_a_study_s_model_learns_as_by_pytorch_s_own_schedule_and_clipping():
    torch.manual_seed(3)
    model, generator = Noisy().double(), torch.Generator().manual_seed(3)
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
    for _ in range(20):
        optimizer.zero_grad()
        noisy_loss(model, generator).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        schedule.step()
    run = Training(Noisy, noisy_loss, weights, rates=0.02, cosine=True, clip=0.1)
    assert run(seed=3, steps=20)["weights"] == pytest.approx(weights(model)["weights"], abs=1e-12)


def test_a_curve_is_of_means_of_the_losses():
    seen = []

    def noted(model, generator):
        seen.append(noisy_loss(model, generator))
        return seen[-1]

    told = {"rates": 0.02, "clip": 1.0}
    found = Training(Noisy, noted, weights, **told, every=2)(seed=3, steps=5)
    first, second, third, fourth, last = (loss.item() for loss in seen)
    means = [(first + second) / 2, (third + fourth) / 2, last]
    assert found.pop("losses") == pytest.approx(means, abs=5e-5)
    assert found == Training(Noisy, noisy_loss, weights, **told)(seed=3, steps=5)


@pytest.mark.parametrize("asked", [1, 137, 250])
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(tmp_path, asked):
    """What it draws too, from a generator that nobody seeds at each step."""
    told = {"rates": 0.02, "cosine": True, "clip": 1.0, "every": 30}
    whole = Training(Noisy, noisy_loss, weights, **told)(seed=3, steps=250)
    keep, steps = Checkpoint(tmp_path / "run.pt", {"code": {}}), []

    def stopping(model, generator):
        steps.append(1)
        if len(steps) == asked:
            os.kill(os.getpid(), signal.SIGTERM)
        return noisy_loss(model, generator)

    with pytest.raises(Interrupted, match=f"stopped after {asked} of 250 steps. .*run.pt"):
        Training(Noisy, stopping, weights, **told)(seed=3, steps=250, keep=keep)
    torch.manual_seed(99)
    assert Training(Noisy, stopping, weights, **told)(seed=3, steps=250, keep=keep) == whole
    assert len(steps) == 250
