"""What studies without training measure: errors of maps, states and features, times and memory."""

from __future__ import annotations

import math

import pytest
import torch

from lab.theory.capacity import least_error
from results import (
    circulant_favor,
    circulant_speed,
    favor_plus,
    inference_ladder,
    linear_attention,
    toeplitz_crossover,
)
from stringlib import CirculantSTRING, FavorFeatures
from stringlib.algebra import toeplitz
from stringlib.testing import properties
from stringlib.testing.properties import largest_difference

RUNGS = ["matrix_exp", "fft", "rfft", "half", "basis", "folded", "rope"]


# --- random features -------------------------------------------------------------------------


@pytest.mark.parametrize("name", favor_plus.MAPS)
def test_every_map_estimates_softmax(name: str) -> None:
    q, k = favor_plus.tokens("spread", 0.25, 8, seed=0)
    exact = favor_plus.attention((q @ k.T).exp())
    few, many = (favor_plus.scores(name, m, q, k, seed=0) for m in (16, 2048))
    assert many.shape == (8, 8)
    found = favor_plus.error(favor_plus.attention(many), exact)
    assert found < 0.03
    assert found < favor_plus.error(favor_plus.attention(few), exact)


def test_independent_rows_have_the_error_of_the_theory(monkeypatch: pytest.MonkeyPatch) -> None:
    for z in circulant_favor.directions(3).values():
        assert z.square().sum().item() == pytest.approx(circulant_favor.SQUARE)
    monkeypatch.setattr(circulant_favor, "DRAWS", 2000)
    errors = circulant_favor.kernel_errors("iid", 0)
    expected = math.expm1(circulant_favor.SQUARE) / circulant_favor.DIM
    for error, bias in errors.values():
        assert error == pytest.approx(expected, rel=0.4)
        assert abs(bias) < 0.03


# --- what a state gives back -----------------------------------------------------------------


def test_the_best_state_reaches_the_bound() -> None:
    for pairs in (32, 128):
        error, _ = linear_attention.recall("least-squares", pairs, seed=0, draws=1)
        assert error == pytest.approx(least_error(pairs, linear_attention.D), abs=1e-9)


def test_random_features_estimate_softmax_and_keep_what_each_key_weighs() -> None:
    d, many = linear_attention.D, linear_attention.MANY
    keys = torch.randn(12, d, generator=torch.Generator().manual_seed(0)).double()
    torch.manual_seed(5)
    found = linear_attention.favor(many)(keys)
    torch.manual_seed(5)
    omega = FavorFeatures(d, many).double().projection_matrix()[0]
    x = keys / d**0.25
    features = (x @ omega.mT - x.square().sum(-1, keepdim=True) / 2).exp()
    torch.testing.assert_close(
        found, (features @ features.mT / (features @ features.sum(0))[:, None])
    )
    assert found.sub(linear_attention.METHODS["softmax"](keys)).abs().mean() < 0.05


# --- times and memory ------------------------------------------------------------------------


def test_every_form_of_the_circulant_product_is_the_same() -> None:
    found = {name: call() for name, call in circulant_speed.forms(64, 0).items()}
    assert tuple(found) == circulant_speed.FORMS
    assert largest_difference(found["dense"], found["fft"]) < 1e-4
    for name in ("fft, gradient", "autograd, gradient"):
        assert largest_difference(found["dense, gradient"], found[name]) < 1e-4


def test_all_ways_to_a_toeplitz_sum_agree() -> None:
    args = toeplitz_crossover.inputs(200, 16, seed=0)
    exact = toeplitz_crossover.ways(None)["algorithm 1"](*(x.double() for x in args))
    ways = toeplitz_crossover.ways(toeplitz(args[3]))
    for name in ("algorithm 1", "matrix", "fft"):
        assert largest_difference(ways[name](*args), exact) < 1e-4
    assert ways["softmax"](*args).shape == exact.shape


def test_all_rungs_give_the_same_scores_and_the_folded_one_those_of_folded_vectors() -> None:
    torch.manual_seed(0)
    encoder, positions = CirculantSTRING(8, heads=3), torch.arange(5.0)[:, None]
    q, k = torch.randn(2, 2, 3, 5, 8)
    want = properties.logits(encoder.double(), q.double(), k.double(), positions)
    ways = inference_ladder.rungs(encoder.float(), positions)
    assert list(ways) == RUNGS
    for name, way in ways.items():
        turned_q, turned_k = way(q, k)
        assert turned_q.dtype == torch.float32
        error = properties.relative_logit_error(turned_q @ turned_k.mT, want, q, k)
        assert (error < 1e-6) == (name not in ("folded", "rope"))
    basis = encoder.basis().float()
    turned_q, turned_k = ways["folded"](q @ basis, k @ basis)
    assert properties.relative_logit_error(turned_q @ turned_k.mT, want, q, k) < 1e-6
