"""What is particular to mixed RoPE: where it starts, what it learns, its literal form."""

import math

import pytest
import torch

from stringlib import MixedRoPE, RoPE
from stringlib.reference import mixed_start
from stringlib.testing import properties


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.mark.proves("eq-grid-start")
@pytest.mark.parametrize(("head_dim", "base"), [(4, 10.0), (16, 10.0), (64, 50.0)])
def test_in_two_coordinates_it_starts_as_the_literal_form(head_dim, base):
    """Up to the rotation of a head, which is read off its first pair, and its handedness."""
    omega = MixedRoPE(head_dim, 2, heads=50, base=base).double().omega.detach()
    quarter = head_dim // 4
    mirrored = 0
    for head in omega:
        along_x, along_y = mixed_start(head_dim, math.atan2(head[0, 1], head[0, 0]), base)
        expected = torch.stack([along_x, along_y], -1)
        if (head[quarter] - expected[quarter]).norm() > head[quarter].norm():
            expected[quarter:] *= -1
            mirrored += 1
        assert properties.largest_difference(head, expected) <= 1e-6  # stored in float32
    assert 10 < mirrored < 40


@pytest.mark.parametrize(("head_dim", "coord_dim"), [(16, 2), (24, 3), (10, 5)])
def test_each_magnitude_serves_perpendicular_directions(head_dim, coord_dim):
    omega = MixedRoPE(head_dim, coord_dim, heads=4).frequencies()
    n = head_dim // 2 // coord_dim
    by_magnitude = omega.unflatten(1, (coord_dim, n)).transpose(1, 2)  # heads, n, directions, :
    gram = by_magnitude @ by_magnitude.mT
    for i in range(n):
        expected = 10.0 ** (-2 * i / n) * torch.eye(coord_dim, dtype=torch.float64)
        assert properties.largest_difference(gram[:, i], expected.expand(4, -1, -1)) <= 1e-6


@pytest.mark.parametrize(
    ("head_dim", "coord_dim", "shares"),
    [(10, 2, [3, 2]), (64, 3, [11, 11, 10]), (10, 4, [2, 1, 1, 1]), (2, 3, [1, 0, 0])],
)
def test_when_pairs_do_not_suffice_the_smallest_magnitude_is_missing(head_dim, coord_dim, shares):
    lengths = MixedRoPE(head_dim, coord_dim, heads=2).frequencies().norm(dim=-1)
    expected = [10.0 ** (-i / shares[0]) for own in shares for i in range(own)]
    for head in lengths:
        assert head.tolist() == pytest.approx(expected, rel=1e-6)


def test_with_one_coordinate_it_starts_as_rope_up_to_the_sign():
    omega, rope = MixedRoPE(8, 1, heads=3).frequencies(), RoPE(8, base=10.0).frequencies()
    assert properties.largest_difference(omega.abs(), rope) <= 1e-7
    sign = omega[:, :1].sign()
    assert properties.largest_difference(omega, sign * rope) <= 1e-7
