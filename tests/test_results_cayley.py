"""The study behind the chapter on Cayley-STRING: what is frozen, the misplaced form."""

from __future__ import annotations

import pytest
import torch

from results import cayley_string as study
from stringlib.checks import largest_difference
from stringlib.reference import build_skew_symmetric, cayley_after_rope


def test_frozen_means_that_only_the_encoder_and_the_readout_learn() -> None:
    learned = {
        s: {n for n, p in study.LookBack(s, "0.5").named_parameters() if p.requires_grad}
        for s in study.SETTINGS
    }
    last = {"encoder.entries", "encoder.omega", "readout.weight", "readout.bias"}
    assert learned["frozen"] == last
    assert learned["free"] > last


def test_the_answer_stands_three_places_back() -> None:
    model = study.LookBack("frozen", "0").double()
    symbols = torch.arange(study.LENGTH)[None] % study.SYMBOLS
    oracle = torch.full((1, study.LENGTH, study.SYMBOLS), -50.0, dtype=torch.float64)
    for place in range(3, study.LENGTH):
        oracle[0, place, (place - 3) % study.SYMBOLS] = 0.0
    model.forward = lambda _: oracle  # type: ignore[method-assign]
    assert study.cross_entropy(model, symbols) < 1e-12


def test_the_misplaced_form_is_the_literal_one() -> None:
    torch.manual_seed(0)
    encoder = study.AfterRotation(study.HEAD_DIM).double()
    q, positions = torch.randn(1, 7, study.HEAD_DIM).double(), torch.arange(7)[:, None]
    skew = build_skew_symmetric(encoder.entries[0].detach(), study.HEAD_DIM)
    literal = cayley_after_rope(q, positions, skew, encoder.omega[0].detach())
    assert largest_difference(encoder(q, q, positions)[0], literal) < 1e-12


@pytest.mark.parametrize("setting", study.SETTINGS)
def test_methods_of_a_seed_start_from_the_same_weights(setting: str) -> None:
    models = []
    for method in study.METHODS:
        torch.manual_seed(3)
        models.append(study.LookBack(setting, method))
    for model in models[1:]:
        for name in ("to_q.weight", "to_k.bias", "embed.weight", "readout.weight"):
            assert torch.equal(model.get_parameter(name), models[0].get_parameter(name))


def test_training_learns_and_behind_the_rotation_the_transform_does_not() -> None:
    losses = {
        method: study.held_out_loss(study.train(setting="frozen", method=method, seed=1, steps=60))
        for method in ("0", "1", "after")
    }
    assert losses["1"] < losses["0"] - 0.1
    assert abs(losses["after"] - losses["0"]) < 1e-9
    moved = study.train(setting="frozen", method="after", seed=1, steps=60).encoder.entries.detach()
    torch.manual_seed(1)
    start = study.LookBack("frozen", "after").double().encoder.entries.detach()
    assert largest_difference(moved, start) < 1e-5
