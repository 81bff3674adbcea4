"""Frequencies for longer texts: interpolation, NTK-aware scaling, YaRN."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from stringlib import STRING, RoPE, checks
from stringlib.encoders.scaling import (
    ntk_aware,
    position_interpolation,
    yarn,
    yarn_attention_factor,
)
from tests.draws import random


def literal_yarn(pairs: int, base: float, scale: float, length: float) -> list[float]:
    """Return YaRN's frequencies by the paper's cases, a pair at a time."""
    found = []
    for i in range(pairs):
        theta = base ** (-i / pairs)
        wavelength = 2 * math.pi / theta
        r = length / wavelength
        gamma = 0.0 if r < 1 else 1.0 if r > 32 else (r - 1) / (32 - 1)
        found.append((1 - gamma) * theta / scale + gamma * theta)
    return found


@pytest.mark.proves("eq-scale-interpolation")
def test_interpolation_is_the_same_as_closer_positions() -> None:
    q, k = random(2, 1, 9, 16)
    places = torch.arange(9, dtype=torch.float64)[:, None]
    slow = STRING(position_interpolation(RoPE(16).frequencies(), 4))
    scores = checks.logits(slow, q, k, places)
    assert checks.largest_difference(scores, checks.logits(RoPE(16), q, k, places / 4)) <= 1e-13
    assert checks.largest_difference(scores, checks.logits(RoPE(16), q, k, places)) > 0.1


@pytest.mark.proves("eq-scale-ntk")
@pytest.mark.parametrize("head_dim", [4, 6, 64, 128])
@pytest.mark.parametrize("base", [100.0, 10_000.0])
@pytest.mark.parametrize("scale", [1, 1.5, 8])
def test_ntk_is_a_larger_base(head_dim: int, base: float, scale: float) -> None:
    larger = base * scale ** (head_dim / (head_dim - 2))
    literal = [larger ** (-2 * i / head_dim) for i in range(head_dim // 2)]
    theta = RoPE(head_dim, base=base).frequencies()
    given = ntk_aware(theta, scale)[0, :, 0]
    assert checks.largest_difference(given, torch.tensor(literal, dtype=torch.float64)) <= 1e-15
    assert given[0] == theta[0, 0, 0]
    assert given[-1].item() == pytest.approx(theta[0, -1, 0].item() / scale, rel=1e-14)


@pytest.mark.proves("eq-scale-yarn")
@pytest.mark.parametrize(("length", "scale"), [(2048, 16), (256, 4), (64, 1), (10**6, 2)])
def test_yarn_is_the_papers_cases(length: float, scale: float) -> None:
    given = yarn(RoPE(128).frequencies(), scale, length)[0, :, 0]
    literal = torch.tensor(literal_yarn(64, 10_000.0, scale, length), dtype=torch.float64)
    assert checks.largest_difference(given / literal, torch.ones(64)) <= 1e-14


def test_yarn_keeps_fast_pairs_and_divides_slow_ones() -> None:
    turns = torch.tensor([40.0, 32.0, 16.5, 1.0, 0.2, 0.0], dtype=torch.float64)
    theta = 2 * math.pi * turns / 1000
    given = yarn(theta[None, :, None], 8, 1000)[0, :, 0]
    factors = torch.tensor([1, 1, 0.5 + 0.5 / 8, 1 / 8, 1 / 8, 1], dtype=torch.float64)
    assert checks.largest_difference(given, theta * factors) <= 1e-15
    narrow = yarn(theta[None, :, None], 8, 1000, slow=20, fast=30)[0, :, 0]
    assert narrow[2].item() == pytest.approx(theta[2].item() / 8, rel=1e-12)


def test_yarn_turns_no_direction_and_takes_the_norm() -> None:
    omega = random(2, 5, 3)
    given = yarn(omega, 4, 30)
    ratio = given / omega
    assert checks.largest_difference(ratio, ratio[..., :1]) <= 1e-14
    norms = omega.norm(dim=-1, keepdim=True)
    assert checks.largest_difference(given.norm(dim=-1, keepdim=True), yarn(norms, 4, 30)) <= 1e-14
    still = torch.zeros(1, 2, 2, dtype=torch.float64, requires_grad=True)
    yarn(still, 4, 30).sum().backward()
    assert still.grad is not None
    assert still.grad.isfinite().all()


def test_a_scale_of_one_changes_nothing() -> None:
    theta = RoPE(32).frequencies()
    for scaled in (position_interpolation(theta, 1), ntk_aware(theta, 1), yarn(theta, 1, 512)):
        assert checks.largest_difference(scaled, theta) <= 1e-16
    assert yarn_attention_factor(1) == 1


def test_the_attention_factor_multiplies_queries_and_keys() -> None:
    temperature = 1 / (0.1 * math.log(16) + 1) ** 2
    q, k = random(2, 1, 4, 8)
    factor = yarn_attention_factor(16)
    scores = (factor * q) @ (factor * k).mT
    assert checks.largest_difference(scores, q @ k.mT / temperature) <= 1e-13
    assert factor == pytest.approx(1.2772588722239782, rel=1e-15)


def test_float32_goes_in_and_float64_comes_out() -> None:
    theta = RoPE(8).frequencies().float()
    for scaled in (position_interpolation(theta, 2), ntk_aware(theta, 2), yarn(theta, 2, 64)):
        assert scaled.dtype == torch.float64
        assert scaled.shape == theta.shape


def test_learned_frequencies_keep_their_gradient() -> None:
    omega = random(1, 4, 1).requires_grad_()
    for scaled in (position_interpolation(omega, 2), ntk_aware(omega, 2), yarn(omega, 2, 64)):
        assert scaled.requires_grad


THETA = torch.ones(1, 4, 1)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: position_interpolation(THETA, 0.5), "at least 1, got 0.5"),
        (lambda: position_interpolation(THETA, "2"), "scale must be a number, got '2'"),
        (lambda: position_interpolation(THETA[0], 2), r"coord_dim\), got \(4, 1\)"),
        (lambda: position_interpolation(THETA.int(), 2), "frequencies must be .*int32"),
        (lambda: position_interpolation([1.0], 2), "frequencies must be .*list"),
        (lambda: ntk_aware(THETA[:, :1], 2), r"at least 2 pairs.*got \(1, 1, 1\)"),
        (lambda: ntk_aware(torch.ones(1, 4, 2), 2), r"got \(1, 4, 2\)"),
        (lambda: ntk_aware(THETA, float("nan")), "scale must be positive and finite"),
        (lambda: yarn(THETA, 2, 0), "length must be positive"),
        (lambda: yarn(THETA, 2, 64, slow=0), "slow must be positive"),
        (lambda: yarn(THETA, 2, 64, slow=4, fast=4), "above slow=4, got 4"),
        (lambda: yarn_attention_factor(0.9), "scale must be at least 1, got 0.9"),
    ],
)  # fmt: skip
def test_bad_input_is_named(call: Callable[[], object], match: str) -> None:
    with pytest.raises((TypeError, ValueError), match=match):
        call()
