"""The cosine weight: in every mode equal to its dense matrix, and refused where it is negative."""

import math

import pytest
import torch

from stringlib import CosineWeight, RampWeight, linear_attention
from stringlib.attention import ReLUFeatures
from stringlib.reference import cosformer
from stringlib.testing.properties import largest_difference
from tests.draws import random


def inputs(n):
    """Return positive features and values, different for each head."""
    return random(2, n, 5).exp(), random(2, n, 5, seed=1).exp(), random(2, n, 3, seed=2)


@pytest.mark.proves("eq-cosine-weight", "eq-cosine-positive")
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 6), (6, 1), (5, 9), (9, 5)])
@pytest.mark.parametrize("positive", [False, True])
def test_the_matrix_holds_the_formula(queries, keys, positive):
    matrix = CosineWeight(10.5, positive).matrix(queries, keys)
    assert matrix.dtype == torch.float64
    distance = torch.arange(queries)[:, None] - torch.arange(keys).double()
    cosine = torch.cos(distance * (math.pi / 21))
    wanted = (1 + cosine) / 2 if positive else cosine
    assert matrix.shape == wanted.shape
    assert largest_difference(matrix, wanted) < 1e-15


@pytest.mark.proves("eq-cosine-features")
@pytest.mark.parametrize("positive", [False, True])
def test_products_of_the_features_carry_the_weight(positive):
    weight = CosineWeight(7, positive)
    phi_q, phi_k, _ = inputs(8)
    made = weight.features(phi_q), weight.features(phi_k)
    assert [x.shape for x in made] == 2 * [(2, 8, 15 if positive else 10)]
    wanted = weight.matrix(8, 8) * (phi_q @ phi_k.mT)
    assert largest_difference(made[0] @ made[1].mT, wanted) < 1e-12


@pytest.mark.parametrize("causal", [False, True])
def test_relu_features_and_the_length_as_horizon_give_cosformer(causal):
    q, k, v = random(3, 2, 11, 6).unbind()
    q, k = q + 0.5, k + 0.5  # some feature of each token is positive
    phi = ReLUFeatures()
    out = linear_attention(phi(q), phi(k), v, CosineWeight(11), causal)
    assert largest_difference(out, cosformer(q, k, v, causal)) < 1e-12
    if not causal:  # the horizon is the longer of the two lengths
        assert largest_difference(out[:, :4], cosformer(q[:, :4], k, v)) < 1e-12


def test_late_positions_keep_their_angles():
    """In float32 the angle of position 10⁷ + 1 is that of 10⁷."""
    start, weight = 10**7, CosineWeight(100, positive=True)
    phi = torch.ones(1, 50, 1)
    late = weight.features(phi, start)
    assert late.dtype == torch.float32
    assert largest_difference((late @ late.mT)[0], weight.matrix(50, 50)) < 1e-6
    assert torch.equal(weight.features(phi.bfloat16(), start), late)  # as wide as from float32


@pytest.mark.parametrize(
    ("kind", "causal"), [(CosineWeight, False), (CosineWeight, True), (RampWeight, True)]
)
def test_a_horizon_too_short_is_refused(kind, causal):
    phi_q, phi_k, v = inputs(12)
    linear_attention(phi_q, phi_k, v, kind(11), causal)
    with pytest.raises(ValueError, match=r"horizon must be at least 11 for 12 tokens, got 10\.5"):
        linear_attention(phi_q, phi_k, v, kind(10.5), causal)
    with pytest.raises(ValueError, match="horizon must be at least 11 for 12 tokens, got 10"):
        kind(10).matrix(4, 12)


def test_a_positive_cosine_takes_any_length():
    linear_attention(*inputs(12), CosineWeight(1, positive=True))


@pytest.mark.parametrize("kind", [CosineWeight, RampWeight])
def test_a_carried_state_counts_against_the_horizon(kind):
    phi_q, phi_k, v = inputs(6)
    weight = kind(10)
    _, state = linear_attention(phi_q, phi_k, v, weight, True, return_state=True)
    five = [x[:, :5] for x in (phi_q, phi_k, v)]
    linear_attention(*five, weight, True, state=state)
    with pytest.raises(ValueError, match="horizon must be at least 11 for 12 tokens, got 10"):
        linear_attention(phi_q, phi_k, v, weight, True, state=state)
