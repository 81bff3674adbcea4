"""A weight of one's own that has a matrix and no factors, with keys that have scales."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from stringlib import PositionWeight, linear_attention
from stringlib.attention.toeplitz import BiasWeight
from stringlib.encoders.registry import BIASES, make_bias
from stringlib.testing.properties import largest_difference
from stringlib.testing.weights import dense_attention, inputs
from tests.attention_cases import HEADS
from tests.draws import random


class Given(PositionWeight):
    """Numbers for all pairs, of any kind."""

    def __init__(self, numbers: Tensor) -> None:
        super().__init__()
        self.numbers = numbers

    def matrix(self, num_queries: int, num_keys: int) -> Tensor:
        return self.numbers[..., :num_queries, :num_keys]


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", [0.0, 3.0, 600.0])
def test_scales_of_keys_are_factors_of_them(size: float, causal: bool, normalize: bool) -> None:
    n = 6
    phi_q, phi_k, v = inputs(n)
    weights, scale = random(HEADS, n, n).exp(), size * random(2, HEADS, n, seed=3)
    scale = scale.clamp(max=size / 2) if normalize else scale.clamp(-size, 0)
    found = linear_attention(phi_q, phi_k, v, Given(weights), causal, normalize, key_scale=scale)
    # relative to the largest so far, or nothing would be left of most in float64
    seen = scale.cummax(-1).values if causal else scale.amax(-1, keepdim=True).expand_as(scale)
    shares = (scale[..., None, :] - seen[..., :, None]).clamp(max=0).exp()
    expected = dense_attention(phi_q, phi_k, v, weights * shares, causal, normalize)
    if not normalize:
        expected = expected * seen.exp()[..., None]
    assert largest_difference(found, expected) <= 1e-12 * max(1.0, expected.abs().max().item())


def test_it_has_no_state_and_one_mode() -> None:
    phi_q, phi_k, v = inputs(4)
    weight = Given(random(HEADS, 4, 4).exp())
    plain = linear_attention(phi_q, phi_k, v, weight, True)
    assert torch.equal(linear_attention(phi_q, phi_k, v, weight, True, mode="parallel"), plain)
    for mode in ("chunk", "recurrent", "fft"):
        with pytest.raises(ValueError, match="mode must be None or 'parallel' for Given"):
            linear_attention(phi_q, phi_k, v, weight, True, mode=mode)
    with pytest.raises(ValueError, match="return_state must be False for Given"):
        linear_attention(phi_q, phi_k, v, weight, True, return_state=True)


@pytest.mark.parametrize("name", BIASES)
def test_a_bias_is_a_weight_by_its_exponential(name: str) -> None:
    bias = make_bias(name, HEADS)
    weight = BiasWeight(bias)
    expected = bias(5, 5).exp()
    assert torch.equal(weight.matrix(5, 5), expected)
    assert largest_difference(weight(torch.zeros(2, 5, 8)).matrix(5, 5), expected) <= 1e-6
