"""The study behind the chapter on linear attention: its ways to compare."""

from __future__ import annotations

import pytest
import torch

from results import linear_attention as study
from stringlib import FavorFeatures
from stringlib.theory.capacity import least_error


@pytest.mark.parametrize("method", study.METHODS)
def test_one_pair_comes_back_and_a_seed_repeats_itself(method: str) -> None:
    error, share = study.recall(method, 1, seed=0, draws=2)
    assert share == 1
    assert error == pytest.approx(0, abs=0.5 if method == "signed" else 1e-9)
    assert study.recall(method, 16, 1, 1) == study.recall(method, 16, 1, 1)
    assert study.recall(method, 16, 1, 1) != study.recall(method, 16, 2, 1)


def test_the_best_state_reaches_the_bound() -> None:
    for pairs in (32, 128):
        error, _ = study.recall("least-squares", pairs, seed=0, draws=1)
        assert error == pytest.approx(least_error(pairs, study.D), abs=1e-9)


def test_random_features_estimate_softmax_and_keep_what_each_key_weighs() -> None:
    keys = torch.randn(12, study.D, generator=torch.Generator().manual_seed(0)).double()
    torch.manual_seed(5)
    found = study.favor(study.MANY)(keys)
    torch.manual_seed(5)
    omega = FavorFeatures(study.D, study.MANY).double().projection_matrix()[0]
    x = keys / study.D**0.25
    features = (x @ omega.mT - x.square().sum(-1, keepdim=True) / 2).exp()
    torch.testing.assert_close(
        found, (features @ features.mT / (features @ features.sum(0))[:, None])
    )
    assert found.sub(study.METHODS["softmax"](keys)).abs().mean() < 0.05


def test_a_value_is_decoded_by_its_direction_from_the_mean() -> None:
    values = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]).double()
    assert study.decoded(torch.eye(3).double(), values) == 1
    flat = torch.full((3, 3), 0.3).double() + 0.1 * torch.eye(3).double()
    assert study.decoded(flat, values + 5) == 1  # the mean is no obstacle
    assert study.decoded(torch.eye(3).double()[[1, 2, 0]], values) == 0


def test_the_times_are_in_turns() -> None:
    times = study.milliseconds([8, 16], rounds=2)
    assert set(times) == {"softmax", "relu", "softmax-causal", "relu-causal"}
    assert all([len(row) for row in rows] == [2, 2] for rows in times.values())
