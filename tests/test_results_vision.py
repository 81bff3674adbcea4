"""The studies behind the chapter on vision transformers: what they measure."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from results import transfer
from results import vision as study
from stringlib.checks import largest_difference
from stringlib.models import ViT
from stringlib.positions import grid_positions
from stringlib.tasks import make_task
from stringlib.tasks.images import Images

BAG = {"dim": 16, "heads": 2, "depth": 1}


def moved_task() -> Images:
    task = make_task("moved-digits", views=1)
    assert isinstance(task, Images)
    task.test = task.test[0][:60], task.test[1][:60]
    return task


class Corner(nn.Module):
    """Names the label that it is given, if the brightest pixel is in the upper left quarter."""

    def forward(self, images: torch.Tensor, positions: object = None) -> torch.Tensor:
        """Return scores for class 1 there, for class 0 elsewhere."""
        rows = images.sum((1, 3))[:, :8].sum(-1) > images.sum((1, 2, 3)) - 0.5
        columns = images.sum((1, 2))[:, :8].sum(-1) > images.sum((1, 2, 3)) - 0.5
        return nn.functional.one_hot((rows & columns).long(), 2).float()


def test_places_are_rows_from_the_top() -> None:
    task = moved_task()
    task.test = torch.full((4, 1, 8, 8), 16), torch.ones(4, dtype=torch.long)
    places = study.at_places(Corner(), task)
    assert places[0][0] == 1
    assert sum(map(sum, places)) == 1
    task.test = torch.zeros(4, 1, 8, 8), torch.ones(4, dtype=torch.long)
    task.test[0][..., 0, 0] = 16  # one dot, at the place itself
    inside = [[float(r <= 3 and c <= 3) for c in range(5)] for r in range(5)]
    assert study.at_places(Corner(), task) == inside


def test_a_bag_of_patches_sees_no_place() -> None:
    torch.manual_seed(0)
    task = moved_task()
    model = task.model(**BAG).double()
    shown = torch.rand(3, 1, 8, 8).double()
    here, there = (model(nn.functional.pad(shown, pad)) for pad in ((0, 8, 0, 8), (4, 4, 6, 2)))
    assert largest_difference(here, there) < 1e-12


def test_finer_positions_are_counted_or_interpolated(monkeypatch: pytest.MonkeyPatch) -> None:
    task = make_task("digits", scale=2)
    asked = {}

    def remember(model: ViT, images: torch.Tensor, labels: torch.Tensor, at: torch.Tensor) -> float:
        assert images.shape[1:] == (1, 16, 16)
        asked[len(asked)] = at
        return 0.5

    monkeypatch.setattr(study, "accuracy", remember)
    assert study.finer(task.model(**BAG), task) == {"counted": 0.5, "interpolated": 0.5}
    counted, between = asked.values()
    assert torch.equal(counted, grid_positions(8, 8))
    # four patches of the fine grid lie around the centre of each coarse one
    centres = between.view(4, 2, 4, 2, 2).mean((1, 3)).flatten(0, 1)
    assert largest_difference(centres, grid_positions(4, 4)) < 1e-6
    assert largest_difference(between[1] - between[0], torch.tensor([0, 0.5])) < 1e-6


@pytest.mark.parametrize("name", ["digits learned", "moved cls axial", "volumes cayley-sparse"])
def test_a_run_has_the_scores_of_its_task(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "at_places", lambda model, task: [[0.5]])  # takes seconds
    found = study.run(seed=1, steps=2, **study.CELLS[name])
    tests = {
        "digits": {"test", "fine", "counted", "interpolated"},
        "moved": {"test", "moved"},
        "volumes": {"test", "moved"},
    }[name.split()[0]]
    assert found["scores"].keys() == tests
    assert ("places" in found) == name.startswith("moved")
    assert len(found["losses"]) >= 1


def test_a_longer_run_is_the_same_run_with_more_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    def weights(model: ViT, task: Images) -> float:
        return sum(p.double().sum().item() for p in model.parameters())

    monkeypatch.setattr(study, "at_places", weights)  # 25 places take seconds, and say less
    long = study.run(seed=1, steps=2, **study.CELLS["longer moved axial"])
    assert long == study.run(seed=1, steps=8, **study.CELLS["moved axial"])


@pytest.mark.parametrize("name", [n for n in study.CELLS if n.startswith("performer")])
def test_every_performer_can_be_built(name: str) -> None:
    told = {k: v for k, v in study.CELLS[name].items() if k != "task"}
    torch.manual_seed(0)
    model = moved_task().model(**told)
    assert model(torch.rand(2, 1, 16, 16)).shape == (2, 10)


@pytest.mark.parametrize("task", transfer.TASKS)
@pytest.mark.parametrize("base", transfer.BASES)
def test_zero_start_changes_nothing_and_noise_does(task: str, base: str) -> None:
    made, model = transfer.pretrain(task, base, seed=0, steps=2)
    images = torch.rand(4, 1, made.canvas, made.canvas)
    assert transfer.largest_change(model, transfer.with_string(model, "zero"), images) < 1e-5
    noisy = transfer.with_string(model, "noise")
    assert transfer.largest_change(model, noisy, images) > 1e-4
    assert transfer.encoders(model) == []
    assert len(transfer.encoders(noisy)) == len(noisy.blocks)
    assert transfer.frequencies(noisy).std() == pytest.approx(0.1, rel=0.2)


@pytest.mark.parametrize(("base", "pool"), [("none", "mean"), ("none", "cls"), ("learned", "mean")])
def test_the_gradient_at_zero_vanishes_only_without_any_absolute_place(
    base: str, pool: str
) -> None:
    torch.manual_seed(0)
    task = make_task("digits")
    model = transfer.with_string(
        task.model(pool=pool, encoder=None if base == "none" else base), "zero"
    )
    found = transfer.gradients(model, torch.rand(6, 1, 8, 8), torch.arange(6))
    assert found["plain"] > 1e-3
    assert (found["patches mirrored"] < 1e-14) == (base == "none" and pool == "mean")
    assert found["pixels mirrored"] > 1e-4


def test_a_transfer_run_has_every_copy() -> None:
    found = transfer.run(seed=0, steps=2, **transfer.CELLS["digits none"])
    assert found["tuned"].keys() == transfer.STARTS.keys()
    for name, copied in found["tuned"].items():
        assert ("frequencies" in copied) == (name != "without")
    slow, fast = (found["tuned"][n]["frequencies"]["way"] for n in ("zero, 1e-4", "zero"))
    assert 0 < slow < fast
