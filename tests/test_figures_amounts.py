"""Figures whose sliders are amounts, of positions and experiments: what the package says."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from book.figures.in_models import BFLOAT16, OFF
from lab.theory import cost, extrapolation
from lab.theory.offsets import offset_scores
from lab.theory.variance import positive_mse
from stringlib import (
    ALiBi,
    AxialRoPE,
    CirculantSTRING,
    KerpleLog,
    MixedRoPE,
    RoPE,
    Sinusoidal,
    softmax_attention,
)
from stringlib.algebra import cayley
from tests.figure_cases import states

# --- recall ---


def test_a_match_wins_from_the_logarithm_of_the_other_pairs_on() -> None:
    for at, (figure, told) in states("associative_recall.match_threshold"):
        pairs, score = at["pairs"], at["score"]
        scores = torch.zeros(pairs, dtype=torch.float64)
        scores[0] = score
        weights = scores.softmax(-1)
        matched, others = figure.data[3].y[0], figure.data[4].y[0]
        assert (matched, others) == pytest.approx((weights[0].item(), weights[1:].sum().item()))
        assert figure.data[2].x[0] == pytest.approx(math.log(pairs - 1))
        assert ("not enough" in told) == (matched <= others) == (score <= math.log(pairs - 1))


def test_the_error_of_a_match_is_that_of_random_features() -> None:
    for at, (figure, _) in states("associative_recall.match_estimates"):
        query = torch.tensor([math.sqrt(math.log(at["pairs"] - 1))], dtype=torch.float64)
        square = (2 * query).square().sum()
        assert figure.data[2].y[0] == pytest.approx(
            positive_mse(square, at["features"]).sqrt().item()
        )
        needed = figure.data[3].x[0]
        assert needed == pytest.approx((at["pairs"] - 1) ** 4 - 1)
        assert positive_mse(square, 1).item() / needed == pytest.approx(1)


# --- language ---


# --- cost ---


def test_dots_stand_on_the_roof_at_their_intensity() -> None:
    for at, (figure, told) in states("cost.roofline"):
        n, d = at["tokens"], at["channels"]
        for dot, want in ((figure.data[2], n / 8), (figure.data[4], (d + 1) / 8)):
            assert dot.x[0] == pytest.approx(want)
            roof = min(at["products"], want * at["moved"])
            assert dot.y[0] == pytest.approx(roof / 1e9)
        work = {"multiplications": cost.linear_products(n, d, d + 1)}
        work["bytes"] = 4 * cost.moved_numbers(n, d, d)
        rates = {"multiplications": at["products"], "bytes": at["moved"]}
        seconds = cost.least_seconds(work, rates)
        assert work["multiplications"] / seconds / 1e9 == pytest.approx(figure.data[4].y[0])
        limit = "memory" if (d + 1) / 8 < at["products"] / at["moved"] else "multiplication"
        assert f"the state by {limit}" in told


def test_what_the_whole_gains_is_the_quotient_of_the_bars() -> None:
    for at, (figure, _) in states("cost.amdahl_bars"):
        rest, part, most, curve, here = figure.data
        after, before = (a + b for a, b in zip(rest.x, part.x, strict=True))
        assert before == pytest.approx(1)
        assert here.y[0] == pytest.approx(before / after)
        assert here.y[0] == pytest.approx(cost.amdahl(at["share"], at["factor"]))
        assert most.y[0] == pytest.approx(cost.amdahl(at["share"]))
        assert max(curve.y) < most.y[0] + 1e-12


def test_what_a_machine_can_do_is_the_bound_over_its_peak() -> None:
    for at, (figure, told) in states("cost.other_machine"):
        softmax, state, whole = figure.data
        size, d = {"float32": 4, "bfloat16": 2}[at["numbers"]], at["channels"]
        for n, share in zip(softmax.x, softmax.y, strict=True):
            moved = size * cost.moved_numbers(n, d, d)
            work = {"multiplications": cost.pair_products(n, d, d), "bytes": moved}
            least = cost.least_seconds(work, {"multiplications": at["ridge"], "bytes": 1})
            assert share == pytest.approx(work["multiplications"] / at["ridge"] / least)
            work["multiplications"] = cost.linear_products(n, d, d + 1)
            least = cost.least_seconds(work, {"multiplications": at["ridge"], "bytes": 1})
            assert state.y[0] == pytest.approx(work["multiplications"] / at["ridge"] / least)
        assert whole.x[0] == 2 * size * at["ridge"]
        assert f"{state.y[0]:.0%}, at any length" in told


# --- in models ---


def test_pairs_are_hollow_until_their_first_turn() -> None:
    for at, (figure, told) in states("in_models.model_clocks"):
        *pairs, here, limit = figure.data
        drawn = [y for trace in pairs for y in trace.y if y is not None]
        for trace in pairs:
            hollow = trace.marker.symbol.endswith("-open")
            assert all((y > at["position"]) == hollow for y in trace.y if y is not None)
        assert here.y[0] == at["position"]
        assert limit.y[0] == pytest.approx(2 * math.pi * BFLOAT16 * at["position"] / OFF)
        assert f"{sum(y > at['position'] for y in drawn)} of {len(drawn)} turning pairs" in told
        assert f"angles of {sum(y < limit.y[0] for y in drawn)} pairs" in told


def test_angles_in_bfloat16_lose_no_more_than_the_bound() -> None:
    speeds = RoPE(128, base=500_000).frequencies()[0, :, 0].double()
    for at, (figure, told) in states("in_models.bfloat_angles"):
        place = torch.tensor(float(at["position"]), dtype=torch.float64)
        exact = speeds * place
        narrow = (
            speeds * place.bfloat16().double(),
            speeds.bfloat16().double() * place,
            exact.bfloat16().double(),
        )
        bound, _, *dots = figure.data
        np.testing.assert_allclose(bound.y, exact / 257)
        for trace, angles in zip(dots, narrow, strict=True):
            lost = [0 if y is None else y for y in trace.y]
            np.testing.assert_allclose(lost, (angles - exact).abs(), atol=1e-11)
            assert (np.array(lost) <= np.array(bound.y) + 1e-12).all()
            assert f"{trace.name} {sum(y > OFF for y in lost)}" in told


def test_a_loss_of_mirrored_examples_is_that_of_the_mirrored_coefficient() -> None:
    encoder = CirculantSTRING(3).double()
    for at, (figure, _) in states("in_models.mirrored_loss"):
        plain, mirrored, mixed, tangent = figure.data
        assert list(mirrored.x) == [-c for c in plain.x]
        places = torch.tensor([[-1.0], [0.0], [1.0]]).double()
        tokens = torch.eye(3).double()[[2, 0, 2]]
        for c, loss, mix in list(zip(plain.x, plain.y, mixed.y, strict=True))[::8]:
            with torch.no_grad():
                encoder.coefficients.zero_()
                encoder.coefficients[..., 1] = c
                turned = encoder.rotate(tokens[None], places)[0]
                scores = 2 * turned[1] @ turned.mT
            right = -scores[[0, 2]].log_softmax(-1)[1].item()
            left = -scores[[0, 2]].log_softmax(-1)[0].item()
            assert loss == pytest.approx(right)
            assert mix == pytest.approx((1 - at["share"]) * right + at["share"] * left)
        slope = tangent.y[1] - tangent.y[0]
        assert (abs(slope) < 1e-12) == (at["share"] == 0.5)


def test_a_pair_with_two_angles_stretches_the_circle() -> None:
    for at, (figure, told) in states("in_models.tiled_pair"):
        a, b = math.radians(at["alpha"]), math.radians(at["beta"])
        matrix = np.array([[math.cos(a), -math.sin(a)], [math.sin(b), math.cos(b)]])
        long, short = np.linalg.svd(matrix)[1]
        radii = np.hypot(figure.data[0].x, figure.data[0].y)
        assert radii.max() == pytest.approx(long, rel=2e-3)
        assert f"{short:.2f} to {long:.2f} times" in told.replace("-0.00", "0.00")
        assert float(told.rsplit(" ", 1)[1].rstrip(".")) == pytest.approx(
            np.linalg.det(matrix), abs=0.006
        )


# --- why positions ---


def test_hands_are_the_vector_and_the_hill_its_inner_products() -> None:
    table = Sinusoidal(16)(torch.zeros(96, 16).double(), torch.arange(96)[:, None])
    for at, (figure, told) in states("why_positions.clock_hands"):
        hands, products, here, others = figure.data
        own = table[at["position"]]
        np.testing.assert_allclose(products.y, table @ own, atol=1e-9)
        x, y = (np.array(side, dtype=float) for side in (hands.x, hands.y))
        np.testing.assert_allclose(y[1::3], own[0::2], atol=1e-9)
        np.testing.assert_allclose(x[1::3] - x[0::3], own[1::2], atol=1e-9)
        assert here.y[0] == 8
        gap = int(others.x[1] - at["position"])
        assert f"{(table[0] @ table[gap]).item():.2f} at {gap} places" in told


def test_a_rotated_query_gets_the_distance_that_it_asks_for() -> None:
    rope, key = RoPE(32, base=100.0), torch.ones(1, 48, 32).double()
    key = key * (16 * 32**0.5 / 32) ** 0.5  # |k|² / √d = 16
    for at, (figure, _) in states("why_positions.asked_distance"):
        m = at["distance"]
        query = rope.rotate(key[:, :1], torch.tensor([[-float(m)]]).double())  # R(-m) k, at 0
        turned = rope.rotate(key, -torch.arange(48.0)[:, None].double())
        weights = (query @ turned.mT / 32**0.5).softmax(-1)[0, 0]
        biased, rotated, *_ = figure.data
        np.testing.assert_allclose(rotated.y, weights, atol=1e-9)
        assert weights.argmax() == m
        alibi = ALiBi(8).double()(1, 48, offset=47)[0, 0].flip(0)
        np.testing.assert_allclose(biased.y, alibi.softmax(-1), atol=1e-4)


def test_a_bias_inside_of_the_division_is_weaker() -> None:
    for at, (figure, told) in states("why_positions.divided_bias"):
        bias = KerpleLog(1).double()
        bias.log_r1.data.zero_()
        bias.log_r2.data.zero_()
        with torch.no_grad():
            row = bias(1, 48, offset=47)[0, 0].flip(0)
        nothing, values = torch.zeros(1, at["channels"]).double(), torch.eye(48).double()
        keys = torch.zeros(48, at["channels"]).double()
        for trace, added in zip(figure.data, (row, row / at["channels"] ** 0.5), strict=True):
            want = softmax_attention(nothing[None], keys[None], values[None], added[None, None])
            np.testing.assert_allclose(trace.y, want[0, 0], atol=1e-12)
            assert f"get {want[0, 0, :8].sum():.0%}" in told


# --- grids ---


def test_the_mean_of_heads_is_that_of_mixed_encoders() -> None:
    for at, (figure, _) in states("grid_heads.mean_of_heads"):
        encoder = MixedRoPE(48, 2, heads=8).double()
        axial = AxialRoPE(48, 2, base=10.0).frequencies()[0]
        for head in range(8):
            turn = math.radians(head / 8 * at["spread"])
            rows = [[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]]
            encoder.omega.data[head] = axial @ torch.tensor(rows).double()
        ones = torch.full((8, 48), 48**-0.5, dtype=torch.float64)
        steps = torch.arange(-13.0, 14.0).double()
        with torch.no_grad():
            scores = offset_scores(encoder, ones, ones, torch.cartesian_prod(steps, steps)).mean(0)
        np.testing.assert_allclose(np.ravel(figure.data[0].z), scores, atol=1e-6)
        row, _, law = (np.array(trace.y) for trace in figure.data[1:])
        assert (np.abs(row - law).max() < 1e-3) == (at["spread"] == 90)


def test_weights_of_sums_are_products() -> None:
    for _, (figure, told) in states("grid_heads.separable_weights"):
        weights = np.array(figure.data[0].z)
        assert np.linalg.matrix_rank(weights) == 1
        assert weights.sum() == pytest.approx(1)
        asked, other = weights[0, 0] + weights[2, 2], weights[0, 2] + weights[2, 0]
        assert f"together {asked:.2f}, the other diagonal {other:.2f}" in told
        if weights[0, 0] == pytest.approx(weights[2, 2]):
            assert other >= asked - 1e-12


def test_a_head_that_asks_for_two_is_a_mixed_head_with_a_pair_for_each_wave() -> None:
    for at, (figure, told) in states("grid_heads.crossed_waves"):
        turn, steps = math.radians(at["turn"]), torch.arange(-3.0, 4.0).double()
        ways = np.array([[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]])
        speeds = torch.tensor([math.pi * (2 * j + 1) / 24 for j in range(12)]).double()
        encoder = MixedRoPE(48, 2, heads=1).double()
        encoder.omega.data[0] = (speeds[:, None, None] * torch.tensor(ways)).flatten(0, 1)
        aims = encoder.omega.data[0].sum(-1).cos()  # of each wave at (1, 1)
        q, k = torch.zeros(2, 1, 48).double()
        q[:, ::2], k[:, ::2] = aims, at["sharpness"] / 24
        with torch.no_grad():
            scores = offset_scores(encoder, q, k, torch.cartesian_prod(steps, steps))[0]
        weights = scores.softmax(-1).view(7, 7).numpy()
        np.testing.assert_allclose(figure.data[0].z, weights, atol=1e-9)
        asked, other = weights[2, 2] + weights[4, 4], weights[2, 4] + weights[4, 2]
        assert f"together {asked:.2f}, the other diagonal {other:.2f}" in told
        if at["turn"] in (0, 90):  # axial: the wrong diagonal gets as much
            assert other >= asked - 1e-9
        elif at["sharpness"]:
            assert asked > 30 * other


def test_with_content_a_head_may_find_both_one_or_none() -> None:
    for at, (figure, _) in states("grid_heads.symbols_asked"):
        weights, symbols = np.array(figure.data[0].z), np.array(figure.data[0].text).astype(float)
        assert (symbols[2, 2], symbols[4, 4]) == (float(at["upper"]), float(at["lower"]))
        assert weights.sum() == pytest.approx(1)
        found = [at["upper"] == "1", at["lower"] == "0"]
        high = math.exp(at["score"])
        norm = 49 - sum(found) + sum(found) * high
        for cell, there in zip((weights[2, 2], weights[4, 4]), found, strict=True):
            assert cell == pytest.approx((high if there else 1) / norm)
        read, right = (weights * symbols).sum(), symbols[2, 2] + symbols[4, 4]
        if at["score"] >= 8:  # half of what it reads, where it finds none as well
            assert round(2 * read) == right


# --- Cayley ---


def test_one_of_two_signs_keeps_the_entry_at_one_or_below() -> None:
    for at, (figure, told) in states("cayley_string.sign_choice"):
        plain, changed = (figure.data[i].y[0] for i in (2, 3))
        for entry, sign in ((plain, 1), (changed, -1)):
            turned = cayley(torch.tensor([[0.0, entry], [-entry, 0.0]]).double())
            angle = math.radians(at["angle"])
            assert sign * turned[0, 0].item() == pytest.approx(math.cos(angle))
            assert sign * abs(turned[1, 0].item()) == pytest.approx(sign * math.sin(angle))
        assert min(abs(plain), abs(changed)) <= 1 + 1e-12
        assert ("signs changed." in told) == (abs(plain) > 1 + 1e-12)


# --- length ---


def test_a_key_from_the_cache_scores_as_the_encoders_turn_it() -> None:
    x = torch.tensor([1.0, 0.0] * 8, dtype=torch.float64).expand(1, 1, 1, 16)
    slow = RoPE(16)
    for at, (figure, told) in states("length_extrapolation.stale_cache"):
        slower = RoPE(16, base=1e4 * at["scale"] ** (16 / 14))  # NTK-aware
        kept, anew = figure.data
        for place, found in zip(kept.x, kept.y, strict=True):
            there, here = torch.tensor([[place]]), torch.tensor([[place + 40]])
            query = slower.rotate(x, here)
            assert found == pytest.approx((query * slow.rotate(x, there)).sum().item(), abs=1e-9)
            same = (query * slower.rotate(x, there)).sum().item()
            assert same == pytest.approx(anew.y[0], abs=1e-9)
        assert f"between {min(kept.y):.1f} and {max(kept.y):.1f}." in told


def test_windows_are_those_of_the_biases() -> None:
    for at, (figure, told) in states("length_extrapolation.heard_window"):
        kerple, alibi = KerpleLog(1).double(), ALiBi(1).double()
        kerple.log_r1.data.fill_(math.log(at["r1"]))
        kerple.log_r2.data.fill_(math.log(0.25))
        alibi.slopes.fill_(1 / at["inverse"])
        for number, bias in enumerate((kerple, alibi)):
            curve, here = figure.data[2 * number : 2 * number + 2]
            heard = extrapolation.effective_window(bias, at["tokens"]).item()
            assert here.y[0] == pytest.approx(heard)
            some = curve.x[20]
            assert curve.y[20] == pytest.approx(extrapolation.effective_window(bias, some).item())
            assert f"{extrapolation.tail_share(bias, 64, at['tokens']).item():.0%}" in told


# --- vision ---


def test_new_pairs_of_patches_are_counted_one_by_one() -> None:
    for at, (figure, told) in states("vision_transformer.finer_patches"):
        places = list(zip(figure.data[1].x, figure.data[1].y, strict=True))
        assert len(set(places)) == 64
        steps = np.diff(sorted({x for x, _ in places}))
        assert steps == pytest.approx([at["spacing"]] * 7)
        assert np.mean(places, axis=0) == pytest.approx([1.5, 1.5])  # the middle of the picture
        new = sum(
            max(abs(x - u), abs(y - v)) > 3 + 1e-6
            for (x, y), (u, v) in itertools.product(places, places)
        )
        assert figure.data[3].y[0] == pytest.approx(100 * new / 64**2)
        assert f"{100 * new / 64**2:.0f}% of the pairs" in told


def test_a_score_is_right_in_its_own_corner_whatever_it_reads() -> None:
    for at, (figure, told) in states("vision_transformer.direction_clues"):
        right = 0
        for where in (0, at["shift"]):
            scores = []
            for a, b in ((where, where + 1), (where + 1, where)):
                alone = (2 * b - 1) if at["place"] > 0 else (1 - 2 * a)  # one mark says it all
                scores.append((1 - abs(at["place"])) * (b - a) + abs(at["place"]) * alone)
            right = (scores[0] > 0) + (scores[1] < 0)
            if where == 0:
                assert scores == pytest.approx([1, -1])
                assert (figure.data[2].y[0], figure.data[3].y[0]) == pytest.approx((1, -1))
        assert list(figure.data[4].y) == pytest.approx(scores)
        assert f"{['none', 'one', 'both'][right]} of the two" in told


def test_what_pictures_tell_is_what_a_test_of_signs_tells() -> None:
    for at, (figure, told) in states("vision_transformer.told_differences"):
        n, share = at["pictures"], at["disagree"]
        draws = np.random.default_rng(0).choice(
            [0, 1, -1], size=(400, n if n < 1000 else 1000), p=[1 - share, share / 2, share / 2]
        )
        # of models that are alike one difference in twenty is as large as that, by chance
        wide = 1.96 * draws.std() * math.sqrt(1 / n)
        assert figure.data[2].y[0] == pytest.approx(100 * wide, rel=0.03)
        assert f"tell {figure.data[2].y[0]:.1f} points" in told
        line = figure.data[0]
        assert line.y[0] / line.y[1] == pytest.approx(math.sqrt(line.x[1] / line.x[0]))
