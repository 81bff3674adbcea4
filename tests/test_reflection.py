"""What is particular to Reflection-STRING: its mirrors, its start, and its rate of learning."""

import math

import pytest
import torch

from book.figures.reflections import two_mirrors
from stringlib import ReflectionSTRING
from stringlib.reference import apply_rope, householder_2d
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
    cos, sin = (2 * alpha).cos(), (2 * alpha).sin()
    expected = torch.stack([-cos, -sin, -sin, cos], -1).unflatten(-1, (2, 2))
    assert properties.largest_difference(matrix, expected) <= 1e-14
    flip = torch.tensor([[-1.0, 0.0], [0.0, 1.0]]).double()
    assert properties.largest_difference(matrix, turn(2 * alpha) @ flip) <= 1e-14
    assert properties.largest_difference(matrix @ matrix, torch.eye(2).double()) <= 1e-14
    assert (
        properties.largest_difference(torch.linalg.det(matrix), -torch.ones(()).double()) <= 1e-14
    )


@pytest.mark.proves("eq-reflection-single")
def test_one_mirror_is_rope_backwards_behind_a_constant_flip():
    omega, positions = 0.7, 10 * random(9, 1)
    x, y = random(2, 1, 9, 2, seed=1)
    mirrored = [
        (householder_2d(omega * positions[:, 0]) @ v[0, :, :, None])[..., 0] for v in (x, y)
    ]
    encoder = ReflectionSTRING(2).double()
    encoder.angles.data = torch.tensor([omega, 0.0], dtype=torch.float64).view(2, 1, 1, 1)
    rotated = [encoder.rotate(v, positions)[0] for v in (x, y)]
    flip = torch.tensor([-1.0, 1.0]).double()
    for one, other in zip(mirrored, rotated, strict=True):
        assert properties.largest_difference(one, other * flip) <= 1e-13
    scores = mirrored[0] @ mirrored[1].mT, rotated[0] @ rotated[1].mT
    assert properties.largest_difference(*scores) <= 1e-13


@pytest.mark.proves("eq-reflection-rate")
@pytest.mark.parametrize(("optimizer", "factor"), [("SGD", 8), ("momentum", 8), ("Adam", 4)])
def test_mirrors_move_frequencies_faster(optimizer, factor):
    """The whole path, with ω itself trained by the formula of the literal rotation."""
    encoder = ReflectionSTRING(8).double()
    encoder.angles.data = random(*encoder.angles.shape)
    start = encoder.angles.detach().clone()
    omega = encoder.frequencies().detach()[0, :, 0].clone().requires_grad_()
    x, target, positions = random(1, 20, 8), random(1, 20, 8, seed=1), random(20, 1, seed=2)

    def make(parameter, factor):
        rate = 1e-3 * factor
        if optimizer == "Adam":
            return torch.optim.Adam([parameter], lr=rate, eps=1e-8 if factor == 1 else 5e-9)
        return torch.optim.SGD([parameter], lr=rate, momentum=0.9 * (optimizer == "momentum"))

    steppers = make(encoder.angles, 1), make(omega, factor)
    for _ in range(30):
        for stepper in steppers:
            stepper.zero_grad()
        encoder.rotate(x, positions).sub(target).square().sum().backward()
        apply_rope(x[0], positions[:, 0], omega).sub(target[0]).square().sum().backward()
        first, second = encoder.angles.grad
        assert torch.equal(first, -second)
        assert properties.largest_difference(second[0, :, 0], 2 * omega.grad) <= 1e-10
        for stepper in steppers:
            stepper.step()
    moved = encoder.frequencies().detach()[0, :, 0]
    assert properties.largest_difference(moved, omega.detach()) <= 1e-10
    assert properties.largest_difference(encoder.angles.detach(), start) > 0.01
    assert properties.largest_difference(encoder.angles.detach().sum(0), start.sum(0)) <= 1e-13


@pytest.mark.parametrize(("coord_dim", "base"), [(1, 10000.0), (2, 100.0), (3, 10000 ** (1 / 3))])
def test_it_starts_as_rope_whose_pairs_take_turns_among_coordinates(coord_dim, base):
    frequencies = ReflectionSTRING(14, coord_dim).double().frequencies()[0]
    for pair, row in enumerate(frequencies.tolist()):
        wanted = [0.0] * coord_dim
        wanted[pair % coord_dim] = base ** (-pair / 7)
        assert row == pytest.approx(wanted, abs=1e-7)


def corners(fig, name):
    trace = next(t for t in fig.data if t.name == name)
    return torch.tensor([trace.x, trace.y]).double()


@pytest.mark.proves("eq-reflection-rotation")
@pytest.mark.parametrize("between", [0, 15, 75])
@pytest.mark.parametrize("first", [0, 45, 165])
def test_the_figure_turns_the_flag_by_twice_the_angle(between, first):
    fig, text = two_mirrors(between, first, 20)
    flag, image, final = (corners(fig, n) for n in ("flag", "after one mirror", "after both"))
    wanted = turn(torch.tensor(2 * math.radians(between)).double()) @ flag
    assert properties.largest_difference(final, wanted) <= 2e-3  # drawn to a thousandth
    side = [(a[0, 1] * a[1, 2] - a[1, 1] * a[0, 2]).item() for a in (flag, image, final)]
    assert side[0] > 0.1 > -0.1 > side[1]  # one mirror puts the cloth on the other side
    assert side[2] > 0.1
    elsewhere = corners(two_mirrors(between, 90, 20).figure, "after both")
    assert properties.largest_difference(final, elsewhere) <= 2e-3
    assert f"at {20 + 2 * between} degrees" in text
