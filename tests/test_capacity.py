"""Recall out of a state: the error, what bounds it, what predicts it; and the count of products."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction

import pytest
import torch
from torch.nn.functional import normalize
from torch.utils.flop_counter import FlopCounterMode

from lab.theory.capacity import (
    best_delta_rate,
    crosstalk_error,
    delta_noise,
    delta_noise_correction,
    delta_recall_error,
    delta_recall_moments,
    guess_accuracy,
    guess_loss,
    least_error,
    recall_error,
    swap_bound,
)
from lab.theory.cost import chunk_products, linear_products, pair_products
from stringlib import ELUFeatures, FeatureMap, ReLUFeatures, delta_rule, linear_attention
from tests.draws import random


@pytest.mark.proves("eq-linear-recall")
def test_the_error_is_that_of_random_values() -> None:
    weights, values = random(2, 7, 7).softmax(-1), random(1, 7, 200_000, seed=1)
    measured = (weights @ values - values).square().mean((1, 2))
    torch.testing.assert_close(recall_error(weights), measured, rtol=0.01, atol=0)
    assert recall_error(torch.eye(5).double()) == 0


@pytest.mark.proves("eq-linear-capacity")
@pytest.mark.parametrize(("n", "m"), [(1, 1), (6, 6), (3, 8), (40, 7), (64, 63)])
def test_no_weights_of_rank_m_err_less_and_some_err_as_little(n: int, m: int) -> None:
    for seed in range(20):
        product = random(n, m, seed=seed) @ random(m, n, seed=100 + seed)
        best = product * (product.trace() / product.square().sum())  # the best of its multiples
        for weights in (product, best, product / product.sum(-1, keepdim=True)):
            assert recall_error(weights) >= least_error(n, m) - 1e-9
    features = random(n, m)
    projection = features @ torch.linalg.pinv(features)
    assert recall_error(projection).item() == pytest.approx(least_error(n, m), abs=1e-10)


@pytest.mark.proves("eq-delta-recall")
@pytest.mark.parametrize(("n", "m"), [(1, 3), (2, 1), (9, 4), (30, 16)])
@pytest.mark.parametrize("rate", [0.1, 0.6, 1.0, 1.5])
@pytest.mark.parametrize("shift", [0.0, 3.0], ids=["mean 0", "any mean"])
def test_the_delta_rule_errs_as_random_keys_predict(
    n: int, m: int, rate: float, shift: float
) -> None:
    draws = 40_000 // n
    k, v = normalize(random(draws, n, m), dim=-1), random(draws, n, 4, seed=1) + shift
    v = v / (1 + shift**2) ** 0.5  # of mean square 1
    _, state = delta_rule(k, k, v, torch.full((draws, n), rate).double())
    answers = k @ state
    kept, square = delta_recall_moments(n, m, rate)
    for found, wanted in (
        ((answers * v).mean(-1), kept),
        (answers.square().mean(-1), square),
        ((answers - v).square().mean(-1), delta_recall_error(n, m, rate)),
    ):
        spread = found.std(0) / draws**0.5
        assert ((found.mean(0) - torch.tensor(wanted)).abs() <= 4.5 * spread + 1e-12).all()


def test_the_mean_square_is_that_of_the_recursion() -> None:
    """Write by write, as the proof says: of a pair's own key c and r, of the state s."""
    for n, m, b in ((1, 5, 0.3), (7, 2, 0.9), (20, 16, 1.4)):
        kept, square = delta_recall_moments(n, m, b)
        for t in range(1, n + 1):
            s = m * b / (2 - b) * (1 - (1 - b * (2 - b) / m) ** (t - 1))
            c, r, s = b, (1 - b) ** 2 * s / m + b**2, s * (1 - b * (2 - b) / m) + b**2
            for _ in range(n - t):
                r += -2 * b * r / m + b**2 / m + b**2 * (s + 2 * r) / (m * (m + 2))
                c, s = c * (1 - b / m), s * (1 - b * (2 - b) / m) + b**2
            assert (kept[t - 1], square[t - 1]) == pytest.approx((c, r), rel=1e-12)


@pytest.mark.proves("eq-delta-noise")
def test_the_noise_of_many_channels_and_its_best_rate() -> None:
    for load, rate in ((0.5, 0.1), (1, 0.3), (3, 0.05), (2, 1.2)):
        kept, square = delta_recall_moments(int(4096 * load), 4096, rate)
        found = sum(r / c**2 - 1 for c, r in zip(kept, square, strict=True)) / len(kept)
        assert found == pytest.approx(delta_noise(load, rate), rel=0.01)
    table = {0.25: (0.743, 35.26), 1: (0.303, 14.33), 2: (0.1356, 6.54), 4: (0.0505, 2.48)}
    for load, (rate, gain) in table.items():
        best = best_delta_rate(load)
        assert best == pytest.approx(rate, rel=0.005)
        assert 100 * (1 - delta_noise(load, best) / load) == pytest.approx(gain, rel=0.005)
        rates = [k / 500 for k in range(1, 1000)]
        assert delta_noise(load, best) <= min(delta_noise(load, r) for r in rates) + 1e-12
    for load in (0.01, 1, 20):  # a small rate beats a sum at every load
        assert 0 < load - delta_noise(load, 1e-3 / (1 + load)) < load * 2e-3
    with pytest.raises(ValueError, match="rate must be above 0 and below 2, got 2"):
        delta_recall_error(3, 4, 2)


@pytest.mark.proves("eq-delta-noise-rate")
@pytest.mark.parametrize("load", [0.25, 1, 4])
@pytest.mark.parametrize("rate", [1e-3, 0.3, 1, 1.9])
def test_the_noise_of_d_channels_approaches_its_limit_as_1_over_d(load: float, rate: float) -> None:
    limit, correction = delta_noise(load, rate), delta_noise_correction(load, rate)
    rests = []
    for m in (16, 64, 256, 1024):
        kept, square = delta_recall_moments(int(m * load), m, rate)
        found = sum(r / c**2 - 1 for c, r in zip(kept, square, strict=True)) / len(kept)
        rests.append(m**2 * (found - limit - correction / m))
    bound = (6 + 33 * rate**2 * load * (1 + rate * load) ** 2) * math.exp(2.5 * rate * load)
    assert max(map(abs, rests)) < bound
    assert rests[-1] == pytest.approx(rests[-2], rel=0.03, abs=1e-4)  # the rest is of order 1/d²


@pytest.mark.proves("eq-linear-crosstalk")
@pytest.mark.parametrize("phi", [ReLUFeatures(), ELUFeatures()])
@pytest.mark.parametrize("n", [1, 2, 16, 256])
def test_the_overlap_of_features_predicts_the_error(phi: FeatureMap, n: int) -> None:
    d, errors = 512, []
    sample = phi(random(1, 1, 1_000_000, seed=5))
    overlap = (sample.mean() ** 2 / sample.square().mean()).item()
    for seed in range(8):
        features = phi(random(1, n, d, seed=seed))[0]
        scores = features @ features.mT
        errors.append(recall_error(scores / scores.sum(-1, keepdim=True)))
    measured = torch.stack(errors).mean().item()
    predicted = crosstalk_error(n, overlap, overlap**2 + (1 - overlap**2) / d)
    assert measured == pytest.approx(predicted, rel=0.05, abs=1e-12)


@pytest.mark.proves("eq-linear-cost")
@pytest.mark.parametrize(("n", "m", "d_v"), [(64, 8, 8), (256, 16, 5)])
def test_the_counts_are_those_of_the_operations_that_run(n: int, m: int, d_v: int) -> None:
    phi_q, phi_k, v = torch.rand(1, n, m), torch.rand(1, n, m), torch.rand(1, n, d_v)

    def products(causal: bool, mode: str | None) -> int:
        with FlopCounterMode(display=False) as counter:
            linear_attention(phi_q, phi_k, v, causal=causal, mode=mode)
        return counter.get_total_flops() // 2  # a multiplication and an addition

    assert products(False, "parallel") == pair_products(n, m, d_v + 1)
    assert products(False, None) == linear_products(n, m, d_v + 1)
    for mode, chunk in (("recurrent", 1), ("chunk", 64), ("parallel", n)):
        assert products(True, mode) == chunk_products(n, m, d_v + 1, chunk)


@pytest.mark.proves("eq-recall-guess", "eq-recall-guess-loss")
@pytest.mark.parametrize(("pairs", "values"), [(1, 1), (1, 4), (2, 2), (4, 3), (3, 5), (6, 2)])
def test_guessing_from_the_counts_is_what_all_sequences_give(pairs: int, values: int) -> None:
    """Every list of values is as likely: go through all of them."""
    right, loss = Fraction(0), 0.0
    for listed in itertools.product(range(values), repeat=pairs):
        shares = [Fraction(c, pairs) for c in Counter(listed).values()]
        right += max(shares)
        loss -= sum(float(s) * math.log(s) for s in shares)
    assert guess_accuracy(pairs, values) == right / values**pairs
    assert guess_loss(pairs, values) == pytest.approx(loss / values**pairs, abs=1e-12)


@pytest.mark.proves("eq-recall-swap")
def test_a_sum_over_places_is_right_on_at_most_three_swaps_of_four() -> None:
    # two pairs, two values: a sum that is right on seven of the eight sequences
    listed = itertools.product(range(2), repeat=3)  # asked key first or second, two values
    reached = sum((2 * b + a - order > 0.5) == (b if order else a) for order, a, b in listed)
    assert swap_bound(2) == Fraction(reached, 8) == Fraction(7, 8)
    assert swap_bound(8) == Fraction(25, 32)
    assert swap_bound(1) == 1  # one value is no question
    with pytest.raises(ValueError, match="values must be"):
        swap_bound(0)
