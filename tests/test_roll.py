"""Rolled features: relative at whole positions, never negative, and a STRING where P is one."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from stringlib import MultiHeadAttention, Roll
from stringlib.testing import properties
from tests.draws import random
from tests.refusals import refusals, refused

CYCLES = [(1,), (2,), (7,), (64,), (5, 3, 7), (4, 6, 5), (8, 4, 2, 2), (1, 1, 3), (31, 33)]
ROTATIONS = [cycles for cycles in CYCLES if sum(n % 2 == 0 for n in cycles) % 2 == 0]
sets = pytest.mark.parametrize("cycles", CYCLES)


def permutation(cycles: tuple[int, ...]) -> Tensor:
    """Return P: a one in row a + 1, column a, and from the end of each cycle to its start."""
    P, start = torch.zeros(sum(cycles), sum(cycles), dtype=torch.float64), 0
    for length in cycles:
        for a in range(length):
            P[start + (a + 1) % length, start + a] = 1
        start += length
    return P


def places(n: int, start: int = 0) -> Tensor:
    return torch.arange(start, start + n)[:, None]


@sets
@pytest.mark.proves("eq-rotation-roll")
def test_a_product_has_the_permutation_to_the_offset_between(cycles) -> None:
    m, positions = sum(cycles), torch.tensor([-7, 0, 1, 2, 5, 10**12])[:, None]
    phi_q, phi_k = random(2, 2, 3, 6, m)
    a, b = Roll(cycles)(phi_q, phi_k, positions)
    P = permutation(cycles)
    for i, j in itertools.product(range(6), repeat=2):
        offset = int(positions[j] - positions[i])
        between = torch.linalg.matrix_power(P if offset >= 0 else P.mT, abs(offset))
        expected = torch.einsum("bhm,mn,bhn->bh", phi_q[..., i, :], between, phi_k[..., j, :])
        assert (
            properties.largest_difference((a[..., i, :] * b[..., j, :]).sum(-1), expected) <= 1e-12
        )


@pytest.mark.parametrize("cycles", ROTATIONS)
@pytest.mark.proves("eq-roll-string")
def test_an_even_permutation_is_a_string_at_whole_positions(cycles) -> None:
    roll, positions = Roll(cycles), places(50, -20)
    string = roll.as_string()
    x = random(2, 50, sum(cycles))
    assert (
        properties.largest_difference(string.rotate(x, positions), roll.rotate(x, positions))
        <= 1e-12
    )
    # each cycle has the frequencies 2πj/n, and pairs of even ones π
    expected = [2 * math.pi * j / n for n in cycles for j in range(1, (n + 1) // 2)]
    expected += [math.pi] * (sum(n % 2 == 0 for n in cycles) // 2)
    got = string.frequencies().flatten()
    assert properties.largest_difference(got, torch.tensor(expected, dtype=torch.float64)) <= 1e-15


@pytest.mark.parametrize("cycles", [c for c in CYCLES if c not in ROTATIONS])
def test_an_odd_permutation_is_no_rotation(cycles) -> None:
    with refused(r"cycles must have an even number of even lengths for as_string\(\), got"):
        Roll(cycles).as_string()


@sets
def test_the_period_is_the_least_common_multiple(cycles) -> None:
    roll = Roll(cycles)
    x = torch.arange(sum(cycles), dtype=torch.float64)[None, None]
    same = [t for t in range(1, roll.period + 1) if torch.equal(roll.rotate(x, places(1, t)), x)]
    assert same == [roll.period]


def test_gradients_return_to_where_the_features_came_from() -> None:
    roll = Roll((3, 2))
    parts = [random(2, 4, 5, seed=s).requires_grad_() for s in (0, 1)]
    assert torch.autograd.gradcheck(lambda q, k: roll(q, k, places(4, -2)), parts)


@pytest.mark.parametrize("attention", ["relu", "favor", "identity"])
@pytest.mark.parametrize("cycles", [None, (2, 4)])
def test_a_layer_reads_the_positions_it_is_given(attention, cycles) -> None:
    torch.manual_seed(0)
    options = {"attention": attention, "rotate": "roll", "cycles": cycles, "causal": True}
    layer, x = MultiHeadAttention(18, 3, **options).double(), random(2, 8, 18)
    assert layer.roll.period == (6 if cycles is None else 4)
    out = layer(x)
    assert properties.largest_difference(layer(x, places(8, 1000)), out) <= 1e-12
    assert properties.largest_difference(layer(x, 2 * places(8)), out) > 1e-4
    two = torch.stack([places(8), 2 * places(8)])
    assert properties.largest_difference(layer(x, two)[1], layer(x[1], 2 * places(8))) <= 1e-12
    begin, state = layer(x[:, :5], two[:, :5], return_state=True)
    rest = layer(x[:, 5:], two[:, 5:], state=state)
    assert properties.largest_difference(torch.cat([begin, rest], 1), layer(x, two)) <= 1e-12


def layer(**options: object) -> MultiHeadAttention:
    return MultiHeadAttention(12, 3, **{"attention": "relu", **options})


test_what_does_not_fit_is_refused = refusals(
    (
        lambda: Roll((5,)).rotate(random(1, 4, 5), places(4).float()),
        "TypeError: positions must have an integer dtype, got torch.float32",
    ),
    (lambda: layer(rotate="roll", cycles=(3, 3)), "cycles must have the sum 4, the number of"),
    (lambda: layer(cycles=(4,)), "cycles must be None unless rotate is 'roll'"),
    (
        lambda: layer(rotate="roll", weight="gla", causal=True),
        "rotate must not be 'after' or 'roll",
    ),
    (lambda: layer(rotate="roll", attention="softmax"), "rotate must be None for softmax at"),
)
