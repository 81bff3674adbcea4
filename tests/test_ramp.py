"""The ramp: in every mode equal to its formula, never negative, and the bound that it attains."""

import math

import pytest
import torch

from stringlib import CosineWeight, MultiHeadAttention, RampWeight, linear_attention
from stringlib.testing.properties import largest_difference
from tests.draws import random


@pytest.mark.proves("eq-ramp-weight")
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 6), (6, 1), (5, 9), (9, 5)])
@pytest.mark.parametrize("power", [1, 2, 5])
def test_the_matrix_holds_the_formula(queries, keys, power):
    matrix = RampWeight(10.5, power).matrix(queries, keys)
    assert matrix.shape == (queries, keys)
    assert matrix.dtype == torch.float64
    for i in range(queries):
        for j in range(keys):
            wanted = (1 - (i - j) / 10.5) ** power if j <= i else 0
            assert abs(matrix[i, j].item() - wanted) < 1e-15


@pytest.mark.parametrize("power", [1, 2, 3])
@pytest.mark.parametrize("start", [0, 4])
def test_products_of_the_features_carry_the_weight_and_none_is_negative(power, start):
    phi = random(2, 7, 5).abs()
    weight = RampWeight(10, power)
    q, k, log_decay = weight.factors(phi, phi, start)
    assert log_decay is None
    assert q.shape == k.shape == (2, 7, 5 * (power + 1))
    assert q.min() >= 0
    assert k.min() >= 0
    wanted = weight.matrix(7, 7) * (phi @ phi.mT)
    assert largest_difference((q @ k.mT).tril(), wanted) < 1e-12
    # the features of a token do not depend on where its piece of the sequence begins
    before = torch.nn.functional.pad(phi, (0, 0, start, 0))
    for piece, whole in zip((q, k), weight.factors(before, before), strict=False):
        assert torch.equal(piece, whole[:, start:])


def test_it_is_zero_at_the_horizon_and_keeps_its_digits_before():
    """No cancellation: in float32 a tiny weight is right to a millionth of itself."""
    weight = RampWeight(1000, 2)
    phi = torch.ones(1, 1001, 1)
    q, k, _ = weight.factors(phi, phi)
    last = (q[0] @ k[0].mT)[-1].double()
    exact = torch.tensor([(j / 1000) ** 2 for j in range(1001)], dtype=torch.float64)
    assert last[0] == 0
    assert ((last - exact).abs() <= 1e-6 * exact).all()
    # 1 − sin, which has the same three copies, loses them
    ahead, plain = (
        CosineWeight(1000, True).features(phi[:, :1001], start)[0] for start in (1000, 0)
    )
    sine = 2 * (ahead @ plain.mT)[-1].double()
    wanted = 1 - torch.sin((1000 - torch.arange(1001.0).double()) * (math.pi / 2000))
    assert ((sine - wanted).abs() / wanted.clamp(min=1e-12))[1:20].max() > 1e-3


def shares(weights):
    """Return what the nearest of n tokens get, for every number of them."""
    return weights.cumsum(-1) / weights.sum(-1, keepdim=True)


@pytest.mark.proves("eq-ramp-best")
@pytest.mark.parametrize("n", [2, 3, 17, 400])
def test_no_falling_weight_of_one_frequency_prefers_the_nearest_more(n):
    generator = torch.Generator().manual_seed(n)
    drawn = torch.rand(3, 4000, 1, generator=generator, dtype=torch.float64)
    horizon = n - 1 + drawn[0] * 5
    distance = torch.arange(n, dtype=torch.float64)
    best = shares((1 - distance / horizon) ** 2)
    phase = math.pi * drawn[1]
    angle = phase + (math.pi - phase) * drawn[2] * distance / horizon  # falls up to the horizon
    bottom = torch.cos(phase + (math.pi - phase) * drawn[2])
    constant = torch.rand(4000, 1, generator=generator, dtype=torch.float64) ** 4
    weights = torch.cos(angle) - bottom + constant * (drawn[2] > 0.5)
    assert (weights.diff() <= 1e-12).all()
    assert (shares(weights) <= best + 1e-9).all()

    phase, reach = math.pi / 2 * drawn[1], drawn[2]
    single = torch.cos(phase + (math.pi / 2 - phase) * reach * distance / horizon)
    assert (single >= -1e-12).all()
    assert (shares(single) <= shares(1 - distance / horizon) + 1e-9).all()


def test_a_phase_near_its_end_is_the_ramp():
    distance, horizon = torch.arange(30, dtype=torch.float64), 30
    for phase in (3.0, 3.1, 3.14):
        left = math.pi - phase
        weight = (1 - torch.cos(left * (1 - distance / horizon))) / (1 - math.cos(left))
        assert largest_difference(weight, (1 - distance / horizon) ** 2) < left**2 / 20


def test_a_horizon_too_short_and_the_future_are_refused():
    phi, v = random(2, 12, 4).exp(), random(2, 12, 3)
    linear_attention(phi, phi, v, RampWeight(11), causal=True)
    with pytest.raises(ValueError, match=r"horizon must be at least 11 for 12 tokens, got 10\.5"):
        linear_attention(phi, phi, v, RampWeight(10.5), causal=True)
    with pytest.raises(ValueError, match="horizon must be at least 11 for 12 tokens, got 10"):
        RampWeight(10).matrix(4, 12)
    with pytest.raises(ValueError, match="causal must be True with a RampWeight"):
        linear_attention(phi, phi, v, RampWeight(11))
    weight = RampWeight(20, 2)
    _, state = linear_attention(phi, phi, v, weight, True, return_state=True)
    linear_attention(phi[:, :9], phi[:, :9], v[:, :9], weight, True, state=state)
    with pytest.raises(ValueError, match="horizon must be at least 21 for 22 tokens, got 20"):
        linear_attention(phi[:, :10], phi[:, :10], v[:, :10], weight, True, state=state)


@pytest.mark.parametrize(("name", "power"), [("ramp", 1), ("ramp-squared", 2)])
def test_the_names_stand_for_the_powers(name, power):
    with pytest.raises(ValueError, match="horizon must be given for weight 'ramp"):
        MultiHeadAttention(8, 2, attention="elu", weight=name, causal=True)
    layer = MultiHeadAttention(8, 2, attention="elu", weight=name, horizon=9, causal=True)
    assert isinstance(layer.weight, RampWeight)
    assert (layer.weight.power, layer.weight.horizon) == (power, 9)
