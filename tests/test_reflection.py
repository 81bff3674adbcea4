"""What is particular to Reflection-STRING: its mirrors."""

import pytest
import torch

from stringlib import ReflectionSTRING
from stringlib.reference import householder_2d
from stringlib.testing import properties
from tests.draws import random


def turn(angle):
    cos, sin = angle.cos(), angle.sin()
    return torch.stack([cos, -sin, sin, cos], -1).unflatten(-1, (2, 2))


@pytest.mark.proves("eq-reflection-householder")
@pytest.mark.parametrize("shape", [(), (7,), (3, 0), (2, 3, 4)])
def test_householder_matrices(shape):
    alpha = 5 * random(*shape, 1)[..., 0]
    matrix = householder_2d(alpha)
    assert matrix.shape == (*shape, 2, 2)
    assert matrix.dtype == torch.float64
    flip = torch.tensor([[-1.0, 0.0], [0.0, 1.0]]).double()
    assert properties.largest_difference(matrix, turn(2 * alpha) @ flip) <= 1e-14


@pytest.mark.proves("eq-reflection-single")
def test_one_mirror_is_rope_backwards_behind_a_constant_flip():
    omega, positions, x = 0.7, 10 * random(9, 1), random(1, 9, 2, seed=1)
    mirrored = (householder_2d(omega * positions[:, 0]) @ x[0, :, :, None])[..., 0]
    encoder = ReflectionSTRING(2).double()
    encoder.angles.data = torch.tensor([omega, 0.0], dtype=torch.float64).view(2, 1, 1, 1)
    rotated = encoder.rotate(x, positions)[0] * torch.tensor([-1.0, 1.0])
    assert properties.largest_difference(mirrored, rotated) <= 1e-13
