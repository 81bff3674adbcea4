"""What is particular to Cayley-STRING: the solve, the support, what is redundant or misplaced."""

import math

import pytest
import torch

from stringlib import CayleySTRING
from stringlib.algebra import (
    cayley,
    connected_parts,
    haar_orthogonal,
    planar_skew,
    skew,
    sparse_skew,
    upper_support,
)
from stringlib.reference import (
    build_skew_symmetric,
    build_sparse_skew_symmetric,
    cayley_apply,
    cayley_before_split,
)
from stringlib.testing import properties
from tests.draws import generator, random
from tests.watched import Watched


def encoder(head_dim, coord_dim=1, heads=1, density=1.0, seed=0, std=0.5):
    torch.manual_seed(seed)
    made = CayleySTRING(head_dim, coord_dim, heads=heads, density=density).double()
    with torch.no_grad():
        made.entries.copy_(std * random(*made.entries.shape, seed=seed + 1))
        made.omega.copy_(random(*made.omega.shape, seed=seed + 2))
    return made


def eye(size):
    return torch.eye(size, dtype=torch.float64)


class Operations(Watched):
    """Names of all operations that reach the backend."""

    def __enter__(self):
        self.names = []
        return super().__enter__()

    def saw(self, operation, made):
        self.names.append(operation.overloadpacket._qualified_op_name)

    def count(self, *parts):
        return sum(any(part in name for part in parts) for name in self.names)


@pytest.mark.proves("eq-cayley-transform")
@pytest.mark.parametrize("d", [1, 2, 17, 64])
def test_the_transform_is_the_literal_one(d):
    for norm in (0.1, 1.0, 30.0):
        made = skew(random(2, d * (d - 1) // 2)) * (norm / max(1, d) ** 0.5)
        for matrix, got in zip(made, cayley(made), strict=True):
            columns = cayley_apply(matrix, eye(d))  # row i is P e_i
            assert properties.largest_difference(got, columns.T) <= 1e-12
            assert properties.largest_difference(got @ (eye(d) + matrix), eye(d) - matrix) <= 1e-11


@pytest.mark.parametrize("d", [2, 5, 64])
@pytest.mark.parametrize("norm", [1e-8, 1.0, 1e5])
@pytest.mark.parametrize("spread", [False, True])
def test_orthogonal_with_determinant_one_however_long_s_is(d, norm, spread):
    speeds = torch.logspace(-4, 0, d // 2).double() if spread else torch.ones(d // 2).double()
    basis = haar_orthogonal(d, 8, dtype=torch.float64, generator=generator(3))
    s = basis @ planar_skew(speeds, d) @ basis.mT
    p = cayley(norm * (s - s.mT) / 2)
    assert properties.orthogonality_error(p) <= 1e-14
    assert properties.largest_difference(torch.linalg.det(p), torch.ones(8).double()) <= 1e-12


@pytest.mark.proves("eq-cayley-plane")
@pytest.mark.parametrize("t", [-1e4, -0.2, 0.0, 1e-9, 3.0])
def test_a_plane_turns_anticlockwise_by_twice_the_arc_tangent(t):
    angle = 2 * math.atan(t)
    cos, sin = math.cos(angle), math.sin(angle)
    expected = torch.tensor([[cos, -sin], [sin, cos]], dtype=torch.float64)
    got = cayley(torch.tensor([[0.0, t], [-t, 0.0]], dtype=torch.float64))
    assert properties.largest_difference(got, expected) <= 1e-14


@pytest.mark.parametrize("std", [0.1, 1.0, 1e3])
def test_gradients_are_those_of_the_plain_solve(std):
    """The Newton step is the identity on orthogonal matrices: it must not change a derivative."""
    upper, upstream = std * random(2, 10), random(2, 5, 5, seed=1)
    gradients = []
    for transform in (cayley, lambda s: torch.linalg.solve(eye(5) + s, eye(5) - s)):
        leaf = upper.clone().requires_grad_()
        gradients += torch.autograd.grad((transform(skew(leaf)) * upstream).sum(), leaf)
    scale = gradients[1].abs().max().item()
    assert properties.largest_difference(*gradients) <= 1e-11 * scale
    leaf = upper.div(std).requires_grad_()
    assert torch.autograd.gradcheck(lambda u: cayley(skew(u)), leaf)
    assert torch.autograd.gradgradcheck(lambda u: cayley(skew(u)), leaf)


@pytest.mark.parametrize("d", [1, 2, 7, 16])
@pytest.mark.parametrize("density", [0, 0.1, 0.5, 0.99, 1])
def test_the_support_lies_above_the_diagonal_without_repetition(d, density):
    rows, columns = upper_support(d, density)
    assert len(rows) == round(density * d * (d - 1) / 2)
    assert (rows < columns).all()
    assert len(set(zip(rows.tolist(), columns.tolist(), strict=True))) == len(rows)


@pytest.mark.proves("eq-cayley-sparse")
@pytest.mark.parametrize("density", [0.0, 0.3, 1.0])
def test_s_is_filled_as_the_literal_form_fills_it(density):
    made = encoder(9, heads=2, density=density)
    for entries, got in zip(made.entries.detach(), made.skew(), strict=True):
        assert torch.equal(got, build_sparse_skew_symmetric(entries, made.support.T, 9))
    full = random(36)
    assert torch.equal(build_skew_symmetric(full, 9), skew(full))
    assert torch.equal(sparse_skew(full, upper_support(9, 1), 9), skew(full))


def test_parts_that_a_support_connects_are_named_by_their_smallest_channel():
    chain = torch.tensor([[4, 0, 1, 6], [5, 4, 2, 7]])
    assert connected_parts(chain, 9).tolist() == [0, 1, 1, 3, 0, 0, 6, 6, 8]
    assert connected_parts(chain[:, :0], 3).tolist() == [0, 1, 2]
    line = torch.stack([torch.arange(49), torch.arange(1, 50)])
    assert connected_parts(line, 50).max() == 0


@pytest.mark.parametrize("elsewhere", [False, True])
def test_one_solve_a_call_and_no_inverse(elsewhere):
    made, without = encoder(8, heads=3), encoder(8, heads=3, density=0)
    q, k = random(2, 2, 3, 7, 8)
    positions = torch.arange(7)[:, None]
    places = positions, positions + 1 if elsewhere else None
    for solves, call in (
        (1, lambda: made(q, k, *places)),
        (1, lambda: made.rotate(q, positions)),
        (1, lambda: made.fold(random(24, 5))),
        (0, lambda: without(q, k, *places)),
        (0, lambda: without.rotate(q, positions)),
    ):
        with Operations() as operations:
            call()
        assert operations.count("solve") == solves
        assert operations.count("inv") == 0


def test_over_all_heads_behind_rope_only_the_sum_of_heads_is_relative():
    width, heads = 32, 4
    places = torch.arange(9.0).double()[:, None]
    q, k = random(2, 9, width)
    omega, s = random(width // 2, 1), skew(random(width * (width - 1) // 2, seed=4))

    def scores(shift):
        q_heads, k_heads = (cayley_before_split(x, places + shift, s, omega, heads) for x in (q, k))
        return q_heads @ k_heads.mT

    change = scores(17.0) - scores(0.0)
    assert change.sum(0).abs().max() <= 1e-11
    assert change.abs().max() >= 0.5 * scores(0.0).square().mean().sqrt()
