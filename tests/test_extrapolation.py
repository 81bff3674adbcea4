"""Longer texts than in training: angles not seen, weight beyond the trained length, dilution."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from stringlib import ALiBi, KerpleLog, KerplePower, RoPE, T5Bias
from stringlib.encoders.scaling import ntk_aware, position_interpolation, yarn
from stringlib.theory.extrapolation import (
    effective_window,
    match_weight,
    seen_turns,
    tail_share,
    unseen_share,
)


def kerple_log(r1: float, r2: float) -> KerpleLog:
    bias = KerpleLog(1).double()
    with torch.no_grad():
        bias.log_r1.fill_(math.log(r1))
        bias.log_r2.fill_(math.log(r2))
    return bias


@pytest.mark.proves("eq-extra-turns")
@pytest.mark.parametrize(("head_dim", "base"), [(64, 1e4), (128, 5e5), (8, 100.0)])
@pytest.mark.parametrize("length", [64, 4096])
def test_the_pairs_behind_the_formula_make_no_turn(head_dim: int, base: float, length: int) -> None:
    turns = seen_turns(RoPE(head_dim, base=base).frequencies(), length)[0, :, 0]
    literal = [length * base ** (-2 * i / head_dim) / (2 * math.pi) for i in range(head_dim // 2)]
    assert torch.allclose(turns, torch.tensor(literal, dtype=torch.float64), rtol=1e-13)
    last = head_dim / 2 * math.log(length / (2 * math.pi)) / math.log(base)
    assert (turns >= 1).tolist() == [i <= last for i in range(head_dim // 2)]


@pytest.mark.proves("eq-extra-unseen")
@pytest.mark.parametrize("scale", [1, 2, 8])
def test_new_angles_are_those_that_a_walk_meets(scale: int) -> None:
    theta, length = RoPE(16).frequencies(), 64
    ways = {
        "rope": theta,
        "pi": position_interpolation(theta, scale),
        "ntk": ntk_aware(theta, scale),
        "yarn": yarn(theta, scale, length, fast=4),
    }
    steps = torch.arange(0, length, 1 / 64, dtype=torch.float64)
    for name, slower in ways.items():
        share = unseen_share(theta, slower, length, scale * length)[0, :, 0]
        for i in range(8):  # count the arcs of a fine circle that only the test meets
            seen, met = (
                set(((walk % (2 * math.pi)) * 1000 / (2 * math.pi)).int().tolist())
                for walk in (steps * theta[0, i, 0], scale * steps * slower[0, i, 0])
            )
            if (steps[1] * theta[0, i, 0] * scale * 1000 / (2 * math.pi)) < 1:
                assert abs(len(met - seen) / 1000 - share[i]) < 5e-3
        if name == "pi":
            assert share.max() < 1e-15
        if name == "ntk" and scale > 1:
            assert share[-1] < 1e-12 < share[4] < unseen_share(theta, theta, 64, 64 * scale)[0, 4]


@pytest.mark.proves("eq-extra-alibi")
def test_alibi_hears_a_bounded_number_of_tokens() -> None:
    bias = ALiBi(4).double()
    m = bias.slopes
    for n in (1, 5, 64, 1024):
        closed = (1 - torch.exp(-m * n)) / (1 - torch.exp(-m))
        assert torch.allclose(effective_window(bias, n), closed, rtol=1e-12)
    share = tail_share(bias, 64, 100_000)
    assert torch.allclose(share, torch.exp(-64 * m), rtol=1e-9)
    assert (tail_share(bias, 64, 128) < share).all()


@pytest.mark.proves("eq-extra-kerple")
@pytest.mark.parametrize("r2", [0.1, 1.0])
@pytest.mark.parametrize("r1", [0.5, 1.0, 1.5, 3.0])
def test_kerples_window_is_bounded_only_above_one(r1: float, r2: float) -> None:
    bias = kerple_log(r1, r2)
    sizes = [effective_window(bias, n).item() for n in (1_000, 10_000, 100_000)]

    def integral(n: int) -> float:
        return (
            math.log1p(r2 * n) / r2 if r1 == 1 else ((1 + r2 * n) ** (1 - r1) - 1) / (r2 * (1 - r1))
        )

    for n, found in zip((1_000, 10_000, 100_000), sizes, strict=True):
        assert integral(n) <= found <= 1 + integral(n)
    if r1 > 1:
        assert sizes[-1] < 1 + 1 / (r2 * (r1 - 1))
    else:
        assert sizes[2] - sizes[1] > 0.99 * (sizes[1] - sizes[0])


def test_a_constant_added_to_a_bias_changes_nothing() -> None:
    bias = T5Bias(3, bidirectional=False).double()
    before = effective_window(bias, 200), tail_share(bias, 64, 200)
    with torch.no_grad():
        bias.weight += 5
    assert torch.allclose(effective_window(bias, 200), before[0], rtol=1e-12)
    assert torch.allclose(tail_share(bias, 64, 200), before[1], rtol=1e-12)
    assert (tail_share(KerplePower(3), 50, 50) == 0).all()


@pytest.mark.proves("eq-extra-dilution")
@pytest.mark.parametrize("gap", [0.0, 2.0, 6.9])
def test_the_weight_of_a_match_is_a_softmax(gap: float) -> None:
    for n in (1, 2, 64, 1024):
        scores = torch.zeros(n, dtype=torch.float64)
        scores[0] = gap
        assert match_weight(gap, n) == pytest.approx(scores.softmax(0)[0].item(), rel=1e-12)


THETA = RoPE(8).frequencies()


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: seen_turns(torch.arange(3), 64), "frequencies must"),
        (lambda: seen_turns(THETA, 0), "length must"),
        (lambda: unseen_share(THETA, THETA[:, :2], 64, 128),
         r"scaled must have the shape of frequencies, \(1, 4, 1\)"),
        (lambda: unseen_share(THETA, [1.0, 0.1], 64, 128),
         "scaled must be a floating-point tensor"),
        (lambda: tail_share(ALiBi(2), 64, 32), "longer must be at least 64"),
        (lambda: effective_window(ALiBi(2), 0), "length must be at least 1"),
        (lambda: match_weight(1.0, 2.5), "length must"),
    ],
)  # fmt: skip
def test_bad_arguments_are_named(call: Callable[[], object], match: str) -> None:
    with pytest.raises((TypeError, ValueError), match=match):
        call()
