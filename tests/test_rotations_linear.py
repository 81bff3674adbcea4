"""Rotations before, behind and half behind a feature map, and what a shift of positions does."""

from __future__ import annotations

import pytest
import torch

from lab.theory.structured_variance import circulant_mean_mse, circulant_mse
from stringlib import STRING, CayleySTRING, CirculantSTRING, RoPE, random_turn
from stringlib.attention import (
    DecayWeight,
    ToeplitzWeight,
)
from stringlib.attention.rotated_linear import rotated_linear_attention
from stringlib.reference.features import circulant_error, signed_circulant_error
from stringlib.reference.linear import roformer_linear_attention
from stringlib.testing import properties
from tests.draws import random


def case(n: int = 7, m: int = 6, heads: int = 3, d_v: int = 5):
    """Return positive features of queries and keys, values, positions and an encoder."""
    phi_q, phi_k = random(2, 2, heads, n, m).exp()
    frequencies = random(heads, m // 2, 1, seed=2)
    return phi_q, phi_k, random(2, heads, n, d_v, seed=1), places(n), STRING(frequencies)


def places(n: int) -> torch.Tensor:
    return torch.arange(n, dtype=torch.float64)[:, None]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("n", [1, 2, 7])
@pytest.mark.proves("eq-rotation-numerator")
def test_the_numerator_alone_is_roformers_equation(n: int, causal: bool) -> None:
    phi_q, phi_k, v, positions, encoder = case(n)
    got = rotated_linear_attention(
        phi_q, phi_k, v, encoder, positions, causal=causal, numerator_only=True
    )
    for head in range(3):
        for batch in range(2):
            parts = (x[batch, head : head + 1] for x in (phi_q, phi_k, v))
            frequencies = encoder.frequencies()[head, :, 0]
            literal = roformer_linear_attention(*parts, positions[:, 0], frequencies, causal)
            assert properties.largest_difference(got[batch, head], literal[0]) <= 1e-11


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("start", [0.0, 300.37])
@pytest.mark.proves("eq-rotation-after")
def test_behind_the_features_the_kernel_is_a_matrix_between(start: float, causal: bool) -> None:
    phi_q, phi_k, v, positions, encoder = case()
    positions = positions + start
    offsets = (positions.mT - positions)[..., None]  # (query, key, 1): key minus query
    between = encoder.matrix(offsets)  # (query, heads, key, m, m)
    kernel = torch.einsum("bhim,ihjml,bhjl->bhij", phi_q, between, phi_k)
    if causal:
        kernel = kernel.tril()
    expected = kernel @ v / kernel.sum(-1, keepdim=True)
    got = rotated_linear_attention(phi_q, phi_k, v, encoder, positions, causal=causal)
    assert properties.largest_difference(got, expected) <= 1e-9 * expected.abs().max()


@pytest.mark.parametrize("numerator_only", [False, True])
def test_gradients_reach_features_values_and_frequencies(numerator_only: bool) -> None:
    encoder = CirculantSTRING(4).double()
    with torch.no_grad():
        encoder.coefficients.copy_(0.1 * random(*encoder.coefficients.shape, seed=3))

    def attend(coefficients, *parts):  # those of the encoder, which gradcheck changes in place
        return rotated_linear_attention(*parts, encoder, places(3), numerator_only=numerator_only)

    parts = [x[:1, :1].clone().requires_grad_() for x in case(3, 4)[:3]]
    assert torch.autograd.gradcheck(attend, [encoder.coefficients, *parts])


@pytest.mark.proves("eq-rotation-decay")
def test_a_decay_multiplies_the_turned_kernel() -> None:
    phi_q, phi_k, v, positions, encoder = case()
    decay = DecayWeight(torch.tensor([-0.1, -0.5, -1.0], dtype=torch.float64))
    got = rotated_linear_attention(phi_q, phi_k, v, encoder, positions, decay, causal=True)
    q, k = encoder(phi_q, phi_k, positions)
    kernel = (q @ k.mT * decay.matrix(7, 7)).tril()
    expected = kernel @ v / kernel.sum(-1, keepdim=True)
    assert properties.largest_difference(got, expected) <= 1e-9 * expected.abs().max()


@pytest.mark.proves("eq-rotation-padded")
def test_a_query_that_no_key_answers_gets_zero_though_turned_ones_do() -> None:
    phi_q, phi_k = torch.zeros(2, 1, 3, 2, dtype=torch.float64)
    phi_q[..., 0], phi_k[..., 1] = 1, 1  # no product; turned by their positions they have one
    given = phi_q, phi_k, torch.ones(1, 3, 2).double(), RoPE(2), places(3)
    assert not rotated_linear_attention(*given, numerator_only=True).any()


@pytest.mark.proves("eq-torus-circulant-error")
def test_errors_of_circulant_features_are_those_of_the_theory() -> None:
    z = random(8)
    ones = torch.ones_like(z)
    assert circulant_error(z) == pytest.approx(circulant_mse(z, ones, 8).item(), rel=1e-12)
    signed = signed_circulant_error(z)
    assert signed == pytest.approx(circulant_mean_mse(z, 8).item(), rel=1e-12)


@pytest.mark.parametrize("layout", ["interleaved", "half"])
@pytest.mark.proves("eq-torus-turn")
def test_a_random_turn_commutes_and_is_uniform(layout: str) -> None:
    for encoder in (
        RoPE(6, layout=layout),
        CirculantSTRING(7, heads=2),
        CayleySTRING(6, 2, heads=2),
    ):
        encoder = encoder.double()
        for parameter in encoder.parameters():
            torch.nn.init.normal_(parameter)
        turn = random_turn(encoder, torch.Generator().manual_seed(0))
        assert turn.shape == (encoder.heads, encoder.head_dim, encoder.head_dim)
        assert properties.orthogonality_error(turn) <= 1e-12
        moved = encoder.matrix(random(3, encoder.coord_dim))  # (heads, 3, d, d)
        turn = turn[:, None]
        assert properties.largest_difference(turn @ moved, moved @ turn) <= 1e-12
    # uniform angles: no entry of a plane has a mean, each has the mean square 1/2
    generator = torch.Generator().manual_seed(1)
    rope = RoPE(4, layout=layout)
    turns = torch.stack([random_turn(rope, generator)[0] for _ in range(2000)])
    assert turns.mean(0).abs().max() <= 4 / 4000**0.5
    square = turns.square().mean(0)
    assert properties.largest_difference(square[square > 0], torch.tensor(0.5).double()) <= 0.04
    assert (square > 0).sum() == 8


def test_shift_error_sees_absolute_positions() -> None:
    assert properties.shift_error(lambda r: r, places(4), 1.0) == pytest.approx(2 / 14**0.5)
    assert properties.shift_error(lambda r: r - r.mT, places(4), 1.0) == 0
    assert properties.shift_error(lambda r: r, places(0), 1.0) == 0


@pytest.mark.parametrize("numerator_only", [False, True])
def test_a_far_smaller_earlier_key_is_no_smaller_for_its_own_query(numerator_only: bool) -> None:
    generator = torch.Generator().manual_seed(4)
    phi_q, phi_k = torch.rand(2, 1, 5, 6, generator=generator)
    v = torch.randn(1, 5, 3, generator=generator)
    scale = torch.tensor([[-300.0, -299.0, 1.0, 0.0, 2.0]])
    positions = torch.arange(5)[:, None] / 10
    options = {"causal": True, "numerator_only": numerator_only}
    got = rotated_linear_attention(phi_q, phi_k, v, RoPE(6), positions, key_scale=scale, **options)
    early = rotated_linear_attention(
        *(x[:, :2] for x in (phi_q, phi_k, v)),
        *(RoPE(6), positions[:2]),
        key_scale=scale[:, :2] + 300,
        **options,
    )
    assert properties.largest_difference(got[:, :2], early) < 1e-5 < 0.1 < early.abs().max()
    # a bias beyond what float32 can hold cancels too
    one, other = (
        rotated_linear_attention(phi_q, phi_k, v, RoPE(6), positions, ToeplitzWeight(b), **options)
        for b in (torch.linspace(0, 3, 9)[None], torch.linspace(200, 203, 9)[None])
    )
    assert properties.largest_difference(one, other) < 1e-4
