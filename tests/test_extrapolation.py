"""Longer texts than in training: scaled frequencies, weight far away, dilution."""

from __future__ import annotations

import math

import pytest
import torch

from lab.theory.extrapolation import effective_window, match_weight, tail_share
from stringlib import ALiBi, RoPE
from stringlib.encoders import scaling
from stringlib.encoders.scaling import ntk_aware, yarn
from stringlib.testing import properties
from tests.draws import random


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
@pytest.mark.parametrize(
    ("base", "length", "scale", "slow", "fast"),
    [
        (1e4, 2048, 16, 1.0, 32.0),
        (1e4, 256, 4, 1.0, 32.0),
        (1e4, 64, 1, 1.0, 32.0),
        (1e4, 10**6, 2, 1.0, 32.0),
        (5e5, 8192, 8, 1.0, 4.0),  # Llama 3: some pairs kept, some divided, several between
    ],
)
def test_yarn_is_the_papers_cases(
    base: float, length: float, scale: float, slow: float, fast: float
) -> None:
    theta = RoPE(128, base=base).frequencies()
    for i, given in enumerate(yarn(theta, scale, length, slow=slow, fast=fast)[0, :, 0].tolist()):
        frequency = base ** (-i / 64)
        r = length * frequency / (2 * math.pi)  # turns in training
        gamma = 0.0 if r < slow else 1.0 if r > fast else (r - slow) / (fast - slow)
        literal = (1 - gamma) * frequency / scale + gamma * frequency
        assert given == pytest.approx(literal, rel=1e-13)


def test_yarn_turns_no_direction_and_takes_the_norm() -> None:
    omega = random(2, 5, 3)
    given = yarn(omega, 4, 30)
    ratio = given / omega
    assert properties.largest_difference(ratio, ratio[..., :1]) <= 1e-14
    norms, found = (x.norm(dim=-1, keepdim=True) for x in (omega, given))
    assert properties.largest_difference(found, yarn(norms, 4, 30)) <= 1e-14
    still = torch.zeros(1, 2, 2, dtype=torch.float64, requires_grad=True)
    yarn(still, 4, 30).sum().backward()
    assert still.grad.isfinite().all()


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


@pytest.mark.proves("eq-extra-dilution")
@pytest.mark.parametrize("n", [1, 2, 64, 1024])
def test_the_weight_of_a_match_is_a_softmax(n: int) -> None:
    for gap in (0.0, 2.0, 6.9):
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
