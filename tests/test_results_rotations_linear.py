"""The study behind the chapter on rotations and linear attention: task and models."""

from __future__ import annotations

import pytest
import torch

from results import rotations_linear as study
from stringlib.checks import largest_difference


def outputs(method: str, start: float, seed: int = 0) -> torch.Tensor:
    torch.manual_seed(seed)
    model = study.LookBack(method).double()
    return model(study.batch(2, torch.Generator().manual_seed(1)), start).detach()


@pytest.mark.parametrize("method", study.METHODS)
def test_only_what_turns_before_a_feature_map_sees_a_shift(method: str) -> None:
    kind, *rest = method.split()
    sees = kind != "softmax" and rest[0] in ("before", "moving")
    here, there = outputs(method, 0.0), outputs(method, 37.0)
    change = largest_difference(here, there) / here.abs().max().item()
    assert (change > 1e-3) is sees
    assert sees or change < 1e-9


@pytest.mark.parametrize("method", study.METHODS)
def test_without_rotations_the_place_is_unknown(method: str) -> None:
    torch.manual_seed(0)
    model = study.LookBack(method).double()
    symbols = study.batch(2, torch.Generator().manual_seed(1))
    order = torch.randperm(study.LENGTH, generator=torch.Generator().manual_seed(2))
    gap = largest_difference(model(symbols)[:, order], model(symbols[:, order]))
    assert (gap < 1e-12) is ("none" in method)


def test_all_feature_maps_have_as_many_features() -> None:
    for method in study.METHODS[2:]:
        model = study.LookBack(method)
        q, k, x, _ = model.inputs(study.batch(1, torch.Generator()), 0.0)
        assert model.phi(q).shape[-1] == model.phi(k).shape[-1] == study.FEATURES
        assert x.shape == (1, 1, study.LENGTH, study.DIM)


def test_frequencies_reach_as_far_as_said() -> None:
    for size in (16, 64):
        even = study.encoder(size, "even").frequencies().flatten()
        assert largest_difference(even.diff(), torch.full_like(even[1:], 6 / size)) < 1e-12
        assert 2.8 < even.max() < 3
        assert study.encoder(size, "geometric").frequencies().max() == 1


def test_the_answer_is_three_places_back() -> None:
    model = study.LookBack("relu none")
    model.forward = lambda symbols, start: torch.nn.functional.one_hot(
        symbols.roll(3, -1), study.SYMBOLS
    )
    assert study.accuracy(model) == 1


def test_an_unknown_method_is_named() -> None:
    with pytest.raises(ValueError, match=r"method must be one of .* got 'relu'"):
        study.LookBack("relu")
