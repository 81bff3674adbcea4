"""Longer texts than in training: scaled frequencies, angles not seen, weight far away, dilution."""

from __future__ import annotations

import math

import pytest
import torch

from lab.theory.extrapolation import (
    effective_window,
    match_weight,
    seen_turns,
    tail_share,
    unseen_share,
)
from stringlib import STRING, ALiBi, KerpleLog, RoPE
from stringlib.encoders import scaling
from stringlib.encoders.scaling import (
    ntk_aware,
    position_interpolation,
    yarn,
    yarn_attention_factor,
)
from stringlib.testing import properties
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
    scores = properties.logits(slow, q, k, places)
    assert (
        properties.largest_difference(scores, properties.logits(RoPE(16), q, k, places / 4))
        <= 1e-13
    )
    assert properties.largest_difference(scores, properties.logits(RoPE(16), q, k, places)) > 0.1


@pytest.mark.proves("eq-scale-ntk")
@pytest.mark.parametrize("head_dim", [4, 6, 64, 128])
@pytest.mark.parametrize("base", [100.0, 10_000.0])
@pytest.mark.parametrize("scale", [1, 1.5, 8])
def test_ntk_is_a_larger_base(head_dim: int, base: float, scale: float) -> None:
    larger = base * scale ** (head_dim / (head_dim - 2))
    literal = [larger ** (-2 * i / head_dim) for i in range(head_dim // 2)]
    theta = RoPE(head_dim, base=base).frequencies()
    given = ntk_aware(theta, scale)[0, :, 0]
    assert properties.largest_difference(given, torch.tensor(literal, dtype=torch.float64)) <= 1e-15
    assert given[0] == theta[0, 0, 0]
    assert given[-1].item() == pytest.approx(theta[0, -1, 0].item() / scale, rel=1e-14)


@pytest.mark.proves("eq-scale-yarn")
@pytest.mark.parametrize(("length", "scale"), [(2048, 16), (256, 4), (64, 1), (10**6, 2)])
def test_yarn_is_the_papers_cases(length: float, scale: float) -> None:
    given = yarn(RoPE(128).frequencies(), scale, length)[0, :, 0]
    literal = torch.tensor(literal_yarn(64, 10_000.0, scale, length), dtype=torch.float64)
    assert properties.largest_difference(given / literal, torch.ones(64)) <= 1e-14


def test_with_slow_and_fast_ends_yarn_is_the_scaling_of_llama_3() -> None:
    """Its own words: wavelengths, and a smooth share between two of them."""
    factor, low, high, length = 8.0, 1.0, 4.0, 8192

    def literal(frequency: float) -> float:
        wavelength = 2 * math.pi / frequency
        if wavelength < length / high:
            return frequency
        if wavelength > length / low:
            return frequency / factor
        smooth = (length / wavelength - low) / (high - low)
        return (1 - smooth) * frequency / factor + smooth * frequency

    theta = RoPE(128, base=500_000.0).frequencies()
    given = yarn(theta, factor, length, slow=low, fast=high).flatten().tolist()
    expected = [literal(frequency) for frequency in theta.flatten().tolist()]
    assert given == pytest.approx(expected, rel=1e-13)
    kinds = {frequency / value for frequency, value in zip(theta.flatten(), given, strict=True)}
    assert len(kinds) > 3  # kept, divided, and several between


def test_yarn_turns_no_direction_and_takes_the_norm() -> None:
    omega = random(2, 5, 3)
    given = yarn(omega, 4, 30)
    ratio = given / omega
    assert properties.largest_difference(ratio, ratio[..., :1]) <= 1e-14
    norms = omega.norm(dim=-1, keepdim=True)
    assert (
        properties.largest_difference(given.norm(dim=-1, keepdim=True), yarn(norms, 4, 30)) <= 1e-14
    )
    still = torch.zeros(1, 2, 2, dtype=torch.float64, requires_grad=True)
    yarn(still, 4, 30).sum().backward()
    assert still.grad is not None
    assert still.grad.isfinite().all()


def test_the_attention_factor_multiplies_queries_and_keys() -> None:
    temperature = 1 / (0.1 * math.log(16) + 1) ** 2
    q, k = random(2, 1, 4, 8)
    factor = yarn_attention_factor(16)
    scores = (factor * q) @ (factor * k).mT
    assert properties.largest_difference(scores, q @ k.mT / temperature) <= 1e-13
    assert factor == pytest.approx(1.2772588722239782, rel=1e-15)


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
    assert not unseen_share(theta, theta, length, length / 2).any()
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


@pytest.mark.proves("eq-extra-dilution")
@pytest.mark.parametrize("gap", [0.0, 2.0, 6.9])
def test_the_weight_of_a_match_is_a_softmax(gap: float) -> None:
    for n in (1, 2, 64, 1024):
        scores = torch.zeros(n, dtype=torch.float64)
        scores[0] = gap
        assert match_weight(gap, n) == pytest.approx(scores.softmax(0)[0].item(), rel=1e-12)


def released_yarn(
    base: float, dim: int, scale: float, length: float, slow: float, fast: float, truncate: bool
) -> torch.Tensor:
    """Return the frequencies as released code has them: from the base, linear in the index."""
    frequencies = base ** -(torch.arange(0, dim, 2, dtype=torch.float64) / dim)

    def index(turns: float) -> float:
        return dim * math.log(length / (2 * math.pi * turns)) / (2 * math.log(base))

    low, high = index(fast), index(slow)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    high += 1e-3 * (low == high)
    place = torch.arange(dim // 2, dtype=torch.float64)
    ramp = ((place - low) / (high - low)).clamp(0, 1)
    return frequencies * (1 - ramp + ramp / scale)


@pytest.mark.parametrize("truncate", [True, False])
@pytest.mark.parametrize(
    ("base", "dim", "scale", "length", "slow", "fast"),
    [
        (1e4, 128, 8.0, 512, 1.0, 32.0),
        (150_000.0, 64, 32.0, 4096, 1.0, 32.0),
        (5e5, 8, 4.0, 100, 1.0, 4.0),
        (1e6, 64, 2.0, 32_768, 1.0, 32.0),
        (1e4, 64, 8.0, 131_072, 1.0, 32.0),  # the ramp ends behind the last pair, at 35 of 32
        (100.0, 8, 8.0, 100_000, 1.0, 32.0),  # and so far that released code cuts it, 9 to 7
        (1e4, 4, 3.0, 10, 1.0, 32.0),  # and begins before the first
    ],
)
def test_yarn_by_index_is_that_of_released_code(
    base: float, dim: int, scale: float, length: float, slow: float, fast: float, truncate: bool
) -> None:
    wanted = released_yarn(base, dim, scale, length, slow, fast, truncate)
    plain = RoPE(dim, base=base).frequencies()
    found = scaling.yarn_by_index(plain, scale, length, slow=slow, fast=fast, truncate=truncate)
    assert found.shape == (1, dim // 2, 1)
    assert (found[0, :, 0] / wanted - 1).abs().max() < 1e-12


def test_long_rope_divides_each_pair_by_its_own_factor() -> None:
    plain, factors = RoPE(8).frequencies(), torch.tensor([1.0, 1.5, 4.0, 9.0])
    found = scaling.long_rope(plain, factors)
    assert found.dtype == torch.float64
    assert torch.equal(found[0, :, 0] * factors, plain[0, :, 0])
    assert scaling.long_rope_attention_factor(1, 4096) == 1
    assert scaling.long_rope_attention_factor(32, 4096) == pytest.approx(math.sqrt(17 / 12))


def test_factors_of_checkpoints_with_two_scales() -> None:
    one, other = (scaling.yarn_attention_factor(40, weight) for weight in (1.0, 0.707))
    assert one == pytest.approx(1.36888794)
    assert other == pytest.approx(0.0707 * math.log(40) + 1)
    assert one**2 == pytest.approx(1.874, abs=5e-4)
