"""Figures whose sliders are amounts, of positions and experiments: what the package says."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from book.figures.in_models import OFF
from lab.theory import extrapolation
from lab.theory.offsets import offset_scores
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
from tests.figure_cases import exact, states


def test_angles_in_bfloat16_lose_no_more_than_the_bound() -> None:
    speeds = RoPE(128, base=500_000).frequencies()[0, :, 0].double()
    for at, (figure, told) in states("in_models.bfloat_angles"):
        place = exact(float(at["position"]))
        angle = speeds * place
        narrow = (
            speeds * place.bfloat16().double(),
            speeds.bfloat16().double() * place,
            angle.bfloat16().double(),
        )
        bound, _, *dots = figure.data
        np.testing.assert_allclose(bound.y, angle / 257)
        for trace, rounded in zip(dots, narrow, strict=True):
            lost = [0 if y is None else y for y in trace.y]
            np.testing.assert_allclose(lost, (rounded - angle).abs(), atol=1e-11)
            assert (np.array(lost) <= np.array(bound.y) + 1e-12).all()
            count = sum(y > OFF for y in lost)
            assert f"If the {trace.name} is rounded, the number of pairs" in told
            assert f"{count}." in told.partition(f"If the {trace.name} is rounded")[2]


def test_a_loss_of_mirrored_examples_is_that_of_the_mirrored_coefficient() -> None:
    encoder = CirculantSTRING(3).double()
    for at, (figure, _) in states("in_models.mirrored_loss"):
        plain, _, mixed, tangent = figure.data
        places = exact([[-1.0], [0.0], [1.0]])
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


def test_hands_are_the_vector_and_the_hill_its_inner_products() -> None:
    table = Sinusoidal(16)(torch.zeros(96, 16).double(), torch.arange(96)[:, None])
    for at, (figure, _) in states("why_positions.clock_hands"):
        hands, products, *_ = figure.data
        own = table[at["position"]]
        np.testing.assert_allclose(products.y, table @ own, atol=1e-9)
        x, y = (np.array(side, dtype=float) for side in (hands.x, hands.y))
        np.testing.assert_allclose(y[1::3], own[0::2], atol=1e-9)
        np.testing.assert_allclose(x[1::3] - x[0::3], own[1::2], atol=1e-9)


def test_a_rotated_query_gets_the_distance_that_it_asks_for() -> None:
    rope, key = RoPE(32, base=100.0), torch.ones(1, 48, 32).double()
    key = key * (16 * 32**0.5 / 32) ** 0.5  # |k|² / √d = 16
    for at, (figure, _) in states("why_positions.asked_distance"):
        m = at["distance"]
        query = rope.rotate(key[:, :1], exact([[-float(m)]]))  # R(-m) k, at 0
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


def test_the_mean_of_heads_is_that_of_mixed_encoders() -> None:
    for at, (figure, _) in states("grid_heads.mean_of_heads"):
        encoder = MixedRoPE(48, 2, heads=8).double()
        axial = AxialRoPE(48, 2, base=10.0).frequencies()[0]
        for head in range(8):
            turn = math.radians(head / 8 * at["spread"])
            rows = [[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]]
            encoder.omega.data[head] = axial @ exact(rows)
        ones = torch.full((8, 48), 48**-0.5, dtype=torch.float64)
        steps = torch.arange(-13.0, 14.0).double()
        with torch.no_grad():
            scores = offset_scores(encoder, ones, ones, torch.cartesian_prod(steps, steps)).mean(0)
        np.testing.assert_allclose(np.ravel(figure.data[0].z), scores, atol=1e-6)
        row, _, law = (np.array(trace.y) for trace in figure.data[1:])
        assert (np.abs(row - law).max() < 1e-3) == (at["spread"] == 90)


def test_a_head_that_asks_for_two_is_a_mixed_head_with_a_pair_for_each_wave() -> None:
    for at, (figure, told) in states("grid_heads.crossed_waves"):
        turn, steps = math.radians(at["turn"]), torch.arange(-3.0, 4.0).double()
        ways = np.array([[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]])
        speeds = exact([math.pi * (2 * j + 1) / 24 for j in range(12)])
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
        assert f"get the same weight, together {asked:.2f}." in told
        assert f"on the other diagonal, together get weight {other:.2f}." in told
        if at["turn"] in (0, 90):  # axial: the wrong diagonal gets as much
            assert other >= asked - 1e-9
        elif at["sharpness"]:
            assert asked > 30 * other


def test_a_key_from_the_cache_scores_as_the_encoders_turn_it() -> None:
    x = exact([1.0, 0.0] * 8).expand(1, 1, 1, 16)
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
        assert f"of the solid curve is at {min(kept.y):.1f}." in told
        assert told.endswith(f"{max(kept.y):.1f}.")


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
